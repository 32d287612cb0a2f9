"""The token tasks, smallest first; KINDS lists all of them by name, the maze and countdown included."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from pmdkit.envs.bandit import Indices
from pmdkit.envs.build import Kind, build
from pmdkit.envs.tokens.countdown import Countdown
from pmdkit.envs.tokens.maze import Maze
from pmdkit.envs.tokens.problem import EOS, FEW_PROMPTS, Flags, OneAnswer, TokenProblem, all_rows
from pmdkit.options import Range

EQUALS = 2  # the id of "=" in Parity


@dataclass(frozen=True)
class ModularSum(Kind, OneAnswer):
    r"""Prompt a b, answer (a + b) mod m: the smallest task that has to be understood to be solved.

    The answer is one token and fills the width, so no `<eos>` follows. Over all prompts every number is right equally
    often, so a policy that answers with numbers and ignores the prompt passes with probability 1/m exactly, 0.1 at
    m = 10. The vocabulary has one more token, `<eos>`, always wrong here: a policy uniform over all V = m + 1 tokens
    starts at p0 = 1/(m + 1), and rises to 1/m as soon as it no longer answers `<eos>`.

    Good values: m = 10. Up to m = 32 the m * m prompts are so few that none are held out.
    """

    name: ClassVar[str] = "modular-sum"
    needs_eos: ClassVar[bool] = False

    modulus: Annotated[int, Range(2, 1000)] = 10
    "The modulus m; the numbers are 0 to m - 1."

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The numbers below m, and `<eos>`."""
        return (*map(str, range(self.modulus)), EOS)

    @property
    def prompt_length(self) -> int:
        """L = 2: the two numbers."""
        return 2

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, 2] pairs of numbers, all equally likely."""
        return rng.integers(self.modulus, size=(count, 2))

    def target(self, prompts: Indices) -> Indices:
        """[N, 1] the sums."""
        return prompts.sum(axis=1, keepdims=True) % self.modulus

    def all_prompts(self) -> Indices | None:
        """[m * m, 2] the whole table."""
        return all_rows(self.modulus, 2) if self.modulus**2 <= FEW_PROMPTS else None


@dataclass(frozen=True)
class Copy(Kind, OneAnswer):
    """A row of symbols, to be repeated. A uniform policy passes with p0 = (symbols + 1)^-(length + 1).

    Good values: 2 symbols and length 3 can be enumerated, p0 = 1/81; longer rows need a warm start.
    """

    name: ClassVar[str] = "copy"

    length: Annotated[int, Range(1, 512)] = 4
    "Symbols in a row."
    symbols: Annotated[int, Range(2, 1000)] = 4
    "Different symbols."

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The symbols 0, 1, and so on, and `<eos>`."""
        return (*map(str, range(self.symbols)), EOS)

    @property
    def prompt_length(self) -> int:
        """L: the symbols of the row."""
        return self.length

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] rows of symbols, each drawn independently."""
        return rng.integers(self.symbols, size=(count, self.length))

    def target(self, prompts: Indices) -> Indices:
        """[N, L] the row."""
        return prompts

    def all_prompts(self) -> Indices | None:
        """[symbols**length, L] all rows."""
        return all_rows(self.symbols, self.length) if self.symbols**self.length <= FEW_PROMPTS else None


@dataclass(frozen=True)
class Reverse(Copy):
    """A row of symbols, to be repeated backwards. A uniform policy passes with p0 = (symbols + 1)^-(length + 1)."""

    name: ClassVar[str] = "reverse"

    def target(self, prompts: Indices) -> Indices:
        """[N, L] the row backwards."""
        return prompts[:, ::-1]


@dataclass(frozen=True)
class Sort(Copy):
    """A row of numbers, to be sorted. A uniform policy passes with p0 = (symbols + 1)^-(length + 1).

    Harder than copying: each token of the answer depends on the whole prompt.
    """

    name: ClassVar[str] = "sort"

    symbols: Annotated[int, Range(2, 1000)] = 6
    "Different numbers."

    def target(self, prompts: Indices) -> Indices:
        """[N, L] the numbers in order."""
        return np.sort(prompts, axis=1)


@dataclass(frozen=True)
class Parity(Kind, TokenProblem):
    r"""Bits, answered by whether the number of ones is odd: an optional thought, then "=", the parity, `<eos>`.

    Hard to answer at once, easy bit by bit. The teacher thinks aloud: the parity of the first bit, of the first two,
    and so on. A response is right if its last two tokens before `<eos>` are "=" and the parity, whatever comes before.
    So a guess after "=" is right half of the time, and reward alone decides whether thinking is kept.

    A uniform policy passes with \(p_0 = (1 - (3/4)^{T - 2}) / 16\): V = 4, the last three tokens are fixed and none of
    those before is `<eos>`.

    Good values: length 8 with thoughts. Without them the teacher's format leaves a guess, with pass rate 0.5.
    """

    name: ClassVar[str] = "parity"

    length: Annotated[int, Range(1, 512)] = 8
    "Bits."
    thoughts: bool = True
    "Room for a thought of one token per bit, which the teacher uses; else there is only room for the answer."

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Two bits, "=", and `<eos>`."""
        return ("0", "1", "=", EOS)

    @property
    def prompt_length(self) -> int:
        """L: one token per bit."""
        return self.length

    @property
    def width(self) -> int:
        """T: the thought, "=", the answer, `<eos>`."""
        return self.length * self.thoughts + 3

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] fair coin flips."""
        return rng.integers(2, size=(count, self.length))

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses end with "=" and the parity."""
        rows = np.arange(len(responses))
        marked = (length >= 2) & (responses[rows, length - 2] == EQUALS)
        return marked & (responses[rows, length - 1] == prompts.sum(axis=1) % 2)

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response ends with "=" and the parity."""
        return response[-2:] == [EQUALS, int(prompt.sum()) % 2]

    def answer_of(self, response: list[int]) -> list[int]:
        """From the "=" on if the response ends with "=", a token and `<eos>`: the thought before it is not graded."""
        return response[-3:] if response[-3:-2] == [EQUALS] and response[-1] == self.eos else response

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """The running parities if there is room for them, then "=", the parity and `<eos>`."""
        running: list[int] = (prompt.cumsum() % 2).tolist()
        return running * self.thoughts + [EQUALS, running[-1], self.eos]

    def all_prompts(self) -> Indices | None:
        """[2**length, L] all rows of bits."""
        return all_rows(2, self.length) if 2**self.length <= FEW_PROMPTS else None


@dataclass(frozen=True)
class Addition(Kind, OneAnswer):
    """Two numbers of `digits` digits, "a + b =", answered by the `digits` + 1 digits of their sum, zeros written out.

    With units first, each digit of the answer needs two digits of the prompt and one carry. With units last, the first
    digit of the answer needs all of them at once. A uniform policy passes with p0 = (base + 3)^-(digits + 2).

    Good values: 2 digits, base 10, units first; then units last, then 3 digits.
    """

    name: ClassVar[str] = "addition"

    digits: Annotated[int, Range(1, 100)] = 2
    "Digits of each number."
    base: Annotated[int, Range(2, 1000)] = 10
    "Base of the digits; 2 is binary."
    units_first: bool = True
    "Answer from the units up, as one does on paper. The prompt is always written as usual."

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The digits, "+", "=", `<eos>`."""
        return (*map(str, range(self.base)), "+", "=", EOS)

    @property
    def prompt_length(self) -> int:
        """L: the digits of two numbers, "+" and "="."""
        return 2 * self.digits + 2

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] numbers with every digit drawn independently, leading zeros included."""
        return self.written(rng.integers(self.base, size=(count, 2 * self.digits)))

    def written(self, numbers: Indices) -> Indices:
        """[N, L] prompts from the digits [N, 2 * digits] of both numbers."""
        plus, equals = (np.full((len(numbers), 1), self.base + sign) for sign in range(2))
        return np.hstack([numbers[:, : self.digits], plus, numbers[:, self.digits :], equals])

    def target(self, prompts: Indices) -> Indices:
        """[N, digits + 1] the digits of the sums, column by column with the carry."""
        first, second = prompts[:, : self.digits], prompts[:, self.digits + 1 : -1]
        carry = np.zeros(len(prompts), dtype=np.int64)
        columns = []
        for place in reversed(range(self.digits)):
            carry, digit = np.divmod(first[:, place] + second[:, place] + carry, self.base)
            columns.append(digit)
        columns.append(carry)
        return np.stack(columns if self.units_first else columns[::-1], axis=1)

    def all_prompts(self) -> Indices | None:
        """[base**(2 digits), L] all pairs of numbers."""
        places = 2 * self.digits
        return self.written(all_rows(self.base, places)) if self.base**places <= FEW_PROMPTS else None


KINDS: dict[str, Any] = {
    "modular-sum": ModularSum,
    "copy": Copy,
    "reverse": Reverse,
    "parity": Parity,
    "sort": Sort,
    "addition": Addition,
    "maze": Maze,
    "countdown": Countdown,
}


def make_tokens(table: dict[str, Any]) -> TokenProblem:
    """The problem that an [env] table describes: `kind`, a key of KINDS or "my.py:MyTask", and the kind's options."""
    return build(table, KINDS, TokenProblem)  # type: ignore[type-abstract]
