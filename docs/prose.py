"""Report phrases that no native speaker would write, in pages, lessons, exercises, docstrings and the command line.

Run by `make docs`: `python docs/prose.py`. Each pattern says what to write instead, and has a sample on which a test
tries it; proselint checks pages and lessons too. Code is skipped. The check finds habits, not errors of reasoning, so
read the page aloud as well.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proselint.checks import __register__ as proselint_checks
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

CheckRegistry().register_many(proselint_checks)

ROOT = Path(__file__).parents[1]
SHOWN = (
    "bandit", "cli", "envs", "explain", "figures", "ledger", "llm/engines/base.py", "llm/evaluate.py",
    "fit.py", "loop.py", "objectives", "observe", "planner", "plugins.py", "replay", "resolve.py", "run.py", "specs",
    "start.py", "theory", "toy",
)  # fmt: skip
"Parts of the package whose docstrings the site shows; in the command line, all strings are checked."
NOTE = re.compile(r"^(?:!!!|\?\?\?\+?) .*\n(?:(?: {4}.*)?\n)*", re.MULTILINE)
CODE = re.compile(r"```.*?```|~~~.*?~~~|`[^`\n]*`|^    .*$|<[^>]+>|\]\([^)]*\)|\$\$.*?\$\$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Habit:
    """A phrase to avoid.

    Attributes:
        pattern: regular expression, found anywhere in a paragraph; case counts.
        instead: what to write.
        sample: a phrase that it finds.
    """

    pattern: str
    instead: str
    sample: str


NOUN = r"(?!longer|more|less|better|worse|such|other|way|need|doubt|reason|different|later|one|further|use|point|harm)"

HABITS = (
    Habit(
        rf"(?<![Tt]here )(?<![Ww]here )(?<![Tt]hen )\b(?:[Ii]t|[Tt]hey|[Tt]his|[Tt]hese|[Ww]hich|share|error) "
        rf"(?:is|are|was|were) no {NOUN}[a-z]+",
        "'is not a ...', 'are not ...'",
        "they are no numbers to plan with",
    ),
    Habit(
        r"(?:^|[.:;] )(?:Asked|Meant|Wanted|Counted|Measured|Needed|Compared|Shown|Drawn|Told|Missing) (?:is|are|was) ",
        "the subject first: 'The exercise asks for ...'",
        "Asked is the share that has none.",
    ),
    Habit(r"\b(?:the|The) own (?!and\b)[a-z]+", "'its own ...', 'your own ...'", "with the own sample in it"),
    Habit(r"\b(?:for|to) who (?:has|is|wants|cannot)\b", "'for readers who ...'", "for who has no browser"),
    Habit(r"\bWhoever (?:may|wants|can|must)\b", "'If you ...', 'Anyone who ...'", "Whoever may choose tau"),
    Habit(r"\banew\b", "'again', 'from scratch'", "which writes those files anew"),
    Habit(r"\b[Mm]end(?:s|ed|ing)?\b", "'fix', 'repair'", "once it is mended"),
    Habit(r"\bdearer\b|\bmuch dear\b", "'more expensive', 'costs more'", "chi2 is much dearer"),
    Habit(
        r"\b(?:numbers|figures|rows|tests|words) (?:stand|stands) (?:in|under|on)\b", "'are in ...'", "numbers stand in"
    ),
    Habit(r"\bstands? (?:in|under) one file\b|\b[Uu]nder each stands\b", "'is in', 'are in'", "Under each stands"),
    Habit(r"\bNothing of (?:it|this|pmdkit)\b", "'None of it', 'No part of ...'", "Nothing of it has run"),
    Habit(r"(?<=[.!?] )(?:A|An|Not) [a-z ]{3,20}, no more\.", "a sentence with a verb", "So. A lead, no more."),
    Habit(r"\bleaving the [a-z]+ one out\b", "'leaving out ...'", "leaving the own one out"),
    Habit(r"\b(?:is|are|was) told (?:before|in|as|with|at once|by its)\b", "'is reported'", "is told before"),
    Habit(r"\bwhat is to be (?:said|seen|done) of\b", "'the verdict on ...'", "what is to be said of your function"),
    Habit(r"\b[Mm]ak(?:e|es) it again\b", "'reproduce it', 'run it again'", "Make it again"),
    Habit(r"\bwhat is not given is as\b", "'the rest is as ...'", "what is not given is as recorded"),
    Habit(r"\bwhat came of\b", "'the result of'", "what came of comparing them"),
    Habit(r"\b(?:a|A) hint more\b|\bone (?:step|hint|time) the more\b", "'one more ...'", "a hint more"),
    Habit(r"\bhow (?:it|this) comes about\b", "'why', 'how this happens'", "how it comes about"),
    Habit(r"\b(?:goes|go|going|went) on to the same bits\b", "'resumes bit for bit'", "goes on to the same bits"),
    Habit(r"(?:^|[.:;] )Of an? [a-z]+ (?:the|only|every|also)\b", "the subject first", "Of a run the newest is"),
    Habit(r"\bsays rubbish\b|\bsays nonsense\b", "'returns garbage'", "hangs, says rubbish"),
    Habit(r"\bsplendid\b|\bbeholds?\b|\bhenceforth\b|\bwhither\b", "a plain word", "this is splendid when"),
    Habit(r"\bas (?:good|much) as nothing\b", "'almost nothing'", "as good as nothing"),
    Habit(r"\bnot measured, [a-z ]+ is\b", "'is not measured; ... still runs'", "both are not measured, the canary is"),
    Habit(r"\b(?:one|you|we) (?:has|have|had) to do with\b", "'concerns', 'is about'", "we have to do with noise"),
    Habit(r"\bothers (?:gave|made) before you\b", "'the usual mistakes'", "a wrong answer that others gave before you"),
)


NOT_ASKED = (
    "typography", "psychology", "lexical_illusions", "dates_times", "misc.but", "misc.preferred_forms", "archaism",
    "weasel_words.very",
)  # fmt: skip
"Checks of proselint that misread formulas and tables as prose, 'for every' as 'for ever', or 'the very one' as weak."


def without_code(text: str) -> str:
    """The prose of a text, with each character in its place: code becomes blank, or a row of x within a line."""
    text = NOTE.sub(lambda note: note[0].replace("\n    ", "\n"), text)  # indented, but not code
    return CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]) if "\n" in code[0] else "x" * len(code[0]), text)


def linted(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrase and message of everything that proselint finds in a text."""
    prose = without_code(text)
    for found in LintFile("text", prose).lint(DEFAULT):
        if not found.check_result.check_path.startswith(NOT_ASKED):
            begin, end = found.check_result.span
            begin, end = begin - 1, end - 1  # it counts from a line end that it puts before the text
            yield prose.count("\n", 0, begin) + 1, " ".join(prose[begin:end].split()), found.check_result.message


