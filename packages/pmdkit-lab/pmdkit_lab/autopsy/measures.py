"""Measure the rows of each step while they are read. A row is kept as twenty numbers until its step is complete."""

import json
import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmdkit.observe import gauge
from pmdkit.theory import group_anchor
from pmdkit_lab.dumps.readers import Place, Row
from strict_answers.extraction import answer_line, last_box
from strict_answers.rules import NO_HINTS, Pending, compare_span

Values = NDArray[np.float64]
Measures = dict[str, Any]

MAX_ROWS_IN_MEMORY = 2**16  # rows of a step; a larger step is measured in pieces, and a group at a seam is cut in two
MAX_OPEN_STEPS = 4  # steps in memory: an asynchronous trainer writes a few at a time
UNNUMBERED_STEP = 256  # rows that make a step where the dump numbers none
LATE_FRACTION = 0.75  # of the cap: responses that end beyond it show what the cut-off responses would have become
BUCKETS = 4096  # of words, by their hash, for their entropy
FIRST_WORDS = 200  # of a response, that are counted for it
LONGEST_ANSWER = 100  # characters that are looked for in a response; a longer right answer is a solution
WORD, INTEGER = re.compile(r"[^\W\d_]+"), re.compile(r"-?\d+")
SPELLED = re.compile(
    r"\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    r"(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand|million)\b"
)
SEVERAL = re.compile(r"[a-z](?:(?:\s*[,;/&]\s*|\s+)(?:(?:or|and)\s+)?[a-z])+")  # "a, b or c"
OR = re.compile(r",?\s+or\s+", re.IGNORECASE)
ANSWER_IS = re.compile(r"(?i:answer is):? *([^\n]{1,100}?)(?:[.!]? *(?=\n|$)|[.!] )")
EXAMPLES = 5  # places kept for each kind of evidence


def answer_of(response: str) -> tuple[str, str | None]:
    """The form in which a response gives its answer, and the answer; ("none", None) if it gives none."""
    if (box := last_box(response)) is not None:
        return "box", box
    if tags := re.findall(r"<answer>(.{0,200}?)</answer>", response[-2000:], re.DOTALL):
        return "tag", tags[-1].strip()
    if "####" in (end := response[-400:]):
        return "####", end.rpartition("####")[2].strip()
    if (line := answer_line(response)) is not None:
        return "answer line", line[1]
    if (value := json_value(end)) is not None:
        return "JSON", value
    if sentences := ANSWER_IS.findall(end):
        return "answer is", sentences[-1].strip()
    number = re.search(r"(-?\d[\d,]*(?:\.\d+)?)\W*$", response[-60:])
    return ("number", number.group(1)) if number else ("none", None)


def json_value(end: str) -> str | None:
    """The last value of a JSON object, as text; None if a response ends without one."""
    try:
        value = list(json.loads(end[end.rindex("{") : end.rindex("}") + 1]).values())[-1]
    except (ValueError, IndexError):
        return None
    return str(value) if isinstance(value, str | int | float) else None


def ends_with(response: str, gold: str | None) -> bool:
    """Whether the last words of a response, without marks such as quotes and brackets, are the right answer."""
    gold = (gold or "").rpartition("####")[2].strip()
    if not gold or len(gold) > LONGEST_ANSWER:
        return False
    last, right = (re.sub(r"[\W_]+$", "", each).casefold() for each in (response[-400:], gold))
    return bool(right) and last.endswith(right) and not last[: -len(right)][-1:].isalnum()


def bare(answer: str) -> str:
    """A text without the marks around it and without commas, in small letters and with one kind of minus."""
    return re.sub(r"\{,\}|\\,|,", "", answer.strip().strip("$. *()")).replace("−", "-").casefold()


def plain(answer: str | None) -> str | float | None:
    """A number, a word or a letter, of which two that are not equal are different answers; None for anything else."""
    said = bare(answer or "")
    try:
        return float(said)
    except ValueError:
        return said if WORD.fullmatch(said) else None


