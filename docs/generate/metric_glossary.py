"""The glossary of metrics as a page, from the meanings kept beside the code that writes them."""

from collections.abc import Mapping
from pathlib import Path

from pmdkit.observe.glossary import EVERY_TIER, LANGUAGE_MODELS, ON_REQUEST, Meaning

HEAD = """# Metrics

Every line of `metrics.jsonl` is one step. These are its columns, in all tiers the same; a column is null where it has
no meaning, such as a prediction for an objective without a closed form. Log-ratios are natural logarithms: one nat is a
factor of 2.72. How measured and predicted log-ratios are to be read together: [gauges](../use/gauges.md).

"""


def write_metrics(page: Path) -> int:
    """Write the page; returns the number of columns."""
    page.write_text(
        HEAD
        + table("In every tier", EVERY_TIER)
        + table("Language models", LANGUAGE_MODELS)
        + table("Language models, where an option asks for it", ON_REQUEST),
        encoding="utf-8",
    )
    return len(EVERY_TIER) + len(LANGUAGE_MODELS) + len(ON_REQUEST)


def table(title: str, meanings: Mapping[str, Meaning]) -> str:
    """A Markdown table."""
    rows = "".join(f"| `{name}` | {m.text} | {m.unit} | {m.look} |\n" for name, m in meanings.items())
    return f"## {title}\n\n| column | what it is | unit | what to look for |\n|---|---|---|---|\n{rows}\n"
