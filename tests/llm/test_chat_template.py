"""A chat template is a program of somebody else: it ends in time, in bounds, or in a sentence."""

import shutil
import signal
import time
from types import SimpleNamespace

import pytest

from pmdkit.errors import ComponentDied, UsageError
from pmdkit.llm import chat_template
from pmdkit.llm.chat_template import check_tokenizer, render_chat
from pmdkit.llm.model import load_model
from pmdkit.llm.prompts import CHAT, TEMPLATE, Encoder

pytestmark = pytest.mark.slow  # a process for each template

MESSAGE = [{"role": "user", "content": "hello"}]


def tokenizer(template):
    return SimpleNamespace(get_chat_template=lambda: template, special_tokens_map={"eos_token": "</s>"})


def test_it_renders_as_transformers_does(model_folder):
    own = load_model(str(model_folder))[1]
    own.chat_template = CHAT + "{{ eos_token }}{{ strftime_now('')|tojson }}"
    wanted = own.apply_chat_template(MESSAGE, tokenize=False, add_generation_prompt=True)
    assert render_chat(own, MESSAGE) == wanted
    own.chat_template = CHAT + " "  # the starters' own is rendered here, any other one there
    assert Encoder(own).before[:3] == own.encode("<|im_start|>user\n", add_special_tokens=False)[:3]


HOSTILE = {
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}": "does not finish within 3 s",
    "{{ 'a' * 10 ** 10 }}": "needs more than 2048 MiB",
    "{{ 'a' * 10 ** 7 }}": "writes 10,000,000 characters",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}": "RecursionError",
    "{{ raise_exception('\x1b[2Jgone') }}": r"TemplateError: \\x1b\[2Jgone",
    "{% if %}": "TemplateSyntaxError",
    "{{ ''.__class__.__mro__ }}": "SecurityError",
    "{{ nothing.at.all }}": "UndefinedError",
    7: "is 7; expected text",
}


@pytest.mark.parametrize(("template", "told"), HOSTILE.items(), ids=range(len(HOSTILE)))
def test_a_template_that_misbehaves_is_a_sentence(template, told):
    begun = time.monotonic()
    with pytest.raises(UsageError, match=told):
        render_chat(tokenizer(template), MESSAGE)
    assert time.monotonic() - begun < 60  # 3 s of processor time, on a machine that may be crowded


def test_a_looping_template_ends_a_run_at_its_start(model_folder, tmp_path, call, capsys):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "chat_template.jinja").write_text(next(iter(HOSTILE)))
    with pytest.raises(UsageError, match="does not finish within 3 s of processor time"):
        Encoder(load_model(str(folder))[1])


@pytest.mark.parametrize(
    ("data", "told"), [(b"{}", "does not load"), (b"\xff", "does not load"), (b"[" * 10**6, "does not load|breaks")]
)
def test_a_tokenizer_that_is_none_is_a_sentence(model_folder, tmp_path, data, told):
    folder = shutil.copytree(model_folder, tmp_path / "model")
    (folder / "tokenizer.json").write_bytes(data)
    with pytest.raises(UsageError, match=told):
        check_tokenizer(folder, (TEMPLATE,))


def test_a_process_that_is_killed_is_no_fault_of_the_template(monkeypatch):
    """Exit 7: the kernel, short of memory, ends what it likes."""

    class Killed(chat_template.WorkerProcess):
        def send(self, message, deadline):
            self.send_signal(signal.SIGKILL)
            self.wait(10)
            super().send(message, deadline)

    monkeypatch.setattr(chat_template, "WorkerProcess", Killed)
    with pytest.raises(ComponentDied, match="was killed by SIGKILL"):
        render_chat(tokenizer(CHAT), MESSAGE)
