"""What a step's rows say, measured while they are read: a row is kept as twenty numbers until its step is complete."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmdkit.observe import gauge
from pmdkit.theory import group_anchor
from pmdkit_lab.autopsy.readers import Place, Row
from strict_answers.extraction import answer_line, last_box

Values = NDArray[np.float64]
Measures = dict[str, Any]

AT_ONCE = 2**16  # rows of a step in memory; a larger step is measured in pieces, and a group at a seam is cut in two
OPEN = 4  # steps in memory: an asynchronous trainer writes a few at a time
BLOCK = 256  # rows that stand for a step where none is written
NEAR = 0.75  # of the cap: responses that ended in its last quarter stand for those that it cut off
EXAMPLES = 5  # places that are kept of each kind of evidence


def answer_of(response: str) -> tuple[str, str | None]:
    """The form in which a response gives its answer, and the answer."""
    if (box := last_box(response)) is not None:
        return "box", box
    if tags := re.findall(r"<answer>(.{0,200}?)</answer>", response[-2000:], re.DOTALL):
        return "tag", tags[-1].strip()
    if "####" in (end := response[-400:]):
        return "####", end.rpartition("####")[2].strip()
    if (line := answer_line(response)) is not None:
        return "answer line", line[1]
    number = re.search(r"(-?\d[\d,]*(?:\.\d+)?)\W*$", response[-60:])
    return ("number", number.group(1)) if number else ("none", None)


def agrees(answer: str | None, gold: str | None) -> bool | None:
    """Whether an answer is the right one; None where only a verifier could say, which is not run here."""
    if answer is None or gold is None:
        return None if gold is None else False
    gold = gold.rpartition("####")[2]
    given, right = (each.strip().strip("$. *").replace(",", "").casefold() for each in (answer, gold))
    if given == right:
        return True
    try:
        return float(given) == float(right)
    except ValueError:
        return False if len(given) == len(right) == 1 else None


@dataclass
class Pairs:
    """Sums over pairs of numbers, from which regression and correlation follow: n, x, y, xx, yy, xy."""

    sums: Values = field(default_factory=lambda: np.zeros(6))

    def add(self, x: Values, y: Values) -> None:
        """Add pairs."""
        self.sums += np.array([len(x), x.sum(), y.sum(), x @ x, y @ y, x @ y])

    def moments(self) -> tuple[float, float, float]:
        """Variance of x, of y, and their covariance."""
        _, x, y, xx, yy, xy = self.sums / max(self.sums[0], 1)
        return xx - x * x, yy - y * y, xy - x * y

    def correlation(self) -> float | None:
        """Pearson's; None where one side does not vary."""
        vx, vy, both = self.moments()
        return float(both / math.sqrt(vx * vy)) if self.sums[0] > 2 and min(vx, vy) > 1e-12 else None


