"""Prompts and responses of a recorded step as text: the arm, the toy's tokens, or what the tokenizer makes of them."""

from pathlib import Path
from typing import Any

from pmdkit.recording.format import Recording


class Words:
    """How the rows of a step read.

    Args:
        recording: of the step.
        run: its run folder, for the tokenizer of a language model; None where there is none.

    Attributes:
        note: why there is no text, or None.
    """

    def __init__(self, recording: Recording, run: Path | None = None) -> None:
        self.recording = recording
        self.vocabulary: list[str] | None = recording.about.get("vocabulary")
        self.tokenizer: Any = None
        self.note: str | None = None
        if recording.about["tier"] == "llm":
            self.find_tokenizer(run)

    def find_tokenizer(self, run: Path | None) -> None:
        """Take the tokenizer of the newest checkpoint that has one."""
        found = sorted(run.glob("checkpoints/step-*/tokenizer.json"), key=number) if run is not None else []
        if not found:
            self.note = "no text: the run has no checkpoint with a tokenizer; tokens are told by their numbers"
            return
        try:
            from tokenizers import Tokenizer
        except ImportError:
            self.note = "no text: reading the tokenizer needs transformers; pip install 'pmdkit[llm]'"
            return
        self.tokenizer = Tokenizer.from_file(str(found[-1]))

    def prompt(self, number: int) -> str:
        """The prompt of a group."""
        asked = self.recording["prompts"][number]
        if self.vocabulary is not None:
            return " ".join(self.vocabulary[token] for token in asked.tolist())
        problems = self.recording.about.get("problems")
        if problems is None:
            return f"context {int(asked)}"
        lengths = self.recording["prompt_length"]
        start = int(lengths[:number].sum())
        tokens = self.recording["prompt_tokens"][start : start + int(lengths[number])].tolist()
        return f"{problems[number]}: {self.text(tokens)}" if self.tokenizer is not None else problems[number]

    def response(self, row: int) -> str:
        """The response of a row."""
        tokens = self.recording["responses"][row][self.recording.mask[row]].tolist()
        if self.vocabulary is not None:
            return " ".join(self.vocabulary[token] for token in tokens)
        if self.recording.about["tier"] == "bandit":
            return f"arm {tokens[0]}"
        return self.text(tokens)

    def token(self, token: int) -> str:
        """One token."""
        if self.vocabulary is not None:
            return self.vocabulary[token]
        if self.recording.about["tier"] == "bandit":
            return f"arm {token}"
        return self.text([token])

    def text(self, tokens: list[int]) -> str:
        """Tokens of a language model, control tokens included."""
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))


def number(path: Path) -> int:
    """Step of a file in a checkpoint."""
    name = path.parent.name.removeprefix("step-")
    return int(name) if name.isdigit() else -1
