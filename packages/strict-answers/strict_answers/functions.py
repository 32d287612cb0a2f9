"""User-defined reward functions: the arguments they take by name, and how group-wise and async ones run.

The names follow TRL where it has them: a function with `prompts` or `completions` among its parameters scores all
responses to a prompt in one call. A worker process calls `OwnReward` with the rows that a Grader makes.
"""

import asyncio
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

Message = dict[str, Any]
Takes = Literal["pair", "row", "rows"]
"""What a function is called with: (response, gold), one response by name, or all responses to a prompt together."""
ROW = ("prompt", "response", "response_ids", "cut_off", "gold", "columns")
GROUP = ("prompts", "completions", "completion_ids", "cut_off", "gold", "columns")


@dataclass(frozen=True)
class RewardRow:
    """What a reward function may ask about a response besides its text and the gold answer.

    Attributes:
        messages: the prompt as messages, in JSON.
        tokens: ids of the response.
        columns: the data row, in JSON.
        group: responses to one prompt have the same number.
    """

    messages: str
    tokens: tuple[int, ...]
    columns: str
    group: int = 0


def row_message(response: str, gold: str, cut_off: bool, row: RewardRow) -> Message:
    """The arguments of one response by name, as a worker gets them."""
    return {
        "prompt": json.loads(row.messages),
        "response": response,
        "response_ids": list(row.tokens),
        "cut_off": cut_off,
        "gold": gold,
        "columns": json.loads(row.columns),
    }


def adjacent_groups(groups: Sequence[int]) -> list[slice]:
    """The slices of equal numbers: responses to one prompt are adjacent."""
    sizes = [len(list(run)) for _, run in groupby(groups)]
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]


class OwnReward:
    """A user's own function, called with the arguments it asks for.

    Args:
        function: takes two parameters, (response, gold) under any names; or parameters by name: those in ROW for one
            response, those in GROUP for all responses to a prompt, and columns of the data. If there are only two, put
            a `*` before them to take them by name. It may be async, and is then called by name.
        seconds: time limit of an async call; the pool enforces that of any other call.

    Attributes:
        takes: what the pool has to send.
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
        by_name = any(name in {*ROW, *GROUP} - {"response", "gold"} for name in self.wanted)
        swapped = list(self.wanted) == ["gold", "response"]
        named_only = any(p.kind is p.KEYWORD_ONLY for p in parameters.values())
        self.positional = len(self.wanted) == 2 and not (
            by_name or swapped or named_only or self.anything or self.is_async
        )
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
        """The values of the responses to one prompt; None means no verdict and comes with a reason."""
        if self.whole_group:
            columns = {name: [row["columns"].get(name) for row in rows] for row in rows for name in row["columns"]}
            known = {
                "prompts": [row["prompt"] for row in rows],
                "completions": [[{"role": "assistant", "content": row["response"]}] for row in rows],
                "completion_ids": [row["response_ids"] for row in rows],
                **{name: [row[name] for row in rows] for name in ("cut_off", "gold", "columns")},
            }
            given = self.function(**self.arguments(known, columns))
            found = list(asyncio.run(asyncio.wait_for(given, self.seconds)) if self.is_async else given)
            if len(found) != len(rows):
                return {"error": f"the function returned {len(found)} numbers for {len(rows)} responses"}
        else:
            found = asyncio.run(self.gather(rows))
        judged = [self.number(one) for one in found]
        return {"values": [value for value, _ in judged], "reasons": [reason for _, reason in judged]}

    async def gather(self, rows: list[Message]) -> list[Any]:
        """Run an async function on several responses concurrently; an exception counts as the result of one of them."""

        calls = [asyncio.wait_for(self.function(**self.arguments(row, row["columns"])), self.seconds) for row in rows]
        return await asyncio.gather(*calls, return_exceptions=True)

    def arguments(self, known: Mapping[str, Any], columns: Mapping[str, Any]) -> Message:
        """The arguments that the function asks for, from what is known about a response and from its data row."""
        names = GROUP if self.whole_group else ROW
        everything = {**columns, **{name: known[name] for name in names}}
        missing = [name for name, needed in self.wanted.items() if needed and name not in everything]
        if missing:
            raise ValueError(f"the data have no column {missing[0]}; there are {', '.join(everything)}")
        return everything if self.anything else {name: everything[name] for name in self.wanted if name in everything}

    def number(self, found: Any) -> tuple[float | None, str]:
        """A value, or None and the reason. A function of (response, gold) gives 0 to 1, others any finite number."""
        wanted = "a number from 0 to 1" if self.positional else "a finite number"
        if isinstance(found, BaseException):
            return None, f"{type(found).__name__}: {str(found)[:200]}"
        try:
            value = float(found)
        except (TypeError, ValueError):
            return None, f"the grader returned {type(found).__name__}; expected {wanted}"
        if not math.isfinite(value) or (self.positional and not 0 <= value <= 1):
            return None, f"the grader returned {value}; expected {wanted}"
        return value, ""