@dataclass
class StepRows:
    """The rows of one step so far."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    same: Pairs = field(default_factory=Pairs)  # the engine's log-probability of a token, the trainer's of the same one
    ahead: Pairs = field(default_factory=Pairs)  # ... of the one after it
    behind: Pairs = field(default_factory=Pairs)  # ... of the one before it
    gap: float = 0.0  # sum of absolute differences
    weights: Values = field(default_factory=lambda: np.zeros(2))  # of tokens: sums of w and of w^2

    def add(self, row: Row, place: Place) -> None:
        """Take a row in."""
        spread, moved, drift, surprise = math.nan, math.nan, math.nan, math.nan
        tokens = row.length or math.nan
        if row.logp_engine:
            engine = np.asarray(row.logp_engine)
            surprise = -engine.sum() / (len(engine) if len(engine) > 1 else tokens)
            if row.logp and len(row.logp) == len(engine):
                trainer = np.asarray(row.logp)
                difference = trainer - engine
                spread = float(difference.sum())
                if len(engine) > 1 or row.length == 1:  # else sums, which say nothing of tokens
                    self.same.add(engine, trainer)
                    if len(engine) > 2:
                        self.ahead.add(engine[:-1], trainer[1:])
                        self.behind.add(engine[1:], trainer[:-1])
                    self.gap += float(np.abs(difference).sum())
                    weight = np.exp(np.clip(difference, -20, 20))
                    self.weights += (weight.sum(), weight @ weight)
            if row.logp_after:
                moved = sum(row.logp_after) - sum(row.logp or row.logp_engine)
            if row.logp_ref:
                drift = (sum(row.logp or row.logp_engine) - sum(row.logp_ref)) / tokens
        form, answer = answer_of(row.response) if row.response is not None else (None, None)
        right = agrees(answer, row.gold) if row.response is not None else None
        if form == "number":  # it may be any number: one that is right says more than one that is not
            answer, right = None, right or None
        prompt = None if row.prompt is None else hash(row.prompt)
        self.rows.append(
            (
                hash(row.group) if row.group is not None else prompt,
                row.group is not None,
                prompt,
                None if row.response is None else hash(row.response),
                number(row.reward),
                number(row.advantage),
                number(row.length),
                number(row.cut),
                number(row.version),
                row.entropy if row.entropy is not None else surprise,
                spread, moved, drift,
                form,
                None if answer is None else hash(answer),
                number(right),
                number(row.mask_late),
                place,
            )
        )  # fmt: skip


def number(value: float | None) -> float:
    """A number; NaN for None."""
    return math.nan if value is None else float(value)


def by_step(rows: Iterable[tuple[Place, Row]], tau: float | None) -> Iterator[Measures]:
    """Measures of each step, as soon as it is complete; steps that come in pieces are merged by `merged`."""
    open_steps: dict[int, StepRows] = {}
    unnumbered = 0
    for place, row in rows:
        step = unnumbered // BLOCK + 1 if row.step is None else row.step
        unnumbered += row.step is None
        here = open_steps.setdefault(step, StepRows())
        here.add(row, place)
        if len(here.rows) == AT_ONCE:
            yield measure(step, open_steps.pop(step), tau)
        elif len(open_steps) > OPEN:
            oldest = next(iter(open_steps))
            yield measure(oldest, open_steps.pop(oldest), tau)
    for step, here in open_steps.items():
        yield measure(step, here, tau)


def mean(values: Values) -> float | None:
    """Mean of the numbers that are there; None if none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def correlation(x: Values, y: Values) -> float | None:
    """Pearson's over the pairs that are there."""
    pairs, there = Pairs(), ~(np.isnan(x) | np.isnan(y))
    pairs.add(x[there], y[there])
    return pairs.correlation()


