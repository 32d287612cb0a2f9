"""`pmdkit llm RECIPE`: train a language model on problems with checkable answers."""

from typing import Annotated

from cyclopts import Parameter

from pmdkit.cli.options import RunOptions


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
        from pmdkit.llm.room import check_room

        check_room()
    if options.dry_run:
        from pmdkit.cli.llm_plan import show_plan

        show_plan(recipe, options)
        return
    if field_test:
        from pmdkit.cli.llm_field_test import check_machine

        check_machine(recipe, options)
        return
    start_all(recipe, options, fit)
