"""Recipe, model, engine, learner, loop: what `pmdkit llm` runs, as a program to read and to change.

    python llm/train.py starter --out runs/mine --steps 20

`accelerate launch` runs it as well. Every name below is public; replace any of them with your own.
"""

import argparse
from pathlib import Path

from pmdkit.llm import setup
from pmdkit.observe.console import watch
from pmdkit.observe.folder import fresh, locked
from pmdkit.planning import plan
from pmdkit.session import execute


def main() -> None:
    """Train and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", help="a name in llm/recipes, or a .toml file")
    parser.add_argument("--out", type=Path, default=None, help="new or empty folder; by default under runs/")
    parser.add_argument("--steps", type=int, default=None, help="rollout batches in all")
    given = parser.parse_args()
    changes = {} if given.steps is None else {"schedule.steps": given.steps}

    spec, objective = plan("llm", given.recipe, changes)  # the recipe, every default written out; PMDMean(tau=...)
    parts = setup(spec, objective)  # model, tokenizer, engine, verifier, learner, task
    folder = fresh(given.out, f"{spec.name}-{spec.objective['name']}")
    with locked(folder):
        folder.begin(spec.record())
        summary = execute(spec, objective, parts, folder, watch())  # pmdkit.loop.run, with checkpoints around it
    print(f"pass rate {summary['pass_rate_first']:.3f} to {summary['pass_rate_last']:.3f}, {folder.path}")


if __name__ == "__main__":
    main()
