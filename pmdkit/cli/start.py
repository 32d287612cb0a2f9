"""What every tier's verb does with its options: plan or run, then say what came out."""

import json
import sys
from collections.abc import Mapping
from typing import Any

from pmdkit.cli.options import RunOptions
from pmdkit.cli.outlasting import outlasting


def start(tier: str, env: str, options: RunOptions, more: Mapping[str, Any] | None = None) -> None:
    """Run a spec of a tier, or print what would run. `more` are changes that no option stands for."""
    with outlasting():
        begin(tier, env, options, more)


def begin(tier: str, env: str, options: RunOptions, more: Mapping[str, Any] | None = None) -> None:
    """The same, with signals and streams as they are."""
    from pmdkit.cli.report import report
    from pmdkit.observe.console import watch
    from pmdkit.planning import plan
    from pmdkit.training import launch

    changes = options.changes() | dict(more or {})
    if options.dry_run:
        spec, _ = plan(tier, env, changes)
        print(json.dumps(spec.record(), indent=2))
        return
    run = launch(tier, env, changes, options.out, options.resume, watch(quiet=options.json))
    picture = draw(run)
    if options.json:
        print(json.dumps(run.summary))
    else:
        report(run, picture)
    sys.stdout.flush()


def draw(run: "object") -> str:
    """Write the run's figure as PNG and SVG; returns the path of the PNG."""
    from pmdkit.figures.style import save
    from pmdkit.training import Run

    assert isinstance(run, Run)
    path = run.folder.figures / "run"
    if (
        not path.with_suffix(".png").exists()
        or path.with_suffix(".png").stat().st_mtime < run.folder.summary.stat().st_mtime
    ):
        save(run.figure(), path)
    return str(path.with_suffix(".png"))
