"""Refuses phrases that no native speaker would write: in pages, lessons, exercises, docstrings and the command line.

Run by `make docs`: `python docs/prose.py`. Each pattern has a sample, which a test looks for, and says what to write
instead. Code is left out. The check finds habits, not mistakes of thought: read the page aloud as well.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SHOWN = (
    "bandit", "cli", "config.py", "envs", "explain", "figures", "ledger", "llm/engines/base.py", "llm/evaluate.py",
    "loop.py", "objectives", "observe", "planner", "plugins.py", "replay", "theory", "toy", "trainer.py", "training.py",
)  # fmt: skip
"Parts of the package whose docstrings the site shows; of the command line all texts are read."
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


def found_in(text: str) -> Iterator[tuple[int, str, Habit]]:
    """Line, phrase and habit of everything that a text should not say."""
    prose = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]) if "\n" in code[0] else "x" * len(code[0]), text)
    joined = re.sub(r"(?<!\n)\n(?![\n\f])[ #>*|-]?", lambda gap: " " * len(gap[0]), prose)
    for habit in HABITS:
        for hit in re.finditer(habit.pattern, joined, re.MULTILINE):
            yield prose.count("\n", 0, hit.start()) + 1, " ".join(hit[0].split()), habit


def texts(root: Path) -> Iterator[tuple[Path, str]]:
    """What is read: pages that are not generated, prose of lessons, texts of exercises; lines keep their numbers."""
    generated = ("learn/lessons", "paper/ledger.md", "paper/annotated.md", "paper/figures.md", "paper_index.md")
    generated += ("learn/metrics.md", "learn/one-step.md", "use/verbs.md", "use/.adaptive-tau.md")
    for path in sorted((root / "docs").rglob("*.md")):
        if not path.relative_to(root / "docs").as_posix().startswith(generated):
            yield path, path.read_text(encoding="utf-8")
    for path in sorted((root / "tutorials").glob("[0-9]*.py")):
        lines, prose = [], False
        for line in path.read_text(encoding="utf-8").splitlines():
            prose = "[markdown]" in line if line.startswith("# %%") else prose
            lines.append(line.removeprefix("#").removeprefix(" ") if prose and not line.startswith("# %%") else "")
        yield path, "\n".join(lines)
    for path in sorted((root / "pmdkit" / "learn" / "exercises").glob("lesson_*.py")):
        yield path, constants(path, docstrings=False)
    for name in SHOWN:
        place = root / "pmdkit" / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place] * place.exists():
            yield path, constants(path, docstrings="cli" not in path.parts)


def constants(path: Path, docstrings: bool) -> str:
    """The texts of a module, or its docstrings alone: each a paragraph of its own, on the line where it begins."""
    source = path.read_text(encoding="utf-8")
    lines = [""] * (source.count("\n") + 1)
    for node in ast.walk(ast.parse(source)):
        found = node.value if docstrings and isinstance(node, ast.Expr) else None if docstrings else node
        if isinstance(found, ast.Constant) and isinstance(found.value, str):
            lines[found.lineno - 1] += " ".join(found.value.split()) + " "
    return "\n\f".join(lines)


def main(root: Path) -> list[str]:
    """One line for each phrase."""
    return [
        f"{path.relative_to(root)}: '{phrase}': write {habit.instead} (line {line})"
        for path, text in texts(root)
        for line, phrase, habit in found_in(text)
    ]


if __name__ == "__main__":
    sys.exit("\n".join(main(ROOT)) or 0)
