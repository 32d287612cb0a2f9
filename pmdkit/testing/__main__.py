"""`python -m pmdkit.testing my.py:MyLoss tau=0.1`: the contract suite of an objective, one line per check."""

import sys

from pmdkit.errors import CheckFailed, UsageError
from pmdkit.objectives import load_objective
from pmdkit.specs.toml import parse_value
from pmdkit.testing import check_objective


def main(arguments: list[str]) -> int:
    """Print the verdict of each check; returns 0 when done, 2 for wrong usage, 4 if a check failed."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(f"usage: {__doc__}")
        return 0 if arguments else UsageError.exit_code
    try:
        for check, verdict in check_objective(load_objective(arguments[0], **options(arguments[1:]))).items():
            print(f"{check:16} {verdict}")
    except (ValueError, AssertionError) as error:
        print(f"pmdkit: error: {error}", file=sys.stderr)
        return UsageError.exit_code if isinstance(error, ValueError) else CheckFailed.exit_code
    return 0


def options(words: list[str]) -> dict[str, object]:
    """`tau=0.1 norm=none` as keyword arguments; a value is read as by `--set`: TOML, else plain text."""
    found: dict[str, object] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"'{word}' is not an option; expected key=value, such as tau=0.1")
        found[key] = parse_value(value)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
