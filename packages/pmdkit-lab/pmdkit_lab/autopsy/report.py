"""The report of an autopsy: its numbers, one picture, and the page that shows both."""

import base64
import math
from collections import defaultdict
from collections.abc import Mapping
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit.errors import UsageError
from pmdkit.observe import gauge
from pmdkit_lab.autopsy import scalar_causes as of_scalars
from pmdkit_lab.autopsy.causes import ABOUT, SILENT, Cause, Run, causes
from pmdkit_lab.autopsy.changes import JUMP, trend
from pmdkit_lab.autopsy.measures import Measures, by_step, merged
from pmdkit_lab.autopsy.scalar_causes import MIN_POINTS, SMALL_GAIN, Curves, notes, points_that_would_tell
from pmdkit_lab.autopsy.scalars import Log, read_logs
from pmdkit_lab.dumps.readers import MAX_STEPS, METRICS, Source, read, read_config

MIN_STEPS = 3  # a shorter run is not called healthy
FALL = 0.5  # of the best reward; a reward below it is a collapse

# rows of the table: measure, words, format of the number
SHOWN = (
    ("reward", "mean reward", ".3f"), ("passed", "pass rate", ".3f"),
    ("passed_completed", "pass rate of completed responses", ".3f"), ("silent", "groups with equal rewards", ".0%"),
    ("length", "length, tokens", ".1f"), ("cut", "cut off", ".1%"), ("reward_by_length", "reward by length", "+.2f"),
    ("entropy", "entropy, nats per token", ".3f"), ("gap", "engine against trainer, nats per token", ".4f"),
    ("off_policy", "log pi/mu, nats per token", "+.4f"), ("off_policy_mismatch", "its mismatch", "+.4f"),
    ("off_policy_staleness", "its staleness", "+.4f"), ("off_policy_sampler", "its sampler", "+.4f"),
    ("slope", "slope of trainer on engine", ".3f"), ("log_ratio_std", "spread of log-ratios, nats", ".3f"),
    ("ess", "effective share, responses", ".2f"), ("ess_token", "effective share, tokens", ".2f"),
    ("step_std", "move of one step, nats", ".3f"), ("lag", "age of the policy, steps", ".1f"),
    ("anchor", "anchor c / tau", ".2f"), ("drift", "log-ratio to the reference, per token", ".3f"),
    ("repeated", "repeated prompts", ".0%"), ("repeated_at_least", "repeated prompts, at least", ".0%"),
    ("one_answer", "groups with one response", ".0%"),
    ("content", "right answers, by their content", ".1%"), ("agrees", "verdicts that agree with it", ".1%"),
    ("asked", "prompt, words", ".1f"),
    ("distinct_lost", "1/k, the distinct right answers that a solved batch loses", ".2f"),
    ("word_entropy", "entropy of the words, nats", ".3f"),
    ("contradictions", "groups with contradictions paid", ".0%"), ("reward_std", "std inside groups", ".3f"),
    ("kl", "KL to the reference", ".4f"), ("kl_step", "KL of a step", ".2g"),
    ("kl_response", "KL of a step, a response", ".2g"), ("held_out", "held-out reward", ".3f"),
    ("lr", "learning rate", ".2g"), ("loss", "loss", ".3g"), ("ratio_max", "largest weight", ".3g"),
    ("grad_norm", "gradient norm", ".3g"),
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
    found, collapse = causes(run), fall(steps)
    named = [x for x in found if x.evidence >= 1]
    signs = sorted((x for x in found if x.evidence < 1), key=lambda x: -x.evidence)
    known = {
        key for step in steps for key, value in step.items() if value is not None and (key, value) != ("right_known", 0)
    }
    curves = Curves(as_log(steps)) if "reward" in known else None
    rest, watch = of_scalars.scalar_causes(curves, FROM_SCALARS) if curves else ([], [])
    named = named or ([] if run.rises else rest)
    if named:
        verdict = "causes"
    elif collapse or "reward" not in known or len(steps) < MIN_STEPS:
        verdict = "cannot tell"
    else:
        verdict = "healthy"
    needed = points_that_would_tell(curves) if curves else 0
    if verdict == "healthy" and curves and not curves.learned and len(steps) >= MIN_POINTS:
        verdict = "too few steps" if len(steps) < needed else "cannot tell"
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
        "watch": [] if named else [cause.as_json(where) for cause in (*signs, *watch)],
        "points": [len(steps), needed], "gain": curves.trend.last - curves.trend.first if curves else 0.0,
        "notes": silence(run), "collapsed": collapse is not None,
    }, steps  # fmt: skip


