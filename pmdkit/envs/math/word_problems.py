"""Little stories around a sum, as text: who, what, and numbers in between. Which numbers is not decided here."""

from collections.abc import Sequence
from dataclasses import dataclass

NAMES = ("Ana", "Ben", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana")
THINGS = ("apples", "books", "coins", "eggs", "nuts", "pears", "shells", "stamps")


@dataclass(frozen=True)
class Story:
    """One kind of story.

    Attributes:
        start: with the places {name}, {things} and {first}.
        links: words before every further number, taken in turn.
        end: the question.
    """

    start: str
    links: tuple[str, ...]
    end: str

    def tell(self, numbers: Sequence[int], name: str, things: str, turn: int = 0) -> str:
        """The story of two or more numbers, in their order; `turn` says with which link it begins."""
        more = [f"{self.links[(turn + k) % len(self.links)]} {number}" for k, number in enumerate(numbers[1:])]
        middle = ", ".join(more[:-1]) + " and " * (len(more) > 1) + more[-1]
        opening = self.start.format(name=name, things=things, first=numbers[0])
        return f"{opening}, {middle}. {self.end.format(name=name, things=things)}"


STORIES = (
    Story("{name} has {first} {things}", ("buys", "finds", "gets", "picks"), "How many {things} now?"),
    Story("A box has {first} {things}", ("a bag", "a bowl", "a jar", "a pot"), "How many {things} in all?"),
    Story("{name} sold {first} {things}", ("then", "later", "next"), "How many in all?"),
    Story("We saw {first} {things}", ("then", "after that", "later"), "How many?"),
)


def wordings(stories: int) -> int:
    """In how many ways the first `stories` stories can be told."""
    return sum(len(story.links) for story in STORIES[:stories]) * len(NAMES) * len(THINGS)


def tell(numbers: Sequence[int], wording: int, stories: int) -> str:
    """The story of these numbers in one of the `wordings(stories)` ways."""
    wording, name = divmod(wording, len(NAMES))
    turn, things = divmod(wording, len(THINGS))
    for story in STORIES[:stories]:
        if turn < len(story.links):
            return story.tell(numbers, NAMES[name], THINGS[things], turn)
        turn -= len(story.links)
    raise ValueError(f"wording is {wording}; expected a number below {wordings(stories)}, the ways to tell {stories}")
