"""`pmdkit eval` for language models: draw and keep every response, resume if stopped, and summarise.

`EvalConfig` says which problems, and how responses are sampled.
"""

import hashlib
import json
import math
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems, leaks
from pmdkit.envs.math_answers import FunctionGrader
from pmdkit.errors import EnvironmentLacks, ResumeRefused, UsageError
from pmdkit.evaluation.bandit_and_toy import check_counts
from pmdkit.evaluation.checkpoint_source import CheckpointSource
from pmdkit.fit import Display, stop_at_once
from pmdkit.llm import grading, prompts
from pmdkit.llm.callbacks.progress import ProgressCallback
from pmdkit.llm.engines.base import Sampling, check_context
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.evaluate import Evaluation, graded_draws, held_out_problems, other_problems
from pmdkit.llm.model import end_tokens, load_model, pick_device
from pmdkit.llm.precision import cast_model
from pmdkit.llm.recipe_checks import check_evaluated
from pmdkit.observe import files, run_folder
from pmdkit.observe.run_folder import RunFolder
from pmdkit.randomness import derive, generator
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import EvaluationTable, LanguageModelTable, RewardTable, RolloutTable
from pmdkit.specs.table import differences
from pmdkit.stats import measure_at_k

HELD_OUT = "held-out"
PAPER_SAMPLING = (1.0, 0.7)  # temperature and top_p of the evaluations in arXiv:2602.05933, section 5
RECORD = "responses.jsonl"
STOPPED = "stopped; every whole turn of responses is kept: go on with the same options and --resume --out {out}"


@dataclass(frozen=True)
class EvalConfig:
    """Options of an evaluation, those of `pmdkit eval`; None means the default for the data."""

    data: str | None = None
    k: int = 32
    problems: int | None = None
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    width: int | None = None

    def resolve(self, spec: LLMSpec | None) -> "EvalConfig":
        """Check the options and fill in the defaults: for its own data those of the run, for other data the paper's."""
        check_counts(k=self.k, problems=self.problems, width=self.width)
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature is {self.temperature}; expected a number >= 0, 0 for the likeliest tokens")
        if self.temperature == 0 and self.k > 1:
            raise UsageError(f"temperature is 0 with k = {self.k}, so all responses are the same; add --k 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}; expected a number above 0, at most 1")
        own = spec.evaluation if spec is not None else EvaluationTable(data="aime24")
        rollout = spec.rollout if spec is not None else RolloutTable()
        data = self.data or own.data
        if data == HELD_OUT and spec is None:
            raise UsageError("data is 'held-out' and a model folder has no training problems; give aime24 or a file")
        check_evaluated("data", data)
        as_the_run = spec is not None and (self.data is None or data == HELD_OUT)
        as_in_run = own.temperature or rollout.temperature, own.top_p
        temperature, top_p = as_in_run if as_the_run else PAPER_SAMPLING
        return replace(
            self,
            data=data,
            problems=self.problems or (own.problems if as_the_run else None),
            temperature=float(temperature if self.temperature is None else self.temperature),
            top_p=float(top_p if self.top_p is None else self.top_p),
            width=self.width or (own.width if as_the_run else None) or rollout.width,
        )


