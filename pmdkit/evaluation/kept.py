"""The folder of an evaluation of a language model: what config.json and summary.json hold, and when it may go on."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.evaluation.asked import Asked
from pmdkit.evaluation.intervals import measure
from pmdkit.evaluation.subject import Subject
from pmdkit.llm.evaluate import Answered, Evaluation, draws_of
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder, describe_machine, fresh, make, read_json
from pmdkit.planning import compare
from pmdkit.randomness import generator
from pmdkit.tables import RewardTable

RECORD = "responses.jsonl"


def describe(subject: Subject, asked: Asked, dtype: str, reward: RewardTable, evaluation: Evaluation) -> dict[str, Any]:
    """What config.json holds: all that decides about the responses, and the versions for whoever reads it later."""
    prompts = [[p.id, p.answer, list(evaluation.encode(p.problem))] for p in evaluation.problems]
    return {
        "kind": "eval",
        "model": str(Path(subject.place).absolute()) if Path(subject.place).exists() else subject.place,
        "step": subject.step,
        "weights_sha256": subject.weights,
        "dtype": dtype,
        **asdict(asked),
        "problems": len(evaluation.problems),
        "prompts_sha256": hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
        "grade": reward.grade,
        "boxed": reward.boxed,
        **describe_machine(),
    }


def open_folder(out: Path | None, resume: bool, name: str, told: dict[str, Any]) -> RunFolder:
    """A folder of this evaluation, new or begun."""
    if resume and out is None:
        raise UsageError("--resume got no evaluation; give its folder with --out")
    if resume and out is not None and (out / "config.json").exists():
        decisive = told.keys() - describe_machine().keys()
        stored = read_json(out / "config.json")
        if stored.get("kind") != "eval":
            raise ResumeRefused(f"{out} holds a run, not an evaluation; nothing was changed: give another --out")
        old, new = ({key: table.get(key) for key in decisive} for table in (stored, told))
        if changed := compare(old, new):
            listed = ", ".join(f"{key} was {a} and is now {b}" for key, a, b in changed)
            raise ResumeRefused(f"{out} holds another evaluation: {listed}; leave that out, or give another --out")
        return RunFolder(make(out))
    folder = fresh(out, name)
    files.replace(folder.config, files.encode(told))
    return folder


def summarise(
    subject: Subject, asked: Asked, answers: Sequence[Answered], copies: int | None, folder: RunFolder
) -> dict[str, Any]:
    """What --json prints."""
    shares = measure(draws_of(answers, asked.k), generator(asked.seed, "eval", "votes"))
    return {
        **{name: asdict(share) for name, share in shares.items()},
        "problems": len(answers) // asked.k,
        "k": asked.k,
        "draws": asked.k,
        "data": asked.data,
        "model": subject.name,
        "step": subject.step,
        "seed": asked.seed,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "width": asked.width,
        "leaked": copies,
        "unscored": sum(not answer.verdict.scored for answer in answers),
        "unanswered": sum(answer.verdict.path == "none" for answer in answers),
        "cut_off": sum(not answer.ended for answer in answers),
        "tokens": sum(answer.tokens for answer in answers),
        "out": str(folder.path),
    }
