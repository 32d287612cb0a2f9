"""`pmdkit eval` for language models: draw and keep every response, resume if stopped, and summarise.

`EvalConfig` says which problems, and how responses are sampled.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from pmdkit.envs.math import make_math
from pmdkit.envs.math.problem import MathProblems, Problem, leaks
from pmdkit.errors import EnvironmentLacks, ResumeRefused, UsageError
from pmdkit.evaluation.bandit_and_toy import check_counts
from pmdkit.evaluation.checkpoint_source import CheckpointSource
from pmdkit.fit import Display, stop_at_once
from pmdkit.llm.backend import make_model
from pmdkit.llm.callbacks.progress import ProgressCallback
from pmdkit.llm.engines.base import check_context
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.evaluate import Answered, Evaluation, graded_draws
from pmdkit.llm.grading import needs_gold
from pmdkit.llm.model import end_tokens
from pmdkit.llm.precision import cast_model
from pmdkit.llm.prompts import encoder_of, limit_prompts
from pmdkit.llm.recipe_checks import check_evaluated
from pmdkit.llm.task_parts import choose_problems, make_evaluation, make_verifier
from pmdkit.llm.tokens import Tokens
from pmdkit.observe import files, run_folder
from pmdkit.observe.run_folder import RunFolder
from pmdkit.randomness import derive, generator
from pmdkit.specs import LLMSpec
from pmdkit.specs.llm import EvaluationTable, RolloutTable
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
    config = config.resolve(source.spec)
    spec = recipe(source, config, device, dtype)
    if source.spec is not None:
        torch.set_num_threads(spec.run.threads)
    problems = training_problems(source.spec, config, display)
    engine, evaluation = build(spec, config, problems)
    pace = ProgressCallback(display)
    try:
        asked = evaluation.problems
        encoded = [list(evaluation.encode(problem)) for problem in asked]
        context = getattr(engine.model.config, "max_position_embeddings", None)
        check_context(max(map(len, encoded)), evaluation.sampling.width, context)
        folder = open_folder(out, resume, source, config, spec, asked, encoded)
        for warning in source.warnings:
            display.warn(warning)
        leaked = None if problems is None else leaks(problems, asked)
        if leaked:
            display.warn(f"{leaked} of {len(asked)} problems are in the run's training set, judging by their text")
        with run_folder.locked(folder), stop_at_once(STOPPED.format(out=folder.path)):
            answers = evaluation(engine, folder.path / RECORD, partial(pace.progress, "evaluation"))
    finally:
        display.end()
        evaluation.grader.close()
    summary = summarise(answers, config, display) | {"model": source.name, "step": source.step}
    summary |= {"leaked": leaked, "out": str(folder.path)}
    files.replace(folder.summary, files.encode(summary))
    return summary


def recipe(source: CheckpointSource, config: EvalConfig, device: str | None, dtype: str | None) -> LLMSpec:
    """The recipe of the model to evaluate, the run's or the defaults, with the options of the evaluation."""
    spec = source.spec or LLMSpec(name="model", env={}, objective={})
    model = {"path": source.place, "build": None, "checkpointing": False}
    model |= {key: value for key, value in (("device", device), ("dtype", dtype)) if value is not None}
    table = {key: value for key, value in asdict(config).items() if key != "seed"}
    evaluation = spec.evaluation.model_copy(update=table)
    return spec.model_copy(update={"model": spec.model.model_copy(update=model), "evaluation": evaluation})


def training_problems(run: LLMSpec | None, config: EvalConfig, display: Display) -> MathProblems | None:
    """The problems that a run was trained on; None where they are unknown, and not needed."""
    try:
        return None if run is None else make_math(run.env, needs_gold(run.reward))
    except (UsageError, EnvironmentLacks) as problem:
        if config.data == HELD_OUT:
            raise
        display.warn(f"it is not known whether the run was trained on these problems: {problem}")
        return None


