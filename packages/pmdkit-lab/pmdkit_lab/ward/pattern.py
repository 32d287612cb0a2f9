r"""A format reward whose pattern nearly nothing matches, and what a component that is always 0 does: nothing.

The two patterns are quoted from public code under MIT: utils/reward_funcs.py of abdo-ashraf/Gemma-3-RL-Finetuning at
23ecd0b, lines 36 and 44, and llama3_1_(8b)_grpo.py of IMJONEZZ/UnslothGRPO at d466910, line 151.
"""

import re

import torch

from pmdkit.objectives import GRPO, Groups
from pmdkit_lab.ward.replica import Panel, Replica

STRICT = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
SOFT = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
FORMS = {
    "reasoning of two lines": "<reasoning>\nTwo and two.\nThat is 4.\n</reasoning>\n<answer>\n4\n</answer>\n",
    "ends with the closing tag": "<reasoning>\nTwo and two is 4.\n</reasoning>\n<answer>\n4\n</answer>",
    "all on one line": "<reasoning>Two and two is 4.</reasoning><answer>4</answer>",
    "reasoning of one line, and a last line break": (
        "<reasoning>\nTwo and two is 4.\n</reasoning>\n<answer>\n4\n</answer>\n"
    ),
    "no tags": "Two and two is 4.",
}
CURES = {
    "strict": (STRICT, re.compile(STRICT.replace(r"\n$", r"\n?$"), re.DOTALL)),
    "soft": (SOFT, re.compile(SOFT, re.DOTALL)),
}


def matched(pattern: str | re.Pattern[str]) -> list[bool]:
    """Which forms earn the reward, by `re.match` as in the source."""
    return [re.match(pattern, text) is not None for text in FORMS.values()]


def share_of_the_form(paid: list[bool], steps: int = 60) -> list[float]:
    """Share of "reasoning of two lines" along exact steps of the policy gradient; each form is right or wrong.

    A right answer earns 2 and a form that matches 0.5, as in the sources. The form that matches as written is left
    out, since the patients' logs say that no response had it.
    """
    used = [i for i, name in enumerate(FORMS) if not name.startswith("reasoning of one line")]
    form = torch.tensor([0.5 * paid[i] for i in used], dtype=torch.float64).repeat(2)
    reward = form + torch.tensor([2.0, 0.0], dtype=torch.float64).repeat_interleave(len(used))
    start = torch.tensor([0.2, 0.8], dtype=torch.float64).repeat_interleave(len(used)) / len(used)
    logits, shares = start.log(), []
    for _ in range(steps + 1):
        chance = logits.softmax(0)
        shares.append(float(chance[0] + chance[len(used)]))
        groups = Groups(reward[None], chance[None], sampled=False)
        logits = logits + 0.2 * GRPO(std="none").advantage(groups)[0]  # a step of mirror descent: z += A / tau
    return shares


def run() -> Replica:
    """Five forms under the two patterns as they are, and with DOTALL and an optional last line break."""
    names = [f"{name}, {how}" for name in CURES for how in ("as it is", "cured")]
    columns = [matched(pattern) for pair in CURES.values() for pattern in pair]
    rows = [[form, *("yes" if column[i] else "no" for column in columns)] for i, form in enumerate(FORMS)]
    lines = {name: share_of_the_form(column) for name, column in zip(names[:2], columns[:2], strict=True)}
    return Replica(
        ["response", *names],
        rows,
        "step",
        range(61),
        [Panel("share of the form", lines, level=0.25)],
        "The share of responses with reasoning of two lines stays at a quarter under the pattern as it is, and rises to "
        "one under the cured pattern.",
    )
