"""`pmdkit eval` for language models: draw and keep every response, resume if stopped, and summarise.

`EvalConfig` says which problems, and how responses are sampled.
"""

import hashlib
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pmdkit.envs.math import make_math, readers
from pmdkit.envs.math.problem import MathProblems, Problem, leaks
from pmdkit.envs.math_answers import FunctionGrader, Grader
from pmdkit.errors import EnvironmentLacks, ResumeRefused, UsageError, unknown
from pmdkit.evaluation.checkpoint_source import CheckpointSource
from pmdkit.evaluation.sampling import check_counts
from pmdkit.fit import Display, stop_at_once
from pmdkit.llm import grading, prompts
from pmdkit.llm.engines.base import Engine, Sampling, Tokens
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.evaluate import Answered, Evaluation, evaluation_problems, graded_draws
from pmdkit.llm.model import end_tokens, load_model, pick_device
from pmdkit.llm.precision import cast_model
from pmdkit.observe import files, run_folder
from pmdkit.observe.run_folder import RunFolder
from pmdkit.randomness import derive, generator
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import EvaluationTable, LanguageModelTable, RewardTable, RolloutTable
from pmdkit.specs.table import differences
from pmdkit.stats import measure_at_k

HELD_OUT = "held-out"
SHIPPED = ("aime24", "aime25")
PAPER_SAMPLING = (1.0, 0.7)  # temperature and top_p of the evaluations in arXiv:2602.05933, section 5
RECORD = "responses.jsonl"
STOPPED = "stopped; every whole turn of responses is kept: go on with the same options and --resume --out {out}"


