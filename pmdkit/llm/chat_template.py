"""Render a conversation with the tokenizer's chat template, which may come from anybody: in Jinja's sandbox, in time.

A template is a program: the sandbox keeps it from files and names, and a loop that never ends is given up.
"""

from collections.abc import Sequence
from typing import Any

from pmdkit.errors import UsageError, printable
from pmdkit.llm.concurrent_calls import CallFailed, ConcurrentCalls

SECONDS = 10.0
"The longest templates on the hub need a few milliseconds; the machine may be busy."


def render_chat(tokenizer: Any, messages: Sequence[dict[str, str]], thinking: bool | None = None) -> str:
    """The conversation as rendered by the tokenizer's chat template, with the generation prompt.

    `thinking` is passed to the template as `enable_thinking`; None leaves it out. A template that fails, or does not
    finish in time, is a UsageError.
    """
    options = {} if thinking is None else {"enable_thinking": thinking}

    def render() -> str:
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **options))

    # a thread rather than an alarm: alarms exist in the main thread only
    (found,) = ConcurrentCalls(SECONDS, 0, 1).run([render])
    if isinstance(found, CallFailed):
        raise UsageError(f"the tokenizer's chat template {printable(str(found))[:300]}; take another model, or fix it")
    return str(found)
