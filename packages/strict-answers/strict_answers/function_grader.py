"""Grade with a reward function of your own: in the same processes, with the arguments that it names.

The names follow TRL where it has them: a function with `prompts` or `completions` among its parameters scores all
responses to a prompt in one call. A `FunctionGrader` makes the rows; in a worker, `load` imports the function, and
`OwnReward` calls it.
"""

import hashlib
import importlib.util
import inspect
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from strict_answers.grader import Grader, WorkerRequest
from strict_answers.journal import key_of
from strict_answers.process import Judge, Message, WorkerFailed
from strict_answers.verdict import REASON, Item, Verdict, decided, describe, printable, unscored

Takes = Literal["pair", "row", "rows"]
"""The arguments of a function: (response, gold), one response by name, or all responses to a prompt together."""
ROW = ("prompt", "response", "response_ids", "cut_off", "gold", "columns")
GROUP = ("prompts", "completions", "completion_ids", "cut_off", "gold", "columns")


@dataclass(frozen=True)
class RewardRow:
    """Arguments of a reward function besides a response's text and the gold answer: the prompt as `messages` and the
    data row as `columns`, both in JSON; the `tokens` of the response; and its `group`, one number per prompt."""

    messages: str
    tokens: tuple[int, ...]
    columns: str
    group: int = 0


def arguments(item: Item) -> Message:
    """All arguments that a reward function may take by name, for one item, as a worker gets them."""
    row = item.row
    if not isinstance(row, RewardRow):
        raise ValueError("a reward function takes its arguments by name; give Item(..., row=RewardRow(...))")
    return {
        "prompt": json.loads(row.messages),
        "response": item.response,
        "response_ids": list(row.tokens),
        "cut_off": item.truncated,
        "gold": item.gold or None,
        "columns": json.loads(row.columns),
    }