def as_log(steps: list[Measures]) -> Log:
    """The measures of a run's steps as a log of scalars."""
    keys = [
        key for key in (*SCALARS, "reward_low", "reward_high", "loss") if any(x.get(key) is not None for x in steps)
    ]
    columns = {key: np.array([math.nan if x.get(key) is None else x[key] for x in steps], float) for key in keys}
    return Log("", np.array([step["step"] for step in steps], float), columns, {})


def silence(run: Run) -> list[str]:
    """A note on the share of silent groups in a run that learns all the same."""
    share, at_top = run.whole.get("silent"), run.whole.get("silent_top")
    if share is None or at_top is None or share < SILENT:
        return []
    return [f"{share:.0%} of the groups have equal rewards and teach nothing, {at_top:.0%} because all are right"]


# causes that need no rows, and have no rule with rows
FROM_SCALARS = (
    "rate-too-small", "kl-pushes", "uniform-policy", "entropy-grows", "entropy-collapse", "kl-runaway",
    "clip-saturation", "gradient-spikes", "not-finite", "kl-holds",
)  # fmt: skip
SCALARS = {
    "reward": "rewards", "entropy": "entropy", "length": "lengths", "cut": "cut-offs", "grad_norm": "gradient norms",
    "silent": "shares of silent groups", "reward_std": "stds inside groups", "kl": "distances to the reference",
    "lr": "learning rates",
}  # fmt: skip


def scalar_autopsy(path: Path, columns: Mapping[str, str]) -> tuple[dict[str, Any], list[Measures]]:
    """The report of a log without responses, as of `autopsy`: of its longest run, with the others in `runs`.

    Raises:
        UsageError: nothing could be read; the message says which columns were there.
    """
    source = Source()
    logs = [log for log in read_logs(path, columns, source) if log.get("reward") is not None]
    judged = [judge_scalars(Curves(log)) for log in logs]
    main = max(range(len(logs)), key=lambda n: len(logs[n].step))
    report, steps = judged[main]
    report["runs"] = [
        {"name": log.name, "steps": each["steps"], "verdict": each["verdict"], "reward": each["phases"][-1]["reward"]}
        for log, (each, _) in zip(logs, judged, strict=True)
    ]
    if (cause := starts_differ(logs)) is not None:
        report["verdict"], report["causes"] = "causes", [cause.as_json(str), *report["causes"]]
    left_out = [{"what": why, "count": n, "first": at} for why, (n, at) in source.left_out.items()]
    return {"path": str(path), "door": "scalars", "left_out": left_out} | report, steps


def starts_differ(logs: list[Log]) -> Cause | None:
    """A change of the grader between two starts of one log: a policy without updates cannot have two pass rates."""
    starts = [c for c in map(Curves, logs) if c.steps[0] == logs[0].step[0] and c.log.name == logs[0].name]
    first = [float(c.reward[0]) for c in starts]
    if max(first, default=0.0) - min(first, default=0.0) < SMALL_GAIN * 5 * max(c.scale for c in starts):
        return None
    says = (
        f"this log has {len(starts)} starts, which begin at rewards of {', '.join(f'{each:.3g}' for each in first)}: a "
        "policy without updates has one, so the grader or its prompts changed between them"
    )
    about = ABOUT["grader-changed"]
    return Cause("grader-changed", says, 2.0, (starts[0].step(0),) * 2, [], about["confirm"], about["remedy"])


def judge_scalars(curves: Curves) -> tuple[dict[str, Any], list[Measures]]:
    """The report of one run, without the facts about its file."""
    log, (named, watch) = curves.log, of_scalars.scalar_causes(curves)
    needed = points_that_would_tell(curves)
    if named:
        verdict = "causes"
    elif curves.learned and curves.gained and len(curves.reward) >= MIN_POINTS // 2:
        verdict = "healthy"
    else:
        verdict = "too few steps" if len(curves.reward) < max(needed, MIN_POINTS) else "cannot tell"
    table = {key: values for key in log.columns if (values := log.get(key)) is not None}
    thirds = np.array_split(np.arange(len(log.step)), min(3, len(log.step)))
    phases = []
    for third in thirds:
        means = {key: float(np.nanmean(x)) for key in table if not np.isnan(x := log.columns[key][third]).all()}
        phases.append({"steps": [int(log.step[third[0]]), int(log.step[third[-1]])], "forms": {}, **means})
    steps = [
        {"step": int(step)} | {key: float(log.columns[key][n]) for key in table if not np.isnan(log.columns[key][n])}
        for n, step in enumerate(log.step)
    ]
    report = {
        "verdict": verdict, "read": {"scalars": len(log.step)}, "rows": len(log.step),
        "steps": [int(log.step[0]), int(log.step[-1]), len(log.step)],
        "missing": [
            {"needs": words, "for": "causes that need them"} for key, words in SCALARS.items() if key not in table
        ],
        "phases": phases, "events": [], "causes": [cause.as_json(str) for cause in named],
        "watch": [cause.as_json(str) for cause in watch], "notes": notes(curves),
        "points": [len(curves.reward), needed], "gain": curves.trend.last - curves.trend.first,
    }  # fmt: skip
    return report, steps


