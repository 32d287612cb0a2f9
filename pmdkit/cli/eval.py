"""`pmdkit eval MODEL_OR_RUN`: avg@k, pass@k and maj@k of a trained policy, with intervals."""

import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from pmdkit.cli.options import Flag, Number, RunPath, Texts, Whole
from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import PmdkitError, UsageError, printable, unknown
from pmdkit.plugins import Trusted

if TYPE_CHECKING:
    from pmdkit.launchers import Launcher

DATA = ("held-out",)
MEANING = {
    "avg_at_k": ("avg@{k}", "share of right draws"),
    "pass_at_k": ("pass@{k}", "at least one of {k} draws is right"),
    "maj_at_k": ("maj@{k}", "the most frequent answer of {k} draws is right"),
}


def eval(  # the verb's name
    *model_or_run: RunPath,
    data: str | None = None,
    k: Whole = 32,
    problems: Whole | None = None,
    seed: Whole = 0,
    temperature: Number | None = None,
    top_p: Number | None = None,
    width: Whole | None = None,
    device: str | None = None,
    dtype: Literal["float32", "bfloat16"] | None = None,
    out: Path | None = None,
    resume: Flag = False,
    jobs: Whole = 1,
    launcher: str = "local",
    trust: Texts = None,
    json: Flag = False,
) -> None:
    """Draw from a trained policy and grade: avg@k, pass@k and maj@k with 95 % intervals.

    The newest checkpoint of a run is taken; nothing in its folder changes. Bandit and toy runs are asked the problems
    of their own evaluation: held out from training, or all of them where there are few; on a bandit every context.
    Language models, from a run or not, leave every response with its verdict in --out. Several runs become a table.

    Args:
        model_or_run: folder of a run, checkpoints/step-N of an LLM run, or a Hugging Face model (safetensors). Of
            several, all are runs, each evaluated as its own configuration says.
        data: held-out, aime24, aime25, or FILE.jsonl, .json, .parquet. By default held-out, aime24 for a model.
        k: draws that count as one attempt.
        problems: at most this many problems; by default as many as in the run's own evaluation, or all of another set.
        seed: seed of the draws.
        temperature: sampling temperature, 0 is greedy; by default the run's for its own problems, else 1.0.
        top_p: top-p of sampling; by default the run's for its own problems, else 0.7 as in the paper.
        width: largest number of tokens of a response; by default the run's, else 1024.
        device: auto, cpu, cuda or cuda:1; by default the run's, else auto.
        dtype: float32 or bfloat16; by default the run's, else float32.
        out: new folder for responses and summary of a language model; by default the next number under runs/.
        resume: continue the evaluation in --out; finished problems are not asked again.
        jobs: how many runs to evaluate at a time.
        launcher: where several runs are evaluated: local, slurm or ray.
        trust: files such as my.py that the run names and whose code may run.
        json: print one JSON value.
    """
    from pmdkit.evaluation import checkpoint_source
    from pmdkit.launchers import make_launcher

    trusted = Trusted.of(trust or ())
    only = {"temperature": temperature, "top-p": top_p, "width": width, "device": device, "dtype": dtype}
    if not model_or_run:
        raise UsageError("eval got no run; give the folder of one, or of a Hugging Face model")
    if len(model_or_run) > 1:
        if given := [name for name, value in only.items() if value is not None]:
            raise UsageError(f"--{given[0]} is for one language model, and these are {len(model_or_run)}; leave it out")
        makes_them = make_launcher(launcher, jobs)
        options = {"k": k, "problems": problems, "seed": seed, "data": data}
        several(model_or_run, options, out, resume, trust or [], makes_them, json)
        return
    run = model_or_run[0]
    tier = checkpoint_source.tier_of(run)
    if tier in ("bandit", "toy"):
        of_a_model = only | {"out": out, "resume": resume or None}
        if given := [name for name, value in of_a_model.items() if value is not None]:
            raise UsageError(f"--{given[0]} is for language models, and this is a {tier} run; leave it out")
        if data not in (None, *DATA):
            raise UsageError(unknown("data", str(data), DATA))
        small(run, trusted, k, problems, seed, json)
        return
    from pmdkit.llm.recipe_checks import check_requirements

    source = checkpoint_source.find_source(run, trusted)
    check_requirements()
    from pmdkit.evaluation import language
    from pmdkit.observe.console import make_display

    config = language.EvalConfig(data, k, problems, seed, temperature, top_p, width)
    summary = language.evaluate(source, config, out, resume, make_display(quiet=json), device, dtype)
    if json:
        print_json(summary)
        return
    show(summary)