def measure(step: int, here: StepRows, tau: float | None) -> Measures:
    """All measures of a step; None where its rows do not have what one needs."""
    group, named, prompt, response, *columns, form, answer, right, late, place = zip(*here.rows, strict=True)
    reward, advantage, length, cut, version, entropy, spread, moved, drift = (np.array(x, float) for x in columns)
    content = np.array(right, float)
    has = ~np.isnan(reward)
    low, high = (float(reward[has].min()), float(reward[has].max())) if has.any() else (math.nan, math.nan)
    passed = reward > (0.0 if low < 0 else 0.5)
    cap = np.nanmax(length[cut == 1], initial=0.0)
    near = has & (cut == 0) & (length > NEAR * cap) if cap else np.zeros(len(cut), bool)
    paid, unpaid = has & (reward == high) & (low < high), has & (reward == min(low, 0.0))
    found: Measures = {
        "step": step, "rows": len(here.rows), "rewarded": int(has.sum()), "reward": mean(reward),
        "passed": float(passed[has].mean()) if has.any() else None,
        "reward_low": low if has.any() else None, "reward_high": high if has.any() else None,
        "length": mean(length), "longest": float(np.nanmax(length)) if (~np.isnan(length)).any() else None,
        "length_right": mean(length[has & passed]), "length_wrong": mean(length[has & ~passed]),
        "reward_by_length": correlation(length, reward),
        "near": float(near.mean()) if cap else None, "near_passed": float((near & passed).mean()) if cap else None,
        "cut": mean(cut), "reward_cut": mean(reward[cut == 1]), "reward_whole": mean(reward[cut == 0]),
        "entropy": mean(entropy), "version": mean(version), "versions": len(set(version[~np.isnan(version)])),
        "mask_late": mean(np.array(late, float)), "drift": mean(drift),
        "log_ratio_std": float(np.nanstd(spread)) if (~np.isnan(spread)).any() else None,
        "step_std": float(np.nanstd(moved)) if (~np.isnan(moved)).any() else None,
        "ess": effective(spread), "ess_step": effective(moved),
        **token_measures(here), **group_measures(group, named, prompt, response, answer, reward, advantage, paid, tau),
    }  # fmt: skip
    forms = np.array([name or "" for name in form])
    found["forms"] = {
        str(name): [
            int(on.sum()),
            float(reward[on].mean()),
            int((content[on] == 1).sum()),
            int((content[on] == 0).sum()),
        ]
        for name in np.unique(forms)
        if name and (on := (forms == name) & has).any()
    }
    known = ~np.isnan(content) & has
    found["paid_known"], found["paid_wrong"] = int((paid & known).sum()), int((paid & (content == 0)).sum())
    found["right_known"], found["right_unpaid"] = (
        int((has & (content == 1)).sum()),
        int((unpaid & (content == 1)).sum()),
    )
    evidence = {
        "paid_wrong": paid & (content == 0),
        "right_unpaid": unpaid & (content == 1),
        "cut": cut == 1,
        "spread": np.abs(np.nan_to_num(spread)) >= max(np.nanmax(np.abs(spread), initial=0.0), 1e-9),
        "any": np.arange(len(reward)) < 1,
    }
    found["places"] = {kind: [place[n] for n in np.flatnonzero(on)[:EXAMPLES]] for kind, on in evidence.items()}
    return found


def effective(log_weight: Values) -> float | None:
    r"""Effective share of a sample, \((\sum w)^2 / (n \sum w^2)\), from logarithms of the weights."""
    known = log_weight[~np.isnan(log_weight)]
    if len(known) < 2:
        return None
    weight = np.exp(known - known.max())
    return float(weight.sum() ** 2 / (len(known) * (weight @ weight)))


def token_measures(here: StepRows) -> Measures:
    """Engine against trainer, over the tokens of a step for which both reported a log-probability."""
    n, x, y, *_ = here.same.sums
    if not n:
        return dict.fromkeys(
            ("gap", "gap_mean", "gap_noise", "slope", "alike", "alike_ahead", "alike_behind", "ess_token")
        )
    var_x, var_y, both = here.same.moments()
    slope = both / var_x if var_x > 1e-9 else None
    return {
        "gap": here.gap / n,
        "gap_mean": (y - x) / n,
        "gap_noise": math.sqrt(max(var_y - both**2 / var_x, 0.0)) if var_x > 1e-9 else None,  # residual of the line
        "slope": slope,
        "alike": here.same.correlation(),
        "alike_ahead": here.ahead.correlation(),
        "alike_behind": here.behind.correlation(),
        "ess_token": here.weights[0] ** 2 / (n * here.weights[1]),
    }


