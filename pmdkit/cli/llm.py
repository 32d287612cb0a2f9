"""`pmdkit llm RECIPE`, with --dry-run, --fit and --field-test, and `pmdkit llm-starter DIR`: the verbs of tier 3."""

import json as to_json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table

from pmdkit.cli.options import Number, RunOptions, Whole
from pmdkit.errors import CheckFailed

if TYPE_CHECKING:
    from pmdkit.config import Spec


def llm(
    recipe: str,
    /,
    *,
    options: RunOptions | None = None,
    fit: Annotated[bool, Parameter(negative="")] = False,
    field_test: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Tier 3: a causal language model of transformers on problems with checkable answers.

    The same objective, loop, folder and options as the other tiers. `pmdkit llm starter` builds a tiny model, teaches
    it on this machine and needs no download. A recipe with [parallel] processes above 1 is started by accelerate in as
    many processes. --dry-run prints batch, staleness, memory and files, and starts nothing.

    Args:
        recipe: a recipe on the shelf (starter, starter-moe) or a .toml file.
        fit: measure the largest token budget that this machine holds first, and run with it.
        field_test: check step by step that this machine can run the recipe; minutes.
    """
    from pmdkit.cli.llm_ranks import start_all

    options = options or RunOptions()
    if fit or field_test or options.dry_run:
        from pmdkit.llm.recipe import check_requirements

        check_requirements()
    if options.dry_run:
        show_plan(recipe, options)
        return
    if field_test:
        check_machine(recipe, options)
        return
    start_all(recipe, options, fit)


def show_plan(recipe: str, options: RunOptions) -> None:
    """Print the plan of a recipe; with --json, the resolved configuration and the plan as one value."""
    from pmdkit.planner.dry_run import plan_recipe
    from pmdkit.training import plan

    spec, _ = plan("llm", recipe, options.changes())
    planned = plan_recipe(spec)
    if options.json:
        print(to_json.dumps({"config": spec.record(), "plan": asdict(planned)}))
        return
    from pmdkit.envs.kinds import reward_scale
    from pmdkit.observe.glossary import format_tau

    console = Console(highlight=False)
    console.print(f"[bold]llm {spec.name}[/bold], {spec.objective['name']}")
    console.print(format_tau(spec.objective.get("tau"), reward_scale(spec)))
    for title, rows in (
        ("model", {name: value if isinstance(value, str) else f"{value:,}" for name, value in planned.model.items()}),
        ("batch", {name: f"{value:,.6g}" if value < 1e6 else f"{value:,.0f}" for name, value in planned.batch.items()}),
        (per_process(spec), {name: f"{value:.3g}" for name, value in planned.memory.items()}),
        ("files", planned.files),
    ):
        table = Table(box=box.SIMPLE, pad_edge=False, show_header=False)
        console.print(f"[italic]{title}[/italic]")
        table.add_column(style="dim", overflow="fold")
        table.add_column(overflow="fold")
        for row in rows.items():
            table.add_row(*row)
        console.print(table)
    console.print(
        "Memory counts tensors by their shapes; libraries and the allocator come on top. Nothing was started."
    )


def per_process(spec: "Spec") -> str:
    """The title of the memory table."""
    table = spec.parallel
    if table is None or table.processes == 1:
        return "memory, GiB"
    return f"memory of each of {table.processes} processes, GiB ({table.strategy})"


def measured(recipe: str, options: RunOptions) -> dict[str, Any]:
    """The token budget that fits, as a change of the spec."""
    import sys

    from pmdkit.config import LanguageModelTable
    from pmdkit.llm.backend import build_model
    from pmdkit.llm.memory import fit_token_budget
    from pmdkit.training import plan

    spec, _ = plan("llm", recipe, options.changes())
    assert isinstance(spec.model, LanguageModelTable)
    model, _ = build_model(spec.model, spec.env, spec.run.seed)
    budget, tried = fit_token_budget(model, spec)
    for tokens, gib in tried:
        print(f"pmdkit: {tokens:,} tokens at once: {gib:.2f} GiB", file=sys.stderr)
    print(f"pmdkit: update.token_budget is {budget:,}", file=sys.stderr)
    return {"update.token_budget": budget}


def check_machine(recipe: str, options: RunOptions) -> None:
    """Run the field test, print its verdicts and the row for benchmarks/README.md."""
    import sys

    import torch

    from pmdkit.llm.selfcheck import SelfCheck, SelfCheckStep
    from pmdkit.observe.run_folder import new_folder
    from pmdkit.training import plan

    spec, objective = plan("llm", recipe, options.changes())
    torch.set_num_threads(spec.run.threads)
    folder = new_folder(options.out, f"field-test-{spec.name}").path
    console = Console(file=sys.stderr if options.json else None, highlight=False)

    def show_check(check: SelfCheckStep) -> None:
        verdict = "[green]pass[/green]" if check.passed else "[red]FAIL[/red]"
        console.print(f"{verdict}  [bold]{check.name:9s}[/bold] {check.seconds:6.1f} s  {check.told}", soft_wrap=True)

    test = SelfCheck(spec, objective, folder)
    checks = test(show_check)
    row = test.row(checks)
    (folder / "row.md").write_text(row + "\n", encoding="utf-8")
    if options.json:
        print(to_json.dumps({"checks": [asdict(check) for check in checks], "row": row, "out": str(folder)}))
    else:
        console.print(f"\n{row}\n\nwritten to {folder}", soft_wrap=True)
    failed = [check for check in checks if not check.passed]
    if failed:
        raise CheckFailed(f"the field test failed at {failed[0].name}: {failed[0].told}")


def llm_starter(
    out: Path,
    /,
    *,
    size: str = "starter",
    seed: Whole = 0,
    pass_rate: Number = 0.3,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Build a small language model and teach it sums told as stories, about half a minute on one core; no download.

    The folder loads with AutoModelForCausalLM and AutoTokenizer. `pmdkit llm starter` does all this by itself.

    Args:
        out: folder to write, new or empty.
        size: starter (a tiny Qwen2), starter-moe (a tiny Qwen3-MoE) or starter-100m (for a GPU).
        seed: of weights, lessons and measurement.
        pass_rate: share of held-out problems that it passes at least, up to 0.5; 0 for random weights.
        json: print one JSON value.
    """
    import torch

    from pmdkit.llm.recipe import check_requirements

    check_requirements()
    torch.set_num_threads(1)
    from pmdkit.llm.starter.folder import make

    made = make(out, size, seed, pass_rate, lambda text: print(text, file=sys.stderr, flush=True))
    if json:
        print(to_json.dumps(made))
        return
    print(
        f"{made['out']}: {made['weights']:,} weights, pass rate {made['pass_rate']:.3f} on {made['problems']} held-out "
        f"problems, {made['seconds']:.0f} s"
    )