def found_in(text: str) -> Iterator[tuple[int, str, Habit]]:
    """Line, phrase and habit of everything that a text should not say."""
    prose = without_code(text)
    joined = re.sub(r"(?<!\n)\n(?![\n\f])[ #>*|-]?", lambda gap: " " * len(gap[0]), prose)
    for habit in HABITS:
        for hit in re.finditer(habit.pattern, joined, re.MULTILINE):
            yield prose.count("\n", 0, hit.start()) + 1, " ".join(hit[0].split()), habit


def texts(root: Path) -> Iterator[tuple[Path, str]]:
    """All texts to check, lines in place: pages that are not generated, prose of lessons, exercises and docstrings."""
    generated = ("learn/lessons", "paper/.claims.md", "paper/.sources.md")
    generated += ("learn/one-step.md", "use/.verbs.md", "use/.adaptive-tau.md", "use/.race.md")
    for path in sorted((root / "docs").rglob("*.md")):
        if not path.relative_to(root / "docs").as_posix().startswith(generated):
            yield path, path.read_text(encoding="utf-8")
    for path in sorted((root / "tutorials").glob("[0-9]*.py")):
        lines, prose = [], False
        for line in path.read_text(encoding="utf-8").splitlines():
            prose = "[markdown]" in line if line.startswith("# %%") else prose
            lines.append(line.removeprefix("#").removeprefix(" ") if prose and not line.startswith("# %%") else "")
        yield path, "\n".join(lines)
    for path in sorted((root / "packages/pmdkit-course/pmdkit_course/exercises").glob("[lt]*.py")):
        yield path, constants(path, docstrings=False)
    for name in SHOWN:
        place = root / "pmdkit" / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place] * place.exists():
            yield path, constants(path, docstrings="cli" not in path.parts)


def constants(path: Path, docstrings: bool) -> str:
    """The strings of a module, or only its docstrings, each as a paragraph on the line where it begins."""
    source = path.read_text(encoding="utf-8")
    lines = [""] * (source.count("\n") + 1)
    for node in ast.walk(ast.parse(source)):
        found = node.value if docstrings and isinstance(node, ast.Expr) else None if docstrings else node
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            lines[found.lineno - 1] += " ".join(found.value.split()) + " "
    return "\n\f".join(lines)


def main(root: Path) -> list[str]:
    """One line for each phrase found."""
    lines = []
    for path, text in texts(root):
        place = path.relative_to(root)
        lines += [f"{place}: '{phrase}': write {habit.instead} (line {line})" for line, phrase, habit in found_in(text)]
        if place.parts[0] != "pmdkit":  # docstrings are full of symbols
            lines += [f"{place}: '{phrase}': {message} (line {line})" for line, phrase, message in linted(text)]
    return lines


if __name__ == "__main__":
    sys.exit("\n".join(main(ROOT)) or 0)
