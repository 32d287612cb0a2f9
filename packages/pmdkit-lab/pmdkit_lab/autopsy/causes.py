"""Name what may be wrong with a run. Each rule reads measures alone and returns its evidence, or None.

The thresholds were chosen on the half `build` of benchmarks/autopsy.py, before its other half was read; those of
`length_paid` and `silent_groups` came later, and follow from the reason beside them.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit_lab.autopsy.changes import JUMP, SURE, Jump, at_once, goes_on, jump, trend
from pmdkit_lab.autopsy.measures import EXAMPLES, Measures, correlation, merged
from pmdkit_lab.dumps.readers import Place, Source

ABOUT: dict[str, Any] = tomllib.loads((Path(__file__).parent / "causes.toml").read_text(encoding="utf-8"))
PHASES = 3  # of a report
SOLVED = 0.9  # mean reward above which equal rewards and equal responses are what learning leads to
MIN_KNOWN = 20  # responses whose answer can be compared with the right one; fewer say little about a verifier
NO_CREDIT = 0.2  # correlation of advantage and reward within groups; near +1 for every usual advantage
SAME_UP_TO_SCALE = 0.999  # correlation of advantage and reward over the batch; 1 if no baseline was subtracted
OFFSET = 0.3  # mean advantage over its spread; 0 if the mean of the group was subtracted
UNPAID = 0.5  # of the right answers; below it, the verifier reads most of them
RARE = 0.02  # of the answers
SOME_UNPAID = 0.2  # of them to the end: a kind of problem or a form that the verifier cannot read
ONE_FORM = 0.1  # mean reward of a form, or 1 minus it; beyond it a verdict follows the form
PAID_WRONG = 0.3  # of the responses paid in full; below it, the reward still follows the answer
SOME_WRONG = 0.25  # of them, in the last third
READABLE, ENDS_READABLE = 0.5, 0.4  # of the paid responses at first; of this share in the last third of the run
FEWER_RIGHT = 0.1  # of the responses, while the reward rises
CONTRADICTIONS = 0.3  # of the groups with two paid responses; below it, the reward still follows the answer
LENGTH_FIRST = 0.5  # the same where length explains more of the reward than right answers do
LENGTH_PAID = 0.71  # correlation of reward and length; its square says that length explains half of the reward
ONE_VERDICT = 0.95  # of the groups whose responses all get one reward
SILENT = 0.5  # of the groups; above it, most of the sampling teaches nothing
CUT = 0.05  # of the responses of a step; fewer hardly move the mean reward
CUT_STEPS = 0.2  # of the steps; a cap that binds in fewer decides nothing
CUT_PAID, MOST_PAID = 0.6, 0.8  # reward of cut-off responses over that of the others; near 1 if the cap does no harm
MOSTLY_CUT = 0.5  # of the responses; then too few end to tell how often the others would have been right
MIN_LOST_SHARE = 0.05  # right responses that the cap prevents, over those that it lets through
LATE_MASK = 0.5  # of the responses; 0 with a right mask
SHIFTED = 0.7  # correlation of both log-probabilities one token off; near 1 if the mask is off by one
SHIFT_MARGIN = 0.2  # by which it must exceed the correlation in place: equal tokens in a row correlate both ways
ALIKE = 0.8  # correlation in place; below it, neither a factor nor a difference describes the two
TEMPERATURE_GAP = 0.03  # nats per token, ten times that of the benchmark's healthy engines
FACTOR = 0.95  # correlation where a factor above 1 is all; another sampler or a broken layer of the engine leaves more
SLOPE = 0.08  # |slope - 1|; sampling at a temperature of 0.93 or 1.09 reaches it
STALE_GAP = 0.05  # nats per token in a third of the run, twice the threshold of a mismatch from the start
STALE_GROWTH = 3  # gap in a third of the run, over that of the first step; 1 if both drift alike
FROZEN = 8  # steps with one version, three times as many as before at the least
MIN_LAG = 0.5  # steps on average; 0 if each step is drawn by the newest policy
MISMATCH_GAP = 0.02  # nats per token, several times that of the benchmark's healthy engines
LARGE_GAP = 0.2  # nats per token; ten tokens of it are e^2, and no clip keeps such a response
REPEATED, SOME_REPEATED = 0.5, 0.3  # of the groups; fewer repeats are usual in small data
ONE_RESPONSE = 0.9  # of the groups of the first step; sampling at temperature 1 gives hardly any
ANCHOR = 1  # c / tau; there the push away from the old policy equals the pull back to it
LEARNED = 2  # reward of the end over that of the start, for a run that learns
HALF = 0.5  # mean reward that a run reaches only if it learns
KL_STEPS = 8  # steps with both KL and loss; a correlation over fewer is chance
KL_DISTANCE = 0.3  # nats from the reference in the second half of the run; below it the KL term is small
KL_CORRELATION = -0.8  # of loss and KL; a positive penalty correlates positively
OWN_BATCH = 0.71  # correlation of log-ratio and reward within groups; its square says that rewards explain half of it
LONG_STEP = 0.8  # nats: spread of the log-ratios of one step; a ratio of e^0.8 = 2.2 is far outside any clip
STEP_ESS = 0.6  # effective share of the sample after one step; a small step leaves nearly 1
MIN_ENTROPY_STEPS = 8  # steps with entropy; a fall within fewer is chance
MIN_ENTROPY = 0.05  # nats per token at the start; below it, little is left to fall
MORE_CHOICES = 0.35  # nats of growth: a policy chooses among 1.4 times as many tokens or words
GROWTH, LEAST_GROWTH = 1.4, 0.2  # of the entropy at the start, and nats: where it was small
ENTROPY_FALL = 0.3  # entropy over that of the start
DISAGREES = 0.15  # by which verdicts agree less with the content of answers than before; a changed prompt moves both
INDEPENDENT = 0.08  # between the agreement of verdicts and that of independent ones; an honest grader is 0.3 above it
LEAP = 0.4  # of a logarithm: the policy's entropy, words or length are 1.5 times what they were; learning takes longer
LONGER = 0.1  # of the words of a prompt; data that is drawn at random varies less
LEAPS = {"entropy": "entropy", "word_entropy": "entropy of the words", "size": "mean length"}
ENDS = ((min, "reward_low"), (max, "reward_high"))
FALLEN = 0.75  # of the best reward; a reward above it is kept


@dataclass(frozen=True)
class Run:
    """The steps of a run in order; merged: the first step, the last tenth, three thirds, and the whole run.

    Nobody was paid in full in a step without the largest reward of the run, so such a step pays no wrong answer.
    """

    steps: list[Measures]
    source: Source
    start: Measures = field(init=False)
    end: Measures = field(init=False)
    phases: list[Measures] = field(init=False)
    whole: Measures = field(init=False)

    def __post_init__(self) -> None:
        most = max((step["reward_high"] for step in self.steps if step.get("reward_high") is not None), default=None)
        nobody = {"paid_known": 0, "paid_wrong": 0, "contradictions": None}
        steps = [step if step.get("reward_high") == most else step | nobody for step in self.steps]
        object.__setattr__(self, "steps", steps)
        tenth = max(len(self.steps) // 10, 1)
        thirds = np.array_split(np.arange(len(self.steps)), min(PHASES, len(self.steps)))
        object.__setattr__(self, "start", merged(self.steps[:1]))
        object.__setattr__(self, "end", merged(self.steps[-tenth:]))
        object.__setattr__(self, "phases", [merged([self.steps[n] for n in third]) for third in thirds])
        object.__setattr__(self, "whole", merged(self.steps))

    def series(self, key: str) -> list[tuple[int, float]]:
        """(step, value) for each step where a measure is known; where no step has it, the trainer's metric."""
        known = [(step["step"], float(step[key])) for step in self.steps if step.get(key) is not None]
        logged = sorted((step, row[key]) for step, row in self.source.metrics.items() if key in row)
        return known or logged

    def values(self, key: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """A measure at every step; none if a step lacks it."""
        found = [step.get(key) for step in self.steps]
        return np.array([] if any(value is None for value in found) else found, float)

    @property
    def rises(self) -> bool:
        """Whether the reward rises beyond its noise, and keeps most of what it had."""
        reward = self.values("reward")
        if len(reward) < 3:
            return False
        course, tenth = trend(reward), max(len(reward) // 10, 1)
        low = min(0.0, float(reward.min()))
        return course.z >= SURE and float(reward[-tenth:].mean()) - low >= FALLEN * (best_mean(reward) - low)

    def cap_falls(self) -> bool:
        """Whether from a step on more responses are cut off, and the longest are shorter: the cap is another one."""
        cut, longest = jump(self.values("cut")), self.values("longest")
        if cut is None or cut.size < CUT or not len(longest):
            return False
        return float(longest[cut.at :].max()) < float(longest[: cut.at].max())

    def frozen(self) -> int | None:
        """The place from which on one version draws to the end, for longer than any before it."""
        version = self.values("version")
        changes = np.flatnonzero(np.diff(version))
        if not len(changes):
            return None
        longest = max(FROZEN, 3 * np.diff(changes, prepend=-1).max())
        return int(changes[-1]) + 1 if len(version) - 1 - changes[-1] > longest else None

    def leap(self, kinds: Mapping[str, str] = LEAPS) -> tuple[int, str] | None:
        """The first place where the policy leaps, by its entropy, its words or its lengths, and words about it."""
        for key, name in kinds.items():
            values = self.values(key)
            if len(values) < MIN_ENTROPY_STEPS or (key == "size" and self.cap_falls()):
                continue
            logs = np.log(np.maximum(values, 1e-3))
            later, noise = float(np.median(logs[2:8])), trend(logs[2:]).noise
            at = 1 if abs(later - logs[0]) > max(LEAP, JUMP * noise) else None
            found = jump(logs)
            if at is None and found is not None and abs(found.size) > LEAP:
                at = found.at
            if at is not None:
                before, after = values[max(0, at - 5) : at].mean(), np.median(values[at + 1 : at + 7])
                return at, f"{name} leaps from {before:.3g} to {after:.3g}"
        return None


def best_mean(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The largest mean of a tenth of a column [n], n >= 1, in a row."""
    tenth = max(len(values) // 10, 1)
    return float(np.convolve(values, np.full(tenth, 1 / tenth), "valid").max())


@dataclass(frozen=True)
class Cause:
    """A cause that the evidence supports.

    Attributes:
        name: short and stable, for programs.
        says: one sentence with the numbers.
        evidence: the measure over its threshold; causes of equal rank are sorted by it. Below 1 it accuses nobody, and
            is something to watch.
        steps: first and last step that show it.
        rows: places of some rows that show it.
        confirm: a check that would confirm it.
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


Evidence = tuple[float, str, Callable[[Measures], bool]] | None  # its strength, a sentence, whether a step shows it


def at_least(key: str, least: float) -> Callable[[Measures], bool]:
    """A test of a step: whether its measure is known and reaches a threshold."""
    return lambda step: step.get(key) is not None and step[key] >= least


def always(_: Measures) -> bool:
    """True: every step shows the cause."""
    return True


def advantage_sign(run: Run) -> Evidence:
    """Credit does not rise with the reward, in a third of the run at the least: a sign may turn on the way."""
    known = [phase["credit_sign"] for phase in run.phases if phase.get("credit_sign") is not None]
    if not known or (sign := min(known)) > NO_CREDIT:
        return None
    how = "fall where rewards rise" if sign < -NO_CREDIT else "do not follow the rewards: they are those of other rows"
    says = f"advantages {how}; within groups of a third of the run they correlate with {sign:.2f}"
    return 1 + NO_CREDIT - sign, says, lambda step: (step.get("credit_sign") or 0.0) <= NO_CREDIT


def advantage_not_centred(run: Run) -> Evidence:
    """The advantage is the reward up to scale and a constant, and its mean is far from 0."""
    alike, offset = run.whole.get("credit_is_reward"), run.whole.get("credit_mean")
    if alike is None or offset is None or abs(alike) < SAME_UP_TO_SCALE or offset < OFFSET:
        return None
    says = f"no baseline is taken off: advantages are the reward, and their mean is {offset:.2g} of their spread"
    return offset / OFFSET, says, at_least("credit_mean", OFFSET)


def reward_cannot_read(run: Run) -> Evidence:
    """Answers that equal the gold answer are not paid."""
    known, unpaid = run.whole["right_known"], run.whole["right_unpaid"]
    if known < max(MIN_KNOWN, RARE * (known + (run.whole.get("wrong_known") or 0))):  # fewer may be right by chance
        return None
    most = unpaid >= UNPAID * known
    some = all(
        x["right_unpaid"] - unmarked(x) >= max(SOME_UNPAID * x["right_known"], MIN_KNOWN / 2) for x in run.phases
    )
    if not most and not some:
        return None
    rivals = (reward_noise, verdicts_shuffled, grader_changed, rate_too_high)  # not form, or not from the start
    if one_verdict(run) or any(rule(run) is not None for rule in rivals):
        return None
    says = f"{unpaid:,} of {known:,} right answers got the lowest reward; {form_words(run.whole)}"
    strength = unpaid / known / UNPAID if most else 0.5 if run.rises else 1.0
    return strength, says, at_least("right_unpaid", 1)


def unmarked(step: Measures) -> int:
    """Right answers that nothing marks as answers, if hardly any such response is paid: a mark may be asked for."""
    forms = (step["forms"].get(name) for name in ("number", "none"))
    if step["reward_low"] is None:
        return 0
    least = step["reward_low"] + ONE_FORM * (step["reward_high"] - step["reward_low"])
    return sum(right for _, reward, right, _ in filter(None, forms) if reward < least)


def reward_noise(run: Run) -> Evidence:
    """From the start, wrong answers are paid and right ones are not, as often as chance has it."""
    known, unpaid = run.whole["right_known"], run.whole["right_unpaid"]
    paid, wrong = run.whole["paid_known"], run.whole["paid_wrong"]
    if not against_answers(run) or one_verdict(run):  # chance would pay some of a group
        return None
    found = jump(run.values("agrees"))
    if found is not None and found.size < 0:  # not from the start
        return None
    low, high = (pick(step[key] for step in run.steps if step[key] is not None) for pick, key in ENDS)
    common = [reward for count, reward, *_ in run.whole["forms"].values() if count >= 0.02 * run.whole["rewarded"]]
    if any(not ONE_FORM <= (reward - low) / (high - low) <= 1 - ONE_FORM for reward in common):  # the form decides
        return None
    says = f"{wrong:,} of {paid:,} paid responses are wrong, and {unpaid:,} of {known:,} right ones got the least"
    return max(unpaid / known, wrong / paid) / PAID_WRONG + 1, says, at_least("paid_wrong", 1)


def against_answers(run: Run) -> bool:
    """Whether many right answers are unpaid, and many of the wrong ones are paid or many of the paid ones wrong."""
    known, unpaid = run.whole["right_known"], run.whole["right_unpaid"]
    paid, wrong = run.whole["paid_known"], run.whole["paid_wrong"]
    most = min(paid, run.whole.get("wrong_known") or paid)  # of a good policy, few of the paid ones are wrong
    return min(known, paid) >= MIN_KNOWN and unpaid >= PAID_WRONG * known and wrong >= PAID_WRONG * most


def one_verdict(run: Run) -> bool:
    """Whether right and wrong answers of a group get one reward, as from verdicts that are kept by prompt."""
    return against_answers(run) and (run.whole.get("silent") or 0.0) > ONE_VERDICT


def side_changed(run: Run, key: str, least: float) -> Jump | None:
    """A jump of a measure of at least this size where the policy does not leap."""
    found, leap = jump(run.values(key)), run.leap()
    if found is None or abs(found.size) < least or (leap is not None and abs(leap[0] - found.at) <= 3):
        return None
    return found


def step_at(run: Run, found: Jump) -> int:
    """The number of the first step after a jump."""
    return int(run.steps[found.at]["step"])


def from_step(run: Run, at: int) -> Callable[[Measures], bool]:
    """A test of a step: whether it is at this place of the run or after it."""
    first = run.steps[min(at, len(run.steps) - 1)]["step"]
    return lambda step: step["step"] >= first


def verdicts_shuffled(run: Run) -> Evidence:
    """From a step on, verdicts are independent of the answers, with the same mean: they belong to other rows."""
    found = side_changed(run, "agrees", DISAGREES)
    if found is None or found.size > 0:
        return None
    late = merged(run.steps[found.at :])
    paid, right, both = late["passed"], late["content"], late["agrees"]
    chance = paid * right + (1 - paid) * (1 - right)
    if abs(both - chance) > INDEPENDENT or abs(paid - right) > 2 * INDEPENDENT or not 0.05 < paid < 0.95:
        return None
    says = (
        f"from step {step_at(run, found)} on verdicts agree with {both:.0%} of the answers, before it with "
        f"{merged(run.steps[: found.at])['agrees']:.0%}; verdicts of other rows would agree with {chance:.0%}"
    )
    return found.z / JUMP + 1, says, from_step(run, found.at)


def grader_changed(run: Run) -> Evidence:
    """From a step on, verdicts disagree with answers, or all are one, while the policy goes on as before."""
    found = side_changed(run, "agrees", DISAGREES)
    if found is not None and (found.size > 0 or not at_once(run.values("agrees"), found)):
        found = None  # a policy that learns what is paid in place of right answers needs longer
    if found is not None and verdicts_shuffled(run) is None:
        before, late = merged(run.steps[: found.at]), merged(run.steps[found.at :])
        says = (
            f"from step {step_at(run, found)} on verdicts agree with {late['agrees']:.0%} of the answers, before it "
            f"with {before['agrees']:.0%}, while {late['content']:.0%} of the answers are right, before it "
            f"{before['content']:.0%}"
        )
        return found.z / JUMP + 1, says, from_step(run, found.at)
    found = side_changed(run, "reward", 0.0)
    if found is None:
        return None
    low, high = (run.values(key)[found.at :] for key in ("reward_low", "reward_high"))
    if not len(low) or low.min() < high.max():
        return None
    says = (
        f"from step {step_at(run, found)} on every reward is {low[0]:g}, while the policy goes on as before: what pays "
        "it changed"
    )
    return found.z / JUMP, says, from_step(run, found.at)


def data_changed(run: Run) -> Evidence:
    """From a step on, prompts have another length, or are answered right at another rate, by an unchanged policy."""
    words = side_changed(run, "asked", LONGER * (run.start.get("asked") or 0.0))
    if words is not None and ((duplicate_prompts(run) or (0.0,))[0] >= 1 or not stays(run.values("asked"), words)):
        words = None  # a step of few prompts has another length by chance
    content = side_changed(run, "content", DISAGREES)
    if words is not None:
        before, after = (merged(part)["asked"] for part in (run.steps[: words.at], run.steps[words.at :]))
        says = f"from step {step_at(run, words)} on prompts have {after:.4g} words, before it {before:.4g}"
        if content is not None and abs(content.at - words.at) <= 2:
            says += f", and the share of right answers changes by {content.size:+.2f}"
        return 0.5 if run.rises else words.z / JUMP, says, from_step(run, words.at)  # such prompts did it no harm
    if content is None or content.size > 0 or side_changed(run, "agrees", DISAGREES) is not None:  # up is learning
        return None
    if engine_changed(run) is not None or goes_on(run.values("content"), content):  # the policy decays
        return None
    says = (
        f"at step {step_at(run, content)} the share of right answers changes by {content.size:+.2f}, while verdicts "
        "still agree with answers, and neither words nor lengths leap: the prompts are others"
    )
    return 0.5 if run.rises else content.z / JUMP, says, from_step(run, content.at)


def stays(values: np.ndarray[Any, np.dtype[np.float64]], found: Jump) -> bool:
    """Whether a jump is one of the means of all steps before and after it, too, beyond their standard error."""
    before, after = values[: found.at], values[found.at :]
    error = np.hypot(before.std() / np.sqrt(len(before)), after.std() / np.sqrt(len(after)))
    return bool(abs(after.mean() - before.mean()) > max(LONGER * before.mean(), SURE * error))


def larger_part(step: Measures) -> str | None:
    """The larger of mismatch and staleness in log pi/mu; None where one of them is not known."""
    parts = {name: step.get(f"off_policy_{name}") for name in ("mismatch", "staleness")}
    return None if None in parts.values() else max(parts, key=lambda name: abs(parts[name] or 0.0))


def part_words(step: Measures) -> str:
    """log pi/mu as the sum of its parts, where they are known."""
    total, mismatch, staleness, sampler = (
        step.get(f"off_policy{part}") for part in ("", "_mismatch", "_staleness", "_sampler")
    )
    if None in (total, mismatch, staleness, sampler):
        return ""
    return f"; log pi/mu is {total:+.2g}, mismatch {mismatch:+.2g}, staleness {staleness:+.2g}, sampler {sampler:+.2g}"


def engine_changed(run: Run) -> Evidence:
    """From a step on, engine and trainer disagree, and the policy that draws is no older than before."""
    gap, words = ("gap", "nats per token") if len(run.values("gap")) else ("log_ratio_std", "nats of a response")
    apart = run.values(gap)
    found = jump(apart) or jump(np.log(np.maximum(apart, 1e-6)))  # the larger gap is the noisier one
    if found is None or found.size < 0:
        return None
    before, late = merged(run.steps[: found.at]), merged(run.steps[found.at :])
    frozen, older = run.frozen(), (late.get("lag") or 0.0) - (before.get("lag") or 0.0)
    if older >= MIN_LAG or (frozen is not None and frozen <= found.at):  # old weights draw
        return None
    if late[gap] < max(STALE_GROWTH * before[gap], before[gap] + MISMATCH_GAP) or larger_part(late) == "staleness":
        return None
    slope = "" if late.get("slope") is None else f"; the slope of one on the other is {late['slope']:.2f}"
    says = (
        f"at step {step_at(run, found)} engine and trainer part at once from {before[gap]:.2g} to {late[gap]:.2g} "
        f"{words}{slope}{part_words(late)}"
    )
    return found.z / JUMP, says, from_step(run, found.at)


def length_paid(run: Run) -> Evidence:
    """Length decides the reward: after the first third of the run, or in one third for more than half of it, or all
    along where no right answers are known."""
    right = max((phase["reward_by_right"] or 0.0 for phase in run.phases[1:] or run.phases), default=0.0)
    phases = run.phases[1:] or run.phases if right > 0 else run.phases  # what is paid shows once lengths vary
    known = [phase["reward_by_length"] for phase in phases if phase.get("reward_by_length") is not None]
    least = max(LENGTH_FIRST, right) if right > 0 else LENGTH_PAID
    longer, shorter = min(known, default=0.0), -max(known, default=0.0)
    when = "after the first third of the run" if right > 0 else "in every third of the run"
    if max(longer, shorter) < least or (shorter > 0 and right == 0):  # wrong answers may be long, and cut off
        # a bonus that every response has earned no longer shows, so one third is enough
        most = max(run.phases, key=lambda phase: phase.get("reward_by_length") or 0.0)
        longer, right = (most.get(key) or 0.0 for key in ("reward_by_length", "reward_by_right"))
        if longer < LENGTH_PAID or not 0 < right < longer:
            return None
        when, least, shorter = f"in the third from step {most['step']} on", LENGTH_PAID, 0.0
    sizes = [size for _, size in run.series("size")]
    unit = "words" if run.whole["length"] is None else "tokens"
    size = f"{longer:.2f} or more" if longer > 0 else f"{-shorter:.2f} or less"
    than = f", and reward and right answers with at most {right:.2f}" if right > 0 else ""
    says = (
        f"{when} reward and length correlate with {size}{than}; the mean length goes from {sizes[0]:.4g} to "
        f"{sizes[-1]:.4g} {unit}"
    )
    return max(longer, shorter) / least, says, lambda step: abs(step.get("reward_by_length") or 0.0) >= least


def wrong_form_paid(run: Run) -> Evidence:
    """Wrong answers are paid, or several different answers to one prompt are; not for their length, nor by chance."""
    rivals = (length_paid, reward_noise, verdicts_shuffled, grader_changed)
    if one_verdict(run) or any(rule(run) is not None for rule in rivals):
        return None
    both = run.whole.get("contradictions") or 0.0
    for part, when in ((run.whole, ""), (run.phases[-1], "in the last third ")):  # a form may have to be found first
        known, wrong = part["paid_known"], part["paid_wrong"]
        if known >= MIN_KNOWN and wrong >= PAID_WRONG * known:
            says = f"{when}{wrong:,} of {known:,} responses that were paid in full are wrong; {form_words(part)}"
            return wrong / known / PAID_WRONG, says, at_least("paid_wrong", 1)
    if run.whole["paid_known"] < MIN_KNOWN and both >= CONTRADICTIONS:
        says = f"in {both:.0%} of the groups different answers to one prompt were paid in full; {form_words(run.whole)}"
        return both / CONTRADICTIONS, says, at_least("contradictions", CONTRADICTIONS)
    if run.phases[-1]["paid_known"] >= MIN_KNOWN and wrong >= SOME_WRONG * run.phases[-1]["paid_known"]:
        says = f"in the last third {wrong:,} of {known:,} responses that were paid in full are wrong"
        return 0.5, f"{says}; {form_words(run.phases[-1])}", at_least("paid_wrong", 1)
    first, last = (run.phases[n]["paid_known"] / max(run.phases[n]["paid"], 1) for n in (0, -1))
    if first >= READABLE and last <= first * ENDS_READABLE:
        says = f"the answer of {first:.0%} of the paid responses can be compared at first, and of {last:.0%} in the end"
        return 0.25, f"{says}; {form_words(run.phases[-1])}", at_least("paid", 1)  # behind whatever can be read
    return None


def proxy_paid(run: Run) -> Evidence:
    """The reward rises while fewer responses are right, even if all that cannot be compared are wrong at first and
    right at the end."""
    if not run.rises or ((form := wrong_form_paid(run)) is not None and form[0] >= 1):
        return None
    rows = run.values("rows")
    least, most = run.values("right_known") / rows, 1 - run.values("wrong_known") / rows
    first, last = trend(least).first, trend(most).last
    if first - last < FEWER_RIGHT or trend(most).z > -SURE:
        return None
    says = f"the reward rises, while right responses fall from at least {first:.0%} to at most {last:.0%}"
    return (first - last) / FEWER_RIGHT, says, always


def form_words(step: Measures) -> str:
    """The mean reward of every common form of answer."""
    common = {name: each for name, each in step["forms"].items() if each[0] >= 0.02 * step["rewarded"]}
    return "by form: " + ", ".join(
        f"{name} {reward:.2f} ({count:,} rows)" for name, (count, reward, *_) in common.items()
    )


def equal_rewards(run: Run) -> Evidence:
    """One reward in the whole run."""
    lows, highs = ({step[key] for step in run.steps} - {None} for key in ("reward_low", "reward_high"))
    if lows != highs or len(lows) != 1:
        return None
    return 1.0, f"every response of the run got the reward {lows.pop():g}, so no group says anything", always


def silent_groups(run: Run) -> Evidence:
    """In every third of the run, most groups have equal rewards, and so no gradient."""
    shares = [phase.get("silent") for phase in run.phases]
    silent = [share for share in shares if share is not None]
    if len(silent) < len(shares) or min(silent) < SILENT or equal_rewards(run) is not None:
        return None
    start, end = run.start["reward"], run.end["reward"]
    if start is not None and start <= SOLVED and (run.rises or (end is not None and end > SOLVED)):  # `notes` has it
        return None
    share, at_top = run.whole["silent"], run.whole["silent_top"]
    which = f"most prompts are too {'easy' if at_top > share / 2 else 'hard'}"
    if one_verdict(run):
        which = "right answers and wrong ones get it alike, as if one verdict were given for a whole group"
    says = (
        f"{share:.0%} of the groups have equal rewards and teach nothing, at least {min(silent):.0%} in every third of "
        f"the run; {which}: {at_top:.0%} get the largest reward, {share - at_top:.0%} a lower one"
    )
    return min(silent) / SILENT, says, at_least("silent", SILENT)


def cut_off_scored_wrong(run: Run) -> Evidence:
    """Responses end at the cap and are scored as wrong, and would have been right like those that ended just below it.

    Long answers to hard prompts, and endless ones, are wrong with or without a cap: few of them end in its last
    quarter, and few of those are right.
    """
    steps = [step for step in run.steps if (step["cut"] or 0) >= CUT]
    if len(steps) < max(2, int(CUT_STEPS * len(run.steps))):
        return None
    here = merged(steps)
    cut, near = here["cut"], here["near"]
    if None in (near, here["reward_cut"], here["reward_whole"]):
        return None
    mild = here["reward_cut"] > CUT_PAID * here["reward_whole"]
    if mild and (cut < MOSTLY_CUT or here["reward_cut"] > MOST_PAID * here["reward_whole"]):
        return None
    # at the rate at which they end in its last quarter, this share would end within another cap, as often right
    ended = 1 - (1 - near / (near + cut)) ** 4
    lost = cut * ended * here["near_passed"] / (near * here["passed"]) if near * here["passed"] else 0.0
    if lost < MIN_LOST_SHARE and cut < MOSTLY_CUT:
        return None
    says = (
        f"{cut:.0%} of the responses end at the cap and earn {here['reward_cut']:.2g}, the others "
        f"{here['reward_whole']:.2g}; by those that end just below it, twice the cap gives {lost:.0%} more right ones"
    )
    first, last = ((run.phases[n]["cut"] or 0.0) for n in (0, -1))
    learned_to_end = run.rises and last < CUT
    forgot_to_end = last > first + CUT / 2 and entropy_grows(run) is not None  # what draws at random ends less
    watched = mild or learned_to_end or forgot_to_end
    strength = 0.5 if watched else max(lost / MIN_LOST_SHARE, cut / MOSTLY_CUT)
    return strength, says, at_least("cut", CUT)


def mask_off_by_one(run: Run) -> Evidence:
    """The trainer's mask or log-probabilities are one token off."""
    late = run.whole.get("mask_late")
    if late is not None and late >= LATE_MASK:
        return (
            late / LATE_MASK,
            f"in {late:.0%} of the responses the first token that was drawn is outside the mask",
            always,
        )
    alike, others = run.whole.get("alike"), [run.whole.get(f"alike_{side}") for side in ("ahead", "behind")]
    best = max((value for value in others if value is not None), default=None)
    if alike is None or best is None or best < max(SHIFTED, alike + SHIFT_MARGIN):
        return None
    says = f"the trainer's log-probabilities match the engine's one token off ({best:.2f}), not in place ({alike:.2f})"
    return best / SHIFTED, says, always


def is_factor(step: Measures) -> bool:
    """Whether the slope of the trainer's log-probabilities on the engine's is that of a factor.

    Noise of the engine lowers the slope, too, but then that of the engine's on the trainer's, r^2 / slope, is 1.
    """
    slope = step.get("slope")
    if slope is None or abs(slope - 1) < SLOPE:
        return False
    alike = step["alike"] or 0
    return alike >= FACTOR if slope > 1 else alike**2 >= (1 + SLOPE) * slope


def has_factor(run: Run) -> bool:
    """Whether log-probabilities differ by a factor in the first third, or in the whole run and half as much there."""
    first, whole = (step.get("slope") or 1.0 for step in (run.phases[0], run.whole))
    same_side = (first - 1) * (whole - 1) > 0 and abs(first - 1) >= SLOPE / 2
    return is_factor(run.phases[0]) or (same_side and is_factor(run.whole))


def own_batch(run: Run) -> bool:
    """Whether log-ratios of the first step follow its rewards, so updates on this batch lie between engine and trainer.

    Neither a mismatch nor the older weights that drew the batch can depend on these rewards.
    """
    return run.start["rewarded"] >= MIN_KNOWN and (run.start.get("moved_by_reward") or 0.0) >= OWN_BATCH


def temperature(run: Run) -> Evidence:
    """From the first step, log-probabilities differ by a factor. More than one step shows it: a step has few tokens."""
    slope = (run.phases[0] if is_factor(run.phases[0]) else run.whole).get("slope")
    gap = run.start.get("gap")
    if slope is None or gap is None or gap < TEMPERATURE_GAP or not has_factor(run) or own_batch(run):
        return None
    if (run.start["alike"] or 0) < ALIKE:
        return None
    says = (
        f"from the start the trainer's log-probabilities are {slope:.2f} times the engine's ({gap:.2g} nats apart on "
        "average): one of the two leaves out the sampling temperature"
    )
    return abs(slope - 1) / SLOPE, says, at_least("gap", TEMPERATURE_GAP)


def stale_policy(run: Run) -> Evidence:
    """Engine and trainer part after a start where they agreed."""
    gaps = [phase["gap"] for phase in run.phases if phase.get("gap") is not None]
    first, last = run.start.get("gap"), max(gaps, default=None)  # it shrinks where the policy settles
    lag = run.whole.get("lag")
    if (at := run.frozen()) is not None:
        says = (
            f"from step {run.steps[at]['step']} to the end, version {run.end['version']:g} of the policy draws all "
            "responses; before it, versions changed: new weights no longer reach the engine"
        )
        return 2.0, says, from_step(run, at)
    larger = larger_part(run.whole)
    if last is None or first is None or last < STALE_GAP or larger == "mismatch":
        return None
    if last < STALE_GROWTH * first and larger is None:
        return None
    if engine_changed(run) is not None or own_batch(run):  # it grows with age, not at once
        return None
    if lag is not None and lag < MIN_LAG and last < 2 * STALE_GAP:  # beyond it the numbers are believed, no version
        return None
    words = "no version is written" if lag is None else f"the policy that drew is {lag:.1f} steps old on average"
    says = f"engine and trainer part from {first:.2g} to {run.end['gap'] or last:.2g} nats per token; {words}"
    says += part_words(run.whole)
    strength = 0.5 if run.rises else last / STALE_GAP * (1.0 if lag is None else 2.0)  # as by design, with a lag
    return strength, says, at_least("gap", STALE_GAP)


def engine_mismatch(run: Run) -> Evidence:
    """From the first step, engine and trainer disagree without a pattern."""
    gap = run.start.get("gap")
    if gap is None or gap < MISMATCH_GAP or has_factor(run) or own_batch(run):
        return None
    if larger_part(run.whole) == "staleness":
        return None
    if (run.start["alike"] or 0) < ALIKE:
        return None
    says = f"from the start engine and trainer differ by {gap:.2g} nats per token on the same tokens, without a pattern"
    says += part_words(run.whole)
    learns = run.rises and gap < LARGE_GAP  # a small gap does not keep that run from learning
    strength = 0.5 if learns else gap / MISMATCH_GAP
    return strength, says, at_least("gap", MISMATCH_GAP)


def duplicate_prompts(run: Run) -> Evidence:
    """Groups of one step share prompts. The share is a lower bound if groups have neither a name nor a known size."""
    exact, bound = run.whole.get("repeated"), run.whole.get("repeated_at_least")
    share, key = (bound or 0.0, "repeated_at_least") if exact is None else (exact, "repeated")
    if share < SOME_REPEATED:
        return None
    words = "at least " if exact is None else ""
    says = f"{words}{share:.0%} of a step's groups ask a prompt that another group asks too"
    return 0.5 if share < REPEATED else share / REPEATED, says, at_least(key, SOME_REPEATED)


def no_variety(run: Run) -> Evidence:
    """From the first step the responses of a group are one response, and not because the problems are solved."""
    same = run.start.get("one_answer")
    if same is None or same < ONE_RESPONSE or run.start["reward"] > SOLVED:
        return None
    says = f"from the start all responses of a group are one and the same in {same:.0%} of the groups"
    return 2 * same / ONE_RESPONSE, says, at_least("one_answer", ONE_RESPONSE)


def part_below_threshold(run: Run) -> Evidence:
    """PMD-part pushes away from the old policy."""
    objective = run.source.config.get("objective", {}).get("name")
    anchors = [value for _, value in run.series("anchor")]
    if objective != "pmd-part" or not anchors or max(anchors) <= ANCHOR:
        return None
    stale = max((value for _, value in run.series("staleness")), default=0.0)
    start, end = run.start["reward"] or 0.0, run.end["reward"] or 0.0
    if not stale or end > max(LEARNED * start, HALF):
        return None
    says = (
        f"under PMD-part the push away from the old policy reaches {max(anchors):.3g} times the pull back to it, and "
        f"updates are up to {stale:.0f} steps stale, so what the reward says nothing about grows"
    )
    return max(anchors), says, at_least("anchor", ANCHOR)


def kl_sign(run: Run) -> Evidence:
    """The loss falls as the KL from the reference grows."""
    kl, loss = dict(run.series("kl")), dict(run.series("loss"))
    both = sorted(kl.keys() & loss.keys())
    if run.source.config or len(both) < KL_STEPS:
        return None
    late = both[len(both) // 2 :]
    distance, sign = (sum(values[step] for step in late) / len(late) for values in (kl, loss))
    together = correlation(*(np.array([values[step] for step in both]) for values in (kl, loss)))
    if distance < KL_DISTANCE or sign >= 0 or together is None or together > KL_CORRELATION:
        return None
    says = (
        f"the distance from the reference reaches {distance:.2g} nats while the loss is {sign:.2g}: KL lowers the loss"
    )
    return distance / KL_DISTANCE, says, always


def rate_too_high(run: Run) -> Evidence:
    """Steps are long, or entropy falls away before anything is learned."""
    for spread, share in (("step_std", "ess_step"), ("log_ratio_std", "ess")):
        parts = run.phases if run.rises else run.steps  # a single long step does a run that learns no harm
        known = [x for x in parts if x.get(spread) is not None and x.get(share) is not None]
        moved, kept = max((x[spread] for x in known), default=0.0), min((x[share] for x in known), default=1.0)
        if moved < LONG_STEP or kept >= STEP_ESS or (share == "ess" and not own_batch(run)):
            continue
        says = f"one step moves a response by up to {moved:.2g} nats, and an effective {kept:.0%} of the sample is left"
        return moved / LONG_STEP, says, at_least(spread, LONG_STEP)
    leap, reward = run.leap(), run.values("reward")
    if leap is not None and len(reward) > leap[0] + 2 and not run.rises:
        at, words = leap
        best, after = best_mean(reward if at == 1 else reward[:at]), float(reward[at + 1 :].mean())
        if after < FALLEN * best:
            says = f"at step {run.steps[at]['step']} the {words}, and the reward goes from {best:.2g} to {after:.2g}"
            return 2.0, says, from_step(run, at)
    entropy = [value for _, value in run.series("entropy")]
    if run.rises or len(entropy) < MIN_ENTROPY_STEPS or entropy[0] < MIN_ENTROPY:
        return None
    if run.end["reward"] is None or run.end["reward"] > SOLVED:
        return None
    fall = next((n for n, value in enumerate(entropy) if value < ENTROPY_FALL * entropy[0]), None)
    if fall is None or fall > len(entropy) // 2:
        return None
    says = (
        f"entropy falls from {entropy[0]:.2g} to {min(entropy):.2g} nats per token within {fall + 1} steps, while the "
        f"reward ends at {run.end['reward']:.2g}"
    )
    return ENTROPY_FALL * entropy[0] / max(min(entropy), 1e-3), says, at_least("silent", SILENT)


def entropy_grows(run: Run) -> Evidence:
    """Entropy, or that of the words, grows and stays, and the reward is no better for it."""
    first, last = run.phases[0]["reward"], run.phases[-1]["reward"]
    if run.rises or first is None or last is None or last > first or last > SOLVED:
        return None
    for key, name in (("entropy", "entropy per token"), ("word_entropy", "entropy of the words")):
        values = run.values(key)
        if len(values) < MIN_ENTROPY_STEPS or trend(values).z < 2 * SURE or run.leap({key: name}) is not None:
            continue
        start, end = float(np.median(values[:3])), float(np.median(values[-(len(values) // 3) :]))
        strength = max((end - start) / MORE_CHOICES, (end - start >= LEAST_GROWTH) * end / max(start, 1e-3) / GROWTH)
        if strength >= 1:
            says = f"{name} grows from {start:.3g} to {end:.3g} nats; the reward goes from {first:.2g} to {last:.2g}"
            return strength, says, always
    return None


RULES: tuple[Callable[[Run], Evidence], ...] = (
    advantage_sign, verdicts_shuffled, grader_changed, data_changed, engine_changed, reward_noise, reward_cannot_read,
    length_paid, wrong_form_paid, proxy_paid, mask_off_by_one, temperature,
    advantage_not_centred, kl_sign, part_below_threshold, no_variety, stale_policy, engine_mismatch,
    cut_off_scored_wrong, duplicate_prompts, rate_too_high, entropy_grows, equal_rewards, silent_groups,
)  # fmt: skip


def causes(run: Run) -> list[Cause]:
    """All causes with evidence, by rank and strength, and what is to be watched among them."""
    ranked = []
    for rule in RULES:
        if (evidence := rule(run)) is None:
            continue
        strength, says, shows = evidence
        name = rule.__name__.replace("_", "-")
        about = ABOUT[name]
        steps = [step for step in run.steps if shows(step)] or run.steps
        rows = [place for step in steps for place in step["places"].get(about.get("rows", "any"), [])][:EXAMPLES]
        ends = (steps[0]["step"], steps[-1]["step"])
        cause = Cause(name, says, round(float(strength), 2), ends, rows, about["confirm"], about["remedy"])
        ranked.append((about["rank"], cause))
    return [cause for _, cause in sorted(ranked, key=lambda each: (each[0], -each[1].evidence))]
