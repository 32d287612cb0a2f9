"""`pmdkit llm RECIPE`, with --dry-run, --fit and --field-test, `llm-starter` and `export`: the verbs of tier 3.

A recipe with several processes is launched from here, and each process enters `be_rank`. The outcome is printed once,
not by every process.
"""

import faulthandler
import os
import signal
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter
from rich.console import Console

from pmdkit import plugins
from pmdkit.cli import explain_error, fail
from pmdkit.cli.options import Flag, Number, RecipeName, RunOptions, Texts, Whole, merged
from pmdkit.cli.output import pair_table, print_json, shown
from pmdkit.cli.train import begin, command_context, print_error
from pmdkit.errors import CheckFailed, Stopped, UsageError
from pmdkit.llm import launcher, torchrun
from pmdkit.observe.glossary import format_tau
from pmdkit.observe.run_folder import RunFolder, new_folder

if TYPE_CHECKING:
    from pmdkit.objectives import Objective
    from pmdkit.specs import LLMSpec


OWN = "own"
"The recipe for your own model and data."


@Parameter(name="*")
@dataclass(frozen=True)
class LLMOptions(RunOptions):
    """Options of a run on a language model: those of every tier, and short names for keys that only this tier has."""

    group: Whole | None = None
    "Responses drawn per prompt."
    lr: Number | None = None
    "Learning rate; about ten times as much for adapters."
    set: Texts = None
    "Any other key of the recipe: --set rollout.width=1024 objective.kl_coef=0.01."
    model: str | None = None
    "Folder of a model in Hugging Face layout, or a name on the hub; with --data no recipe is needed."
    data: str | None = None
    "Problems with answers: a .jsonl, .json or .parquet file, or the name of a data set on the hub."
    reward: str | None = None
    "math, or a reward function of your own as my.py:fn."
    rollouts: Path | None = None
    "Train on logged responses instead of drawing any: a run folder, a recorded step, or a .jsonl file."
    max_time: Number | None = None
    "Seconds after which the run stops, once a step and its checkpoint are complete, with exit 75."
    profile: Whole | None = None
    "Number of steps after the first that torch's profiler watches; its traces are in profile/ of the run."
    save_recipe: Path | None = None
    "Write the run's recipe to this .toml file, every option in it, then run."

    def changes(self) -> dict[str, Any]:
        """Dotted keys and their values."""
        short: dict[str, Any] = {"model.path": self.model, "env.path": self.data, "reward.grade": self.reward}
        short |= {"run.max_time": self.max_time, "run.profile": self.profile}
        short["rollout.log"] = None if self.rollouts is None else str(self.rollouts)
        given = {key: value for key, value in short.items() if value is not None}
        return merged([*super().changes().items(), *given.items()])


def llm(
    recipe: RecipeName | None = None,
    /,
    *,
    options: LLMOptions | None = None,
    fit: Flag = False,
    field_test: Flag = False,
) -> None:
    """Tier 3: a causal language model of transformers on problems with checkable answers.

    The same objective, loop, folder and options as the other tiers. `pmdkit llm starter` builds a tiny model, teaches
    it on this machine and needs no download. A recipe with [parallel] processes above 1 is started in as many
    processes. --dry-run prints batch, staleness, memory and files, and starts nothing. Without a recipe, --model and
    --data are enough: the token budget is then measured as by --fit.

    Args:
        recipe: a recipe on the shelf (calculator, one-gpu, own, qwen2.5-7b, qwen3-30b-a3b, starter, starter-100m,
            starter-moe) or a .toml file; by default own, which --model and --data fill.
        fit: first measure the largest token budget that fits on this machine, then run with it.
        field_test: check step by step that this machine can run the recipe; minutes.
    """
    from pmdkit.llm.recipe_checks import check_requirements

    options = options or LLMOptions()
    if recipe is None:
        if options.model is None or options.data is None:
            raise UsageError("no recipe was given; name one, such as starter, or give --model FOLDER and --data FILE")
        recipe, fit = OWN, fit or not (options.resume or options.dry_run or field_test)
    several = launcher.launched_ranks() > 1
    if not several or fit or field_test or options.dry_run:
        check_requirements()
    if options.dry_run or field_test:
        from pmdkit.training import plan

        plugins.trust(options.trust or ())
        spec, objective = plan("llm", recipe, options.changes())
        save_recipe(spec, options)
        if options.dry_run:
            show_plan(spec, options.json)
        else:
            check_machine(spec, objective, options)
    elif several:
        be_rank(recipe, options, fit)
    else:
        with command_context():
            start_here(recipe, options, fit)