@dataclass(frozen=True)
class EvalConfig:
    """Options of an evaluation; None means the default for the data.

    Attributes:
        data: held-out, a shipped set, or a file.
        k: responses to each problem.
        problems: maximum number.
        seed: of the draws.
        temperature, top_p: of the draws; temperature 0 is greedy.
        width: maximum length of a response, tokens.
    """

    data: str | None = None
    k: int = 32
    problems: int | None = None
    seed: int = 0
    temperature: float | None = None
    top_p: float | None = None
    width: int | None = None

    def resolve(self, spec: LLMSpec | None) -> "EvalConfig":
        """Fill in the defaults: a run's own data as in its own evaluation, other data as in the paper."""
        own = spec.evaluation if spec is not None else EvaluationTable(data="aime24")
        rollout = spec.rollout if spec is not None else RolloutTable()
        data = self.data or own.data
        as_the_run = spec is not None and (self.data is None or data == HELD_OUT)
        temperature, top_p = (own.temperature, own.top_p) if as_the_run else PAPER_SAMPLING
        most = own.problems if as_the_run else None
        resolved = replace(
            self,
            data=data,
            problems=self.problems or most,
            temperature=float(temperature if self.temperature is None else self.temperature),
            top_p=float(top_p if self.top_p is None else self.top_p),
            width=self.width or (own.width if as_the_run else None) or rollout.width,
        )
        resolved.check_data(spec)
        return resolved

    def check(self) -> None:
        """Refuse options that make no sense."""
        check_counts(k=self.k, problems=self.problems, width=self.width)
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise UsageError(f"temperature is {self.temperature}; expected a number >= 0, 0 for the likeliest tokens")
        if self.temperature == 0 and self.k > 1:
            raise UsageError(f"temperature is 0 with k = {self.k}, so all responses are the same; add --k 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UsageError(f"top_p is {self.top_p}; expected a number above 0, at most 1")

    def check_data(self, spec: LLMSpec | None) -> None:
        """Refuse data that is neither a known name nor a possible file."""
        data = self.data or ""
        if data == HELD_OUT and spec is None:
            raise UsageError("data is 'held-out' and a model folder has no training problems; give aime24 or a file")
        if data not in (HELD_OUT, *SHIPPED) and "/" not in data and Path(data).suffix not in readers.SUFFIXES:
            raise UsageError(unknown("data", data, (HELD_OUT, *SHIPPED, "FILE.jsonl", "FILE.parquet")))


def evaluate(
    source: CheckpointSource,
    config: EvalConfig,
    out: Path | None,
    resume: bool,
    display: Display,
    device: str | None = None,
    dtype: str | None = None,
) -> dict[str, Any]:
    """Draw responses, grade them and estimate shares with intervals; returns what summary.json holds.

    Args:
        source: from `find_source`.
        config: options as given.
        out: folder to write: responses.jsonl, config.json and summary.json; by default the next number under runs/.
        resume: continue the evaluation in `out`.
        display: shows warnings and progress.
        device, dtype: as in [model]; by default those of the run.

    Raises:
        UsageError: options or data that make no sense, a model that does not load.
        ResumeRefused: the folder holds another evaluation.
        Stopped: on a signal; every whole turn of responses is kept.
    """
    config.check()
    config = config.resolve(source.spec)
    assert config.data is not None
    spec = source.spec
    table = spec.model if spec is not None else LanguageModelTable()
    table = table.model_copy(update={"device": device or table.device, "dtype": dtype or table.dtype})
    chosen = None if config.data == HELD_OUT else load_problems(config.data, config.problems)
    train, lost = training_problems(spec)
    if spec is not None:
        torch.set_num_threads(spec.run.threads)
    model, tokenizer = load_model(source.place, pick_device(table.device))
    if table.dtype == "bfloat16":
        cast_model(model, torch.bfloat16)
    encoder = prompts.encoder_of(None if spec is None else spec.prompt, tokenizer)
    name, problems = chosen or held_out(spec, train, lost, encoder, config.problems)
    reward = spec.reward if spec is not None else RewardTable()
    rollout = spec.rollout if spec is not None else RolloutTable()
    evaluation = make_evaluation(name, problems, encoder, tokenizer, grading.make_grader(reward), config)
    try:
        check_context(evaluation, model.config)
        description = describe_evaluation(source, config, table.dtype, reward, evaluation)
        folder = open_folder(out, resume, f"eval-{source.name}-{Path(config.data).stem}", description)
        for warning in source.warnings:
            display.warn(warning)
        copies = None if train is None else count_leaks(train, problems)
        warn_of_leaks(copies, len(problems), lost, display)
        engine = TransformersEngine(model, end_tokens(model, tokenizer), cache_tokens=rollout.cache_tokens)
        answers = generate_answers(evaluation, engine, folder, display)
    finally:
        evaluation.grader.close()
    summary = summarise(source, config, answers, copies, folder)
    warn_of_ungraded(answers, display)
    files.replace(folder.summary, files.encode(summary))
    return summary


def load_problems(data: str, most: int | None) -> tuple[str, list[Problem]]:
    """Name and first problems of a shipped set or a file."""
    table: dict[str, Any] = {"kind": data} if data in SHIPPED else {"kind": "file", "path": data, "held_out": "all"}
    found = make_math(table)
    return found.name, [found.problem(int(number)) for number in found.held_out[:most]]


def training_problems(spec: LLMSpec | None) -> tuple[MathProblems | None, str | None]:
    """The problems of the run, or why they are not available."""
    if spec is None:
        return None, None
    try:
        return make_math(spec.env), None
    except (UsageError, EnvironmentLacks) as problem:
        return None, str(problem)


def count_leaks(train: MathProblems, problems: Sequence[Problem]) -> int:
    """How many problems are in the training set, by their text."""
    texts = (train.problem(int(number)).problem for number in train.train)
    return leaks(texts, (problem.problem for problem in problems))


def held_out(
    spec: LLMSpec | None, problems: MathProblems | None, lost: str | None, encoder: prompts.Encoder, most: int | None
) -> tuple[str, list[Problem]]:
    """The problems that the run itself is evaluated on."""
    assert spec is not None
    if problems is None:
        raise UsageError(f"the problems of the run cannot be read: {lost}")
    if not len(problems.held_out):
        raise UsageError(f"data is 'held-out' and {problems.name} holds none out; give --data aime24, aime25 or a file")
    problems, _ = prompts.limit_prompts(problems, encoder, spec.rollout.max_prompt)
    return evaluation_problems(HELD_OUT, problems, most or len(problems.held_out), spec.run.seed)


def make_evaluation(
    name: str, problems: Sequence[Problem], encoder: prompts.Encoder, tokenizer: Any, grader: Grader, config: EvalConfig
) -> Evaluation:
    """Make the evaluation: the problems, and how they are asked and graded."""
    assert config.width is not None
    assert config.top_p is not None

    def read(tokens: Tokens) -> str:
        return prompts.decode_response(tokenizer, tokens)

    greedy = config.temperature == 0
    return Evaluation(
        name=name,
        problems=problems,
        encode=encoder.encode,
        read=read,
        grader=grader,
        k=config.k,
        sampling=Sampling(config.width, config.temperature or 1.0, config.top_p, greedy),
        seed=derive(config.seed, "eval"),
        rows=grading.make_rows(encoder.messages) if isinstance(grader, FunctionGrader) else None,
    )


def check_context(evaluation: Evaluation, model_config: Any) -> None:
    """Check, before drawing, that every prompt can be encoded and the longest fits the context with its response."""
    longest = 0
    for problem in evaluation.problems:
        try:
            longest = max(longest, len(evaluation.encode(problem.problem)))
        except UsageError as reason:
            raise UsageError(f"problem '{problem.id}': {reason}") from reason
    context = getattr(model_config, "max_position_embeddings", None)
    width = evaluation.sampling.width
    if context is not None and longest + width > context:
        room = context - longest
        remedy = f"give --width {room} or less" if room > 0 else "leave such problems out"
        raise UsageError(
            f"the longest prompt has {longest} tokens, and the model's context of {context} has no room for a response "
            f"of {width} after it; {remedy}"
        )


def generate_answers(evaluation: Evaluation, engine: Engine, folder: RunFolder, display: Display) -> list[Answered]:
    """All responses; those on disk are not drawn again."""
    try:
        with run_folder.locked(folder), stop_at_once(STOPPED.format(out=folder.path)):
            return evaluation(engine, folder.path / RECORD, ProgressReport(display))
    finally:
        engine.close()
        display.end()


def describe_evaluation(
    source: CheckpointSource, config: EvalConfig, dtype: str, reward: RewardTable, evaluation: Evaluation
) -> dict[str, Any]:
    """What config.json holds: everything that determines the responses, and the versions for later readers."""
    prompts = [[p.id, p.answer, list(evaluation.encode(p.problem))] for p in evaluation.problems]
    return {
        "kind": "eval",
        "model": str(Path(source.place).absolute()) if Path(source.place).exists() else source.place,
        "step": source.step,
        "weights_sha256": source.weights,
        "dtype": dtype,
        **asdict(config),
        "problems": len(evaluation.problems),
        "prompts_sha256": hashlib.sha256(json.dumps(prompts).encode()).hexdigest(),
        "grade": reward.grade,
        "boxed": reward.boxed,
        **run_folder.describe_machine(),
    }


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


def summarise(
    source: CheckpointSource, config: EvalConfig, answers: Sequence[Answered], copies: int | None, folder: RunFolder
) -> dict[str, Any]:
    """What --json prints."""
    shares = measure_at_k(graded_draws(answers, config.k), generator(config.seed, "eval", "votes"))
    return {
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
        "leaked": copies,
        "unscored": sum(not answer.verdict.scored for answer in answers),
        "unanswered": sum(answer.verdict.path == "none" for answer in answers),
        "cut_off": sum(not answer.ended for answer in answers),
        "tokens": sum(answer.tokens for answer in answers),
        "out": str(folder.path),
    }


class ProgressReport:
    """Shows speed and time left; work done before this process does not count."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.began = time.monotonic()
        self.before: int | None = None

    def __call__(self, done: int, total: int, tokens: int) -> None:
        """Responses done, responses in all, tokens so far."""
        if self.before is None:
            self.before = done
        seconds = time.monotonic() - self.began
        parts = [f"{tokens:,} tokens, {tokens / seconds:,.0f}/s" if seconds else f"{tokens:,} tokens"]
        if self.before < done < total:
            parts.append(f"{seconds * (total - done) / (done - self.before):.0f} s left")
        self.display.work("evaluation", done, total, ", ".join(parts))


def warn_of_leaks(copies: int | None, problems: int, lost: str | None, display: Display) -> None:
    """Warn of problems that the run was trained on, since they measure little."""
    if copies:
        display.warn(f"{copies} of {problems} problems are in the training set of the run, judging by their text")
    if lost is not None:
        display.warn(f"it is not known whether the run was trained on these problems: {lost}")


def warn_of_ungraded(answers: Sequence[Answered], display: Display) -> None:
    """Warn that responses without a verdict count as not right."""
    without = [answer for answer in answers if not answer.verdict.scored]
    if without:
        reason = without[0].verdict.reason
        display.warn(f"{len(without)} of {len(answers)} responses have no verdict and count as not right ({reason})")