def agrees(answer: str | None, gold: str | None) -> bool | None:
    """Whether an answer is right; None where only a parser of formulas could tell, because none runs here."""
    if answer is None or gold is None:
        return None
    gold = gold.rpartition("####")[2].strip()
    answered, right = bare(answer), bare(gold)
    if answered == right:
        return True
    try:
        return float(answered) == float(right)
    except ValueError:
        if (WORD.fullmatch(answered) and WORD.fullmatch(right)) or len(answered) == len(right) == 1:
            return False
    if len(right) == 1 and right.isalpha() and SEVERAL.fullmatch(answer.strip().strip("$. *()").casefold()):
        return False  # several letters, where one is asked for
    if not gold or max(len(answer), len(gold)) > LONGEST_ANSWER:
        return None
    parts = OR.split(answer)  # the right answer and others are wrong, unless it is "12 or so"
    if len(parts) > 1 and len({bool(re.search(r"\d", each)) for each in (*parts, gold)}) == 1 and not OR.search(gold):
        found = [agrees(part, gold) for part in parts]
        return all(found) if True in found else None
    verdict = compare_span(answer, gold, NO_HINTS)  # of 12 km for 12, or 1/2 for 0.5, by rules and without a parser
    if isinstance(verdict, Pending):
        return None
    other_number = verdict.path == "integer" and ("." in answer) == ("." in gold)  # 0.33 may be paid for 1/3
    return True if verdict.correct else False if other_number else None  # refused: another grader has other rules


def lacks(response: str | None, gold: str | None) -> bool:
    """Whether the right answer, a whole number or a word, stands nowhere in a response.

    Whatever its form, an answer has these characters. Blanks may part them, "4 2", and a number may be in words near
    the end. False if the right answer is anything else, or if it or the response is None.
    """
    right = bare((gold or "").rpartition("####")[2])
    if response is None or len(right) > LONGEST_ANSWER or not (WORD.fullmatch(right) or INTEGER.fullmatch(right)):
        return False
    said = bare(response)
    if len(right) == 1:
        stands = right in said and re.search(rf"(?<![^\W_]){right}(?![^\W_])", said)
    else:
        stands = re.search(r"\s*".join(map(re.escape, right)), said)
    return not stands and not (INTEGER.fullmatch(right) and SPELLED.search(said[-400:]))


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
        """Pearson's correlation; None where one side does not vary."""
        vx, vy, both = self.moments()
        return float(both / math.sqrt(vx * vy)) if self.sums[0] > 2 and min(vx, vy) > 1e-12 else None


@dataclass
class StepRows:
    """The rows of one step so far."""

    rows: list[tuple[Any, ...]] = field(default_factory=list)
    same: Pairs = field(default_factory=Pairs)  # log-probabilities: the engine's and the trainer's of the same token
    ahead: Pairs = field(default_factory=Pairs)  # the engine's of a token, the trainer's of the next token
    behind: Pairs = field(default_factory=Pairs)  # the engine's of a token, the trainer's of the previous token
    gap: float = 0.0  # sum of absolute differences over tokens
    weights: Values = field(default_factory=lambda: np.zeros(2))  # of tokens: sums of w and of w^2
    words: Values = field(default_factory=lambda: np.zeros(BUCKETS))  # of responses, how often each was used

    def add(self, row: Row, place: Place) -> None:
        """Add a row."""
        spread, moved, drift, surprise = math.nan, math.nan, math.nan, math.nan
        tokens = row.length or math.nan
        if drawn := row.logp_engine or row.logp:
            surprise = -sum(drawn) / (len(drawn) if len(drawn) > 1 else tokens)
        if (before := row.logp or row.logp_engine) and row.logp_after:
            moved = sum(row.logp_after) - sum(before)
        if before and row.logp_ref:
            drift = (sum(before) - sum(row.logp_ref)) / tokens
        if row.logp_engine and row.logp and len(row.logp) == len(row.logp_engine):
            engine, trainer = np.asarray(row.logp_engine), np.asarray(row.logp)
            difference = trainer - engine
            spread = float(difference.sum())
            if len(engine) > 1 or row.length == 1:  # otherwise both are sums over the response
                self.same.add(engine, trainer)
                if len(engine) > 2:
                    self.ahead.add(engine[:-1], trainer[1:])
                    self.behind.add(engine[1:], trainer[:-1])
                self.gap += float(np.abs(difference).sum())
                weight = np.exp(np.clip(difference, -20, 20))
                self.weights += (weight.sum(), weight @ weight)
        form, answer = answer_of(row.response) if row.response is not None else (None, None)
        right = agrees(answer, row.gold) if row.response is not None else None
        if form == "none":  # a form that is not known here, or no answer
            right = ends_with(row.response or "", row.gold)
        if form in ("number", "none"):  # may be any number or word: a match is evidence, a mismatch is not
            answer, right = None, right or None
        if right is None and lacks(row.response, row.gold):
            right = False
        if row.cut:  # it was still on its way to an answer
            right = None
        prompt = None if row.prompt is None else hash(row.prompt)
        said = None if row.response is None else row.response.split()
        if said:
            self.words += np.bincount(
                [zlib.crc32(word.encode(errors="replace")) % BUCKETS for word in said[:FIRST_WORDS]], minlength=BUCKETS
            )
        self.rows.append(
            (
                None if row.group is None else hash(row.group),
                prompt,
                None if row.response is None else hash(row.response),
                number(row.reward),
                number(row.advantage),
                number(row.length),
                number(None if said is None else len(said)),
                number(None if row.prompt is None else row.prompt.count(" ") + 1),
                number(row.cut),
                number(row.version),
                row.entropy if row.entropy is not None else surprise,
                spread, moved, drift,
                form,
                plain(answer),
                number(right),
                number(row.mask_late),
                place,
            )
        )  # fmt: skip


