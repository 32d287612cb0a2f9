"""DAPO's wording around a question, and how the question is taken out of it. The template that puts it back is
pmdkit.llm.prompts.TEMPLATE.

Source: arXiv:2602.05933, appendix "Prompt Template"; arXiv:2503.14476 (DAPO).
"""

BEFORE = (
    "Solve the following math problem step by step. The last line of your response should be of the form "
    "Answer: $Answer (without quotes) where $Answer is the answer to the problem.\n\n"
)
AFTER = '\n\nRemember to put your answer on its own line after "Answer:".'


def unwrap(text: str) -> str:
    """The question alone: DAPO's wording is taken off where the whole of it is there.

    Raises:
        ValueError: only one half of the wording is there, so that the template would say the rest twice.
    """
    begins, ends = text.startswith(BEFORE.strip()), text.rstrip().endswith(AFTER.strip())
    if begins and ends:
        inner = text.rstrip()[len(BEFORE.strip()) : -len(AFTER.strip())]
        return inner.strip()
    if begins or ends:
        missing = "last" if begins else "first"
        raise ValueError(f"the prompt has a part of DAPO's wording, but not its {missing} sentence")
    return text
