"""Why a reward does not rise, from scalars alone. Each rule returns the numbers that it rests on, or None.

A finding is a cause where the reward does not rise, or for SIGNS where it falls. Elsewhere, and below a strength of 1,
it is something to watch: a run can be ill before its reward falls, and healthy runs have some of these curves, too.

For rewards of two values the laws of a group of G draws do most of the work. With a pass rate p, a group is silent with
probability p^G + (1 - p)^G, which is convex: at the mean of p over the prompts it is the least share of silent groups.
The std inside a group, `group_std`, is concave: at the mean of p it is largest, and reached only by prompts alike.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from pmdkit_lab.autopsy import causes as of_rows
from pmdkit_lab.autopsy.causes import ABOUT, MISMATCH_GAP, SILENT, SOLVED, STALE_GAP, Cause
from pmdkit_lab.autopsy.changes import GROUP, JUMP, SHARP, SURE, goes_on, group_std, jump, trend
from pmdkit_lab.autopsy.scalars import Log, Values

BIG_JUMP = 0.25  # of the range of the reward before; a smaller one may be a new kind of prompt
KNOWN_LEVEL = 8  # points before a change of the grader, as many as the alarm of a recorder needs
MIN_POINTS = 12  # logged points that show a trend or a jump
FEW_POINTS = 6  # below it nothing is said but that
SMALL_GAIN = 0.1  # of the reward's range: what a run that learns gains at least
HELD_ODDS = 3.0  # times: from a pass rate of one quarter to one half
HARD, EASY = 0.03, 0.95  # pass rates: of eight draws one is right in every fifth group; in every third one is wrong
TOGETHER, TOGETHER_STEPS = 0.95, 0.5  # correlation of reward and length over the run, and from step to step
MOSTLY = 0.3  # of the responses cut off; then the cap decides the reward
GROWN = 1.2  # entropy over that of the start, or MORE_CHOICES above it
LEAP = 0.5  # of the entropy of the start, between two logged points; learning takes tens of them
FAR = 1.0  # nats per token from the reference within the first quarter of a run
TOUCHED = 3e-3  # nats per token from the reference; below it no policy has changed its answers
MOVED = 2e-5  # learning rate times updates, the furthest that Adam moves a weight, whose usual size is 0.02
USUAL_UPDATES = 200  # in which a run has learned something; a shorter one is judged by what it would do in so many
SAME_PROMPTS = 0.96  # std inside a group over that of prompts with one pass rate; spread of difficulty lowers it
UNIFORM = 0.02  # nats below ln V
VOCABULARIES = (151_936, 151_643, 152_064, 128_256, 129_280, 32_000, 32_768, 50_257, 49_152, 100_352, 256_000, 262_144)
CLIP = 0.2  # of a token's ratio, the usual clip; log-ratios of this std have a KL of CLIP^2 / 2, a third is outside
SPIKE = 10.0  # of the usual gradient; times the 0.1 of Adam's beta1 it is as much of the momentum as all before it
SURPRISED = 2.0  # entropy + KL is the reference's surprise at the policy's text; over its surprise at its own
STILL = 0.03  # of entropy; a policy that learns a tenth of the reward moves it further
GOAL = re.compile("correct|accura|answer|right|solve|^f$", re.I)  # in the name of a component
FADED, KEPT = 30, 5  # the std falls by so much while the gradient falls by less than that
LOST = 0.6  # of the best reward; below it what was learned is not kept
STAYS = 0.8  # of the reward before; one that stays above it has not fallen
SHORTER, PER_TOKEN = 3, 5  # the length falls, and the reward per token grows, by so much if E[r / |y|] is raised
IDLE = 0.1  # of the reward, and of its gain; a component that is below both has no part in it


class Curves:
    """A log with what the rules share: the trend of the reward, its scale if it is known, and whether it is learned."""

    def __init__(self, log: Log) -> None:
        self.log = log
        reward = log.get("reward")
        self.reward: Values = np.zeros(0) if reward is None else reward
        self.steps = log.steps_of("reward") if reward is not None else np.zeros(0)
        self.trend = trend(self.reward)
        low, high = log.get("reward_low"), log.get("reward_high")
        bottom = float(low.min()) if low is not None else min(0.0, float(self.reward.min()))
        fits = len(log.parts) < 2 and float(self.reward.max()) <= 1
        self.top = float(high.max()) if high is not None else 1.0 if fits else None
        self.bottom, self.scale = bottom, (self.top or max(float(np.max(self.reward)), 1e-9)) - bottom
        inside = self.top is not None and self.scale > 0
        self.rate = (self.reward - bottom) / self.scale if inside else None  # the pass rate, if rewards have two values
        self.last = int(np.ceil(len(self.reward) / 10)) or 1
        end, best = float(self.reward[-self.last :].mean()), self.smooth.max()
        self.kept = end - bottom >= LOST * (best - bottom)
        self.rises = self.trend.z >= SURE and self.trend.last > self.trend.first
        self.solved = self.rate is not None and float(self.rate[-self.last :].mean()) > SOLVED
        self.learned = self.kept and (self.rises or self.solved)
        self.falls = not self.kept and best - end > JUMP * self.trend.noise * math.sqrt(2 / self.last)

    @property
    def gained(self) -> bool:
        """Whether the reward is near its top, or has gained what a run that learns gains at least."""
        return self.solved or float(self.smooth[-1] - self.smooth[0]) >= SMALL_GAIN * self.scale

    @property
    def smooth(self) -> Values:
        """The reward, as means over a tenth of the run."""
        width = max(len(self.reward) // 10, 1)
        return np.convolve(self.reward, np.full(width, 1 / width), "valid")

    def get(self, key: str) -> Values | None:
        """A column, see `Log.get`."""
        return self.log.get(key)

    def known(self, key: str) -> Values | None:
        """A column at the steps of the reward, if it has half of their number and enough for a trend; else None."""
        values = self.log.get(key)
        if values is None or len(self.reward) < MIN_POINTS or len(values) < max(MIN_POINTS, len(self.reward) / 2):
            return None
        return np.interp(self.steps, self.log.steps_of(key), values)

    def step(self, place: int) -> int:
        """The number of the step at a place of the reward."""
        return int(self.steps[min(place, len(self.steps) - 1)])


Evidence = tuple[float, str, int | None] | None  # its strength, a sentence, and the first step that shows it


def grader_changed(c: Curves) -> Evidence:
    """From one step on the reward is another one, while entropy and length go on."""
    found = jump(c.reward)
    if found is None or abs(found.size) < BIG_JUMP * max(c.scale * 0.6, np.ptp(c.smooth)) or found.at < KNOWN_LEVEL:
        return None
    after = c.reward[found.at :]
    if data_changed(c) is not None or cap_changed(c, found.at) or goes_on(c.reward, found):
        return None
    if (engine := engine_changed(c)) and abs((engine[2] or 0) - c.step(found.at)) <= 3:
        return None
    if policy_leaps(c, found.at) or (found.size > 0 and np.ptp(after) > 1e-9):  # a reward that goes up asks no doctor
        return None
    level = f"goes from {c.reward[max(0, found.at - 5) : found.at].mean():.3g} to {after[:5].mean():.3g}"
    others = [key for key in ("entropy", "length", "kl") if c.get(key) is not None]
    if not others:
        return None
    one = " and has that one value from then on" if np.ptp(after) < 1e-9 else ""
    says = (
        f"at step {c.step(found.at)} the mean reward {level}{one}, while {' and '.join(others)} go on as before: "
        f"what pays the policy changed{'' if one else ', or its prompts did'}, not the policy"
    )
    recovers = c.rises and found.size < 0  # as with harder prompts, which it learns
    return 0.5 if recovers else found.z / JUMP, says, c.step(found.at)


def policy_leaps(c: Curves, at: int) -> bool:
    """Whether entropy, length or the distance from the reference leaps, beyond its drift, where the reward does."""
    for key in ("entropy", "length", "kl"):
        if (values := c.known(key)) is None:
            continue
        places = np.arange(4, len(values) - 3)
        around = np.array([np.median(values[n : n + 6]) - np.median(values[max(0, n - 6) : n]) for n in places])
        beyond = np.abs(around - np.median(around))[np.abs(places - at) <= 6]
        usual = abs(float(np.median(values[: max(at - 3, 3)])))
        if len(beyond) and beyond.max() > max(LEAP * usual, JUMP * trend(values).noise * 1.25 * math.sqrt(2 / 6)):
            return True
    return False


def rate_too_large(c: Curves) -> Evidence:
    """The policy leaps, and the reward does not rise after it."""
    if cap_changed(c):
        return None
    entropy = c.get("entropy")
    if entropy is not None and len(entropy) >= MIN_POINTS // 2 and entropy[0] > 0:
        logs = np.log(np.maximum(entropy, 1e-3))
        noise, later = trend(logs[2:]).noise, float(np.median(logs[2:8]))
        at = 1 if abs(later - logs[0]) > max(LEAP, JUMP * noise) else None  # too early for `jump`
        if at is None and (found := jump(logs)) is not None and abs(found.size) > LEAP:
            at = found.at
        if at is not None and (at == 1 or c.reward[at:].mean() < of_rows.FALLEN * c.smooth.max()):
            step = int(c.log.steps_of("entropy")[at])
            says = (
                f"entropy leaps from {np.median(entropy[max(0, at - 6) : at]):.2g} to "
                f"{np.median(entropy[at + 1 : at + 7]):.2g} nats per token at step {step}, and the reward goes from "
                f"{c.reward[:at].mean():.2g} to {c.reward[-c.last :].mean():.2g}"
            )
            return 2.0, says, step
    kl = c.known("kl")  # it grows with the number of updates, or with its square; here the first one has most of it
    if kl is not None and kl[1] >= max(10 * TOUCHED, 10 * kl[0], SHARP * float(np.median(kl[2:8]))):
        return 2.0, f"the first update moves the policy {kl[1]:.2g} nats per token from the reference", c.step(1)
    for key, whence in (("kl", "the reference"), ("kl_step", "the policy that drew")):
        early = np.zeros(0) if (away := c.get(key)) is None else np.abs(away[: max(len(away) // 4, 2)])
        if len(far := np.flatnonzero(early > FAR)):
            at = int(far[0])
            step = int(c.log.steps_of(key)[at])
            return early[at] / FAR, f"the policy is {early[at]:.2g} nats per token from {whence} at step {step}", step
    best = float(c.smooth.max())
    falls = found if (found := jump(c.reward)) is not None and found.size < 0 and policy_leaps(c, found.at) else None
    if falls is not None and c.reward[falls.at :].mean() < LOST * best:
        says = f"at step {c.step(falls.at)} the reward falls by {-falls.size:.2g} and the policy leaps with it"
        return falls.z / JUMP, says, c.step(falls.at)
    return None


def uniform_policy(c: Curves) -> Evidence:
    """Entropy is the logarithm of a known size of vocabulary."""
    entropy = c.get("entropy")
    if entropy is None:
        return None
    end = float(np.median(entropy[-max(len(entropy) // 10, 1) :]))
    size = next((v for v in VOCABULARIES if abs(math.log(v) - end) < UNIFORM), None)
    if size is None:
        return None
    kl = ", and the KL term is what is left to push" if c.get("kl") is not None else ""
    says = f"entropy ends at {end:.2f} nats = ln {size:,}: every token is as likely as every other{kl}"
    return 1 + (UNIFORM - abs(math.log(size) - end)) / UNIFORM, says, None


def growth(c: Curves) -> tuple[float, str]:
    """How far entropy grows step by step, of what is GROWN, and words about it; 0 where it does not."""
    if (entropy := c.known("entropy")) is None or trend(entropy).z < 2 * SURE:
        return 0.0, ""
    first, last = float(np.median(entropy[:3])), float(np.median(entropy[-c.last :]))
    if (leap := jump(entropy)) is not None and leap.size > LEAP * (last - first):
        return 0.0, ""
    words = f"entropy grows from {first:.2g} to {last:.2g} nats per token; the reward goes from {c.trend.first:.2g} to"
    grown = max(last / max(first, 1e-9) / GROWN, (last - first) / of_rows.MORE_CHOICES)
    return grown, f"{words} {c.trend.last:.2g}"


def kl_pushes(c: Curves) -> Evidence:
    """Entropy grows step by step under a KL term."""
    kl, (grown, words) = c.get("kl"), growth(c)
    if kl is None or grown < 1 or (away := float(np.mean(np.abs(kl[-max(len(kl) // 3, 1) :])))) < 10 * TOUCHED:
        return None
    sign = "it is below 0 at times, so it is k1" if float(kl.min()) < 0 else "it is never below 0"
    return grown, f"{words}, while the logged KL is {away:.2g} ({sign})", None


def entropy_grows(c: Curves) -> Evidence:
    """Entropy grows step by step, and no KL is logged that could push."""
    grown, words = growth(c)
    return None if grown < 1 or kl_pushes(c) or rate_too_large(c) else (grown, words, None)


def kl_holds(c: Curves) -> Evidence:
    """The KL term pulls as an advantage does. Its coefficient is logged; or, with one update for each batch, the loss
    that TRL logs is beta KL. The loss that verl logs has no KL in it, but the coefficient stands beside it."""
    kl, loss, coefficient = c.known("kl"), c.known("loss"), c.get("kl_coef")
    if kl is None or (far := float(np.median(kl))) <= 0:
        return None
    if coefficient is not None:
        beta, what = float(np.median(coefficient)), "the KL term is"
    elif loss is not None and (apart := kl > 0).mean() >= 0.9 and (ratio := loss[apart] / kl[apart]).min() > 0:
        beta, what = float(np.median(ratio)), "the loss is"
        if np.median(np.abs(ratio / beta - 1)) > STILL:
            return None
    else:
        return None
    pull, says = beta * math.sqrt(2 * far), f"{what} {beta:.3g} times the KL of {far:.2g}"
    first = float(c.rate[: c.last].mean()) if c.rate is not None else math.nan
    end = held_at(first, beta) if HARD < first < 1 - HARD else 1.0
    if (odds := (end / (1 - end) if end < 1 else math.inf) * (1 / first - 1)) <= HELD_ODDS:
        return (
            HELD_ODDS / odds,
            f"{says}: it lets the pass rate grow from {first:.2g} to {end:.2g}, and no further",
            None,
        )
    if pull < 0.5:
        return None
    return 2 * pull, f"{says}, whose gradient is {pull:.2g} of a log ratio, where an advantage is about 1", None


def held_at(rate: float, beta: float) -> float:
    """The pass rate at which a KL term with coefficient `beta` stops advantages of unit std; 1 if it does not.

    The solution is pi_ref e^(A / beta), so the odds of a right response grow by e^((A_right - A_wrong) / beta), where
    the two advantages are 1 / sqrt(p (1 - p)) apart.
    """
    p = np.linspace(rate, 0.999, 10_000)
    further = 1 / (beta * np.sqrt(p * (1 - p))) > np.log(p / (1 - p) * (1 - rate) / rate)
    return 1.0 if further.all() else float(p[int(further.argmin())])


def right_per_token(c: Curves) -> Evidence:
    """The length falls, the reward (the held-out one if known) falls from its best, and the reward per token rises."""
    length, paid = c.get("length"), c.get("held_out") if c.get("held_out") is not None else c.reward
    if length is None or paid is None or min(len(paid), len(length)) < FEW_POINTS or paid.min() < 0:
        return None
    third = max(len(paid) // 5, 1)
    best, end = float(np.convolve(paid, np.full(third, 1 / third), "valid").max()), float(paid[-third:].mean())
    first, last = float(length[: max(len(length) // 10, 1)].mean()), float(length[-max(len(length) // 10, 1) :].mean())
    begin = float(paid[:third].mean())
    gain = end * first / (begin * last) if begin * last > 0 else 0.0
    if last > first / SHORTER or end > STAYS * best or gain < PER_TOKEN:
        return None
    says = (
        f"reward per token grows {gain:.0f} times while the reward falls from {best:.2g} to {end:.2g} and the length "
        f"from {first:.0f} to {last:.0f} tokens: what is raised is E[r / |y|]"
    )
    return gain / PER_TOKEN, says, None


def std_without_reason(c: Curves) -> Evidence:
    """The std inside a group fades, and the gradient does not."""
    std, grad = c.get("reward_std"), c.get("grad_norm")
    if std is None or grad is None or len(std) < MIN_POINTS:
        return None
    tenth = max(len(std) // 10, 1)
    begin, end = float(np.median(std[:tenth])), float(np.median(std[-2 * tenth :]))
    pushed, still = float(np.median(grad[:tenth])), float(np.median(grad[-2 * tenth :]))
    if not 0 < end * FADED < begin or still * KEPT < pushed:
        return None
    says = (
        f"the std inside a group falls from {begin:.2g} to {end:.2g}, {begin / end:.0f} times, but the gradient norm "
        f"from {pushed:.2g} to {still:.2g}: dividing by the std turns noise of the reward into a full push"
    )
    return begin / end / FADED, says, None


def constant_parts(c: Curves) -> dict[str, float]:
    """The components of the reward that never change, with their value."""
    known = {name: values[~np.isnan(values)] for name, values in c.log.parts.items()}
    return {name: float(x[0]) for name, x in known.items() if len(x) >= 3 and np.ptp(x) < 1e-9}


def format_never_found(c: Curves) -> Evidence:
    """A component that pays the form is always 0, and the reward does not rise."""
    form = re.compile("format|tag|xml|box|struct|parse", re.I)
    dead = [name for name, value in constant_parts(c).items() if value == 0 and form.search(name)]
    varies = c.reward - sum(constant_parts(c).values())
    if c.learned or not dead or float(varies.mean()) > HARD * max(len(c.log.parts), 1):
        return None
    also = f", and so is the whole reward in {np.mean(c.reward == 0):.0%} of the steps" if np.any(c.reward == 0) else ""
    count = len(c.reward)
    return 1.5, f"{', '.join(dead)} is exactly 0 in all {count} logged steps{also}", None


def equal_rewards(c: Curves) -> Evidence:
    """One mean reward in every step."""
    if np.ptp(c.reward) > 1e-9:
        return None
    says = f"the mean reward is exactly {c.reward[0]:g} in all {len(c.reward)} logged steps"
    if c.reward[0] <= 0:
        says += ": prompts are too hard, or the grader never pays"
    return 1.0, says, None


def proxy_paid(c: Curves) -> Evidence:
    """The reward rises, and what it stands for does not: a component for correctness, or the held-out reward."""
    gain, held = float(c.smooth[-1] - c.smooth[0]), c.get("held_out")
    goals = {
        f"its component {name}": values[~np.isnan(values)] for name, values in c.log.parts.items() if GOAL.search(name)
    }
    if held is not None and len(held) >= FEW_POINTS:
        before, after = held[: len(held) // 2].mean(), held[len(held) // 2 :].mean()
        if after < of_rows.FALLEN * before and c.trend.z > -SURE and c.trend.last > STAYS * c.trend.first:
            says = (
                f"the reward goes from {c.trend.first:.2g} to {c.trend.last:.2g}, the held-out one from {before:.3g} to"
            )
            return 1.5, f"{says} {after:.3g}", None
        goals["the held-out reward"] = held
    for name, values in goals.items() if c.rises and gain >= SMALL_GAIN * c.scale else ():
        own, third = trend(values), max(len(values) // 3, 1)
        if len(values) < FEW_POINTS or own.last - own.first + 2 * own.noise * math.sqrt(2 / third) > gain / 3:
            continue
        low = own.last < IDLE * c.trend.last and own.last - own.first < IDLE * gain
        says = f"the reward rises by {gain:.2g}, and {name} goes from {own.first:.2g} to {own.last:.2g}"
        return 2.0 if low else 0.5, f"{says}: something else is learned", None
    return None


def cap_changed(c: Curves, at: int | None = None) -> bool:
    """Whether at a step, or at this place of the reward, many more responses are cut off and they are shorter."""
    cut, length = c.known("cut"), c.known("length")
    if cut is None or length is None or (found := jump(cut)) is None or found.size < SMALL_GAIN:
        return False
    return (at is None or abs(found.at - at) <= 3) and length[found.at :].mean() < length[: found.at].mean()


def cap_cuts(c: Curves) -> Evidence:
    """Much is cut off at the end of the run, or ever more."""
    cut = c.get("cut")
    if cut is None or len(cut) < FEW_POINTS:
        return None
    course = trend(cut)
    rises = course.z >= 2 * SURE and course.last - course.first >= SMALL_GAIN  # as much as a run that learns gains
    if (course.last < MOSTLY and not rises) or (rises and rate_too_large(c) is not None):  # it no longer ends
        return None
    says = f"{course.last:.0%} of the responses end at the cap in the last third, in the first {course.first:.0%}"
    return course.last / MOSTLY, says, None


def silent_throughout(c: Curves) -> str | None:
    """Words about silent groups, if from the start and in every third of the run most groups are."""
    silent = c.get("silent")
    if silent is None or len(silent) < FEW_POINTS or silent[: c.last].mean() < SILENT:
        return None
    return (
        f"{silent.mean():.0%} of the groups are silent"
        if min(map(np.mean, np.array_split(silent, 3))) >= SILENT
        else None
    )


def too_hard(c: Curves) -> Evidence:
    """Hardly any response is right, or most groups are silent and most responses wrong."""
    if c.rate is None or np.ptp(c.reward) < 1e-9:
        return None
    silent, rate = silent_throughout(c), float(c.rate.mean())
    hard = float(np.median(c.rate)) <= HARD and float(c.smooth.max() - c.bottom) <= 5 * HARD * c.scale
    if not hard and (silent is None or float(c.smooth.max() - c.bottom) > 0.5 * c.scale or entropy_collapse(c)):
        return None  # without entropy the draws of a group are alike, however hard the prompt is
    says = f"the pass rate is {rate:.2g}, so {1 - (1 - rate) ** GROUP:.1%} of groups of {GROUP} have a right answer"
    return HARD / max(rate, HARD / 10) if hard else 0.9, f"{says}; {silent}" if silent else says, None


def too_easy(c: Curves) -> Evidence:
    """Nearly every response is right from the start, or most groups are silent and most responses right."""
    if c.rate is None:
        return None
    silent, rate = silent_throughout(c), float(c.rate.mean())
    easy = min(rate, float(c.rate[: max(len(c.rate) // 5, 2)].mean())) >= EASY
    if not easy and (silent is None or float(c.smooth.min() - c.bottom) < 0.5 * c.scale):
        return None
    says = (
        f"the pass rate is {rate:.3g} from the start, so {1 - rate**GROUP:.0%} of groups of {GROUP} have a wrong answer"
    )
    return rate / EASY if easy else 0.9, f"{says}; {silent}" if silent else says, None


def no_variety(c: Curves) -> Evidence:
    """From the start nearly all groups are silent, though many responses are right and many are wrong."""
    silent, first = c.get("silent"), 2 * c.last
    if silent is None or c.rate is None or min(silent[:3].mean(), silent[:first].mean()) < of_rows.ONE_RESPONSE:
        return None
    rate = float(c.rate[:first].mean())
    if np.ptp(c.reward) < 1e-9:  # equal rewards
        return None
    if (least := rate**GROUP + (1 - rate) ** GROUP) > SILENT:
        return None
    says = (
        f"{silent[:first].mean():.0%} of the first groups are silent at a pass rate of {rate:.2f}, where prompts alike"
    )
    return 1.0, f"{says} give {least:.0%}: a group has one response, or no prompt is solved at times", None


def reward_is_noise(c: Curves) -> Evidence:
    """The reward is flat, and groups differ as if no prompt were easier than another."""
    if c.learned or c.rate is None or abs(c.trend.z) > SURE or len(c.rate) < MIN_POINTS:
        return None
    rate, std, silent = float(c.rate.mean()), c.get("reward_std"), c.get("silent")
    if std is None or not 0.1 < rate < 0.9:
        return None
    size = GROUP
    right = c.rate
    if silent is not None:  # if all prompts are alike, silence tells the size of a group
        size = min(range(2, 65), key=lambda n: abs(np.mean(right**n + (1 - right) ** n) - silent.mean()))
    share = float(std.mean()) / (float(group_std(c.rate, size).mean()) * c.scale)
    if not SAME_PROMPTS <= share <= 2 - SAME_PROMPTS:
        return None
    says = (
        f"the std inside a group is {share:.2f} times that of draws at one pass rate, as if all prompts were alike; "
        f" the pass rate stays at {rate:.2f}: verdicts follow neither prompt nor policy"
    )
    return share / SAME_PROMPTS, says, None


def rate_too_small(c: Curves) -> Evidence:
    """The policy has not moved, though rewards differ."""
    lr, kl = c.get("lr"), c.get("kl")
    if lr is not None and len(lr) >= MIN_POINTS and (ended := lr <= 0.01 * lr.max()).mean() >= 0.5:
        first = int(c.log.steps_of("lr")[ended][0])
        return 1.0, f"from step {first} on the learning rate is below a hundredth of its largest, {lr.max():.2g}", first
    if c.learned or abs(c.trend.z) >= 2 * SURE or np.ptp(c.reward) < 1e-9:
        return None
    if kl_holds(c) is not None:  # it moves, and is pulled back
        return None
    updates = float(c.steps[-1] - c.steps[0] + 1)
    if lr is not None and (moved := float(lr.mean()) * max(updates, USUAL_UPDATES)) < MOVED:
        says = (
            f"at a learning rate of {lr.mean():.2g} Adam moves a weight, whose size is about 0.02, by at most "
            f"{moved:.1g} in {max(updates, USUAL_UPDATES):.0f} steps: about {10 * MOVED / moved:.0f} times too small"
        )
        return MOVED / moved, says, None
    step, length = c.get("kl_response"), c.get("length")
    if step is None and length is not None and (by_token := c.get("kl_step")) is not None:
        step = by_token * length.mean()
    if step is not None and len(step) >= FEW_POINTS:
        # Pinsker: two policies apart by d nats differ in mean reward by at most sqrt(d / 2) of its range
        gain = float(np.sqrt(np.abs(step) / 2).mean()) * max(updates, USUAL_UPDATES)
        if gain < SMALL_GAIN:
            says = (
                f"a step moves the policy by {np.abs(step).mean():.1g} nats a response; by Pinsker's inequality "
                f"{max(updates, USUAL_UPDATES):.0f} such steps change the reward by at most {gain:.1g} of its range"
            )
            return SMALL_GAIN / gain, says, None
    if stands_still(c):
        says = f"entropy changes by less than {STILL:.0%} and the reward by less than {SMALL_GAIN:g} of its range"
        return 1.0, f"{says}: nothing moves in {len(c.reward)} logged steps", None
    if kl is None:
        return None
    late = float(np.abs(kl[-max(len(kl) // 5, 1) :]).mean())
    if updates >= USUAL_UPDATES / 5 and late < TOUCHED / 3 and float(np.abs(kl).max()) < TOUCHED:
        says = (
            f"the policy is {late:.1g} nats per token from the reference after {c.steps[-1]:.0f} steps, where answers "
            f"change at about {TOUCHED:g}: {math.sqrt(3 * TOUCHED / max(late, 1e-12)):.0f} times too small"
        )
        return TOUCHED / 3 / max(late, 1e-12), says, None
    return None


def stands_still(c: Curves) -> bool:
    """Whether entropy and reward cannot have changed by more than little, at their noise."""
    entropy = c.known("entropy")
    if entropy is None or entropy.min() <= 0:
        return False

    def most(values: Values) -> float:
        course = trend(values)
        return abs(course.last - course.first) + SURE * course.noise * math.sqrt(2 / (len(values) // 3))

    return most(entropy) < STILL * entropy.mean() and most(c.reward) < SMALL_GAIN * c.scale


def reward_falls(c: Curves) -> Evidence:
    """The reward falls step by step."""
    if c.learned or c.trend.z > -SURE or c.trend.last > STAYS * c.trend.first or grader_changed(c) is not None:
        return None
    return -c.trend.z / SURE, f"the reward falls from {c.trend.first:.3g} to {c.trend.last:.3g} in small steps", None


# ---- Sides of a run that a reward does not show at once


def not_finite(c: Curves) -> Evidence:
    """From one step on the loss or the gradient is no number."""
    for key in ("loss", "grad_norm"):
        if (lost := c.log.columns.get(f"lost {key}")) is None or c.get(key) is None:
            continue
        after = c.log.step[~np.isnan(lost)]
        after = after[after > c.log.steps_of(key).max()]
        if len(after) >= 3:
            return 2.0, f"from step {after[0]:.0f} on {key} is no finite number: updates are lost", int(after[0])
    return None


def data_changed(c: Curves) -> Evidence:
    """The length of the prompts and the level of the reward jump at most three logged steps apart."""
    asked, found = c.known("prompt_length"), jump(c.reward)
    if asked is None or found is None or (other := jump(asked)) is None or abs(other.at - found.at) > 3:
        return None
    if abs(other.size) < of_rows.LONGER * asked[: other.at].mean():
        return None
    says = f"at step {c.step(found.at)} prompts change by {other.size:+.3g} tokens and the reward by {found.size:+.2g}"
    return found.z / JUMP, says, c.step(found.at)


def engine_gap(c: Curves) -> tuple[Values, float]:
    """Nats per token between engine and trainer, and what is much of it; from a KL as of a Gaussian. 0 if unknown."""
    if (gap := c.known("gap")) is not None:
        return gap, MISMATCH_GAP
    kl = next((x for key in ("kl_engine", "off_policy") if (x := c.known(key)) is not None), np.zeros(MIN_POINTS))
    return np.sqrt(np.abs(kl) * 4 / math.pi), STALE_GAP  # s sqrt(2 / pi); s^2 / 2


def engine_mismatch(c: Curves) -> Evidence:
    """From the first steps on engine and trainer disagree."""
    gap, much = engine_gap(c)
    first = float(np.median(gap[:3]))
    if first >= of_rows.STALE_GROWTH * gap[0]:  # the first weights are new: with them old weights draw as new ones do
        return None
    says = f"from the start engine and trainer are {first:.2g} nats per token apart: noise, temperature, or old weights"
    return (first / much, says, None) if first >= much else None


def engine_changed(c: Curves) -> Evidence:
    """At one step engine and trainer part."""
    gap, much = engine_gap(c)
    found = jump(gap)
    if found is None or found.size < much or gap[found.at :].mean() < of_rows.STALE_GROWTH * gap[: found.at].mean():
        return None
    says = f"at step {c.step(found.at)} engine and trainer part by {found.size:.2g} nats per token"
    return found.z / JUMP, says, c.step(found.at)


def stale_policy(c: Curves) -> Evidence:
    """Engine and trainer part step by step after a start where they agreed."""
    gap, _ = engine_gap(c)
    first, most = float(gap[0]), float(np.convolve(gap, np.full(c.last, 1 / c.last), "valid").max())
    if most < max(STALE_GAP, of_rows.STALE_GROWTH * first) or engine_changed(c) is not None:
        return None
    says = f"engine and trainer are {first:.2g} nats per token apart at first and {most:.2g} later: old weights draw"
    return most / STALE_GAP, says, None


def length_paid(c: Curves) -> Evidence:
    """From step to step the reward follows the mean length: means of batches correlate as their rows do."""
    length = c.known("length")
    if length is None or min(np.ptp(length), np.ptp(c.reward)) == 0:
        return None
    steps = [
        np.clip(x := np.diff(each), *np.array([-3, 3]) * 1.5 * np.median(np.abs(x))) for each in (length, c.reward)
    ]
    alike = float(np.corrcoef(*steps)[0, 1]) if min(map(np.ptp, steps)) > 0 else 0.0
    together = float(np.corrcoef(length, c.reward)[0, 1]) >= TOGETHER  # draws blur the steps, not the course
    if (
        alike < (TOGETHER_STEPS if together else of_rows.LENGTH_PAID)
        or math.atanh(min(alike, 0.999)) * math.sqrt(len(length) / 1.5 - 3) < SURE
    ):
        return None
    says = f"from step to step reward and mean length correlate with {alike:.2f}: length explains much of it"
    return alike / of_rows.LENGTH_PAID, says, None


def kl_sign(c: Curves) -> Evidence:
    """The loss falls below 0 as the distance from the reference grows."""
    kl, loss = c.known("kl"), c.known("loss")
    if kl is None or loss is None or min(np.ptp(kl), np.ptp(loss)) == 0:
        return None
    late = len(kl) // 2
    if (
        np.corrcoef(kl, loss)[0, 1] > of_rows.KL_CORRELATION
        or loss[late:].mean() >= 0
        or kl[late:].mean() < 10 * TOUCHED
    ):
        return None
    says = f"as the KL grows to {kl[late:].mean():.2g} nats per token, the loss falls to {loss[late:].mean():.2g}"
    return kl[late:].mean() / of_rows.KL_DISTANCE, says, None


def entropy_collapse(c: Curves) -> Evidence:
    """Entropy is gone while there is reward left to gain."""
    entropy = c.known("entropy")
    if entropy is None or c.solved:
        return None
    first, last = float(np.median(entropy[:3])), float(np.median(entropy[-2 * c.last :]))
    says = f"entropy falls from {first:.2g} to {last:.2g} nats per token while the reward is at {c.trend.last:.2g}"
    strength = of_rows.ENTROPY_FALL * first / max(last, 1e-3)
    return (strength, f"{says}: little is left to try", None) if strength >= 1 else None


def kl_runaway(c: Curves) -> Evidence:
    """The reference would hardly write what the policy writes: its surprise at it is entropy + KL."""
    kl, entropy = c.known("kl"), c.known("entropy")
    if kl is None or (away := float(np.abs(kl[-len(kl) // 3 :]).mean())) < 10 * TOUCHED:
        return None
    if entropy is None:
        return (away / FAR, f"the KL from the reference is {away:.2g} nats per token", None) if away >= FAR else None
    first, now = float(np.median(entropy[:3])), away + float(entropy[-len(kl) // 3 :].mean())
    says = f"the reference's surprise, entropy + KL, goes from {first:.2g} to {now:.2g} nats per token, {away:.2g} KL"
    return (now / first / SURPRISED, says, None) if now >= SURPRISED * first else None


def clip_saturation(c: Curves) -> Evidence:
    """Much of the gradient is clipped, or the ratios of a batch spread as widely as the usual clip."""
    for key, much, what in (
        ("clip", MOSTLY, "of the ratios are clipped"),
        ("kl_step", CLIP**2 / 2, "nats a token are moved"),
    ):
        if (values := c.get(key)) is None or len(values) < FEW_POINTS:
            continue
        if (most := float(np.convolve(values, np.full(c.last, 1 / c.last), "valid").max())) >= much:
            return most / much, f"{most:.2g} {what} in a tenth of the run", None
    return None


def gradient_spikes(c: Curves) -> Evidence:
    """Single gradients are far above their neighbours, and above what was ever usual."""
    if (grad := c.known("grad_norm")) is None:
        return None
    around = np.array([np.median(grad[max(0, n - 5) : n + 6]) for n in range(len(grad))])
    high = np.flatnonzero((grad > SPIKE * around) & (grad > around.max()))
    if len(high) < 3:
        return None
    says = f"{len(high)} gradients are above {SPIKE:.0f} times their neighbours, the largest is {grad.max():.2g}"
    return len(high) / 3, says, c.step(int(high[0]))


RULES: tuple[Callable[[Curves], Evidence], ...] = (
    not_finite, grader_changed, uniform_policy, rate_too_large, kl_pushes, kl_holds, kl_sign,
    entropy_grows, right_per_token, std_without_reason, format_never_found, proxy_paid, length_paid, cap_cuts,
    no_variety, too_hard, too_easy, data_changed, engine_changed, engine_mismatch, stale_policy, reward_is_noise,
    rate_too_small, equal_rewards, entropy_collapse, kl_runaway, clip_saturation, gradient_spikes, reward_falls,
)  # fmt: skip
NAMES = {"cap_cuts": "cut-off", "reward_is_noise": "reward-noise"}
# true whatever the reward does
CERTAIN = "not-finite grader-changed uniform-policy right-per-token std-without-reason proxy-paid too-easy"
# also true of healthy runs
SIGNS = (
    "entropy-grows entropy-collapse kl-runaway clip-saturation gradient-spikes kl-sign engine-mismatch engine-changed "
    "stale-policy length-paid"
)


def scalar_causes(c: Curves, only: tuple[str, ...] = ()) -> tuple[list[Cause], list[Cause]]:
    """Causes, and what is to be watched, or `only` these, by rank and strength; none if there are too few points."""
    found: tuple[list[tuple[int, Cause]], ...] = ([], [])
    falls = c.falls or reward_falls(c) is not None
    for rule in RULES if len(c.reward) >= FEW_POINTS else ():
        name = NAMES.get(rule.__name__, rule.__name__.replace("_", "-"))
        if (only and name not in only) or (evidence := rule(c)) is None:
            continue
        strength, says, step = evidence
        about: dict[str, Any] = ABOUT[name]
        steps = (c.step(0) if step is None else step, c.step(len(c.steps)))
        cause = Cause(name, says, round(float(strength), 2), steps, [], about["confirm"], about["remedy"])
        harm = name in CERTAIN.split() or (falls if name in SIGNS.split() else not c.learned)
        found[0 if harm and strength >= 1 else 1].append((about["rank"], cause))
    causes, watch = ([x for _, x in sorted(each, key=lambda y: (y[0], -y[1].evidence))] for each in found)
    return causes, watch


def points_that_would_tell(c: Curves) -> int:
    """Logged points after which a gain of SMALL_GAIN of the reward's range would be SURE, at the noise of this log."""
    noise = c.trend.noise / max(c.scale, 1e-9)
    return max(FEW_POINTS, math.ceil(6 * (SURE * noise / SMALL_GAIN) ** 2))


def notes(c: Curves) -> list[str]:
    """What is worth knowing and accuses nothing."""
    found = []
    constant = constant_parts(c)
    for name, value in constant.items() if len(constant) < len(c.log.parts) else ():
        found.append(f"the component {name} is {value:g} in every step: it cancels in every group")
    rate = c.rate
    if rate is not None and not c.learned and 0 < (p := float(rate[-c.last :].mean())) < 1:
        gain = math.sqrt(2 * 0.01 * p * (1 - p))
        found.append(f"at a pass rate of {p:.2g}, an exact step of 0.01 nats a response gains at most {gain:.2g}")
    return found
