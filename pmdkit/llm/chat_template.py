"""Render a conversation with the tokenizer's chat template, which may come from anybody: in Jinja's sandbox, in time.

A template is a program: the sandbox keeps it from files and names, and a loop that never ends is given up.
"""

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from pmdkit.errors import UsageError, printable

SECONDS = 10.0
"The longest templates on the hub need a few milliseconds; the machine may be busy."


def render_chat(tokenizer: Any, messages: Sequence[dict[str, str]], thinking: bool | None = None) -> str:
    """The conversation as rendered by the tokenizer's chat template, with the generation prompt.

    `thinking` is passed to the template as `enable_thinking`; None leaves it out. A template that fails, or does not
    finish in time, is a UsageError.
    """
    options = {} if thinking is None else {"enable_thinking": thinking}
    rendered: list[str] = []
    failed: list[BaseException] = []

    def render() -> None:
        try:
            text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True, **options)
            rendered.append(str(text))
        except (Exception, SystemExit) as problem:
            failed.append(problem)

    # a thread rather than an alarm: alarms exist in the main thread only
    thread = threading.Thread(target=render, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
        raise UsageError(f"the tokenizer's chat template does not finish within {SECONDS:g} s; take another model")
    if failed:
        told = printable(f"{type(failed[0]).__name__}: {failed[0]}")[:300]
        raise UsageError(f"the tokenizer's chat template fails: {told}; take another model, or fix it")
    return rendered[0]