def save_recipe(spec: "LLMSpec", options: LLMOptions) -> None:
    """Write the recipe of a run to a file, if --save-recipe asks for it."""
    if options.save_recipe is not None:
        from pmdkit.specs.toml import to_toml

        if options.save_recipe.suffix != ".toml" or options.save_recipe.exists():
            what = "exists" if options.save_recipe.exists() else "does not end in .toml"
            raise UsageError(f"--save-recipe got {options.save_recipe}, which {what}; give a new .toml file")
        options.save_recipe.write_text(to_toml(spec.tables()), encoding="utf-8")


def start_here(recipe: str, options: LLMOptions, fit: bool) -> None:
    """The process that the user started: run alone, or launch the ranks."""
    spec = asked(recipe, options)
    table = spec.parallel
    if table is None or table.processes == 1:
        found = measured(spec) if fit else {}
        save_recipe(spec.override(found), options)
        begin("llm", recipe, options, found)
        return
    save_recipe(spec, options)
    refuse_fit(fit)
    if table.restarts and options.out is None:
        raise UsageError("parallel.restarts is set; name the run's folder with --out, so that it can be found again")
    device, threads = getattr(spec.model, "device", "auto"), spec.run.threads
    code, told = launcher.start_ranks(sys.argv[1:], table.processes, device, threads, table.timeout, table.restarts)
    if told:
        fail(told, code)
    sys.exit(code)


def refuse_fit(fit: bool) -> None:
    """Refuse --fit with several processes."""
    if fit:
        raise UsageError(
            "--fit measures one process; run it with --set parallel.processes=1 first, then set what it found: "
            "--set update.token_budget=..."
        )


def asked(recipe: str, options: RunOptions) -> "LLMSpec":
    """The spec that the command line asks for: that of the run being resumed, or of a new one."""
    from pmdkit.specs import LLMSpec
    from pmdkit.training import plan, spec_to_resume, with_objective

    changes, trust = options.changes(), options.trust or ()
    plugins.trust(trust)
    if options.resume and options.out is not None and RunFolder(options.out).started:
        stored = spec_to_resume(RunFolder(options.out), changes, trust, options.accept_changes)
        if isinstance(stored, LLMSpec):
            return with_objective(stored, changes).override(changes)
    return plan("llm", recipe, changes)[0]


def measured(spec: "LLMSpec") -> dict[str, Any]:
    """The token budget that fits, as a change of the spec."""
    from pmdkit.llm import backend, selfcheck

    model, _ = backend.build_model(spec.model, spec.env, spec.run.seed)
    budget, tried = selfcheck.fit_token_budget(model, spec)
    for tokens, gib in tried:
        print(f"pmdkit: {tokens:,} tokens at once: {gib:.2f} GiB", file=sys.stderr)
    print(f"pmdkit: update.token_budget is {budget:,}", file=sys.stderr)
    return {"update.token_budget": budget}


