"""Export to a folder in Hugging Face layout: a checkpoint, without what only a resume needs, or a starter model."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.llm.model_folder import refuse_code
from pmdkit.llm.starter.vocabulary import check_size
from pmdkit.observe import checkpoint, files
from pmdkit.observe.checkpoint import PARTS, Damaged, check_origin, read_manifest, run_identity
from pmdkit.observe.run_folder import RunFolder
from pmdkit.observe.telemetry import quietly
from pmdkit.specs import LLMSpec

LOOK = 25  # supervised steps between two measurements of a starter, at least: each measures 256 problems


def export_step(run: Path, step: int, out: Path) -> list[str]:
    """Write the model of a checkpoint to a new folder that transformers and vLLM load; return the names of its files.

    Completely, or not at all: what is exported is compared with its checksums before anything is written.

    Raises:
        UsageError: there is no such run or checkpoint, it asks for code, or `out` exists.
        ResumeRefused: the checkpoint is damaged.
    """
    folder = RunFolder(run)
    if not folder.started:
        raise UsageError(f"{run} is not the folder of a run; give the --out of one")
    there = checkpoint.steps(folder.checkpoints)
    if step not in there:
        held = f"it has those of steps {', '.join(map(str, there))}" if there else "it has none"
        raise UsageError(f"{run} has no checkpoint of step {step}; {held}")
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} exists; give a new folder")
    path = folder.checkpoints / f"step-{step}"
    try:
        manifest = read_manifest(path)
        check_origin(manifest, step, run_identity(folder.checkpoints.absolute()))
        others = {f"{part}.safetensors" for part in PARTS} | {"state.json"}
        beside = sorted(manifest.sha256.keys() - others)
        if "config.json" not in beside:
            raise UsageError(
                f"{path} does not hold a language model; only runs of `pmdkit llm` whose weights are here are exported"
            )
        names = sorted([*beside, "model.safetensors"])
        for name in names:
            manifest.check(name)
    except Damaged as problem:
        raise ResumeRefused(
            f"checkpoint {path} is damaged ({problem}); nothing was written: export another step"
        ) from problem
    refuse_code(path)
    aside = out.with_name(f".{out.name}.part")
    files.remove(aside)
    try:
        aside.mkdir(parents=True)
        for name in names:
            shutil.copyfile(path / name, aside / name)
            files.sync(aside / name)
        files.sync(aside)
        aside.rename(out)
    except OSError:
        files.remove(aside)
        raise
    files.sync(out.parent)
    return names


def export_starter(folder: Path, size: str, seed: int, pass_rate: float, note: Callable[[str], None]) -> dict[str, Any]:
    """Build, teach and write a starter model to a new or empty folder: phase 0 of the recipe of its name, in float32.

    `pass_rate` is the target on held-out problems; 0 leaves the weights random. Returns size, seed, pass_rate,
    problems, weights, seconds, out.
    """
    from pmdkit.llm import backend  # and transformers, which the export of a checkpoint does not need
    from pmdkit.llm.engines.transformers import TransformersEngine
    from pmdkit.llm.model import end_tokens
    from pmdkit.llm.starter.warm_start import warm_start

    check_size(size)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not an empty folder; nothing is overwritten: give a new one")
    began = time.monotonic()
    recipe = LLMSpec.read(size)
    changes = {"run.seed": seed, "model.dtype": "float32", "evaluation.k": 1, "warm_start.pass_rate": pass_rate}
    spec = recipe.override(changes | {"warm_start.look": max(LOOK, recipe.warm_start.look)})
    model, tokenizer = backend.make_model(spec)
    encoder, problems = backend.make_encoder(spec, tokenizer, backend.load_problems(spec))
    engine, verifier = TransformersEngine(model, end_tokens(model, tokenizer)), backend.make_verifier(spec)
    evaluation = backend.make_evaluation(spec, encoder, problems, verifier)

    def measure() -> float:
        answers = evaluation(engine)
        return sum(answer.verdict.correct is True for answer in answers) / len(answers)

    try:
        reached = warm_start(model, tokenizer, problems, encoder.encode, spec.warm_start, seed, measure, note)
    finally:
        verifier.close()
    model.config.use_cache = True  # off while pmdkit trains; stock generation wants it
    with quietly():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return {
        "size": size,
        "seed": seed,
        "pass_rate": reached,
        "problems": len(evaluation.problems),
        "weights": model.num_parameters(),
        "seconds": round(time.monotonic() - began, 1),
        "out": str(folder),
    }