def several(
    runs: Sequence[Path],
    options: dict[str, Any],
    out: Path | None,
    resume: bool,
    trust: list[str],
    launcher: "Launcher",
    json: bool,
) -> None:
    """Evaluate several runs with a launcher; one that fails does not stop the others."""
    from pmdkit.calls import Call
    from pmdkit.evaluation.checkpoint_source import tier_of

    if resume and out is None:
        raise UsageError("--resume got no evaluation; give its folder with --out")
    calls = []
    for number, run in enumerate(runs):
        language = (tier := tier_of(run)) == "llm"
        if tier is None:
            raise UsageError(f"{run} is not the folder of a run; several are evaluated together only if all are runs")
        own = not language and options["data"] in DATA  # the only data that a bandit or toy run has
        arguments = {"path": str(run), "trust": trust, **options, "data": None if own else options["data"]}
        if language and out is not None:
            arguments |= {"out": str(out / f"{number}-{run.name}"), "resume": resume}
        calls.append(Call(str(number), "pmdkit.run:evaluate_run", arguments, apart=language))
    place = out if out is not None else Path("runs")
    with closing(launcher.run(calls, place / "launch")) as ended:
        found = {int(result.call.name): result for result in ended}
    rows = [(runs[number], found[number]) for number in sorted(found)]
    failed = [(run, result) for run, result in rows if result.reason]
    done = [(run, result.value) for run, result in rows if not result.reason]
    if json:
        print_json([{"run": str(run), **value} for run, value in done])
    else:
        k = options["k"]
        avg, *others = (short.format(k=k) for short, _ in MEANING.values())
        table = simple_table("run", f">{avg}", ">95 %", *(f">{name}" for name in others), ">problems")
        for run, value in done:
            first, *rest = (value[name] for name in MEANING)
            span = first.get("over_draws", first)
            cells = [f"{first['value']:.4f}", f"{span['low']:.4f} to {span['high']:.4f}"]
            table.add_row(shown(str(run)), *cells, *(f"{share['value']:.4f}" for share in rest), str(value["problems"]))
        Console(highlight=False).print(table)
    if failed:
        told = f"{len(failed)} of {len(rows)} evaluations failed, the first, of {failed[0][0]}, with"
        raise PmdkitError(f"{told}: {failed[0][1].reason}")


def small(run: Path, trusted: Trusted, k: int, problems: int | None, seed: int, json: bool) -> None:
    """Evaluate a bandit or toy run."""
    from pmdkit.evaluation import sampling

    spec, backend, step, warnings = sampling.load_policy(run, trusted)
    for warning in warnings:
        print(f"pmdkit: warning: {printable(warning)}", file=sys.stderr)
    found = sampling.evaluate(spec, backend, step, k, problems, seed)
    if json:
        print_json(found)
        return
    table = simple_table("", ">value", ">95 % interval", "meaning")
    for name, words in MEANING.items():
        short, long = (text.format(k=k) for text in words)
        share = found[name]
        table.add_row(short, f"{share['value']:.4f}", f"{share['low']:.4f} to {share['high']:.4f}", long)
    console = Console(highlight=False)
    console.print(f"[bold]{spec.tier} {shown(spec.name)}[/bold], {shown(spec.objective['name'])}, step {step}")
    console.print(table)
    over = found["interval_over"]
    what = "all problems" if over == "draws" else "held-out problems"
    about = f"{found['problems']} {what}, {found['draws']} draws on each; intervals by resampling {over}"
    console.print(about, soft_wrap=True)


def show(summary: dict[str, Any]) -> None:
    """Print the summary of a language model."""
    k = summary["k"]
    table = simple_table("", ">value", ">95 % over draws", ">95 % over problems")
    for name, (short, _) in MEANING.items():
        share = summary[name]
        spans = (f"{share[over]['low']:.4f} to {share[over]['high']:.4f}" for over in ("over_draws", "over_problems"))
        table.add_row(short.format(k=k), f"{share['value']:.4f}", *spans)
    console = Console(highlight=False)
    step = "" if summary["step"] is None else f", step {summary['step']}"
    console.print(f"[bold]{shown(summary['model'])}[/bold]{step}, {shown(summary['data'])}")
    console.print(table)
    drawn = "greedy" if summary["temperature"] == 0 else f"temperature {summary['temperature']:g}"
    console.print(
        f"{summary['problems']} problems, {k} responses to each, {drawn}, top_p {summary['top_p']:g}, "
        f"at most {summary['width']} tokens",
        soft_wrap=True,
    )
    total = summary["problems"] * k
    console.print(
        f"Of {total:,} responses: {summary['cut_off']:,} cut off, {summary['unanswered']:,} without an answer, "
        f"{summary['unscored']:,} without a verdict; none of these counts as right",
        soft_wrap=True,
    )
    told = (f"{short}, {long}".format(k=k) for short, long in MEANING.values())
    console.print("; ".join(told), soft_wrap=True)
    console.print(
        "Over draws: the same problems, asked again. Over problems: others of the kind that these are a sample of",
        soft_wrap=True,
    )
    console.print(f"Responses: {shown(summary['out'])}", soft_wrap=True)
