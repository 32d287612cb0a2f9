"""`pmdkit llm`: train a language model.

A recipe with several processes is launched from here, and each process enters `run_rank`. The outcome is printed once,
not by every process.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Parameter
from rich.console import Console

from pmdkit import companions
from pmdkit.cli import fail
from pmdkit.cli.options import Flag, RecipeName, RunOptions, Texts, Whole, merged
from pmdkit.cli.output import pair_table, print_json, shown
from pmdkit.cli.rank import run_rank
from pmdkit.cli.run import begin
from pmdkit.cli.signals import command_context
from pmdkit.errors import UsageError
from pmdkit.llm import ranks
from pmdkit.process_group import launched_ranks

if TYPE_CHECKING:
    from pmdkit.specs import LLMSpec, Spec


OWN = "own"
"The recipe for your own model and data."


@Parameter(name="*")
@dataclass(frozen=True)
class LLMOptions(RunOptions):
    """Options of a run on a language model: those of every tier, and short names for keys that only this tier has."""

    group: Whole | None = None
    "Responses drawn per prompt. [default: the recipe's]"
    lr: float | None = None
    "Learning rate; about ten times as much for adapters. [default: the recipe's]"
    set: Texts = None
    "Any other key of the recipe: --set rollout.width=1024 objective.kl_coef=0.01."
    model: str | None = None
    "Folder of a model in Hugging Face layout, or a name on the hub; with --data no recipe is needed."
    data: str | None = None
    "Problems with answers: a .jsonl, .json or .parquet file, or the name of a data set on the hub."
    reward: str | None = None
    "math, or a reward function of your own as my.py:fn."
    max_time: float | None = None
    "Seconds after which the run stops, once a step and its checkpoint are complete, with exit 75."
    backend: str | None = None
    "transformers, or another package's, whose server trains and samples the model: no accelerator is needed here."
    url: str | None = None
    "Address of the server of such a backend; its key is never an option."
    save_recipe: Path | None = None
    "Write the run's recipe to this .toml file, every option in it, then run."
    rehearse: Flag = False
    "Two steps at full size on fake tensors, without an accelerator: memory, traffic, mistakes. Needs pmdkit-lab."
    gpus: str | None = None
    "With --rehearse: number and kind, such as 32xH100; by default an H100 of 80 GB for each of parallel.processes."

    def changes(self) -> dict[str, Any]:
        """Dotted keys and their values."""
        short: dict[str, Any] = {"model.path": self.model, "env.path": self.data, "reward.grade": self.reward}
        short |= {"run.max_time": self.max_time, "model.backend": self.backend, "remote.url": self.url}
        options_set = {key: value for key, value in short.items() if value is not None}
        return merged([*super().changes().items(), *options_set.items()])


def llm(recipe: RecipeName | None = None, /, *, options: LLMOptions | None = None) -> None:
    """Tier 3: a causal language model of transformers on problems with checkable answers.

    The same objective, loop, folder and options as the other tiers. `pmdkit llm starter` builds a tiny model, teaches
    it on this machine and needs no download. A recipe with [parallel] processes above 1 is started in as many
    processes. --dry-run reads data, reward and model, prints batch and staleness, and starts nothing; --rehearse goes
    through two steps without an accelerator. Without a recipe, --model and --data are enough.

    Args:
        recipe: a recipe on the shelf (calculator, one-gpu, own, qwen2.5-7b, qwen3-30b-a3b, smollm2, starter,
            starter-100m, starter-moe) or a .toml file; by default own, which --model and --data fill.
    """
    from pmdkit.llm.recipe_checks import check_processes, check_requirements
    from pmdkit.resolve import resolve
    from pmdkit.specs import LLMSpec
    from pmdkit.specs.find import names

    options = options or LLMOptions()
    if recipe is None:
        if options.model is None or options.data is None:
            known = ", ".join(names("llm"))
            raise UsageError(f"no recipe was given; name one of {known}, or give --model FOLDER and --data FILE")
        recipe = OWN
    if options.gpus is not None and not options.rehearse:
        raise UsageError(f"--gpus is {options.gpus} without --rehearse; a run takes the accelerators that it finds")
    if launched_ranks() > 1 and not options.dry_run:
        run_rank(recipe, options)
        return
    check_requirements()
    if options.rehearse:
        rehearsal = companions.option("llm --rehearse")
        rehearsal(recipe, options.changes(), options.gpus, options.trust or (), options.json)
        return
    if options.dry_run:
        spec, _ = resolve("llm", recipe, options.changes(), trust=options.trust or ())
        save_recipe(spec, options)
        show_plan(spec, options.json)
        return

    def launch(spec: "Spec") -> None:
        """Start the processes of a run of several, after all checks and before anything is built, and end here."""
        assert isinstance(spec, LLMSpec)
        save_recipe(spec, options)
        if spec.parallel.processes > 1:
            check_processes(spec.parallel.processes, spec.model.device)
            code, reason = ranks.start_ranks(sys.argv[1:], spec.parallel.processes, spec.run.threads)
            if reason:
                fail(reason, code)
            sys.exit(code)

    with command_context():
        begin("llm", recipe, options, launch)


def save_recipe(spec: "LLMSpec", options: LLMOptions) -> None:
    """Write the recipe of a run to a file, if --save-recipe asks for it."""
    if options.save_recipe is not None:
        from pmdkit.specs.toml import to_toml

        if options.save_recipe.suffix != ".toml" or options.save_recipe.exists():
            what = "exists" if options.save_recipe.exists() else "does not end in .toml"
            raise UsageError(f"--save-recipe got {options.save_recipe}, which {what}; give a new .toml file")
        options.save_recipe.write_text(to_toml(spec.tables()), encoding="utf-8")


def show_plan(spec: "LLMSpec", json: bool) -> None:
    """Print the plan of a spec; with --json, the resolved configuration and the plan as one value.

    Data, reward or model that the run would refuse are refused.
    """
    from pmdkit.llm import dry_run

    batch, decisions = dry_run.batch(spec, dry_run.check(spec)), dry_run.decisions(spec)
    if json:
        print_json({"config": spec.record(), "plan": {"batch": batch, "decisions": decisions}})
        return
    from pmdkit.envs.kinds import format_tau, reward_scale

    console = Console(highlight=False)
    console.print(f"[bold]llm {shown(spec.name)}[/bold], {shown(spec.objective['name'])}")
    console.print(shown(format_tau(spec.objective.get("tau"), reward_scale(spec))))
    console.print("[italic]batch[/italic]")
    rows = {name: f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}" for name, value in batch.items()}
    console.print(pair_table(rows))
    for why in decisions:
        console.print(why)
    console.print("Nothing was started. pmdkit plan, of pmdkit-lab, predicts memory and time.")
