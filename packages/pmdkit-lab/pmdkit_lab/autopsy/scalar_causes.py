"""Why a reward does not rise, from scalars alone. Each rule returns the numbers that it rests on, or None.

For rewards of two values the laws of a group of G draws do most of the work. With a pass rate p, a group is silent with
probability p^G + (1 - p)^G, which is convex: at the mean of p over the prompts it is the least share of silent groups.
The std inside a group, `group_std`, is concave: at the mean of p it is largest, and reached only by prompts alike.
"""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from pmdkit_lab.autopsy.causes import ABOUT, SOLVED, Cause
from pmdkit_lab.autopsy.changes import GROUP, JUMP, SURE, group_std, jump, trend
from pmdkit_lab.autopsy.scalars import Log, Values

BIG_JUMP = 0.25  # of the range of the reward before; a smaller one may be a new kind of prompt
KNOWN_LEVEL = 8  # points before a change of the grader, as many as the alarm of a recorder needs
MIN_POINTS = 12  # logged points that show a trend or a jump
FEW_POINTS = 6  # below it nothing is said but that
SMALL_GAIN = 0.1  # of the reward's range: what a run that learns gains at least
HARD, EASY = 0.03, 0.95  # pass rates: of eight draws one is right in every fifth group; in every third one is wrong
MOSTLY = 0.3  # of the responses cut off; then the cap decides the reward
GROWN = 1.2  # entropy over that of the start
LEAP = 0.5  # of the entropy of the start, between two logged points; learning takes tens of them
FAR = 1.0  # nats per token from the reference within the first quarter of a run
TOUCHED = 3e-3  # nats per token from the reference; below it no policy has changed its answers
MOVED = 2e-5  # learning rate times updates, the furthest that Adam moves a weight, whose usual size is 0.02
USUAL_UPDATES = 200  # in which a run has learned something; a shorter one is judged by what it would do in so many
SAME_PROMPTS = 0.96  # std inside a group over that of prompts with one pass rate; spread of difficulty lowers it
UNIFORM = 0.02  # nats below ln V
VOCABULARIES = (151_936, 151_643, 152_064, 128_256, 129_280, 32_000, 32_768, 50_257, 49_152, 100_352, 256_000, 262_144)
FADED, KEPT = 30, 5  # the std falls by so much while the gradient falls by less than that


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
        self.kept = end - bottom >= 0.6 * (best - bottom)
        self.rises = self.trend.z >= SURE and self.trend.last > self.trend.first
        solved = self.rate is not None and float(self.rate[-self.last :].mean()) > SOLVED
        self.learned = self.kept and (self.rises or solved)

    @property
    def gained(self) -> bool:
        """Whether the reward is near its top, or has gained what a run that learns gains at least."""
        solved = self.rate is not None and float(self.rate[-self.last :].mean()) > SOLVED
        return solved or float(self.smooth[-1] - self.smooth[0]) >= SMALL_GAIN * self.scale

    @property
    def smooth(self) -> Values:
        """The reward, as means over a tenth of the run."""
        width = max(len(self.reward) // 10, 1)
        return np.convolve(self.reward, np.full(width, 1 / width), "valid")

    def get(self, key: str) -> Values | None:
        """A column, see `Log.get`."""
        return self.log.get(key)

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
    return found.z / JUMP, says, c.step(found.at)


def policy_leaps(c: Curves, at: int) -> bool:
    """Whether entropy, length or the distance from the reference leaps, beyond its drift, where the reward does."""
    for key in ("entropy", "length", "kl"):
        values = c.get(key)
        if values is None or len(values) != len(c.reward) or len(values) < MIN_POINTS:
            continue
        places = np.arange(4, len(values) - 3)
        around = np.array([np.median(values[n : n + 6]) - np.median(values[max(0, n - 6) : n]) for n in places])
        beyond = np.abs(around - np.median(around))[np.abs(places - at) <= 6]
        usual = abs(float(np.median(values[: max(at - 3, 3)])))
        if len(beyond) and beyond.max() > max(LEAP * usual, JUMP * trend(values).noise * 1.25 * math.sqrt(2 / 6)):
            return True
    return False


def verdicts_shuffled(c: Curves) -> Evidence:
    """From one step on, the std inside a group is that of responses which all prompts share."""
    std = c.get("reward_std")
    if c.rate is None or std is None or len(std) != len(c.rate):
        return None
    ratio = np.minimum(std / (np.maximum(group_std(c.rate), 0.01) * c.scale), 2.0)
    found = jump(ratio)
    if found is None or found.size <= 0 or policy_leaps(c, found.at) or c.rate[found.at :].mean() > 0.97:
        return None
    before_it, after_it = c.rate[: found.at], c.rate[found.at :]
    if not EASY > float(np.median(before_it)) > HARD:  # hardly any std to belong to anything
        return None
    if (course := trend(after_it)).z >= SURE and course.last - course.first > SMALL_GAIN:  # they teach
        return None
    after, before = float(np.median(ratio[found.at :])), float(np.median(ratio[: found.at]))
    if after < 0.9 or after > 1.1:
        return None
    says = (
        f"from step {c.step(found.at)} on rewards differ as much inside a group as between groups (std {after:.2f} "
        f"times that of equal prompts, before it {before:.2f}): verdicts do not belong to their responses"
    )
    return found.z / JUMP, says, c.step(found.at)


def rate_too_large(c: Curves) -> Evidence:
    """The policy leaps, and the reward does not rise after it."""
    if c.learned or len(c.reward) < FEW_POINTS:
        return None
    entropy, kl = c.get("entropy"), c.get("kl")
    if entropy is not None and len(entropy) >= MIN_POINTS // 2 and entropy[0] > 0:
        logs = np.log(np.maximum(entropy, 1e-3))
        noise, later = trend(logs[2:]).noise, float(np.median(logs[2:8]))
        at = 1 if abs(later - logs[0]) > max(LEAP, JUMP * noise) else None  # too early for `jump`
        if at is None and (found := jump(logs)) is not None and abs(found.size) > LEAP:
            at = found.at
        if at is not None and (at == 1 or c.reward[at:].mean() < 0.75 * c.smooth.max()):
            step = int(c.log.steps_of("entropy")[at])
            says = (
                f"entropy leaps from {np.median(entropy[max(0, at - 6) : at]):.2g} to "
                f"{np.median(entropy[at + 1 : at + 7]):.2g} nats per token at step {step}, and the reward goes from "
                f"{c.reward[:at].mean():.2g} to {c.reward[-c.last :].mean():.2g}"
            )
            return 2.0, says, step
    early = None if kl is None else kl[: max(len(kl) // 4, 2)]
    if early is not None and np.abs(early).max() > FAR:
        at = int((np.abs(early) > FAR).argmax())
        step = int(c.log.steps_of("kl")[at])
        says = f"the policy is {abs(early[at]):.2g} nats per token from the reference after {step} steps"
        return abs(early[at]) / FAR, says, step
    best = float(c.smooth.max())
    falls = found if (found := jump(c.reward)) is not None and found.size < 0 and policy_leaps(c, found.at) else None
    if falls is not None and c.reward[falls.at :].mean() < 0.6 * best:
        says = f"at step {c.step(falls.at)} the reward falls by {-falls.size:.2g} and the policy leaps with it"
        return falls.z / JUMP, says, c.step(falls.at)
    quick, rest = c.reward[:2], c.reward[max(2, len(c.reward) // 10) :]
    if rest.max() < 0.5 * quick.max() and quick.max() - rest.mean() > 5 * trend(rest).noise:
        says = f"the reward is {quick.max():.2g} in the first steps, and at most {rest.max():.2g} ever after"
        return quick.max() / max(rest.max(), 1e-3) / 2, says, c.step(1)
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


def kl_pushes(c: Curves) -> Evidence:
    """Entropy grows step by step under a KL term, and the reward does not rise with it."""
    entropy, kl = c.get("entropy"), c.get("kl")
    if c.learned or entropy is None or kl is None or len(entropy) < MIN_POINTS:
        return None
    grown = trend(entropy)
    away = float(np.mean(np.abs(kl[-max(len(kl) // 3, 1) :])))
    if grown.last < GROWN * grown.first or grown.z < 2 * SURE or away < 10 * TOUCHED:
        return None
    sign = "it is below 0 at times, so it is k1" if float(kl.min()) < 0 else "it is never below 0"
    says = (
        f"entropy grows from {grown.first:.2g} to {grown.last:.2g} nats per token while the logged KL is {away:.2g} "
        f"({sign}); the reward goes from {c.trend.first:.2g} to {c.trend.last:.2g}"
    )
    return grown.last / grown.first / GROWN, says, None


def right_per_token(c: Curves) -> Evidence:
    """Length and reward fall, and the reward per token rises."""
    length, paid = c.get("length"), c.get("held_out") if c.get("held_out") is not None else c.reward
    if length is None or paid is None or len(paid) < FEW_POINTS:
        return None
    third = max(len(paid) // 5, 1)
    best, end = float(np.convolve(paid, np.full(third, 1 / third), "valid").max()), float(paid[-third:].mean())
    first, last = float(length[: max(len(length) // 10, 1)].mean()), float(length[-max(len(length) // 10, 1) :].mean())
    gain = (end / max(last, 1e-9)) / max(float(paid[:third].mean()) / first, 1e-9)
    if last > first / 3 or end > 0.8 * best or gain < 5:
        return None
    says = (
        f"reward per token grows {gain:.0f} times while the reward falls from {best:.2g} to {end:.2g} and the length "
        f"from {first:.0f} to {last:.0f} tokens: what is raised is E[r / |y|]"
    )
    return gain / 5, says, None


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


def weights_below_one(c: Curves) -> Evidence:
    """The largest importance weight is below 1 in nearly every step."""
    top, mean = c.get("ratio_max"), c.get("ratio_mean")
    if c.learned or top is None or len(top) < FEW_POINTS or np.mean(top < 1) < 0.9:
        return None
    about = "" if mean is None else f", their mean {np.median(mean):.2g}"
    says = (
        f"the largest weight of trainer over engine is {np.median(top):.2g}{about}: the engine draws from a part of pi"
    )
    return float(np.mean(top < 1)) / 0.9, says, None


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


def component_constant(c: Curves) -> Evidence:
    """A component of the reward never changes: it cancels in every group."""
    found = constant_parts(c)
    if c.learned or not found or len(found) == len(c.log.parts):
        return None
    names = ", ".join(f"{name} = {value:g}" for name, value in found.items())
    share = sum(map(abs, found.values())) / max(abs(float(c.reward.mean())), 1e-9)
    if share < 0.5:
        return None
    return 1.2, f"{names} in all steps, {share:.0%} of the mean reward: a constant cancels in every group", None


def proxy_paid(c: Curves) -> Evidence:
    """The reward rises, and what it stands for does not: a component for correctness, or the held-out reward."""
    gain = c.trend.last - c.trend.first
    held = c.get("held_out")
    if c.trend.z >= SURE:
        for name, values in c.log.parts.items():
            known = values[~np.isnan(values)]
            if re.search("correct|accura|answer|right|solve|^f$", name, re.I) and len(known) >= MIN_POINTS:
                own = trend(known)
                if own.last - own.first < 0.1 * gain and own.last < 0.1 * c.trend.last:
                    says = (
                        f"the reward rises from {c.trend.first:.2g} to {c.trend.last:.2g}, and its component {name} "
                        f"from {own.first:.2g} to {own.last:.2g}: something else is learned"
                    )
                    return 2.0, says, None
    if held is not None and len(held) >= FEW_POINTS and c.trend.last > 0.8 * c.trend.first:
        half = len(held) // 2
        if held[half:].mean() < 0.75 * held[:half].mean() and c.trend.z > -SURE:
            says = (
                f"the reward goes from {c.trend.first:.2g} to {c.trend.last:.2g}, the held-out one from "
                f"{held[:half].mean():.3g} to {held[half:].mean():.3g}"
            )
            return 1.5, says, None
    return None


def cap_cuts(c: Curves) -> Evidence:
    """Much is cut off, and the reward does not rise."""
    cut = c.get("cut")
    if cut is None or (share := float(cut.mean())) < MOSTLY or float(cut[-max(len(cut) // 3, 1) :].mean()) < MOSTLY:
        return None
    if c.learned and (c.rate is None or float(c.rate[-c.last :].mean()) > 0.5):
        return None
    return share / MOSTLY, f"{share:.0%} of the responses end at the cap (from {cut[0]:.0%} to {cut[-1]:.0%})", None


def too_hard(c: Curves) -> Evidence:
    """Hardly any response is right."""
    if c.rate is None or len(c.rate) < FEW_POINTS or np.ptp(c.reward) < 1e-9:
        return None
    if float(np.median(c.rate)) > HARD or float(c.smooth.max() - c.bottom) > 5 * HARD * c.scale:
        return None
    rate = float(c.rate.mean())
    silent = c.get("silent")
    seen = "" if silent is None else f"; {silent.mean():.0%} of the groups are silent"
    says = (
        f"the pass rate is {rate:.2g}, so {1 - (1 - rate) ** GROUP:.1%} of groups of {GROUP} have a right answer{seen}"
    )
    return HARD / max(rate, HARD / 10), says, None


def too_easy(c: Curves) -> Evidence:
    """Nearly every response is right from the start."""
    if c.rate is None or len(c.rate) < FEW_POINTS or float(c.rate[: max(len(c.rate) // 5, 2)].mean()) < EASY:
        return None
    if (rate := float(c.rate.mean())) < EASY:
        return None
    says = (
        f"the pass rate is {rate:.3g} from the start, so {1 - rate**GROUP:.0%} of groups of {GROUP} have a wrong answer"
    )
    return rate / EASY, says, None


def reward_is_noise(c: Curves) -> Evidence:
    """The reward is flat, and groups differ as if no prompt were easier than another."""
    if c.learned or c.rate is None or abs(c.trend.z) > SURE or len(c.rate) < MIN_POINTS:
        return None
    rate, std = float(c.rate.mean()), c.get("reward_std")
    if std is None or not 0.1 < rate < 0.9:
        return None
    share = float(std.mean()) / (float(group_std(c.rate).mean()) * c.scale)
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
    if c.learned or abs(c.trend.z) >= 2 * SURE or len(c.reward) < FEW_POINTS or np.ptp(c.reward) < 1e-9:
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


def reward_falls(c: Curves) -> Evidence:
    """The reward falls step by step."""
    if c.learned or c.trend.z > -SURE or c.trend.last > 0.8 * c.trend.first or grader_changed(c) is not None:
        return None
    return -c.trend.z / SURE, f"the reward falls from {c.trend.first:.3g} to {c.trend.last:.3g} in small steps", None


RULES: tuple[Callable[[Curves], Evidence], ...] = (
    grader_changed, verdicts_shuffled, uniform_policy, rate_too_large, kl_pushes, right_per_token, std_without_reason,
    format_never_found, component_constant, proxy_paid, cap_cuts, too_hard, too_easy, reward_is_noise, rate_too_small,
    equal_rewards, weights_below_one, reward_falls,
)  # fmt: skip
NAMES = {"cap_cuts": "cut-off", "reward_is_noise": "reward-noise"}


def scalar_causes(c: Curves, only: tuple[str, ...] = ()) -> list[Cause]:
    """All causes with evidence, or `only` these, by rank and strength; none if the log has too few points for any."""
    if len(c.reward) < FEW_POINTS:
        return []
    ranked = []
    for rule in RULES:
        if (evidence := rule(c)) is not None:
            strength, says, step = evidence
            name = NAMES.get(rule.__name__, rule.__name__.replace("_", "-"))
            if only and name not in only:
                continue
            about: dict[str, Any] = ABOUT[name]
            steps = (c.step(0) if step is None else step, c.step(len(c.steps)))
            cause = Cause(name, says, round(float(strength), 2), steps, [], about["confirm"], about["remedy"])
            ranked.append((about["rank"], cause))
    return [cause for _, cause in sorted(ranked, key=lambda each: (each[0], -each[1].evidence))]


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
    top = c.get("ratio_max")
    if c.learned and top is not None and np.mean(top < 1) >= 0.9:
        found.append(
            f"no weight of trainer over engine is above 1 (at most {top.max():.2g}): top_p or top_k cuts draws"
        )
    silent, rate = c.get("silent"), c.rate
    if silent is not None and rate is not None and len(silent) == len(rate):
        least = float(np.mean(rate**GROUP + (1 - rate) ** GROUP))
        noise = float(silent.std()) / math.sqrt(len(silent))
        if float(silent.mean()) < least - SURE * noise - 0.02:
            found.append(
                f"{silent.mean():.0%} of the groups are silent, where rewards of two values in groups of {GROUP} give "
                f"at least {least:.0%}: rewards have more values, or groups are larger"
            )
    if rate is not None and not c.learned and 0 < (p := float(rate[-c.last :].mean())) < 1:
        gain = math.sqrt(2 * 0.01 * p * (1 - p))
        found.append(f"at a pass rate of {p:.2g}, an exact step of 0.01 nats a response gains at most {gain:.2g}")
    return found
