"""The starter model's tokenizer: byte-level BPE trained on its own problems and on its teacher's responses."""

from collections.abc import Iterator

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math.wording import AFTER, BEFORE
from pmdkit.llm.starter.teacher import Teacher
from pmdkit.randomness import generator

VOCABULARY = 448  # 256 bytes, the words of the stories, and room
SAMPLE = 2000  # problems and responses that the tokenizer is trained on
END, PAD, START = "<|im_end|>", "<|endoftext|>", "<|im_start|>"
# One digit, or a word with what leads to the next number: short prompts matter more here than the usual habits.
PIECES = r"\d|\n?[A-Za-z]+(?:: ?| |\n)?|[^A-Za-z\d]+"
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(problems: MathProblems) -> PreTrainedTokenizerFast:
    """A tokenizer that writes any text and needs few tokens for these problems. The same one for the same problems.

    The two halves of the prompt template are one token each: a prompt has some 30 tokens instead of 90.
    """
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = Sequence([Split(Regex(PIECES), "isolated"), ByteLevel(False, use_regex=False)])
    tokenizer.decoder = ByteDecoder()
    tokenizer.train_from_iterator(
        texts(problems),
        BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[PAD, START, END],
            initial_alphabet=ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in (BEFORE, AFTER)])
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, pad_token=PAD, clean_up_tokenization_spaces=False
    )
    wrapped.chat_template = CHAT
    return wrapped


def texts(problems: MathProblems) -> Iterator[str]:
    """What the tokenizer is trained on: training problems, responses, and the names of the chat's roles."""
    teacher = Teacher(slip=0.2)
    yield from ["user\n", "assistant\n", "system\n"] * SAMPLE
    for number in problems.train[:SAMPLE]:
        text = problems.problem(int(number)).problem
        yield text
        yield teacher.respond(text, generator(0, "starter tokenizer", int(number)))