def evaluate(
    source: CheckpointSource,
    config: EvalConfig,
    out: Path | None,
    resume: bool,
    display: Display,
    device: str | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Draw responses, grade them and estimate shares with intervals; returns the contents of summary.json.

    Args:
        source: from `find_source`.
        config: options as given.
        out: folder to write: responses.jsonl, config.json and summary.json; by default the next number under runs/.
        resume: continue the evaluation in `out`.
        display: shows warnings and progress.
        device, dtype: as in [model]; by default those of the run.
    """
    spec = source.spec
    config = config.resolve(spec)
    assert config.data is not None
    assert config.width is not None
    assert config.top_p is not None
    reward, rollout = (RewardTable(), RolloutTable()) if spec is None else (spec.reward, spec.rollout)
    gold = grading.needs_gold(reward)
    train: MathProblems | None = None  # the run's training problems
    if spec is not None:
        try:
            train = make_math(spec.env, gold)
        except (UsageError, EnvironmentLacks) as problem:
            if config.data == HELD_OUT:
                raise
            display.warn(f"it is not known whether the run was trained on these problems: {problem}")
        torch.set_num_threads(spec.run.threads)
    if config.data != HELD_OUT:  # read before the model, which takes longer
        name, problems = other_problems(config.data, config.problems, gold)
    table = LanguageModelTable() if spec is None else spec.model
    model, tokenizer = load_model(source.place, pick_device(device or table.device))
    dtype = dtype or table.dtype
    if dtype == "bfloat16":
        cast_model(model, torch.bfloat16)
    encoder = prompts.encoder_of(None if spec is None else spec.prompt, tokenizer)
    if config.data == HELD_OUT:
        assert spec is not None
        assert train is not None
        short = prompts.limit_prompts(train, encoder, rollout.max_prompt)
        name, problems = HELD_OUT, held_out_problems(short, config.problems, spec.run.seed)
    grader = grading.make_grader(reward)
    evaluation = Evaluation(
        name=name,
        problems=problems,
        encode=encoder.encode,
        read=encoder.decode,
        grader=grader,
        k=config.k,
        sampling=Sampling(config.width, config.temperature or 1.0, config.top_p, greedy=config.temperature == 0),
        seed=derive(config.seed, "eval"),
        rows=grading.make_rows(encoder.messages) if isinstance(grader, FunctionGrader) else None,
    )
    pace = ProgressCallback(display)
    try:
        longest = max(len(evaluation.encode(problem)) for problem in problems)
        check_context(longest, config.width, getattr(model.config, "max_position_embeddings", None))
        asked = [[problem.id, problem.answer, list(encoder.encode(problem))] for problem in problems]
        description = {  # everything that determines the responses, and the versions for later readers
            "kind": "eval",
            "model": str(Path(source.place).absolute()) if Path(source.place).exists() else source.place,
            "step": source.step,
            "weights_sha256": source.weights,
            "dtype": dtype,
            **asdict(config),
            "problems": len(problems),
            "prompts_sha256": hashlib.sha256(json.dumps(asked).encode()).hexdigest(),
            "grade": reward.grade,
            "boxed": reward.boxed,
            **run_folder.describe_machine(),
        }
        folder = open_folder(out, resume, f"eval-{source.name}-{Path(config.data).stem}", description)
        for warning in source.warnings:
            display.warn(warning)
        leaked: int | None = None
        if train is not None:
            texts = (train.problem(int(number)).problem for number in train.train)
            leaked = leaks(texts, (problem.problem for problem in problems))
        if leaked:
            display.warn(f"{leaked} of {len(problems)} problems are in the run's training set, judging by their text")
        engine = TransformersEngine(model, end_tokens(model, tokenizer), cache_tokens=rollout.cache_tokens)
        with run_folder.locked(folder), stop_at_once(STOPPED.format(out=folder.path)):
            answers = evaluation(engine, folder.path / RECORD, partial(pace.progress, "evaluation"))
    finally:
        display.end()
        grader.close()
    shares = measure_at_k(graded_draws(answers, config.k), generator(config.seed, "eval", "votes"))
    unscored = [answer for answer in answers if not answer.verdict.scored]
    if unscored:
        reason = unscored[0].verdict.reason
        display.warn(f"{len(unscored)} of {len(answers)} responses have no verdict and count as not right ({reason})")
    summary: dict[str, Any] = {
        **{name: asdict(share) for name, share in shares.items()},
        "problems": len(answers) // config.k,
        "k": config.k,
        "draws": config.k,
        "data": config.data,
        "model": source.name,
        "step": source.step,
        "seed": config.seed,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "width": config.width,
        "leaked": leaked,
        "unscored": len(unscored),
        "unanswered": sum(answer.verdict.path == "none" for answer in answers),
        "cut_off": sum(not answer.ended for answer in answers),
        "tokens": sum(answer.tokens for answer in answers),
        "out": str(folder.path),
    }
    files.replace(folder.summary, files.encode(summary))
    return summary


def open_folder(out: Path | None, resume: bool, name: str, description: dict[str, Any]) -> RunFolder:
    """The folder of this evaluation, new or resumed."""
    if resume and out is None:
        raise UsageError("--resume got no evaluation; give its folder with --out")
    if resume and out is not None and (out / "config.json").exists():
        decisive = description.keys() - run_folder.describe_machine().keys()
        stored = run_folder.read_json(out / "config.json")
        if stored.get("kind") != "eval":
            raise ResumeRefused(f"{out} holds a run, not an evaluation; nothing was changed: give another --out")
        old, new = ({key: table.get(key) for key in decisive} for table in (stored, description))
        if changed := differences(old, new):
            listed = ", ".join(f"{key} was {a} and is now {b}" for key, (a, b) in changed.items())
            raise ResumeRefused(f"{out} holds another evaluation: {listed}; leave that out, or give another --out")
        return RunFolder(run_folder.make_writable(out))
    folder = run_folder.new_folder(out, name)
    files.replace(folder.config, files.encode(description))
    return folder
