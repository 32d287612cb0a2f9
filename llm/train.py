"""What `pmdkit llm` runs, as a program to read and change: recipe, model, engine, verifier, learner, loop.

    python llm/train.py starter --out runs/mine --steps 20

`accelerate launch` runs it on several processes, one per GPU or all on the CPU; accelerate/ has configuration files:

    accelerate launch --config_file llm/accelerate/fsdp2.yaml llm/train.py qwen2.5-7b
    accelerate launch --multi_gpu --num_processes 2 llm/train.py starter

On several machines, start it with torchrun on each: see docs/use/cluster.md. This program does not resume: for restarts
after a fault, give torchrun `-m pmdkit llm RECIPE --resume` instead.

Every line of `main` builds one part with a public call; replace any of them with your own.
"""

import argparse
from pathlib import Path

from pmdkit.fit import fit
from pmdkit.llm.backend import (
    assemble,
    check_machine,
    load_log,
    load_problems,
    make_encoder,
    make_engine,
    make_evaluation,
    make_learner,
    make_model,
    make_task,
    make_verifier,
)
from pmdkit.llm.collectives import make_process_group
from pmdkit.observe.console import make_display
from pmdkit.observe.run_folder import RunFolder, new_folder
from pmdkit.resolve import resolve


def main() -> None:
    """Train and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", help="a name in llm/recipes, or a .toml file")
    parser.add_argument("--out", type=Path, default=None, help="new or empty folder; by default under runs/")
    parser.add_argument("--steps", type=int, default=None, help="rollout batches in all")
    given = parser.parse_args()
    changes = {} if given.steps is None else {"schedule.steps": given.steps}

    spec, objective = resolve("llm", given.recipe, changes)  # the recipe, every default written out; PMDMean(tau=...)
    check_machine(spec)
    group = make_process_group(spec)  # this process, or those of accelerate
    problems = load_problems(spec)
    model, tokenizer = make_model(spec, group)
    encoder, problems = make_encoder(spec, tokenizer, problems)  # problems as tokens; those that are short enough

    log = load_log(spec, model, encoder, problems)  # responses to train on instead of drawing any; usually None
    engine = make_engine(spec, model, encoder, problems, group)  # samples responses and takes new weights
    learner = make_learner(spec, objective, model, encoder, problems, engine, group, log)  # rollout, logp, update
    verifier = make_verifier(spec, group)  # is an answer right?
    task = make_task(spec, model, encoder, problems, verifier, group)  # prompts of a step, rewards of its responses
    evaluation = make_evaluation(spec, encoder, problems, verifier)

    backend = assemble(spec, objective, learner, task, evaluation, log)  # with metrics, phase 0, records, model card
    path = str(new_folder(given.out, spec.label).path) if group.is_main_process else ""
    folder = RunFolder(Path(group.broadcast_object(path)))  # the main process has created it for all
    summary = fit(spec, objective, backend, folder, make_display())  # pmdkit.loop.run, with checkpoints around it
    if group.is_main_process:
        print(f"pass rate {summary['pass_rate_first']:.3f} to {summary['pass_rate_last']:.3f}, {folder.path}")
    group.close()


if __name__ == "__main__":
    main()
