"""Keys of a framework with a sentence for those that are easily misread, and how they are written down."""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Keys:
    """What another framework is told.

    Attributes:
        values: by key, in the order to read them; a table of keys in YAML.
        yaml: whether a file of `key: value` is wanted, and not overrides `key=value`.
        program: what a program of one's own must say, in no file.
        words: what a key counts, where names mislead.
        checks: products that hold, written out.
        missing: what this does not carry over.
    """

    values: dict[str, object]
    yaml: bool = False
    program: dict[str, object] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def lines(keys: Keys) -> Iterator[str]:
    """The keys as they go into a file or on a command line; everything else behind a #."""
    for key, value in keys.values.items():
        said = f"  # {keys.words[key]}" if key in keys.words else ""
        if isinstance(value, dict):
            yield f"{key}:{said}"
            yield from (f"  {inner}: {text(held, True)}" for inner, held in value.items())
        else:
            yield f"{key}{': ' if keys.yaml else '='}{text(value, keys.yaml)}{said}"
    for key, value in keys.program.items():
        yield f"# in a program of your own: {key}={text(value)}" + (f": {keys.words[key]}" if key in keys.words else "")
    yield from (f"# {check}" for check in keys.checks)
    yield from (f"# not carried over: {left}" for left in keys.missing)


def text(value: object, yaml: bool = False) -> str:
    """A value as command lines and YAML write it. YAML would read no as false and 1e-06 as a text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        short = repr(value)
        return short.replace("e", ".0e") if yaml and "e" in short and "." not in short else short
    return f'"{value}"' if yaml and value in ("no", "yes", "on", "off", "NO") else str(value)
