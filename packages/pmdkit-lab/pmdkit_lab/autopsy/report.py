"""The report of an autopsy: its numbers, one picture, and the page that shows both."""

import base64
from collections import defaultdict
from collections.abc import Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit.errors import UsageError
from pmdkit.observe import gauge
from pmdkit_lab.autopsy.causes import Run, causes
from pmdkit_lab.autopsy.measures import Measures, by_step, merged
from pmdkit_lab.dumps.readers import MAX_STEPS, METRICS, Source, read, read_config

MIN_STEPS = 3  # a shorter run is not called healthy
FALL = 0.5  # of the best reward; a reward below it is a collapse

# rows of the table: measure, words, format of the number
SHOWN = (
    ("reward", "mean reward", ".3f"), ("passed", "pass rate", ".3f"), ("silent", "groups with equal rewards", ".0%"),
    ("length", "length, tokens", ".1f"), ("cut", "cut off", ".1%"), ("reward_by_length", "reward by length", "+.2f"),
    ("entropy", "entropy, nats per token", ".3f"), ("gap", "engine against trainer, nats per token", ".4f"),
    ("slope", "slope of trainer on engine", ".3f"), ("log_ratio_std", "spread of log-ratios, nats", ".3f"),
    ("ess", "effective share, responses", ".2f"), ("ess_token", "effective share, tokens", ".2f"),
    ("step_std", "move of one step, nats", ".3f"), ("lag", "age of the policy, steps", ".1f"),
    ("anchor", "anchor c / tau", ".2f"), ("drift", "log-ratio to the reference, per token", ".3f"),
    ("repeated", "repeated prompts", ".0%"), ("repeated_at_least", "repeated prompts, at least", ".0%"),
    ("one_answer", "groups with one response", ".0%"),
    ("contradictions", "groups with contradictions paid", ".0%"), ("grad_norm", "gradient norm", ".3g"),
)  # fmt: skip
# what a dump may lack: measure, values that it needs, what they would tell
NEEDS = (
    ("reward", "rewards", "pass rates, silent groups, credit, the anchor"),
    ("gap", "log-probabilities of engine and trainer on the same tokens", "mismatch, temperature, staleness, masks"),
    ("version", "the version of the policy that drew", "the age of responses"),
    ("length", "lengths or tokens", "length against reward"),
    ("cut", "whether a response was cut off", "the cap"),
    ("credit_sign", "advantages beside rewards", "sign and centre of the credit"),
    ("right_known", "texts with right answers", "content against form"),
    ("anchor", "tau (give --tau)", "the anchor c / tau"),
    ("repeated", "names of groups (give --group)", "the share of repeated prompts"),
    ("entropy", "log-probabilities or logged entropy", "entropy"),
    ("grad_norm", "logged metrics", "gradient norms"),
)


def autopsy(
    path: Path, columns: Mapping[str, str], tau: float | None = None, group_size: int | None = None
) -> tuple[dict[str, Any], list[Measures]]:
    """The report of a run as JSON values, and the measures of its steps.

    Args:
        path: a run folder, a folder of dumps, or one file.
        columns: our names of columns to theirs, for an unknown format.
        tau: temperature in reward units; by default that of a run of pmdkit.
        group_size: responses of a group, for dumps that name no groups.

    Raises:
        UsageError: nothing could be read, or the rows have too many steps; the message says what was found.
    """
    source = Source()
    read_config(path, source)
    if tau is None and isinstance(known := source.config.get("objective", {}).get("tau"), float):
        tau = known
    steps = read_steps(path, columns, source, tau, group_size)
    complete(steps, source)

    run = Run(steps, source)
    named, collapse = causes(run), fall(steps)
    known = {
        key for step in steps for key, value in step.items() if value is not None and (key, value) != ("right_known", 0)
    }
    if named:
        verdict = "causes"
    elif collapse or "reward" not in known or len(steps) < MIN_STEPS:
        verdict = "cannot tell"
    else:
        verdict = "healthy"
    thirds = np.array_split([step["step"] for step in steps], len(run.phases))
    phases = [
        {"steps": [int(third[0]), int(third[-1])]} | {k: v for k, v in phase.items() if k not in ("step", "places")}
        for third, phase in zip(thirds, run.phases, strict=True)
    ]

    def where(place: tuple[int, int]) -> str:
        return f"{source.files[place[0]]}:{place[1]}"

    return {
        "path": str(path), "verdict": verdict, "read": source.read, "rows": sum(step["rows"] for step in steps),
        "left_out": [{"what": why, "count": n, "first": at} for why, (n, at) in source.left_out.items()],
        "steps": [steps[0]["step"], steps[-1]["step"], len(steps)],
        "missing": [{"needs": needs, "for": tells} for key, needs, tells in NEEDS if key not in known],
        "phases": phases, "events": events(steps, collapse), "causes": [cause.as_json(where) for cause in named],
    }, steps  # fmt: skip


def read_steps(
    path: Path, columns: Mapping[str, str], source: Source, tau: float | None, group_size: int | None
) -> list[Measures]:
    """The measures of every step, in order. Raises UsageError as `autopsy` does."""
    pieces: dict[int, list[Measures]] = defaultdict(list)
    for piece in by_step(read(path, columns, source), tau, group_size):
        pieces[piece["step"]].append(piece)
        if len(pieces) > MAX_STEPS:
            raise UsageError(
                f"{path} has more than {MAX_STEPS:,} steps; name the column of the training step: --columns step=..."
            )
    if not pieces:
        raise UsageError(
            f"{path} holds no responses that autopsy can read ({source.reasons}); name --columns, "
            "or have them written: --record of pmdkit, log_completions of TRL, rollout_data_dir of verl"
        )
    return [merged(pieces[step]) for step in sorted(pieces)]


