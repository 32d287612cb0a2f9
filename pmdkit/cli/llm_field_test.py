"""`pmdkit llm RECIPE --field-test`: a verdict for each step that a run takes on this machine."""

import json
from dataclasses import asdict

from pmdkit.cli.options import RunOptions


def check_machine(recipe: str, options: RunOptions) -> None:
    """Run the field test, print its verdicts and the row for benchmarks/README.md."""
    import sys

    import torch
    from rich.console import Console

    from pmdkit.errors import CheckFailed
    from pmdkit.llm.field_test import Check, FieldTest
    from pmdkit.observe.folder import fresh
    from pmdkit.planning import plan

    spec, objective = plan("llm", recipe, options.changes())
    torch.set_num_threads(spec.run.threads)
    folder = fresh(options.out, f"field-test-{spec.name}").path
    console = Console(file=sys.stderr if options.json else None, highlight=False)

    def tell(check: Check) -> None:
        verdict = "[green]pass[/green]" if check.passed else "[red]FAIL[/red]"
        console.print(f"{verdict}  [bold]{check.name:9s}[/bold] {check.seconds:6.1f} s  {check.told}", soft_wrap=True)

    test = FieldTest(spec, objective, folder)
    checks = test(tell)
    row = test.row(checks)
    (folder / "row.md").write_text(row + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps({"checks": [asdict(check) for check in checks], "row": row, "out": str(folder)}))
    else:
        console.print(f"\n{row}\n\nwritten to {folder}", soft_wrap=True)
    failed = [check for check in checks if not check.passed]
    if failed:
        raise CheckFailed(f"the field test failed at {failed[0].name}: {failed[0].told}")