class OwnReward:
    """A user's own function, called with the arguments that it names; `takes` lists the data that the pool has to send.

    Args:
        function: takes two parameters, (response, gold) under any names; or parameters by name: those in ROW for one
            response, those in GROUP for all responses to a prompt, and columns of the data. If there are only two, put
            a `*` before them to take them by name. It may be async, and is then called by name.
        seconds: time limit of an async call; the pool enforces that of any other call.
    """

    def __init__(self, function: Callable[..., Any], seconds: float) -> None:
        self.function = function
        self.seconds = seconds
        self.is_async = inspect.iscoroutinefunction(function)
        parameters = inspect.signature(function).parameters
        self.anything = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        self.wanted = {
            name: p.default is p.empty
            for name, p in parameters.items()
            if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        }
        named_only = any(p.kind is p.KEYWORD_ONLY for p in parameters.values())
        self.positional = is_pair(list(self.wanted), named_only or self.anything or self.is_async)
        self.whole_group = not self.positional and any(name in ("prompts", "completions") for name in self.wanted)
        self.takes: Takes = "pair" if self.positional else "row"
        if self.is_async or self.whole_group:
            self.takes = "rows"

    def __call__(self, request: Message) -> Message:
        """The reply to a request: `value` of one response, or `values` and `reasons` of several."""
        if "rows" in request:
            return self.score_rows(request["rows"])
        if "row" in request:
            found = self.function(**self.arguments(request["row"], request["row"]["columns"]))
        else:
            found = self.function(request["response"], request["gold"])
        value, reason = self.number(found)
        return {"error": reason} if value is None else {"value": value}

    def score_rows(self, rows: list[Message]) -> Message:
        """`values` and `reasons` of the responses to one prompt; a value None is no verdict and has a reason.

        `error` instead if a function of whole groups returns another number of values, or no list of them.
        """
        import asyncio  # slow to import, and no other worker needs it

        if self.whole_group:
            columns = {name: [row["columns"].get(name) for row in rows] for row in rows for name in row["columns"]}
            known = {
                "prompts": [row["prompt"] for row in rows],
                "completions": [[{"role": "assistant", "content": row["response"]}] for row in rows],
                "completion_ids": [row["response_ids"] for row in rows],
                **{name: [row[name] for row in rows] for name in ("cut_off", "gold", "columns")},
            }
            given = self.function(**self.arguments(known, columns))
            given = asyncio.run(asyncio.wait_for(given, self.seconds)) if self.is_async else given
            if isinstance(given, str | bytes | Mapping | set):  # their letters, keys or members are no rewards
                return {"error": f"the function returned {type(given).__name__}; expected {len(rows)} numbers"}
            found = list(given)
            if len(found) != len(rows):
                return {"error": f"the function returned {len(found)} numbers for {len(rows)} responses"}
        else:  # one call per response; an exception is the result of its own call
            calls = [self.function(**self.arguments(row, row["columns"])) for row in rows]

            async def gather() -> list[Any]:
                limited = (asyncio.wait_for(call, self.seconds) for call in calls)
                return await asyncio.gather(*limited, return_exceptions=True)

            found = asyncio.run(gather())
        judged = [self.number(one) for one in found]
        return {"values": [value for value, _ in judged], "reasons": [reason for _, reason in judged]}

    def arguments(self, known: Mapping[str, Any], columns: Mapping[str, Any]) -> Message:
        """The arguments that the function names, taken from the response and from its data row."""
        names = GROUP if self.whole_group else ROW
        everything = {**columns, **{name: known[name] for name in names}}
        missing = [name for name, needed in self.wanted.items() if needed and name not in everything]
        if missing:
            raise ValueError(f"the data have no column {missing[0]}; there are {', '.join(everything)}")
        return everything if self.anything else {name: everything[name] for name in self.wanted if name in everything}

    def number(self, found: Any) -> tuple[float | None, str]:
        """A value, or None and the reason. A function of (response, gold) gives 0 to 1, others any finite number."""
        expected = "a number from 0 to 1" if self.positional else "a finite number"
        if isinstance(found, BaseException):
            return None, describe(found)
        try:
            value = float(found)
        except (TypeError, ValueError):
            return None, f"the grader returned {type(found).__name__}; expected {expected}"
        if not math.isfinite(value) or (self.positional and not 0 <= value <= 1):
            return None, f"the grader returned {value}; expected {expected}"
        return value, ""


def load(reward: str, seconds: float) -> OwnReward:
    """In a worker: the function that `my.py:grade` names."""
    return OwnReward(import_function(reward), seconds)