def number(value: float | None) -> float:
    """A number; NaN for None."""
    return math.nan if value is None else float(value)


def by_step(rows: Iterable[tuple[Place, Row]], tau: float | None, group_size: int | None = None) -> Iterator[Measures]:
    """Measure each step as soon as it is complete. A step may come in several pieces, which `merged` joins.

    Args:
        rows: rows with their places.
        tau: temperature in reward units, for the anchor.
        group_size: responses of a group, for rows that name none; None if it is unknown.
    """
    open_steps: dict[int, StepRows] = {}
    unnumbered = 0
    for place, row in rows:
        step = unnumbered // UNNUMBERED_STEP + 1 if row.step is None else row.step
        unnumbered += row.step is None
        here = open_steps.setdefault(step, StepRows())
        here.add(row, place)
        if len(here.rows) == MAX_ROWS_IN_MEMORY:
            yield measure(step, open_steps.pop(step), tau, group_size)
        elif len(open_steps) > MAX_OPEN_STEPS:
            oldest = next(iter(open_steps))
            yield measure(oldest, open_steps.pop(oldest), tau, group_size)
    for step, here in open_steps.items():
        yield measure(step, here, tau, group_size)


def mean(values: Values) -> float | None:
    """Mean of the known numbers; None if there are none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def correlation(x: Values, y: Values) -> float | None:
    """Pearson's correlation over the pairs in which both numbers are known."""
    pairs, known = Pairs(), ~(np.isnan(x) | np.isnan(y))
    pairs.add(x[known], y[known])
    return pairs.correlation()


