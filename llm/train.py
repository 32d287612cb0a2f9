"""Recipe, model, engine, learner, loop: what `pmdkit llm` runs, as a program to read and to change.

    python llm/train.py starter --out runs/mine --steps 20

`accelerate launch` runs it on several processes, one per GPU or all on the CPU; accelerate/ has files for it:

    accelerate launch --config_file llm/accelerate/fsdp2.yaml llm/train.py qwen2.5-7b
    accelerate launch --multi_gpu --num_processes 2 llm/train.py starter

Every name below is public; replace any of them with your own.
"""

import argparse
from pathlib import Path

from pmdkit.llm import setup
from pmdkit.observe.console import watch
from pmdkit.observe.folder import fresh
from pmdkit.planning import plan
from pmdkit.training import opened, perform


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
    name = f"{spec.name}-{spec.objective['name']}"
    folder = opened(parts.team, lambda: fresh(given.out, name))  # made by the main process, known to all
    summary = perform(spec, objective, parts, folder, watch())  # pmdkit.loop.run, with checkpoints around it
    if parts.team.main:
        print(f"pass rate {summary['pass_rate_first']:.3f} to {summary['pass_rate_last']:.3f}, {folder.path}")
    parts.team.leave()


if __name__ == "__main__":
    main()
