"""Keep secrets out of files: keys and passwords are blanked in output, and refused in configurations.

A secret is recognised by its name, by a password in a URL, or by the format of a well-known service. Other secrets
are not found: keys belong in the environment, which is never written down.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pmdkit.errors import UsageError

BLANK = "[secret]"

SECRET = re.compile(
    r"(^|_)(key|secret|passwd|password|pwd|passphrase|credentials?|authorization|bearer|cookie)($|_)"
    r"|(^|_)(token|apikey)$"
)
"Names of secrets, but not `token_budget` or `max_tokens`."
ORDINARY = re.compile(r"(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|end|start|next|per|each|special|last|first)_token$")
"Names of a tokenizer's tokens."

USERINFO = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@'\"]+@", re.I)
QUERY = re.compile(r"([?&]([\w.-]+)=)[^\s&#'\"]+")
HEADER = re.compile(r"\b(Bearer|Authorization:)(\s+)(?=\S*\d)[A-Za-z0-9._~+/=-]{16,}", re.I)
KNOWN = re.compile(
    r"\b(hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-(?=\S*\d)[A-Za-z0-9_-]{20,}"  # OpenAI, Anthropic
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}"  # GitHub, GitLab
    r"|xox[abposr]-[\w-]{10,}"  # Slack
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AIza[\w-]{35}"  # Amazon, Google
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"  # JSON web tokens
    r"|pypi-[\w-]{20,}|npm_[A-Za-z0-9]{30,})"
)


def named(name: str) -> bool:
    """Whether a value of this name is a secret: `api_key`, `hf-token`, `vllm.options.password`."""
    plain = re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z])([A-Z])", r"\1_\2", name.rpartition(".")[2]).lower()).strip("_")
    return SECRET.search(plain) is not None and ORDINARY.search(plain) is None


def text(value: str) -> str:
    """A text with its secrets blanked, as far as their format is recognised."""
    value = USERINFO.sub(rf"\1{BLANK}@", value)
    value = QUERY.sub(lambda found: found[1] + BLANK if named(found[2]) else found[0], value)
    return KNOWN.sub(BLANK, HEADER.sub(rf"\1\2{BLANK}", value))


def command(arguments: Sequence[str]) -> list[str]:
    """A command line with its secrets blanked: `--hf-token x`, `--set a.password=x`, and what `text` finds."""
    shown: list[str] = []
    value_of_secret = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        if value_of_secret and not argument.startswith("--"):
            shown.append(BLANK)
        elif equals and named(name):
            shown.append(f"{name}={BLANK}")
        else:
            shown.append(text(argument))
        value_of_secret = argument.startswith("-") and not equals and named(argument)
    return shown


def value(given: Any, name: str = "") -> Any:
    """Any JSON value, with its secrets blanked."""
    if isinstance(given, dict):
        return {key: value(inner, str(key)) for key, inner in given.items()}
    if isinstance(given, list | tuple):
        return [value(inner, name) for inner in given]
    if isinstance(given, str):
        return BLANK if given and named(name) else text(given)
    return given


def check(config: dict[str, Any]) -> None:
    """Raise if a configuration holds a secret: it is written down, copied with the folder, and read by --resume.

    Raises:
        UsageError: it names the key, not the secret.
    """
    for key, given in entries(config):
        if given and value(given, key) != given:
            raise UsageError(
                f"{key} holds what looks like a password or a key, and a run saves its configuration; leave it "
                "out, and pass it in an environment variable (VLLM_API_KEY, HF_TOKEN, WANDB_API_KEY)"
            )


def entries(given: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Dotted key and text of each string in a nested value."""
    if isinstance(given, dict):
        for key, inner in given.items():
            yield from entries(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(given, list | tuple):
        for inner in given:
            yield from entries(inner, place)
    elif isinstance(given, str):
        yield place, given