def measure(step: int, here: StepRows, tau: float | None, group_size: int | None = None) -> Measures:
    """All measures of a step; None where its rows lack the values that a measure needs. Arguments as for `by_step`."""
    group, prompt, response, *columns, form, answer, right, late, place = zip(*here.rows, strict=True)
    reward, advantage, length, words, asked, cut, version, entropy, spread, moved, drift = (
        np.array(x, float) for x in columns
    )
    has, content = ~np.isnan(reward), np.array(right, float)
    low, high = (float(reward[has].min()), float(reward[has].max())) if has.any() else (math.nan, math.nan)
    passed = reward > (0.0 if low < 0 else 0.5)
    size = words if np.isnan(length).all() else length
    # with graded rewards the largest one is a rare response, so "paid in full" needs rewards of two values
    two_values = len(np.unique(reward[has])) == 2
    paid, unpaid = has & (reward == high) & two_values, has & (reward == min(low, 0.0))
    cap = np.nanmax(length[cut == 1], initial=0.0)
    near = has & (cut == 0) & (length > LATE_FRACTION * cap) if cap else np.zeros(len(cut), bool)
    evidence = {
        "paid_wrong": paid & (content == 0),
        "right_unpaid": unpaid & (content == 1),
        "cut": cut == 1,
        "spread": np.abs(np.nan_to_num(spread)) >= max(np.nanmax(np.abs(spread), initial=0.0), 1e-9),
        "any": np.arange(len(reward)) < 1,
    }
    return {
        "step": step, "rows": len(here.rows), "rewarded": int(has.sum()), "reward": mean(reward),
        "passed": float(passed[has].mean()) if has.any() else None,
        "passed_completed": mean(passed[has & (cut == 0)].astype(float)) if (cut == 1).any() else None,
        "reward_low": low if has.any() else None, "reward_high": high if has.any() else None,
        "length": mean(length), "longest": float(np.nanmax(length)) if (~np.isnan(length)).any() else None,
        "length_right": mean(length[has & passed]), "length_wrong": mean(length[has & ~passed]),
        "reward_by_length": correlation(size, reward), "reward_by_right": correlation(content, reward),
        "size": mean(size),
        "near": float(near.mean()) if cap else None, "near_passed": float((near & passed).mean()) if cap else None,
        "cut": mean(cut), "reward_cut": mean(reward[cut == 1]), "reward_whole": mean(reward[cut == 0]),
        "entropy": mean(entropy), "version": mean(version), "versions": len(set(version[~np.isnan(version)])),
        "mask_late": mean(np.array(late, float)), "drift": mean(drift),
        "log_ratio_std": float(np.nanstd(spread)) if (~np.isnan(spread)).any() else None,
        "step_std": float(np.nanstd(moved)) if (~np.isnan(moved)).any() else None,
        "ess": effective(spread), "ess_step": effective(moved),
        **token_measures(here),
        **group_measures(group, prompt, response, answer, reward, advantage, spread, paid, tau, group_size),
        "asked": mean(asked), "word_entropy": entropy_of(here.words),
        "content": mean(content), "agrees": mean((passed == (content == 1))[has & ~np.isnan(content)].astype(float)),
        "forms": form_measures(form, reward, content),
        "paid": int(paid.sum()), "paid_known": int((paid & ~np.isnan(content)).sum()),
        "paid_wrong": int(evidence["paid_wrong"].sum()),
        "right_known": int((has & (content == 1)).sum()), "wrong_known": int((has & (content == 0)).sum()),
        "right_unpaid": int(evidence["right_unpaid"].sum()),
        "places": {kind: [place[n] for n in np.flatnonzero(rows)[:EXAMPLES]] for kind, rows in evidence.items()},
    }  # fmt: skip


def entropy_of(counts: Values) -> float | None:
    """Entropy in nats of how often each word is used; None if there are no words."""
    share = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(share * np.log(share)).sum()) if len(share) else None


def form_measures(form: tuple[str | None, ...], reward: Values, content: Values) -> dict[str, list[float]]:
    """For each form of answer: rows with a reward, their mean reward, and how many are known as right and as wrong."""
    names, measures = np.array([name or "" for name in form]), {}
    for name in np.unique(names):
        rows = (names == name) & ~np.isnan(reward)
        if name and rows.any():
            right, wrong = (int((content[rows] == value).sum()) for value in (1, 0))
            measures[str(name)] = [int(rows.sum()), float(reward[rows].mean()), right, wrong]
    return measures


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


def split_groups(
    group: tuple[int | None, ...], prompt: tuple[int | None, ...], reward: Values, size: int | None
) -> list[NDArray[np.int64]]:
    """The rows of each group of two or more rewards. Rows that name no group are grouped by prompt, and cut into groups
    of `size` in their order if it is known: which of the equal prompts' responses share a group does not matter."""
    members: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for n, (name, asked) in enumerate(zip(group, prompt, strict=True)):
        if not math.isnan(reward[n]) and (name is not None or asked is not None):
            members["prompt" if name is None else "group", asked if name is None else name].append(n)
    groups = []
    for (kind, _), rows in members.items():
        step = len(rows) if kind == "group" or size is None else size
        groups += [np.array(rows[n : n + step]) for n in range(0, len(rows), step)]
    return [rows for rows in groups if len(rows) > 1]


def repeated_prompts(counts: list[int]) -> float:
    """A lower bound on the share of groups whose prompt another group has, from the rows of each prompt. The group size
    is unknown: it is at most the largest number that divides all counts, or the usual count if none does."""
    divisor = math.gcd(*counts)
    size = divisor if divisor > 1 else Counter(counts).most_common(1)[0][0]
    return 1 - len(counts) / sum(max(1, round(count / size)) for count in counts)