def show_plan(spec: "LLMSpec", json: bool) -> None:
    """Print what a spec would do; with --json, the resolved configuration and the plan as one value."""
    from pmdkit.llm import dry_run

    batch, files = dry_run.batch(spec), dry_run.files(spec)
    if json:
        print_json({"config": spec.record(), "plan": {"batch": batch, "files": files}})
        return
    from pmdkit.envs.kinds import reward_scale

    console = Console(highlight=False)
    console.print(f"[bold]llm {shown(spec.name)}[/bold], {shown(spec.objective['name'])}")
    console.print(shown(format_tau(spec.objective.get("tau"), reward_scale(spec))))
    console.print("[italic]batch[/italic]")
    console.print(
        pair_table({name: f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}" for name, value in batch.items()})
    )
    console.print("[italic]files[/italic]")
    console.print(pair_table(files))
    console.print("Nothing was started. pmdkit plan, of pmdkit-lab, predicts memory and time.")


def check_machine(spec: "LLMSpec", objective: "Objective", options: RunOptions) -> None:
    """Run the field test, print its verdicts and the row for benchmarks/README.md."""
    import torch

    from pmdkit.llm.selfcheck import SelfCheck, SelfCheckStep

    torch.set_num_threads(spec.run.threads)
    folder = new_folder(options.out, f"field-test-{spec.name}").path
    console = Console(file=sys.stderr if options.json else None, highlight=False)

    def show_check(check: SelfCheckStep) -> None:
        verdict = "[green]pass[/green]" if check.passed else "[red]FAIL[/red]"
        head = f"{verdict}  [bold]{check.name:9s}[/bold] {check.seconds:6.1f} s"
        console.print(f"{head}  {shown(check.told)}", soft_wrap=True)

    test = SelfCheck(spec, objective, folder)
    checks = test(show_check)
    row = test.row(checks)
    (folder / "row.md").write_text(row + "\n", encoding="utf-8")
    if options.json:
        print_json({"checks": [asdict(check) for check in checks], "row": row, "out": str(folder)})
    else:
        console.print(f"\n{row}\n\nwritten to {folder}", soft_wrap=True)
    failed = [check for check in checks if not check.passed]
    if failed:
        raise CheckFailed(f"the field test failed at {failed[0].name}: {failed[0].told}")


def export(
    run: str,
    step_or_folder: str,
    folder: Path | None = None,
    /,
    *,
    size: str = "starter",
    seed: Whole = 0,
    json: Flag = False,
) -> None:
    """Write the model of a checkpoint in Hugging Face layout, or build the starter model: pmdkit export starter DIR.

    A checkpoint: pmdkit export RUN STEP DIR. The shards of several processes are put together. Every file is compared
    with its checksum before it is copied. Weights are float32, as they were trained; adapters are merged.

    Args:
        run: folder of a run of a language model; or the word starter.
        step_or_folder: step of one of the run's checkpoints; for the starter the new folder.
        folder: new folder to write.
        size: of the starter: starter (a tiny Qwen2), starter-moe (a tiny Qwen3-MoE) or starter-100m (for a GPU).
        seed: of the starter: seed of weights, lessons and measurement.
        json: print one JSON value.
    """
    if run == "starter" and folder is None:
        export_starter(Path(step_or_folder), size, seed, json)
        return
    from pmdkit.llm.export import export_step

    if folder is None or not step_or_folder.isdigit():
        raise UsageError(f"export got {run} {step_or_folder}; expected RUN STEP DIR, or: starter DIR")
    step = int(step_or_folder)
    names = export_step(Path(run), step, folder)
    if json:
        print_json({"run": run, "step": step, "folder": str(folder), "files": names})
    else:
        print(f"{folder}: {', '.join(names)}")


def export_starter(out: Path, size: str, seed: int, json: bool) -> None:
    """Build the starter model and teach it sums told as stories, about half a minute on one core; no download."""
    import torch

    from pmdkit.llm.recipe_checks import check_requirements

    check_requirements()
    torch.set_num_threads(1)
    from pmdkit.llm.starter.model import make

    made = make(out, size, seed, 0.3, lambda text: print(text, file=sys.stderr, flush=True))
    if json:
        print_json(made)
        return
    print(
        f"{made['out']}: {made['weights']:,} weights, pass rate {made['pass_rate']:.3f} on {made['problems']} held-out "
        f"problems, {made['seconds']:.0f} s"
    )


def be_rank(recipe: str, options: RunOptions, fit: bool) -> None:
    """Run as one of several ranks: the main one shows progress and reports, the others only work."""
    launcher.die_with_launcher()
    if hasattr(signal, "SIGUSR2"):  # the launcher sends it before it kills a process that hangs
        faulthandler.register(signal.SIGUSR2, all_threads=True)
    try:
        if (final := torchrun.final_reason()) is not None:
            launcher.write_error_file(*final, consequence=False)
            os._exit(final[1])
        with command_context(lambda sentence: end_rank(sentence, 75)):
            refuse_fit(fit)
            torchrun.check_restarts(options.resume, options.out is not None)
            work(recipe, options)
    except Exception as problem:
        from pmdkit.llm.collectives import RankLost

        if "--debug" in sys.argv:
            raise
        sentence, code = explain_error(problem)
        lost = isinstance(problem, RankLost)
        rank = int(os.environ["RANK"])
        who = "" if rank == 0 or lost or isinstance(problem, Stopped) else f"{launcher.rank_name(rank)}: "
        end_rank(" ".join(sentence.split()), code, lost, who)


def work(recipe: str, options: RunOptions) -> None:
    """The run of one process."""
    import torch

    from pmdkit.observe.console import SilentDisplay
    from pmdkit.training import launch

    class Mute(SilentDisplay):
        """Shows nothing: the main process prints it."""

        def warn(self, sentence: str) -> None:
            """Print nothing."""

    if os.environ["RANK"] == "0":
        begin("llm", recipe, options)
    else:
        launch(
            "llm", recipe, options.changes(), options.out, options.resume, Mute(),
            trust=options.trust or (), accept_changes=options.accept_changes,
        )  # fmt: skip
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def end_rank(sentence: str, code: int, lost: bool = False, who: str = "") -> None:
    """End this process and leave the reason for its launcher; if that is not ours, the first rank to end prints it."""
    launcher.write_error_file(who + sentence, code, lost)
    told = "another rank is lost" if lost else sentence
    if launcher.LAUNCHER not in os.environ and torchrun.first_to_print(told, code, lost):
        print_error(who + sentence)
    os._exit(code)  # frees what the run held; gloo's threads would abort an ordinary exit, with another exit code