def group_measures(
    group: tuple[Hashable, ...], named: tuple[bool, ...], prompt: tuple[Any, ...], response: tuple[Any, ...],
    answer: tuple[Any, ...], reward: Values, advantage: Values, paid: NDArray[np.bool_], tau: float | None,
) -> Measures:  # fmt: skip
    """What only whole groups show: silence, difficulty, credit, the anchor, duplicates, contradictions."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(group):
        if key is not None and not math.isnan(reward[place]):
            members[key].append(place)
    whole = [np.array(places) for places in members.values() if len(places) > 1]
    if not whole:
        return {"groups": 0}
    rewards = [reward[places] for places in whole]
    equal = np.array([float(np.ptp(each)) < 1e-9 for each in rewards])
    top = max(float(each.max()) for each in rewards)
    rate = np.array([float((each > (0.5 if min(map(np.min, rewards)) >= 0 else 0.0)).mean()) for each in rewards])
    found: Measures = {
        "groups": len(whole),
        "group_size": Counter(map(len, whole)).most_common(1)[0][0],
        "silent": float(equal.mean()),
        "silent_top": float(
            np.mean([bool(flat) and each[0] >= top > 0 for flat, each in zip(equal, rewards, strict=True)])
        ),
        "difficulty": np.histogram(rate, (*gauge.EDGES[:-1], 1.0000001))[0].tolist(),
        "one_answer": share(
            len({response[n] for n in places}) == 1 for places in whole if response[places[0]] is not None
        ),
        "contradictions": share(
            len({answer[n] for n in places[paid[places]] if answer[n] is not None}) > 1
            for places in whole
            if paid[places].sum() > 1
        ),
    }
    if tau is not None:
        strength = [float(group_anchor(each, tau)) / tau for each in rewards]
        found["anchor"] = float(np.mean(strength))
    if named[whole[0][0]]:
        asked = Counter(prompt[places[0]] for places in whole if prompt[places[0]] is not None)
        found["repeated"] = 1 - len(asked) / asked.total() if asked else None
    else:  # groups are not named: the size that divides all counts, or else the usual one
        counts = [len(places) for places in whole]
        size = math.gcd(*counts) if math.gcd(*counts) > 1 else Counter(counts).most_common(1)[0][0]
        found["group_size"] = size
        found["repeated"] = 1 - len(counts) / sum(max(1, round(count / size)) for count in counts)
    credit = [advantage[places] for places in whole]
    if all(not np.isnan(each).any() for each in credit):
        together, spread = np.concatenate(credit), float(np.concatenate(credit).std())
        found["credit_mean"] = abs(float(together.mean())) / spread if spread > 1e-9 else None
        found["credit_of_equal"] = share(bool(np.abs(credit[n]).max() > 1e-6) for n in np.flatnonzero(equal))
        found["credit_sign"] = correlation(
            np.concatenate([each - each.mean() for each in credit]),
            np.concatenate([each - each.mean() for each in rewards]),
        )
        found["credit_is_reward"] = correlation(together, np.concatenate(rewards))
    return found


def share(cases: Iterable[bool]) -> float | None:
    """Share of the cases that hold; None if there are none."""
    known = list(cases)
    return sum(known) / len(known) if known else None


def merged(pieces: list[Measures]) -> Measures:
    """The pieces of one step, or the steps of a phase, as one: counts add up, other numbers are means over rows."""
    found: Measures = {"step": pieces[0]["step"], "forms": {}, "places": defaultdict(list)}
    for key in dict.fromkeys(key for piece in pieces for key in piece if key not in found):
        known = [(piece[key], piece["rows"]) for piece in pieces if piece.get(key) is not None]
        if not known:
            found[key] = None
        elif isinstance(known[0][0], list):
            found[key] = np.sum([value for value, _ in known], 0).tolist()
        elif isinstance(known[0][0], int):
            found[key] = sum(value for value, _ in known) if key not in ("group_size", "versions") else known[-1][0]
        else:
            found[key] = sum(value * rows for value, rows in known) / sum(rows for _, rows in known)
    for piece in pieces:
        for name, (count, reward, right, wrong) in piece["forms"].items():
            before = found["forms"].get(name, [0, 0.0, 0, 0])
            total = before[0] + count
            earned = (before[0] * before[1] + count * reward) / total
            found["forms"][name] = [total, earned, before[2] + right, before[3] + wrong]
        for kind, places in piece["places"].items():
            found["places"][kind] = (found["places"][kind] + places)[:EXAMPLES]
    return found
