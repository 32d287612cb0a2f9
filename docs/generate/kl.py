"""The page "Which KL does your KL term have?": what `certify_kl` says of the terms of public code.

`python docs/generate/kl.py` measures, a few seconds, and writes the table of docs/use/kl.md. The terms are rewritten
from the code at the versions named; clamps of 10 nats and more, which these policies do not reach, are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pmdkit_lab.certify import certify_kl

PAGE = Path(__file__).parents[1] / "use" / "kl.md"
BEGIN, END = "<!-- terms: python docs/generate/kl.py -->\n", "<!-- end of terms -->\n"


def ratio(logp: Tensor, other: Tensor, mask: Tensor) -> Tensor:
    """[N, T] log ratios, 0 off the mask."""
    return torch.where(mask, logp - other, 0.0)


def k1(logp: Tensor, ref: Tensor, mask: Tensor) -> Tensor:
    """log pi/ref."""
    return ratio(logp, ref, mask)


def k2(logp: Tensor, ref: Tensor, mask: Tensor) -> Tensor:
    """Half of the square."""
    return ratio(logp, ref, mask) ** 2 / 2


def k3(logp: Tensor, ref: Tensor, mask: Tensor) -> Tensor:
    """e^-s - 1 + s."""
    s = ratio(logp, ref, mask)
    return torch.expm1(-s) + s


def k3_plus(logp: Tensor, ref: Tensor, mask: Tensor) -> Tensor:
    """The value of k3 and the gradient of k2."""
    square = k2(logp, ref, mask)
    return square - square.detach() + k3(logp, ref, mask).detach()


def with_score(logp: Tensor, ref: Tensor, mask: Tensor) -> Tensor:
    """k3 times exp(logp - detached logp), which is 1 and has the gradient of the draw."""
    return ratio(logp, logp.detach(), mask).exp() * k3(logp, ref, mask)


def weighted_k3(logp: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """The ratio to pi_old, with its gradient, times k3."""
    return ratio(logp, old, mask).exp() * k3(logp, ref, mask)


def capped_k3(logp: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """The same with a ratio of at most 2."""
    return ratio(logp, old, mask).exp().clamp(max=2) * k3(logp, ref, mask)


def weighted_k1(logp: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """The ratio to pi_old times log pi/ref."""
    return ratio(logp, old, mask).exp() * k1(logp, ref, mask)


def weighted_k1_of_response(logp: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """The ratio of the response times its log pi/ref."""
    return ratio(logp, old, mask).sum(1).exp() * k1(logp, ref, mask).sum(1)


def as_gain(logp: Tensor, ref: Tensor, old: Tensor, mask: Tensor) -> Tensor:
    """The log ratio as a coefficient of each token's ratio to pi_old."""
    return ratio(logp, old, mask).exp() * k1(logp, ref, mask).detach()


@dataclass(frozen=True)
class Row:
    """A KL term of a code base: where it is, with which setting, and its formula."""

    where: str
    version: str
    setting: str
    formula: str
    term: Callable[..., Tensor]


ROWS = (
    Row("TRL, GRPO", "1.16.0", "`beta`", "$k_3$", k3),
    Row("", "", "`use_bias_correction_kl`", "$\\rho\\, k_3$", weighted_k3),
    Row("verl", "0.9.1", "`low_var_kl`, the default", "$k_3$", k3),
    Row("", "", "`k3+`", "value of $k_3$, gradient of $k_2$", k3_plus),
    Row("", "", "`abs`", "$\\lvert s\\rvert$", lambda a, b, m: ratio(a, b, m).abs()),
    Row("", "", "`kl`", "$k_1$", k1),
    Row("OpenRLHF", "@3c3be62", "`--algo.kl.use_loss`, `k2`", "$k_2$", k2),
    Row("SkyRL", "@a956457", "`k3`, the default", "$k_3$", k3),
    Row("NeMo RL", "@7ea279a", "the default", "$e^{\\log\\pi - [\\log\\pi]}\\, k_3$", with_score),
    Row("", "", "`use_on_policy_kl_approximation`", "$\\rho\\, k_3$", weighted_k3),
    Row("slime", "@624b824", "`--use-kl-loss`, type `k1`, the default", "$k_1$", k1),
    Row("", "", "the same, `--use-unbiased-kl`", "$\\rho\\, k_1$", weighted_k1),
    Row("open-instruct", "@e6c3044", "2, the default", "$k_3$", k3),
    Row("", "", "3", "$\\rho\\, k_1$", weighted_k1),
    Row("Trinity-RFT", "0.6.0", "`corrected_k3`", "$\\min(\\rho, 2)\\, k_3$", capped_k3),
    Row("tiny-grpo", "@eafedd7", "", "$k_3$", k3),
    Row("minimind", "@d65ef2c", "", "$k_3$", k3),
    Row("prime-rl", "@559b447", "`ref_kl`, without its mask", "$\\rho\\, [k_1]$", as_gain),
    Row("Tinker cookbook", "@9dfcc3a", "`kl_penalty_coef`, of each token", "$\\log\\pi\\, [k_1]$",
        lambda a, b, m: torch.where(m, a, 0.0) * k1(a, b, m).detach()),
    Row("rlhf-book", "@a66b0bf", "`kl2`", "$k_2$", k2),
    Row("", "", "`kl3`, the default", "$e^s - 1 - s$", lambda a, b, m: k3(b, a, m)),
    Row("", "", "`kl1`", "$-k_1$", lambda a, b, m: -k1(a, b, m)),
    Row("reasoning-from-scratch", "@f79c9cd", "`7_5_plus_kl.py`", "$k_1$ of the response",
        lambda a, b, m: k1(a, b, m).sum(1)),
    Row("", "", "`deepseek_v32_style.py`", "$\\rho\\, k_1$ of the response", weighted_k1_of_response),
)  # fmt: skip


def short(sentence: str) -> str:
    """An outcome in the words of the table."""
    sentence = sentence.removeprefix("biased by draws from pi_old: it does not take logp_old; ")
    sentence = sentence.removeprefix("biased by draws from pi_old; ").removeprefix("estimates ")
    sentence = sentence.removeprefix("the gradient of ").replace(", token by token", "")
    sentence = sentence.replace("gradient 0: it pulls nowhere, and only adds noise", "0")
    if sentence.startswith("none of these"):
        return "none of these"
    return sentence.replace("||", "‖").replace("pi", "π")


def table() -> str:
    """What is measured, one row for each term."""
    lines = [
        "| code | version | setting | term | gradient as a loss, draws from π | draws from π_old | its value |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        found = certify_kl(row.term)
        cells = [short(found.loss), short(found.off_policy), short(found.value)]
        lines.append("| " + " | ".join([row.where, row.version, row.setting, row.formula, *cells]) + " |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table."""
    before, rest = page.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
