r"""A format reward whose pattern nearly nothing matches, and what a component that is always 0 does: nothing.

The two patterns are quoted from public code under MIT: utils/reward_funcs.py of abdo-ashraf/Gemma-3-RL-Finetuning at
23ecd0b, lines 36 and 44, and llama3_1_(8b)_grpo.py of IMJONEZZ/UnslothGRPO at d466910, line 151.
"""

import re

import torch

from pmdkit.objectives import GRPO, Groups
from pmdkit_lab.ward.replica import Replica, Rows

STRICT = r"^<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n$"
SOFT = r"<reasoning>.*?</reasoning>\s*<answer>.*?</answer>"
ONE, TWO, END = "Two and two is 4.", "Two and two.\nThat is 4.", "</reasoning>\n<answer>\n4\n</answer>"
FORMS = {
    "reasoning of two lines": f"<reasoning>\n{TWO}\n{END}\n",
    "ends with the closing tag": f"<reasoning>\n{ONE}\n{END}",
    "all on one line": f"<reasoning>{ONE}</reasoning><answer>4</answer>",
    "one line of reasoning, and a last line break": f"<reasoning>\n{ONE}\n{END}\n",
    "no tags": ONE,
}
PATTERNS = {
    "strict, as it is": STRICT,
    "strict, cured": "(?s)" + STRICT.replace(r"\n$", r"\n?$"),
    "soft, as it is": SOFT,
    "soft, cured": "(?s)" + SOFT,
}


def matched(pattern: str) -> list[bool]:
    """Which forms earn the reward, by `re.match` as in the source."""
    return [re.match(pattern, text) is not None for text in FORMS.values()]


def share_of_the_form(paid: list[bool], steps: int = 60) -> list[float]:
    """Share of responses with tags on lines of their own along exact steps; each form is right or wrong.

    A right answer earns 2 and a form that matches 0.5, as in the sources. The form that matches as written is left
    out, since the patients' logs say that no response had it.
    """
    used = [i for i, name in enumerate(FORMS) if not name.startswith("one line")]
    form = torch.tensor([0.5 * paid[i] for i in used], dtype=torch.float64).repeat(2)
    reward = form + torch.tensor([2.0, 0.0], dtype=torch.float64).repeat_interleave(len(used))
    start = torch.tensor([0.2, 0.8], dtype=torch.float64).repeat_interleave(len(used)) / len(used)
    logits, shares = start.log(), []
    for _ in range(steps + 1):
        chance = logits.softmax(0)
        shares.append(float(chance.view(2, -1)[:, :2].sum()))
        groups = Groups(reward[None], chance[None], sampled=False)
        logits = logits + 0.2 * GRPO(std="none").advantage(groups)[0]  # a step of mirror descent: z += A / tau
    return shares


def run() -> Replica:
    """Five forms under the two patterns as they are, and with DOTALL and an optional last line break."""
    found = {name: matched(pattern) for name, pattern in PATTERNS.items()}
    rows: Rows = {form: ["yes" if hits[i] else "no" for hits in found.values()] for i, form in enumerate(FORMS)}
    return Replica(
        ["response", *found],
        rows,
        {
            "tags on lines of their own": {
                name: share_of_the_form(hits) for name, hits in found.items() if "strict" in name
            }
        },
    )
