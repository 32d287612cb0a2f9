"""`pmdkit eval MODEL_OR_RUN`: avg@k, pass@k and maj@k of a trained policy, with intervals."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from pmdkit.cli.options import Flag, Texts, Whole
from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import UsageError, printable, unknown
from pmdkit.plugins import Trusted

if TYPE_CHECKING:
    from pmdkit.resolve import StoredRun

MEANING = {
    "avg_at_k": ("avg@{k}", "share of right draws"),
    "pass_at_k": ("pass@{k}", "at least one of {k} draws is right"),
    "maj_at_k": ("maj@{k}", "the most frequent answer of {k} draws is right"),
}


def eval(  # the verb's name
    model_or_run: Path,
    /,
    *,
    data: str | None = None,
    k: Whole = 32,
    problems: Whole | None = None,
    seed: Whole = 0,
    temperature: float | None = None,
    top_p: float | None = None,
    width: Whole | None = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    out: Path | None = None,
    resume: Flag = False,
    trust: Texts = None,
    json: Flag = False,
) -> None:
    """Draw from a trained policy and grade: avg@k, pass@k and maj@k with 95 % intervals.

    The newest checkpoint of a run is taken; nothing in its folder changes. Bandit and toy runs are asked the problems
    of their own evaluation: held out from training, or all of them where there are few; on a bandit every context.
    Language models, from a run or not, leave every response with its verdict in --out.

    Args:
        model_or_run: folder of a run, checkpoints/step-N of an LLM run, or a Hugging Face model (safetensors).
        data: held-out, aime24, aime25, or FILE.jsonl, .json, .parquet. By default held-out, aime24 for a model.
        k: draws that count as one attempt.
        problems: at most this many problems; by default as many as in the run's own evaluation, or all of another set.
        seed: seed of the draws.
        temperature: of sampling, 0 with --k 1 is greedy; by default the run's for its own problems, else 1.0.
        top_p: top-p of sampling; by default the run's for its own problems, else 0.7 as in the paper.
        width: largest number of tokens of a response; by default the run's, else 1024.
        device: auto, cpu, cuda or cuda:1; by default the run's, else auto.
        dtype: float32 or bfloat16; by default the run's, else float32.
        out: new folder for responses and summary of a language model; by default the next number under runs/.
        resume: continue the evaluation in --out; finished problems are not asked again.
        trust: files such as my.py that the run names and whose code may run.
        json: print one JSON value.
    """
    from pmdkit.evaluation.checkpoint_source import find_source, source_of_run
    from pmdkit.resolve import read_run

    trusted = Trusted.of(trust or ())
    run = read_run(model_or_run, trusted)
    if run is not None and (tier := run.spec.tier) != "llm":
        only = {"temperature": temperature, "top-p": top_p, "width": width, "device": device, "dtype": dtype}
        given = [name for name, value in (only | {"out": out, "resume": resume or None}).items() if value is not None]
        if given:
            raise UsageError(f"--{given[0]} is for language models, and this is a {tier} run; leave it out")
        if data not in (None, "held-out"):
            raise UsageError(unknown("data", str(data), ("held-out",)))
        eval_small_tier(run, k, problems, seed, json)
        return
    from pmdkit.llm.recipe_checks import check_requirements

    source = find_source(model_or_run, trusted) if run is None else source_of_run(run, model_or_run)
    check_requirements()
    from pmdkit.console import make_display
    from pmdkit.evaluation import language

    config = language.EvalConfig(data, k, problems, seed, temperature, top_p, width)
    summary = language.evaluate(source, config, out, resume, make_display(quiet=json), device, dtype)
    if json:
        print_json(summary)
        return
    at = "" if summary["step"] is None else f", step {summary['step']}"
    drawn = "greedy" if summary["temperature"] == 0 else f"temperature {summary['temperature']:g}"
    show(
        f"[bold]{shown(summary['model'])}[/bold]{at}, {shown(summary['data'])}",
        summary,
        k,
        {"95 % over draws": "over_draws", "95 % over problems": "over_problems"},
        f"{summary['problems']} problems, {k} responses to each, {drawn}, top_p {summary['top_p']:g}, at most "
        f"{summary['width']} tokens",
        f"Of {summary['problems'] * k:,} responses: {summary['cut_off']:,} cut off, {summary['unanswered']:,} without "
        f"an answer, {summary['unscored']:,} without a verdict; none of these counts as right",
        "Over draws: the same problems, asked again. Over problems: others of the kind that these are a sample of",
        f"Responses: {shown(summary['out'])}",
    )


def eval_small_tier(run: "StoredRun", k: int, problems: int | None, seed: int, json: bool) -> None:
    """Evaluate a bandit or toy run."""
    from pmdkit.evaluation import bandit_and_toy

    spec, (backend, step, warnings) = run.spec, bandit_and_toy.load_policy(run)
    for warning in warnings:
        print(f"pmdkit: warning: {printable(warning)}", file=sys.stderr)
    found = bandit_and_toy.evaluate(spec, backend, step, k, problems, seed)
    if json:
        print_json(found)
        return
    over = found["interval_over"]
    what = "all problems" if over == "draws" else "held-out problems"
    title = f"[bold]{spec.tier} {shown(spec.name)}[/bold], {shown(spec.objective['name'])}, step {step}"
    note = f"{found['problems']} {what}, {found['draws']} draws on each; intervals by resampling {over}"
    show(title, found, k, {"95 %": None}, note)


def show(title: str, found: dict[str, Any], k: int, intervals: dict[str, str | None], *notes: str) -> None:
    """Print the three shares with their intervals: a column each, by its key in a share, None for the share's own."""
    table = simple_table("", ">value", *(f">{name}" for name in intervals), "meaning")
    for name, (short, long) in MEANING.items():
        share = found[name]
        ends = [share if key is None else share[key] for key in intervals.values()]
        spans = [f"{end['low']:.4f} to {end['high']:.4f}" for end in ends]
        table.add_row(short.format(k=k), f"{share['value']:.4f}", *spans, long.format(k=k))
    console = Console(highlight=False)
    console.print(title)
    console.print(table)
    for note in notes:
        console.print(note, soft_wrap=True)
