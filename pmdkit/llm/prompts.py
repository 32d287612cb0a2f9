"""Encode problems as prompt tokens and decode responses; text from data never becomes control tokens.

`limit_prompts` drops prompts that are too long.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from tokenizers import decoders, models

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math.readers import AFTER, BEFORE, HALF_PAIR
from pmdkit.errors import UsageError, first_line, printable
from pmdkit.specs.llm import PromptTable

PLACE = "{problem_statement}"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"The chat template of the starters, in ChatML form."
TEMPLATE = BEFORE + PLACE + AFTER


class Encoder:
    """Wraps a problem in the prompt template, and that in the tokenizer's chat format.

    Template and chat format are trusted text: their control tokens take effect. The problem is encoded separately, and
    split wherever it spells an added token such as <|im_end|> or <think>, so that it stays text; so are the messages
    before it in the data. The boundaries of the pieces and these splits are token boundaries; encoding everything at
    once might merge across them. With DAPO's template the pieces meet at blank lines, where Qwen's tokenizers split as
    well, unless the problem begins with whitespace.

    Source: arXiv:2602.05933, appendix "Prompt Template". Differs: the problem is encoded separately, for safety.

    Args:
        tokenizer: of transformers.
        template: contains {problem_statement} once; filled by concatenation, never by format or Jinja.
        chat: format as a chat message; by default if the tokenizer has a chat template, as Qwen's base models do too.
        before: messages before the problem, such as a system prompt and examples; trusted text too. Without a chat
            format their texts are put above the problem, separated by blank lines.
        thinking: `enable_thinking` of the chat template; None leaves it out.

    Raises:
        UsageError: the template lacks the placeholder, or chat or thinking is set without a chat template.
    """

    def __init__(
        self,
        tokenizer: Any,
        template: str = TEMPLATE,
        chat: bool | None = None,
        before: Sequence[dict[str, str]] = (),
        thinking: bool | None = None,
    ) -> None:
        if template.count(PLACE) != 1:
            raise UsageError(f"prompt.template has {PLACE} {template.count(PLACE)} times; expected it once")
        has_format = bool(getattr(tokenizer, "chat_template", None))
        if chat and not has_format:
            raise UsageError("prompt.chat is true, but the tokenizer has no chat template; leave it out")
        self.tokenizer = tokenizer
        self.template = template
        self.before_problem = list(before)
        self.thinking = thinking
        self.chat = has_format if chat is None else chat
        if thinking is not None and not self.chat:
            why = "prompt.chat is false" if has_format else "the tokenizer has no chat template to use it"
            raise UsageError(f"prompt.thinking is set, but {why}; leave it out")
        # Some tokenizers have runs of whitespace as added tokens; those control nothing.
        added = {id: str(token) for id, token in tokenizer.added_tokens_decoder.items() if str(token).strip()}
        self.added = frozenset(added)
        words = sorted(added.values(), key=len, reverse=True)
        self.spelt = re.compile("|".join(map(re.escape, words)) or r"(?!)")
        # the BOS token, if this tokenizer puts one before every text; a chat template writes its own
        alone = [] if self.chat else tokenizer.encode("", add_special_tokens=True)
        self.start = [id for id in alone[:1] if id == tokenizer.bos_token_id]
        self.frames: dict[tuple[str, ...], list[list[int]]] = {}
        self.before, self.after = self.frame(())

    def messages(self, problem: Problem) -> list[dict[str, str]]:
        """The prompt as messages, for grading a response; the model gets the ids of `encode`.

        A system message of the data comes first, earlier turns come after the messages of [prompt].
        """
        earlier = [{"role": role, "content": content} for role, content in problem.history]
        system = [message for message in earlier[:1] if message["role"] == "system"]
        if system and any(message["role"] == "system" for message in self.before_problem):
            raise UsageError("its prompt has a system message, and prompt.system is set; expected one of them")
        question = {"role": "user", "content": self.template.replace(PLACE, problem.problem)}
        return [*system, *self.before_problem, *earlier[len(system) :], question]

    def frame(self, roles: tuple[str, ...]) -> list[list[int]]:
        """Ids before, between and after the contents of a history of these roles and the problem."""
        if roles not in self.frames:
            marks = [f"{{message {n}}}" for n in range(len(roles))]
            messages = self.messages(Problem("", PLACE, history=tuple(zip(roles, marks, strict=True))))
            text = self.render(messages) if self.chat else "\n\n".join(message["content"] for message in messages)
            first, *others = [self.ids(piece, split=False) for piece in split_at(text, [*marks, PLACE])]
            self.frames[roles] = [self.start + first, *others]
        return self.frames[roles]

    def render(self, messages: list[dict[str, str]]) -> str:
        """The conversation in the chat format, up to the beginning of the model's turn."""
        thinking = {} if self.thinking is None else {"enable_thinking": self.thinking}
        try:  # a template is a program from any author; transformers runs it in Jinja's sandbox
            text = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **thinking)
        except Exception as problem:
            why = printable(f"{type(problem).__name__}: {first_line(problem)}")
            raise UsageError(f"the tokenizer's chat template fails ({why}); take another model, or fix it") from problem
        return str(text)

    def ids(self, text: str, split: bool) -> list[int]:
        """Ids of a text with nothing added around it; with `split`, special tokens are read as text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=split)) if text else []

    def encode(self, problem: Problem) -> list[int]:
        """Ids of the whole prompt.

        Raises:
            UsageError: the problem, which it names, would produce a control token, the tokenizer cannot represent its
                text, or the chat template does not show messages of its roles.
        """
        try:
            first, *others = self.frame(tuple(role for role, _ in problem.history))
            ids, contents = list(first), [*(content for _, content in problem.history), problem.problem]
            for text, piece in zip(contents, others, strict=True):
                ids += [*self.data(text), *piece]
        except UsageError as reason:
            raise UsageError(f"problem '{problem.id}': {reason}") from reason
        return ids

    def data(self, text: str) -> list[int]:
        """Ids of a text from data alone; none of them is the id of an added token."""
        if HALF_PAIR.search(text):
            raise UsageError("the text holds half a surrogate pair, which is not a character; drop the problem")
        ids = [id for piece in self.pieces(text) for id in self.ids(piece, split=True)]
        if comparable(text) not in comparable(self.tokenizer.decode(ids)):
            raise UsageError(
                f"this tokenizer cannot represent the text {text[:60]!r}; drop the problem, or take another model"
            )
        if control := sorted(self.added.intersection(ids)):
            names = ", ".join(self.tokenizer.convert_ids_to_tokens(control))
            raise UsageError(f"the text becomes the control token {names} in this tokenizer; drop the problem")
        return ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of response tokens, without control tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def pieces(self, text: str) -> list[str]:
        """The text, split after the first character of every added token that it spells.

        split_special_tokens alone would leave tokens such as <think>, which are added but not special.
        """
        cuts, place = [0], 0
        while match := self.spelt.search(text, place):
            place = match.start() + 1
            cuts.append(place)
        return [text[begin:end] for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True)]


def encoder_of(table: PromptTable | None, tokenizer: Any) -> Encoder:
    """The encoder of a [prompt] table; a table that cannot work raises a UsageError."""
    table = table or PromptTable()
    system = [] if table.system is None else [{"role": "system", "content": table.system}]
    before = [*system, *(message.model_dump() for message in table.few_shot)]
    template = TEMPLATE if table.template is None else table.template
    if any(PLACE in message["content"] for message in before):
        raise UsageError(f"prompt.system or prompt.few_shot holds {PLACE}; expected it in prompt.template alone, once")
    return Encoder(tokenizer, template, table.chat, before, table.thinking)


def split_at(text: str, marks: Sequence[str]) -> list[str]:
    """The text before, between and after the marks, each of which must occur once, in their order."""
    pieces = []
    for mark in marks:
        piece, found, text = text.partition(mark)
        if not found or mark in text:
            raise UsageError("the chat template does not show each message of the prompt once, in their order")
        pieces.append(piece)
    return [*pieces, text]


def comparable(text: str) -> str:
    """Text in one Unicode form without whitespace, because tokenizers may change both harmlessly."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def encode_numbers(problems: MathProblems, encoder: Encoder) -> Callable[[int], Sequence[int]]:
    """Prompt tokens by problem number, cached: rows that share a prompt share the same object."""
    return lru_cache(maxsize=65_536)(lambda number: encoder.encode(problems.problem(number)))


