"""What may be wrong with a run, in order of evidence. Each rule reads measures alone and says what would confirm it.

Thresholds were chosen on the half `build` of benchmarks/autopsy.py, before its other half was read.
"""

import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit_lab.autopsy.measures import EXAMPLES, Measures, correlation, merged
from pmdkit_lab.autopsy.readers import Place, Source

ABOUT: dict[str, Any] = tomllib.loads((Path(__file__).parent / "causes.toml").read_text(encoding="utf-8"))
LOST = 0.05  # right responses that the cap prevents, over those that there are
SOLVED = 0.9  # a reward from which silence and sameness are what learning leads to


@dataclass(frozen=True)
class Run:
    """All steps of a run in order, the first one, the last tenth, and all of them merged."""

    steps: list[Measures]
    source: Source
    start: Measures = field(init=False)
    end: Measures = field(init=False)
    whole: Measures = field(init=False)

    def __post_init__(self) -> None:
        tenth = max(len(self.steps) // 10, 1)
        parts = {"start": self.steps[:1], "end": self.steps[-tenth:], "whole": self.steps}
        for name, part in parts.items():
            object.__setattr__(self, name, merged(part))

    def series(self, key: str) -> list[tuple[int, float]]:
        """(step, value) where a measure, or a metric of the trainer, is known."""
        found = ((each["step"], each.get(key)) for each in self.steps)
        known = [(step, float(value)) for step, value in found if value is not None]
        logged = sorted((step, row[key]) for step, row in self.source.metrics.items() if key in row)
        return known or logged


@dataclass(frozen=True)
class Cause:
    """A cause that the evidence supports.

    Attributes:
        name: short and stable, for programs.
        says: one sentence with the numbers.
        evidence: the measure over its threshold, at least 1; causes are sorted by it within their rank.
        steps: first and last step that show it.
        rows: places of rows that show it.
        confirm: what would confirm it.
        remedy: what to try.
    """

    name: str
    says: str
    evidence: float
    steps: tuple[int, int]
    rows: list[Place]
    confirm: str
    remedy: str

    def as_json(self, where: Callable[[Place], str]) -> dict[str, Any]:
        """As JSON values, rows as `file:record`."""
        return asdict(self) | {"rows": [where(place) for place in self.rows], "steps": list(self.steps)}


Finding = tuple[float, str, Callable[[Measures], bool]] | None  # evidence, sentence, and whether a step shows it


def at_least(key: str, least: float) -> Callable[[Measures], bool]:
    """Whether a measure of a step is there and reaches a threshold."""
    return lambda step: step.get(key) is not None and step[key] >= least


def always(_: Measures) -> bool:
    """Every step shows it."""
    return True


def advantage_sign(run: Run) -> Finding:
    """Credit falls where the reward rises."""
    sign = run.whole.get("credit_sign")
    if sign is None or sign > -0.5:
        return None
    return -sign / 0.5, f"advantages fall where rewards rise: within groups they correlate with {sign:.2f}", always


def advantage_not_centred(run: Run) -> Finding:
    """The advantage is the reward up to scale and a constant, and its mean is far from 0."""
    alike, offset = run.whole.get("credit_is_reward"), run.whole.get("credit_mean")
    if alike is None or offset is None or abs(alike) < 0.999 or offset < 0.3:
        return None
    says = f"no baseline is taken off: advantages are the reward, and their mean is {offset:.2g} of their spread"
    return offset / 0.3, says, at_least("credit_mean", 0.3)


def reward_cannot_read(run: Run) -> Finding:
    """Answers that equal the gold answer are not paid."""
    known, unpaid = run.whole["right_known"], run.whole["right_unpaid"]
    if known < 20 or unpaid < 0.5 * known:
        return None
    says = f"{unpaid:,} of {known:,} right answers got the lowest reward; {form_words(run.whole)}"
    return unpaid / known / 0.5, says, at_least("right_unpaid", 1)


def wrong_form_paid(run: Run) -> Finding:
    """Wrong answers are paid, or several different answers to one prompt are."""
    known, wrong = run.whole["paid_known"], run.whole["paid_wrong"]
    both = run.whole.get("contradictions") or 0.0
    if known >= 20 and wrong >= 0.3 * known:
        says = f"{wrong:,} of {known:,} responses that were paid in full give a wrong answer; {form_words(run.whole)}"
        return wrong / known / 0.3, says, at_least("paid_wrong", 1)
    if known < 20 and both >= 0.3:
        says = f"in {both:.0%} of the groups different answers to one prompt were paid in full; {form_words(run.whole)}"
        return both / 0.3, says, at_least("contradictions", 0.3)
    return None


def form_words(step: Measures) -> str:
    """The mean reward of every common form of answer."""
    common = {name: each for name, each in step["forms"].items() if each[0] >= 0.02 * step["rewarded"]}
    return "by form: " + ", ".join(
        f"{name} {reward:.2f} ({count:,} rows)" for name, (count, reward, *_) in common.items()
    )


def equal_rewards(run: Run) -> Finding:
    """One reward in the whole run."""
    lows, highs = ({step[key] for step in run.steps} - {None} for key in ("reward_low", "reward_high"))
    if lows != highs or len(lows) != 1:
        return None
    return 1.0, f"every response of the run got the reward {lows.pop():g}, so no group says anything", always


def cut_off_scored_wrong(run: Run) -> Finding:
    """Responses end at the cap and are scored as wrong, and would have been right like those that ended just below it.

    Long answers to hard prompts, and endless ones, are wrong with or without a cap: few of them end in its last
    quarter, and few of those are right.
    """
    steps = [step for step in run.steps if (step["cut"] or 0) >= 0.05]
    if len(steps) < max(2, len(run.steps) // 5):
        return None
    here = merged(steps)
    cut, near = here["cut"], here["near"]
    if None in (near, here["reward_cut"], here["reward_whole"]) or here["reward_cut"] > 0.6 * here["reward_whole"]:
        return None
    # at the rate at which they end in its last quarter, this share would end within another cap, as often right
    ended = 1 - (1 - near / (near + cut)) ** 4
    lost = cut * ended * here["near_passed"] / (near * here["passed"]) if near * here["passed"] else 0.0
    if lost < LOST and cut < 0.5:
        return None
    says = (
        f"{cut:.0%} of the responses end at the cap and earn {here['reward_cut']:.2g}, the others "
        f"{here['reward_whole']:.2g}; by those that end just below it, twice the cap gives {lost:.0%} more right ones"
    )
    return max(lost / LOST, cut / 0.5), says, at_least("cut", 0.05)


def mask_off_by_one(run: Run) -> Finding:
    """The trainer's tokens are not the engine's."""
    late = run.whole.get("mask_late")
    if late is not None and late >= 0.5:
        return late / 0.5, f"in {late:.0%} of the responses the first token that was drawn is outside the mask", always
    alike, others = run.whole.get("alike"), [run.whole.get(f"alike_{side}") for side in ("ahead", "behind")]
    best = max((value for value in others if value is not None), default=None)
    if alike is None or best is None or best < max(0.7, alike + 0.2):
        return None
    says = f"the trainer's log-probabilities match the engine's one token off ({best:.2f}), not in place ({alike:.2f})"
    return best / 0.7, says, always


def temperature(run: Run) -> Finding:
    """From the first step, log-probabilities differ by a factor."""
    slope, gap = run.start.get("slope"), run.start.get("gap")
    if slope is None or gap is None or gap < 0.03 or abs(slope - 1) < 0.08 or (run.start["alike"] or 0) < 0.8:
        return None
    says = (
        f"from the start the trainer's log-probabilities are {slope:.2f} times the engine's ({gap:.2g} nats apart on "
        "average): one of the two leaves out the sampling temperature"
    )
    return abs(slope - 1) / 0.08, says, at_least("gap", 0.03)


def stale_policy(run: Run) -> Finding:
    """Engine and trainer part after a start where they agreed."""
    first, last = run.start.get("gap"), run.whole.get("gap")
    lag = run.whole.get("lag")
    if last is None or first is None or last < 0.05 or last < 3 * max(first, 1e-4):
        return None
    if lag is not None and lag < 0.5:
        return None
    words = "no version is written" if lag is None else f"the policy that drew is {lag:.1f} steps old on average"
    says = f"engine and trainer part from {first:.2g} to {run.end['gap']:.2g} nats per token; {words}"
    return last / 0.05 * (1.0 if lag is None else 2.0), says, at_least("gap", 0.05)


def engine_mismatch(run: Run) -> Finding:
    """From the first step, engine and trainer disagree without a pattern."""
    gap, slope = run.start.get("gap"), run.start.get("slope")
    if gap is None or gap < 0.02 or (slope is not None and abs(slope - 1) >= 0.08) or (run.start["alike"] or 0) < 0.8:
        return None
    says = f"from the start engine and trainer differ by {gap:.2g} nats per token on the same tokens, without a pattern"
    return gap / 0.02, says, at_least("gap", 0.02)


def duplicate_prompts(run: Run) -> Finding:
    """Groups of one step share their prompts."""
    share = run.whole.get("repeated")
    if share is None or share < 0.5:
        return None
    return (
        share / 0.5,
        f"{share:.0%} of a step's groups ask a prompt that another group asks too",
        at_least("repeated", 0.5),
    )


def no_variety(run: Run) -> Finding:
    """From the first step the responses of a group are one response."""
    same = run.start.get("one_answer")
    if same is None or same < 0.9 or run.start["reward"] > SOLVED:
        return None
    says = f"from the start all responses of a group are one and the same in {same:.0%} of the groups"
    return 2 * same / 0.9, says, at_least("one_answer", 0.9)


def part_below_threshold(run: Run) -> Finding:
    """PMD-part pushes away from the old policy."""
    objective = run.source.config.get("objective", {}).get("name")
    anchors = [value for _, value in run.series("anchor")]
    if objective != "pmd-part" or not anchors or max(anchors) <= 1:
        return None
    stale = max((value for _, value in run.series("staleness")), default=0.0)
    if not stale or run.end["reward"] > max(2 * run.start["reward"], 0.5):
        return None
    says = (
        f"under PMD-part the push away from the old policy reaches {max(anchors):.3g} times the pull back to it, and "
        f"updates are up to {stale:.0f} steps stale, so what the reward says nothing about grows"
    )
    return max(anchors), says, at_least("anchor", 1.0)


def kl_sign(run: Run) -> Finding:
    """The loss falls as the KL from the reference grows."""
    kl, loss = dict(run.series("kl")), dict(run.series("loss"))
    both = sorted(kl.keys() & loss.keys())
    if run.source.config or len(both) < 8:
        return None
    late = both[len(both) // 2 :]
    distance, sign = (sum(values[step] for step in late) / len(late) for values in (kl, loss))
    together = correlation(*(np.array([values[step] for step in both]) for values in (kl, loss)))
    if distance < 0.3 or sign >= 0 or together is None or together > -0.8:
        return None
    says = (
        f"the distance from the reference reaches {distance:.2g} nats while the loss is {sign:.2g}: KL lowers the loss"
    )
    return distance / 0.3, says, always


def rate_too_high(run: Run) -> Finding:
    """Steps are long, or entropy falls away before anything is learned."""
    moved = max((value for _, value in run.series("step_std")), default=0.0)
    kept = min((value for _, value in run.series("ess_step")), default=1.0)
    if moved >= 0.8 and kept < 0.6:
        says = f"one step moves a response by up to {moved:.2g} nats, and an effective {kept:.0%} of the sample is left"
        return moved / 0.8, says, at_least("step_std", 0.8)
    entropy = [value for _, value in run.series("entropy")]
    if len(entropy) < 8 or entropy[0] < 0.05 or run.end["reward"] is None or run.end["reward"] > SOLVED:
        return None
    fall = next((n for n, value in enumerate(entropy) if value < 0.3 * entropy[0]), None)
    if fall is None or fall > len(entropy) // 2:
        return None
    says = (
        f"entropy falls from {entropy[0]:.2g} to {min(entropy):.2g} nats per token within {fall + 1} steps, while the "
        f"reward ends at {run.end['reward']:.2g}"
    )
    return 0.3 * entropy[0] / max(min(entropy), 1e-3), says, at_least("silent", 0.5)


RULES: tuple[Callable[[Run], Finding], ...] = (
    advantage_sign, reward_cannot_read, wrong_form_paid, mask_off_by_one, temperature, advantage_not_centred, kl_sign,
    part_below_threshold, no_variety, stale_policy, engine_mismatch, cut_off_scored_wrong, duplicate_prompts,
    rate_too_high, equal_rewards,
)  # fmt: skip


def causes(run: Run) -> list[Cause]:
    """All causes with evidence, the best supported first."""
    found = []
    for rule in RULES:
        finding = rule(run)
        if finding is None:
            continue
        evidence, says, shows = finding
        name = rule.__name__.replace("_", "-")
        about = ABOUT[name]
        steps = [step for step in run.steps if shows(step)] or run.steps
        rows = [place for step in steps for place in step["places"].get(about.get("rows", "any"), [])][:EXAMPLES]
        ends = (steps[0]["step"], steps[-1]["step"])
        cause = Cause(name, says, round(float(evidence), 2), ends, rows, about["confirm"], about["remedy"])
        found.append((about["rank"], cause))
    return [cause for _, cause in sorted(found, key=lambda each: (each[0], -each[1].evidence))]