def complete(steps: list[Measures], source: Source) -> None:
    """Add the age of the policy and the trainer's metrics to the measures of the steps."""
    first = next((step for step in steps if step["version"] is not None), None)
    for step in steps:
        if first is not None and step["version"] is not None:
            # trainers number versions from 0 or from 1, so the policy of the first step counts as new
            step["lag"] = max(0.0, step["step"] - step["version"] - first["step"] + first["version"])
        logged = source.metrics.get(step["step"], {})
        step.update({key: logged[key] for key in METRICS if key in logged and step.get(key) is None})


def fall(steps: list[Measures]) -> tuple[int, int] | None:
    """The best step, and the first later step with less than half of its reward; rewards are means over three steps."""
    reward = [step["reward"] for step in steps]
    if len(reward) < 3 or None in reward:
        return None
    smooth = np.convolve(reward, np.full(3, 1 / 3), "valid") - min(0.0, min(reward))
    best = int(smooth.argmax())
    low = np.flatnonzero(smooth[best:] < FALL * smooth[best])
    return (steps[best + 1]["step"], steps[best + low[0] + 1]["step"]) if len(low) else None


def events(steps: list[Measures], collapse: tuple[int, int] | None) -> list[dict[str, Any]]:
    """The first step of each kind of event, in order."""
    start = steps[0].get("entropy")
    kinds = (
        ("under PMD-part the anchor c / tau is above 1", lambda s: (s.get("anchor") or 0) > 1),
        ("effective share of responses below one half", lambda s: (s["ess"] if s["ess"] is not None else 1) < 0.5),
        (
            "entropy below half of its start",
            lambda s: start and s.get("entropy") is not None and s["entropy"] < start / 2,
        ),
        ("nine groups in ten are silent", lambda s: (s.get("silent") or 0) >= 0.9),
    )
    happened = [
        {"step": step["step"], "what": what}
        for what, holds in kinds
        if (step := next((each for each in steps if holds(each)), None)) is not None
    ]
    if collapse:
        happened.append({"step": collapse[1], "what": f"the reward is below half of what it was in step {collapse[0]}"})
    return sorted(happened, key=lambda each: each["step"])


def picture(report: dict[str, Any], steps: list[Measures]) -> bytes:
    """Four panels over the steps: reward, silence and variety, engine and trainer, length; the steps of the first cause
    are shaded."""
    from matplotlib.figure import Figure

    from pmdkit.figures import style

    panels = (
        ("Does it learn?", (("reward", "mean reward"), ("silent", "silent groups"), ("one_answer", "one response"))),
        (
            "Do both compute alike?",
            (("gap", "engine against trainer, nats"), ("log_ratio_std", "spread of log-ratios")),
        ),
        (
            "What happens to the policy?",
            (("entropy", "entropy"), ("step_std", "move of a step"), ("anchor", "c / tau")),
        ),
        ("How long are responses?", (("length", "tokens"),)),
    )
    with style.style():
        figure = Figure(figsize=(9, 5.6))
        for ax, (title, lines) in zip(figure.subplots(2, 2).flat, panels, strict=True):
            for key, label in lines:
                known = [(step["step"], step[key]) for step in steps if step.get(key) is not None]
                if known:
                    ax.plot(*zip(*known, strict=True), label=label)
            ax.set_title(title, loc="left", fontweight="bold")
            ax.set_xlabel("step")
            if ax.lines:
                ax.legend()
            else:
                ax.text(0.5, 0.5, "not in these dumps", ha="center", transform=ax.transAxes, color="0.4")
            if report["causes"]:
                ax.axvspan(*report["causes"][0]["steps"], color=style.VERMILLION, alpha=0.07, linewidth=0)
            for event in report["events"]:
                ax.axvline(event["step"], color="0.6", linewidth=0.8, linestyle=":")
        buffer = BytesIO()
        figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()


def rows_of_phases(report: dict[str, Any]) -> list[list[str]]:
    """The cells of the table: a row for each known measure, a column for each phase."""
    return [
        [words, *("-" if phase.get(key) is None else format(phase[key], form) for phase in report["phases"])]
        for key, words, form in SHOWN
        if any(phase.get(key) is not None for phase in report["phases"])
    ]


def headline(report: dict[str, Any]) -> str:
    """The verdict as one sentence."""
    if report["verdict"] == "causes":
        return f"{report['causes'][0]['name']}: {report['causes'][0]['says']}."
    if report["verdict"] == "healthy":
        return "Nothing is wrong in what these dumps show."
    return "These dumps do not tell: " + (
        "the run collapses, and no measure explains it." if report["events"] else "too little is in them."
    )


def page(report: dict[str, Any], image: bytes) -> str:
    """The report as one HTML file without scripts."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from pmdkit_lab.reproduce.report import HERE

    safe = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = safe.from_string((Path(__file__).parent / "page.html").read_text(encoding="utf-8"))
    edges = [f"{100 * low:g} to {100 * high:g} %" for low, high in pairwise(gauge.EDGES)]
    return template.render(
        css=Markup((HERE / "report.css").read_text(encoding="utf-8")), report=report, headline=headline(report),
        rows=rows_of_phases(report), edges=edges, image=base64.b64encode(image).decode(),
    )  # fmt: skip