def import_function(reward: str) -> Callable[..., Any]:
    """The function that `my.py:grade` names; its file may import modules that lie beside it."""
    path, _, name = reward.rpartition(":")
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec = importlib.util.spec_from_file_location("own_reward", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function


def is_pair(names: list[str], by_name: bool) -> bool:
    """Whether a function with these parameters is called as (response, gold), and not with its parameters by name."""
    known = {*ROW, *GROUP} - {"response", "gold"}
    return len(names) == 2 and not by_name and known.isdisjoint(names) and names != ["gold", "response"]


class FunctionGrader(Grader):
    """Judges responses with a function, in workers that may be killed; see `Grader`.

    Args:
        reward: a function of a file, such as "my.py:grade", called as grade(response, gold) and returning a number from
            0 to 1, or with its parameters by name, see `OwnReward`.
        seconds: wall-clock limit per answer, since a function may wait. An answer over it is tried once more, alone.
        score_cut_off: call a function of (response, gold) for cut-off responses too, instead of judging them wrong. A
            function that takes its arguments by name gets `cut_off` and is always called.
        identity: what the keys of a journal say of the function; by default its name and a hash of its file.
        loader: "module:function" that imports it in a worker; by default `load`.
        options: workers, memory_mb, journal and most_unscored of `Grader`.

    Raises:
        CannotLoad: the file cannot be imported, or lacks the function.
        WorkerFailed: no worker was ready in time.
    """

    def __init__(
        self,
        reward: str,
        *,
        seconds: float = 0.8,
        memory_mb: int = 1024,
        score_cut_off: bool = False,
        identity: str | None = None,
        loader: str = f"{__name__}:load",
        **options: Any,
    ) -> None:
        judge = Judge(loader, reward, seconds, memory_mb, sealed=False)
        super().__init__(seconds=seconds, memory_mb=memory_mb, judge=judge, patience=seconds, **options)
        file, _, name = reward.rpartition(":")
        self.identity = identity or f"own {name} {hashlib.sha256(Path(file).read_bytes()).hexdigest()}"
        self.score_cut_off = score_cut_off
        try:
            self.pool.ensure(1)
        except WorkerFailed:
            self.close()
            raise
        self.takes: Takes = self.pool.processes[0].takes
        if self.takes == "rows":
            self.pool.patience = 2 * seconds + 1  # an async call ends at its own limit, and the others' values count

    def submit(self, item: Callable[[], Item]) -> None:
        """Judge an item ahead, unless the function needs the item's whole group, which is still being generated."""
        if self.takes != "rows":
            super().submit(item)

    def grade(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item; a function that scores whole groups gets each as one item."""
        if self.takes != "rows":
            return super().grade(items)
        assert all(isinstance(item.row, RewardRow) for item in items), "a group function needs Item(..., row=...)"
        groups = [list(run) for _, run in groupby(items, lambda item: item.row.group)]  # adjacent, by their prompt
        whole = [Item(json.dumps([arguments(item) for item in group]), "") for group in groups]
        found: list[Verdict] = []
        for group, verdict in zip(groups, super().grade(whole), strict=True):
            if verdict.extracted is None:
                found += [verdict] * len(group)
            else:
                values, reasons = json.loads(verdict.extracted)
                found += [own_verdict(value, reason) for value, reason in zip(values, reasons, strict=True)]
        return found

    def prepare(self, item: Item) -> Verdict | WorkerRequest:
        """The request for a worker; only a cut-off response may be judged without one."""
        if self.takes == "rows":
            return WorkerRequest({"rows": json.loads(item.response)}, None)
        if self.takes == "row":
            return WorkerRequest({"row": arguments(item)}, None)
        if item.truncated and not self.score_cut_off:
            return decided(False, None, "rejected", "cut off by the length limit")
        return WorkerRequest({"response": item.response, "gold": item.gold}, None)

    def key(self, item: Item) -> str:
        """The key of a verdict: function, gold, response and, where the function takes a row, its other arguments."""
        more = [json.dumps(arguments(item))] if self.takes == "row" else []
        return key_of(self.identity, item.gold, item.response, *more)

    def parse(self, request: WorkerRequest, message: Message) -> Verdict:
        """The verdict in a reply; WorkerFailed if the function has written something else to the pipe.

        That of a group is the values and reasons of its responses as JSON in `extracted`, see `grade`.
        """
        if "error" in message:
            return unscored(request.extracted, message["error"], "own")
        if self.takes != "rows":
            value: Any = message.get("value")
            if not is_number(value) or (self.takes == "pair" and not 0 <= value <= 1):
                raise WorkerFailed(f"the worker sent nonsense: a verdict of {str(value)[:80]}")
            return own_verdict(value)
        values: Any = message.get("values")
        reasons: Any = message.get("reasons")
        both = [isinstance(x, list) and len(x) == len(request.message["rows"]) for x in (values, reasons)]
        if not all(both) or not all(value is None or is_number(value) for value in values):
            raise WorkerFailed(f"the worker sent nonsense: values of {str(values)[:80]}")
        judged = json.dumps([values, [printable(str(reason), REASON) for reason in reasons]])
        some = any(value is not None for value in values)
        return Verdict(True if some else None, judged, "own", "a group", 1.0 if some else None)


def own_verdict(value: float | None, reason: str = "") -> Verdict:
    """The verdict of a user's function: a value of 0.5 or more passes."""
    if value is None:
        return unscored(None, reason, "own")
    return Verdict(value >= 0.5, None, "own", f"graded {value:g}", value)


def is_number(value: Any) -> bool:
    """A finite number; true and false do not count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e300