def group_measures(
    group: tuple[int | None, ...], prompt: tuple[int | None, ...], response: tuple[Any, ...], answer: tuple[Any, ...],
    reward: Values, advantage: Values, log_ratio: Values, paid: NDArray[np.bool_], tau: float | None,
    group_size: int | None,
) -> Measures:  # fmt: skip
    """Measures that need whole groups: silence, difficulty, credit, the anchor, repeated prompts, contradictions."""
    groups = split_groups(group, prompt, reward, group_size)
    if not groups:
        return {"groups": 0}
    rewards = [reward[rows] for rows in groups]
    low, high = min(float(each.min()) for each in rewards), max(float(each.max()) for each in rewards)
    equal = np.array([float(np.ptp(each)) < 1e-9 for each in rewards])
    at_top = np.array([each[0] >= high > 0 for each in rewards])
    rate = [float((each > (0.5 if low >= 0 else 0.0)).mean()) for each in rewards]
    two = all(((each == low) | (each == high)).all() for each in rewards) and high > low
    right = np.array([float((each == high).sum()) for each in rewards])
    measures: Measures = {
        "groups": len(groups), "silent": float(equal.mean()), "silent_top": float((equal & at_top).mean()),
        "difficulty": np.histogram(rate, (*gauge.EDGES[:-1], 1.0000001))[0].tolist(),
        "one_answer": share(
            len({response[n] for n in rows}) == 1 for rows in groups if response[rows[0]] is not None
        ),
        "contradictions": share(
            len({answer[n] for n in rows[paid[rows]] if answer[n] is not None}) > 1
            for rows in groups
            if paid[rows].sum() > 1
        ),
        "distinct_lost": mean(1 / right[right > 0]) if two else None,  # by `pmdkit.theory.drift_law`
        "anchor": None if tau is None else float(np.mean([float(group_anchor(each, tau)) / tau for each in rewards])),
    }  # fmt: skip

    # repeated prompts: known if the groups are named or their size is; otherwise only a lower bound is
    known = group_size is not None or all(group[rows[0]] is not None for rows in groups)
    asked = Counter(prompt[rows[0]] for rows in groups if prompt[rows[0]] is not None)
    measures["group_size"] = Counter(map(len, groups)).most_common(1)[0][0] if known else None
    measures["repeated"] = 1 - len(asked) / asked.total() if known and asked else None
    measures["repeated_at_least"] = None if known else repeated_prompts([len(rows) for rows in groups])

    around = [each - each.mean() for each in rewards]
    measures["moved_by_reward"] = correlation(
        np.concatenate([log_ratio[rows] - log_ratio[rows].mean() for rows in groups]), np.concatenate(around)
    )
    credit = [advantage[rows] for rows in groups]
    if not any(np.isnan(each).any() for each in credit):
        together, spread = np.concatenate(credit), float(np.concatenate(credit).std())
        measures["credit_mean"] = abs(float(together.mean())) / spread if spread > 1e-9 else None
        measures["credit_of_equal"] = share(bool(np.abs(credit[n]).max() > 1e-6) for n in np.flatnonzero(equal))
        measures["credit_sign"] = correlation(
            np.concatenate([each - each.mean() for each in credit]), np.concatenate(around)
        )
        measures["credit_is_reward"] = correlation(together, np.concatenate(rewards))
    return measures


def share(cases: Iterable[bool]) -> float | None:
    """Share of the cases that hold; None if there are none."""
    known = list(cases)
    return sum(known) / len(known) if known else None


def merged(pieces: list[Measures]) -> Measures:
    """Join the pieces of a step, or the steps of a phase: counts add up, other numbers are means over rows."""
    whole: Measures = {"step": pieces[0]["step"], "forms": {}, "places": defaultdict(list)}
    for key in dict.fromkeys(key for piece in pieces for key in piece if key not in whole):
        known = [(piece[key], piece["rows"]) for piece in pieces if piece.get(key) is not None]
        if not known:
            whole[key] = None
        elif isinstance(known[0][0], list):
            whole[key] = np.sum([value for value, _ in known], 0).tolist()
        elif isinstance(known[0][0], int):
            whole[key] = sum(value for value, _ in known) if key not in ("group_size", "versions") else known[-1][0]
        else:
            whole[key] = sum(value * rows for value, rows in known) / sum(rows for _, rows in known)
    for piece in pieces:
        for name, (count, reward, right, wrong) in piece["forms"].items():
            before = whole["forms"].get(name, [0, 0.0, 0, 0])
            total = before[0] + count
            earned = (before[0] * before[1] + count * reward) / total
            whole["forms"][name] = [total, earned, before[2] + right, before[3] + wrong]
        for kind, places in piece["places"].items():
            whole["places"][kind] = (whole["places"][kind] + places)[:EXAMPLES]
    return whole
