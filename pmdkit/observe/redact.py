"""Keep secrets out of files: keys and passwords are blanked in output, and refused in configurations.

A secret is recognised by its name, by a password in a URL, or by the prefix of a well-known service. Other secrets are
not found: keys belong in the environment, which is never written down.
"""

import re
from collections.abc import Sequence
from typing import Any

from pmdkit.errors import UsageError

BLANK = "[secret]"
NAMED = (
    re.compile(  # `api_key`, `--hf-token`, `vllm.options.password`; not `token_budget`, nor a tokenizer's `eos_token`
        r"(^|[._-])(key|api_?key|secret|passwd|password|pwd|credentials?|authorization"
        r"|(?<!eos.)(?<!bos.)(?<!pad.)(?<!unk.)(?<!end.)(?<!stop.)token)$",
        re.I,
    )
)
USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@", re.I)
QUERY = re.compile(r"([?&]([\w.-]+)=)[^\s&#'\"]+")
KNOWN = re.compile(
    r"\b((?:hf_|gh[pousr]_|github_pat_|glpat-|pypi-|npm_)[\w-]{20,}"  # hubs of models, code and packages
    r"|sk-(?=\S*\d)[\w-]{20,}|xox[abposr]-[\w-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"  # OpenAI, Slack, clouds
    r"|eyJ[\w-]{8,}\.[\w.-]{16,}|(?<=Bearer )(?=\S*\d)[\w.~+/=-]{16,})"
)


def text(value: str) -> str:
    """A text with its secrets blanked, as far as their format is recognised."""
    value = USERINFO.sub(rf"\1{BLANK}@", value)
    value = QUERY.sub(lambda found: found[1] + BLANK if NAMED.search(found[2]) else found[0], value)
    return KNOWN.sub(BLANK, value)


def command(arguments: Sequence[str]) -> list[str]:
    """A command line with its secrets blanked: `--hf-token x`, `--set a.password=x`, and what `text` finds."""
    shown: list[str] = []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, equals, _ = argument.partition("=")
        secret = before.startswith("-") and "=" not in before and NAMED.search(before) and not argument.startswith("--")
        shown.append(BLANK if secret else f"{name}={BLANK}" if equals and NAMED.search(name) else text(argument))
    return shown


def value(given: Any, name: str = "") -> Any:
    """Any JSON value, with its secrets blanked."""
    if isinstance(given, dict):
        return {key: value(inner, str(key)) for key, inner in given.items()}
    if isinstance(given, list | tuple):
        return [value(inner, name) for inner in given]
    if isinstance(given, str):
        return BLANK if given and NAMED.search(name) else text(given)
    return given


def check(config: Any, place: str = "") -> None:
    """Raise UsageError if a configuration holds a secret, which would be written down and copied with the folder."""
    if isinstance(config, dict | list | tuple):
        for key, inner in config.items() if isinstance(config, dict) else [(place, inner) for inner in config]:
            check(inner, f"{place}.{key}".strip(".") if isinstance(config, dict) else place)
    elif value(config, place) != config:
        raise UsageError(
            f"{place} holds what looks like a password or a key, and a run saves its configuration; leave it "
            "out, and pass it in an environment variable (VLLM_API_KEY, HF_TOKEN, WANDB_API_KEY)"
        )
