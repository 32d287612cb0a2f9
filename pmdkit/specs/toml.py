"""TOML beyond the standard library: one value from the command line, and the tables of a spec as text."""

import json
import re
import tomllib
from typing import Any


def parse_value(text: str) -> Any:
    """A TOML value, or plain text if it is not TOML; `null`, which TOML lacks, is None: --set group=null."""
    if text.strip() == "null":
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # tomllib raises the second for [[[[...
        return text


def to_toml(tables: dict[str, Any]) -> str:
    """Tables of a spec as the text of a .toml file for `LLMSpec.read`; keys that are not set are left out."""

    def block(head: str, table: dict[str, Any]) -> str:
        set_keys = {key: value for key, value in table.items() if value is not None and key != "others"}
        return "\n".join([head, *(f"{key_of(key)} = {to_value(value)}" for key, value in set_keys.items())])

    blocks = []
    for section, table in tables.items():
        if table is not None:
            others = table.get("others", [])
            blocks.append(block(f"[[{section}]]" if others else f"[{section}]", table))
            blocks += [block(f"[[{section}]]", other) for other in others]
    return "\n\n".join(blocks) + "\n"


def key_of(key: str) -> str:
    """A TOML key, in quotes where it needs them."""
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)


def to_value(value: Any) -> str:
    """A TOML value; strings are quoted as in JSON, whose escapes TOML shares."""
    if isinstance(value, dict):
        pairs = (f"{key_of(key)} = {to_value(part)}" for key, part in value.items() if part is not None)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(to_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
