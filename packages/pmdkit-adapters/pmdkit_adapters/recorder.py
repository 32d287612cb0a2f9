"""Parts shared by recorders of other trainers: a bounded run folder that replay and autopsy read, and the gauges."""

import json
import logging
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.llm.mismatch import off_policy_parts
from pmdkit.objectives import Groups
from pmdkit.observe import files, gauge
from pmdkit.observe.metrics import anchor, expect
from pmdkit.observe.run_folder import RunFolder, make_writable
from pmdkit.recording import Recording, encode


class StepRecorder:
    """Writes steps of another trainer's run in the format of `pmdkit.recording`.

    Once the trainer's first step has begun, no error of the recorder ends the run, see `harmless`.

    Args:
        out: folder for the recordings; new or empty, unless the trainer resumes.
        steps: recordings that are kept, >= 1. When there are more, every second one is deleted and half as many are
            written from then on, so that those that stay cover the whole run.
        groups: groups of a step that are written, >= 1. The gauges are over all of them.
        tau: temperature of PMD in reward units, for the gauge `anchor`; an objective's own takes its place, and a
            rule leaves `anchor` out.
        passed: reward above which a response is right; None if nothing passes or fails.
        alarm: say once, in the log and in alarm.json, when grader, engine or policy changes from one step to the next;
            the gauge `alarm` is 1 in that step, whose recording is kept, with the groups to look at.
        halt: with `alarm`, also end the training.

    Every step's gauges go to gauges.jsonl, which an autopsy reads beside the recordings.

    Good values: the defaults. A token takes about 16 bytes: 16 groups of 16 responses of 1,000 tokens are 4 MB a step.
    """

    stride = 1  # between the numbers of two steps, which are updates of the trainer

    def __init__(
        self, out: str | Path, steps: int = 64, groups: int = 16, tau: float | None = None, passed: float | None = 0.5,
        alarm: bool = False, halt: bool = False,
    ) -> None:  # fmt: skip
        if halt and not alarm:
            raise UsageError("halt=True has no effect without alarm=True; give both")
        if min(steps, groups) < 1:
            raise UsageError(f"steps is {steps} and groups {groups}; expected to keep at least 1 of each")
        self.folder = RunFolder(Path(out))
        self.steps, self.groups, self.tau, self.passed = steps, groups, tau, passed
        self.alarm, self.halt, self.raised = alarm, halt, ""  # the last is what the alarm said
        self.alarm_step = 0  # when it said so
        self.seen_steps: list[dict[str, float]] = []  # the gauges of the last steps
        self.failed: set[str] = set()  # parts that failed and are not tried again

    @contextmanager
    def harmless(self, part: str) -> Iterator[None]:
        """Log the first error of a part of the recorder, such as a full disk, instead of raising it."""
        try:
            yield
        except Exception as problem:
            if part not in self.failed:  # by logging, which raises nothing, even if its own file is on the full disk
                where = f"{part} of {self.folder.path} stopped, the training goes on"
                logging.getLogger(__name__).warning("pmdkit: %s: %s: %s", where, type(problem).__name__, problem)
            self.failed.add(part)

    def begin(self, main: bool, resumed: bool, tokenizer: Any, objective: Mapping[str, Any], **facts: Any) -> None:
        """Take down what all steps share and, on the main process, set up the folder; before the first step.

        Raises:
            UsageError: there is something in the folder, and the trainer does not resume.
            EnvironmentLacks: it cannot be written.
        """
        tau = objective.get("tau", self.tau)
        self.tau = None if isinstance(tau, Mapping) else tau  # a rule gives each prompt its own: no gauge `anchor`
        self.about = {"tier": "llm", "objective": objective, "passed": self.passed, "sampled": True, **facts}
        # trainers shuffle the rows of a step over its updates: here they are one update, with the mean of the losses
        self.about |= {"run_seed": facts["seed"], "ministeps": 1, "drop_equal_groups": False}
        if main:
            path = make_writable(self.folder.path)
            if not resumed and any(path.iterdir()):
                raise UsageError(f"{path} is not empty; give the recorder another folder, or resume the trainer's run")
            place = self.folder.checkpoints / "step-0"  # replay shows text with the tokenizer of a checkpoint
            for folder in (self.folder.rollouts, place):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if hasattr(tokenizer, "backend_tokenizer"):
                files.replace(place / "tokenizer.json", tokenizer.backend_tokenizer.to_str().encode())
            files.replace(self.folder.config, files.encode(self.about))

    def note(self, step: int, found: dict[str, float], reward: Tensor, main: bool) -> list[int]:
        """Keep the gauges of a step, and raise the alarm if a side changed: alike on every process, so that all halt.

        Args:
            step: number of the first update on the rows.
            found: gauges, see `gauges`; `alarm` is added where an alarm is asked for.
            reward: [P, G], NaN for a response without a verdict.
            main: whether this process writes the files.
        Returns: the groups to record, in order: the first ones, and those of an alarm; none if the step is not due.
        """
        known = reward[~reward.isnan()]
        now = {"reward": float(known.mean()), "one_reward": float(known.max() == known.min())} if len(known) else {}
        now |= found
        if len(known) and len(reward) > 1:  # by the spread of the groups
            now["reward_error"] = float(reward.nanmean(1).nan_to_num(0.0).std()) / math.sqrt(len(reward))
        said = changed_side(self.seen_steps, now) if self.alarm and not self.raised else None
        worst: list[int] = []  # groups to look at first
        if said is not None:
            self.raised, self.alarm_step = f"step {step}, {said[0]}: {said[1]}", step
            worst = reward.nanmean(1).nan_to_num(0.0).argsort(stable=True)[:WORST].tolist()
        others = [group for group in range(len(reward)) if group not in worst]
        chosen = sorted((worst + others)[: max(self.groups, len(worst))]) if self.keeps(step, step) else []
        if self.alarm:
            found["alarm"] = now["alarm"] = float(said is not None)
        if main and "gauges.jsonl" not in self.failed:
            with self.harmless("gauges.jsonl"), (self.folder.path / "gauges.jsonl").open("ab") as file:
                file.write((json.dumps({"step": step} | now) + "\n").encode())
        if main and said is not None:
            logging.getLogger(__name__).warning("pmdkit: alarm at %s", self.raised)
            with self.harmless("alarm.json"):
                places = {"rows": f"rollouts/step-{step}.safetensors", "groups": [chosen.index(each) for each in worst]}
                told = {"step": step, "side": said[0], "says": said[1], **places, "gauges": now}
                files.replace(self.folder.path / "alarm.json", files.encode(told))
        self.seen_steps = [*self.seen_steps, now][-HISTORY:]
        return chosen

    def keeps(self, step: int, now: int) -> bool:
        """Whether the recording of a step is kept when another comes: every one at first, then every second, fourth.

        That of the alarm is always kept.
        """
        every = 2 ** ((now - 1) // self.stride // self.steps).bit_length()
        return step == self.alarm_step or (step - 1) // self.stride % every == 0

    def write(self, step: int, version: int, loss: float, rows: Mapping[str, Any], reward: Tensor) -> None:
        """Write a step, and delete the recordings that are no longer kept; nothing more once that has failed.

        Args:
            step, version: number of the first update on the rows, and updates before they were drawn.
            loss: mean over the updates.
            rows: `prompts`, a list of tokens for each; `golds`, the right answers that are known; `mask`, `responses`
                and other tensors of a `Recording`, N rows.
            reward: [P, G], NaN for a response without a verdict.
        """
        if "recording" not in self.failed:
            with self.harmless("recording"):
                found = encode(self.recording(step, version, loss, rows, reward))
                files.replace(self.folder.rollouts / f"step-{step}.safetensors", found, flush=False)
                for path in self.folder.rollouts.glob("step-*.safetensors"):
                    if not self.keeps(int(path.stem.removeprefix("step-")), step):
                        path.unlink()

    def recording(self, step: int, version: int, loss: float, rows: Mapping[str, Any], reward: Tensor) -> Recording:
        """The recording of a step; arguments as for `write`."""
        prompts, mask = rows["prompts"], rows["mask"]
        present = ~reward.isnan() & mask.any(1).view(reward.shape)  # one that is masked as a whole was left out
        mask = torch.cat([mask[:, :1] | ~mask.any(1, keepdim=True), mask[:, 1:]], 1)
        names = [zlib.crc32(repr(prompt).encode()) & 0x7FFFFFFF for prompt in prompts]  # the same in all steps
        tensors = {name: x for name, x in rows.items() if name not in ("prompts", "golds", "mask")} | {
            "prompts": torch.tensor(names),
            "prompt_tokens": torch.tensor([token for prompt in prompts for token in prompt]),
            "prompt_length": torch.tensor([len(prompt) for prompt in prompts]),
            "reward": torch.where(present, reward, 0.0),
            "mass": present / present.sum(1, keepdim=True).clamp_min(1).double(),
        }
        facts = {"step": step, "version": version, "updates": [{"loss": loss}]}
        facts["problems"] = [f"prompt {name:08x}" for name in names]
        facts |= {"golds": rows["golds"]} if any(rows.get("golds", ())) else {}
        return Recording(self.about | facts, mask, tensors)


WORST = 5  # groups of an alarm, with the smallest rewards
GOLD = ("solution", "answer", "ground_truth", "gold", "target")  # columns of right answers in data of TRL and verl
HISTORY = 16  # steps that a new one is compared with
MIN_HISTORY = 8  # fewer say too little of their noise
SURPRISE = 8.0  # times the usual distance from the median, which few steps know badly
REWARD_SURPRISE = 5.0  # standard errors of the mean reward, which the groups of a step know well
LEAP = 0.4  # of the logarithm of the entropy: 1.5 times as much
APART = 0.02  # nats per token between engine and trainer, several times what healthy engines have


def changed_side(before: list[dict[str, float]], now: Mapping[str, float]) -> tuple[str, str] | None:
    """The side that changed in a step, and a sentence with the numbers; None if none did, or too few steps are known.

    A leap of the policy explains a fall of the reward, so it is looked for first; then the engine, then the grader.
    """
    if len(before) < MIN_HISTORY:
        return None

    def usual(name: str) -> tuple[float, float]:
        values = torch.tensor([step[name] for step in before if name in step] or [math.nan], dtype=torch.float64)
        middle = values.median()
        return float(middle), float((values - middle).abs().median()) / 0.6745  # the std, of normal noise

    middle, noise = usual("token_entropy")
    entropy = now.get("token_entropy", math.nan)
    if min(entropy, middle) > 0 and abs(math.log(entropy / middle)) > LEAP and abs(entropy - middle) > SURPRISE * noise:
        return "policy", f"entropy leaps from {middle:.3g} to {entropy:.3g} nats per token; look at the learning rate"
    middle, noise = usual("mismatch_mean")
    gap = now.get("mismatch_mean", math.nan)
    if gap > max(APART, 3 * middle, middle + SURPRISE * noise):
        return "engine", f"engine and trainer part from {middle:.2g} to {gap:.2g} nats per token"
    ones = usual("one_reward")[0]
    middle, noise = usual("reward")
    reward = now.get("reward", math.nan)
    noise = max(noise, usual("reward_error")[0], 0.02)
    if now.get("one_reward") == 1 and ones == 0 and abs(reward - middle) > 3 * noise:
        return "grader", f"every reward is {reward:g}, and the mean was {middle:.3g}; the policy goes on as before"
    if abs(reward - middle) > SURPRISE * noise:
        return (
            "grader or data",
            f"the mean reward leaps from {middle:.3g} to {reward:.3g}; the policy goes on",
        )
    return None


def gold_of(row: Mapping[str, Any]) -> str | None:
    """The right answer in a row of data, under one of the usual names."""
    found = (row.get(name) for name in GOLD)
    return next((str(each) for each in found if isinstance(each, str | int | float)), None)


def cut_off(responses: Tensor, mask: Tensor, width: int, ends: Sequence[int]) -> Tensor:
    """[N] whether a response has `width` tokens and the last is no end token."""
    last = responses.gather(1, (mask.shape[1] - 1 - mask.flip(1).byte().argmax(1))[:, None])[:, 0]
    return (mask.sum(1) >= width) & ~torch.isin(last, torch.tensor(ends, device=last.device))


def row_sums(
    mask: Tensor, logp_old: Tensor, seen: Tensor | None, engine: Tensor | None, cut: Tensor | None = None
) -> Tensor:
    """[N, 6] float64, what the gauges need of rows [N, T]: so little that processes can gather it in every step.

    Tokens, log pi_old, log pi/pi_old before the row's own update, log pi_old/pi_engine, its sum and the sum of its
    absolute values, and whether the response was cut off; NaN for what is not known.
    """
    change = seen - logp_old if seen is not None else torch.nan * logp_old
    gap = (logp_old - engine).nan_to_num(0.0) if engine is not None else torch.nan * logp_old  # vLLM lacks some
    sums = [torch.where(mask, x, 0.0).sum(1, dtype=torch.float64) for x in (logp_old, change, gap, gap.abs())]
    return torch.stack([mask.sum(1).double(), *sums, sums[0] * torch.nan if cut is None else cut.double()], 1)


def gauges(
    reward: Tensor, sums: Tensor, tau: float | None, passed: float | None, staleness: float | None = None,
    sampler: float | None = None,
) -> dict[str, float]:  # fmt: skip
    """The gauges of a step by their names in metrics.jsonl; those without data are left out.

    They are those of docs/use/gauges.md, but `log_ratio_*`, `kl` and `ess` take each row before its own update and not
    after the step. `log_ratio_std` is over all responses, nats. `off_policy` is of the policy before a row's own
    update, or of pi_old where that is not known.

    Args:
        reward: [P, G], NaN for a response without a verdict.
        sums: [P * G, 6], see `row_sums`.
        tau: reward units, None for no `anchor`.
        passed: see `StepRecorder`.
        staleness, sampler: parts of log pi_old/mu, see `off_policy_parts`; 0 if pi_old drew, and if the engine draws
            from its whole softmax.
    """
    tokens, logp, change, gap, apart, cut = sums.view(*reward.shape, 6).unbind(2)
    moved = float(change.sum() / tokens.sum())
    moved = 0.0 if math.isnan(moved) else moved
    parts = off_policy_parts(
        float(gap.sum() / tokens.sum()) + moved, None, None if staleness is None else staleness + moved, sampler
    )
    present = ~reward.isnan() & (tokens > 0)
    there, reward = present.any(1), torch.where(present, reward, 0.0)
    mass = present / present.sum(1, keepdim=True).clamp_min(1).double()
    top, low = (torch.where(present, reward, edge) for edge in (-torch.inf, torch.inf))
    taus = torch.full((len(reward),), torch.nan if tau is None else tau, dtype=torch.float64)
    change = torch.where(present, change, 0.0)
    ratio = change.exp()
    found = {
        "unscored": float((~present).sum()),
        "zero_variance_groups": float((there & (top.amax(1) == low.amin(1))).sum()),
        "anchor": None if tau is None else anchor(Groups(reward, mass), taus),
        "token_entropy": float(-logp.sum() / tokens.sum()),
        "kl": expect(ratio * change - ratio + 1, mass, there),
        "ess": gauge.mean(((mass * ratio).sum(1) ** 2 / (mass * ratio**2).sum(1)).numpy()),
        "log_ratio_min": float(change[present].min()) if present.any() else 0.0,
        "log_ratio_max": float(change[present].max()) if present.any() else 0.0,
        "log_ratio_std": float(change[present].std(correction=0)),
        "mismatch_mean": float(apart.sum() / tokens.sum()),
        "mismatch_kl": float(-gap.sum() / tokens.sum()),
        "cut_off": float(cut.sum()),
        **parts,
    }
    if passed is not None:
        right = present & (reward > passed)
        rate = (mass * right).sum(1)
        noise = gauge.noise_columns(reward.numpy(), present.numpy(), passed, taus.numpy(), rate.numpy())
        found["pass_rate"] = expect(right.double(), mass, there)
        found["pass_rate_completed"] = float(right[cut == 0].sum() / (present & (cut == 0)).sum())
        found |= {name: gauge.mean(values) for name, values in noise.items()}
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}