def build(spec: LLMSpec, config: EvalConfig, problems: MathProblems | None) -> tuple[TransformersEngine, Evaluation]:
    """The model as an engine, and the evaluation of a recipe, from the parts of a run."""
    own = problems if config.data == HELD_OUT else None
    chosen = choose_problems(spec, None) if own is None else None  # before the model, which takes longer
    model, tokenizer = make_model(spec)
    if spec.model.dtype == "bfloat16":
        cast_model(model, torch.bfloat16)
    encoder = encoder_of(spec.prompt, tokenizer)
    short = None if own is None else limit_prompts(own, encoder, spec.rollout.max_prompt)
    evaluation = make_evaluation(spec, encoder, short, make_verifier(spec), chosen=chosen)
    evaluation = replace(
        evaluation,
        seed=derive(config.seed, "eval"),
        sampling=replace(evaluation.sampling, greedy=config.temperature == 0),
        most_unscored=Evaluation.most_unscored,
    )
    return TransformersEngine(model, end_tokens(model, tokenizer), cache_tokens=spec.rollout.cache_tokens), evaluation


def summarise(answers: Sequence[Answered], config: EvalConfig, display: Display) -> dict[str, Any]:
    """The three shares with intervals, how the responses were drawn, and how many were not graded, or cut off."""
    shares = measure_at_k(graded_draws(answers, config.k), generator(config.seed, "eval", "votes"))
    unscored = [answer for answer in answers if not answer.verdict.scored]
    if unscored:
        reason = unscored[0].verdict.reason
        display.warn(f"{len(unscored)} of {len(answers)} responses have no verdict and count as not right ({reason})")
    return {
        **{name: asdict(share) for name, share in shares.items()},
        **asdict(config),
        "problems": len(answers) // config.k,
        "draws": config.k,
        "unscored": len(unscored),
        "unanswered": sum(answer.verdict.path == "none" for answer in answers),
        "cut_off": sum(not answer.ended for answer in answers),
        "tokens": sum(answer.tokens for answer in answers),
    }


def open_folder(
    out: Path | None,
    resume: bool,
    source: CheckpointSource,
    config: EvalConfig,
    spec: LLMSpec,
    problems: Sequence[Problem],
    encoded: Sequence[Tokens],
) -> RunFolder:
    """The folder of this evaluation, new or resumed; its config.json says what determines the responses."""
    if resume and out is None:
        raise UsageError("--resume got no evaluation; give its folder with --out")
    asked = [[problem.id, problem.answer, tokens] for problem, tokens in zip(problems, encoded, strict=True)]
    decisive = {
        "kind": "eval",
        "model": str(Path(source.place).absolute()) if Path(source.place).exists() else source.place,
        "step": source.step,
        "weights_sha256": source.weights,
        "dtype": spec.model.dtype,
        **asdict(config),
        "problems": len(problems),
        "prompts_sha256": hashlib.sha256(json.dumps(asked).encode()).hexdigest(),
        "grade": spec.reward.grade,
        "boxed": spec.reward.boxed,
    }
    if resume and out is not None and (out / "config.json").exists():
        stored = run_folder.read_json(out / "config.json")
        if stored.get("kind") != "eval":
            raise ResumeRefused(f"{out} holds a run, not an evaluation; nothing was changed: give another --out")
        if changed := differences({key: stored.get(key) for key in decisive}, decisive):
            listed = ", ".join(f"{key} was {a} and is now {b}" for key, (a, b) in changed.items())
            raise ResumeRefused(f"{out} holds another evaluation: {listed}; leave that out, or give another --out")
        return RunFolder(run_folder.make_writable(out))
    folder = run_folder.new_folder(out, f"eval-{source.name}-{Path(str(config.data)).stem}")
    files.replace(folder.config, files.encode({**decisive, **run_folder.describe_machine()}))  # versions for readers
    return folder
