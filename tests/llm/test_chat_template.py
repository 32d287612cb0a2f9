"""Chat templates of strangers: rendered as transformers does, kept in Jinja's sandbox, given up after a time."""

import threading

import pytest

pytest.importorskip("transformers")

from pmdkit.errors import UsageError
from pmdkit.llm import chat_template
from pmdkit.llm.prompts import CHAT

from .test_prompts import byte_level, wrapped

MESSAGE = [{"role": "user", "content": "What is 3 + 4?"}]


def tokenizer(template):
    return wrapped(byte_level(), chat_template=template)


def test_it_is_transformers_own_text():
    template = CHAT + "{{ eos_token }}{% if enable_thinking is defined %}{{ enable_thinking }}{% endif %}"
    for thinking, options in ((None, {}), (True, {"enable_thinking": True})):
        own = tokenizer(template)
        wanted = own.apply_chat_template(MESSAGE, tokenize=False, add_generation_prompt=True, **options)
        assert chat_template.render_chat(own, MESSAGE, thinking) == wanted


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ raise_exception('no\x1b[2J') }}",
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ unfinished",
    ],
)
def test_a_template_that_fails_is_refused(template):
    with pytest.raises(UsageError) as refused:
        chat_template.render_chat(tokenizer(template), MESSAGE)
    assert str(refused.value).isprintable()


@pytest.mark.slow
def test_an_endless_template_is_given_up(monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    loop = "{% for i in range(90000) %}" * 4 + "{% endfor %}" * 4
    before = threading.active_count()
    with pytest.raises(UsageError):
        chat_template.render_chat(tokenizer(loop), MESSAGE)
    for other in threading.enumerate():
        if other is not threading.current_thread() and other.daemon:
            other.join(10)
    assert threading.active_count() <= before, "it does not go on behind the error"
