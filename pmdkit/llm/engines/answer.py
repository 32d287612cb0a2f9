"""What the answer of any engine must look like: a wrong row would train a wrong policy. Not which weights wrote it.

An answer that breaks a rule is a lost engine: it is asked again after a restart, and never repaired here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.llm.engines.protocol import EngineLost, Responses, Sampling

CHANCE = 1e-9  # of two honest draws being the same text, over all pairs of an answer, below which they are one draw


@dataclass(frozen=True)
class Form:
    """What is known of a run's rows besides their number.

    Attributes:
        ends: tokens that end a response; none where it is not known which.
        vocabulary: tokens that the model knows, None where it is not known.
    """

    ends: Sequence[int] = ()
    vocabulary: int | None = None

    def check(self, drawn: Responses, prompts: int, group: int, sampling: Sampling) -> None:
        """Refuse an answer to `prompts` prompts with `group` responses each.

        Raises:
            EngineLost: rows are missing or too many, cut off, repeated, of tokens that do not exist, or carry numbers
                that are no log-probabilities.
        """
        rows = prompts * group
        expect_shapes(drawn, rows, f"{prompts} prompts times {group} responses", sampling.width)
        length = drawn.mask.sum(1)
        on = torch.arange(drawn.mask.shape[1], device=length.device) < length[:, None]
        refuse(~(on == drawn.mask).all(1) | (length < 1), "has gaps, or no token; expected it whole from its first")
        if self.vocabulary is not None:
            foreign = on & ((drawn.tokens < 0) | (drawn.tokens >= self.vocabulary))
            refuse(foreign.any(1), f"holds a token that is none of the model's, 0 to {self.vocabulary - 1}")
        wrong = on & ~((drawn.logp <= 0) & torch.isfinite(drawn.logp))
        for row, place in wrong.nonzero()[:1].tolist():
            raise EngineLost(
                f"the engine answers row {row} with log-probability {drawn.logp[row, place].item():g} for token "
                f"{place}; expected a finite number of at most 0: the engine, or its weights, are broken"
            )
        refuse(~drawn.ended & (length != sampling.width), f"is cut off before its {sampling.width} tokens or an end")
        if self.ends:
            end = torch.isin(drawn.tokens, torch.tensor(list(self.ends), device=length.device)) & on
            last = end[torch.arange(rows), length - 1]
            refuse((last != drawn.ended) | (end.sum(1) > last.long()), "ends otherwise than at its first end token")
        if not sampling.greedy:
            refuse_repeated(drawn, length, group)


ANY = Form()
"Nothing is known of the rows."


def expect_shapes(drawn: Responses, rows: int, why: str, width: int) -> None:
    """Every tensor has all rows, none wider than asked for."""
    found = {name: list(getattr(drawn, name).shape) for name in ("tokens", "logp", "mask", "ended")}
    given = found["ended"][0] if found["ended"] else 0
    if given != rows:
        raise EngineLost(f"the engine answers with {given} rows; expected {rows}, {why}")
    longest = found["tokens"][-1]
    if found != {"tokens": [rows, longest], "logp": [rows, longest], "mask": [rows, longest], "ended": [rows]}:
        raise EngineLost(f"the engine answers with {found}; expected [{rows}, T] and for ended [{rows}]")
    if longest > width:
        raise EngineLost(f"the engine answers with rows of {longest} tokens; {width} were asked for")


def refuse(rows: Tensor, sentence: str) -> None:
    """Name the first row that breaks a rule."""
    for row in rows.nonzero().flatten()[:1].tolist():
        raise EngineLost(f"the engine's row {row} {sentence}; {int(rows.sum())} of {len(rows)} rows are so")


def refuse_repeated(drawn: Responses, length: Tensor, group: int) -> None:
    """One draw handed out as two: a group holds a text twice that is too improbable for it.

    Two honest draws are the same text of probability p with probability p, so that over all pairs of an answer the
    chance to see a pair of log-probability below log(CHANCE / pairs) is at most CHANCE.
    """
    pairs = len(length) * (group - 1) / 2
    if pairs == 0:
        return
    total = torch.where(drawn.mask, drawn.logp, 0.0).double().sum(1)
    seen: dict[tuple[int, bytes], int] = {}
    for row in (total < math.log(CHANCE / pairs)).nonzero().flatten().tolist():
        text = drawn.tokens[row, : int(length[row])].cpu().numpy().tobytes()
        first = seen.setdefault((row // group, text), row)
        if first != row:
            raise EngineLost(
                f"the engine's rows {first} and {row} are the same {int(length[row])} tokens, which two draws agree on "
                f"with probability {math.exp(total[row]):.0e}: one response is handed out twice"
            )