def limit_prompts(problems: MathProblems, encoder: Encoder, limit: int) -> MathProblems:
    """The problems whose prompts have at most `limit` tokens; the others are counted, and nothing is truncated.

    Raises:
        UsageError: no problem is left, or one cannot be encoded; the message names its id.
    """
    # Encoding every problem would be most of a run's setup. Byte-level BPE begins with a token for each byte and only
    # merges, so plain text that fits at one token per byte is not encoded.
    room, backend = -1, getattr(encoder.tokenizer, "backend_tokenizer", None)
    if backend is not None and type(backend.model) is models.BPE and type(backend.decoder) is decoders.ByteLevel:
        room = limit - len(encoder.before) - len(encoder.after)

    def fits(number: int) -> bool:
        problem = problems.problem(number)
        text = problem.problem
        if not problem.history and len(text) <= room and text.isascii() and not encoder.spelt.search(text):
            return True
        return len(encoder.encode(problem)) <= limit

    train, held_out = (
        numbers[np.fromiter((fits(int(number)) for number in numbers), dtype=bool, count=len(numbers))]
        for numbers in (problems.train, problems.held_out)
    )
    dropped = len(problems.train) + len(problems.held_out) - len(train) - len(held_out)
    if (len(problems.train) and not len(train)) or (len(problems.held_out) and not len(held_out)):
        raise UsageError(f"no prompt of {problems.name} has {limit} tokens or fewer; raise the limit on prompts")
    counts = Counter(problems.counts)
    if dropped:
        counts[f"dropped: prompt over {limit} tokens"] += dropped
    return replace(problems, train=train, held_out=held_out, counts=dict(counts))