def departure(ours: Log, theirs: Log) -> list[dict[str, Any]]:
    """For each column that both runs log, the first step where they part for good, in order.

    Runs part where the difference of their means over eight points is more than six standard errors of their noise.
    """
    found = []
    for key in ours.columns.keys() & theirs.columns.keys() & {*SCALARS, "loss", "prompt_length"}:
        if ours.get(key) is None or theirs.get(key) is None:
            continue
        one, two = (dict(zip(log.steps_of(key), log.get(key), strict=True)) for log in (ours, theirs))  # type: ignore[arg-type]
        steps = sorted(one.keys() & two.keys())
        if len(steps) < MIN_POINTS:
            continue
        a, b = (np.array([run[step] for step in steps]) for run in (one, two))
        noise = max(math.hypot(trend(a).noise, trend(b).noise), 1e-6 * float(np.abs(a).max()), 1e-12)
        width = 8 if noise > 1e-3 * float(np.abs(a).mean()) else 1
        apart = np.abs(np.convolve(a - b, np.full(width, 1 / width), "valid")) > JUMP * noise / math.sqrt(width)
        if apart[-1]:
            at = len(apart) - int((~apart[::-1]).argmax()) if not apart.all() else 0
            at = min(at + width // 2, len(steps) - 1) if at else 0
            values = [float(run[at : at + 8].mean()) for run in (a, b)]
            found.append({"column": key, "step": int(steps[at]), "first": values[0], "second": values[1]})
    return sorted(found, key=lambda each: each["step"])


def compared(path: Path, other: Path, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Where a second log leaves a first one, see `departure`; of logs with several runs, the longest."""
    both = [max(read_logs(each, columns, Source()), key=lambda log: len(log.step)) for each in (path, other)]
    return departure(*both)


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
        if (
            step.get("off_policy") is None
        ):  # its parts are not known from rows: versions are counted from the first step
            step["off_policy"] = step.get("gap_mean")


def fall(steps: list[Measures]) -> tuple[int, int] | None:
    """The best step, and the first later step with less than half of its reward, beyond the noise of both.

    Rewards are means over five steps, of a short run over three. The noise of a step is at least that of its draws.
    """
    reward = [step["reward"] for step in steps]
    if len(reward) < 3 or None in reward:
        return None
    width, bottom = 5 if len(reward) >= MIN_POINTS else 3, min(0.0, min(reward))
    smooth = np.convolve(reward, np.full(width, 1 / width), "valid") - bottom
    best = int(smooth.argmax())
    top, rows = (
        max(step["reward_high"] for step in steps) - bottom,
        float(np.mean([step["rewarded"] for step in steps])),
    )
    drawn = math.sqrt(max(smooth[best] * (top - smooth[best]), 0.0) / rows)  # the std of a mean of verdicts
    noise = max(trend(np.array(reward)).noise, drawn) * math.sqrt(2 / width)
    low = np.flatnonzero(smooth[best:] < min(FALL * smooth[best], smooth[best] - JUMP * noise))
    middle = width // 2
    return (steps[best + middle]["step"], steps[best + low[0] + middle]["step"]) if len(low) else None


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
    if report["watch"]:
        so_far = "Healthy so far" if report["verdict"] == "healthy" else "Nothing is certain"
        return f"{so_far}; watch {report['watch'][0]['name']}: {report['watch'][0]['says']}."
    if report["verdict"] == "too few steps":
        points, needed = report["points"]
        gain = f"its reward changes by {report['gain']:+.2g} from the first to the last third"
        return f"Nothing is wrong in this log, but its {points} points are too few: {gain}; {needed} would show 0.1."
    if report["verdict"] == "healthy" and any(each["needs"] == SCALARS["reward_std"] for each in report["missing"]):
        return "Healthy as far as this log can tell; not testable: shuffled verdicts (no std inside groups)."
    if report["verdict"] == "healthy":
        return (
            "Nothing is wrong in what is logged here."
            if "door" in report
            else ("Nothing is wrong in what these dumps show.")
        )
    if "door" in report:
        return "The reward does not rise, and nothing in this log explains it: an autopsy of the responses may."
    return "These dumps do not tell: " + (
        "the run collapses, and no measure explains it."
        if report["collapsed"]
        else "the reward does not rise, and no measure explains it."
        if report["points"][0] >= MIN_POINTS and "reward" in report["phases"][-1]
        else "too little is in them."
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
