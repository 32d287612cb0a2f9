"""Which KL divergence does a KL term have? Its expected gradient and its expected value, by enumeration.

A term that averages to KL(pi || ref) need not have its gradient: the draws depend on the policy too, and a loss that is
averaged over them does not know. Here the policies are small and random, every response is enumerated, and so the
expected gradient is exact.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.errors import UsageError

KLTerm = Callable[..., Tensor]
"Maps logp, logp_ref, [logp_old,] and mask, each [N, T], to the term per token [N, T], per response [N], or one number."

REL_TOL = 1e-6  # float32 leaves 3e-7
VOCABULARY, TOKENS = 3, 3  # 27 responses; three tokens tell a mean over them (1/3) from a factor of 1/2
NO_GRADIENT = 1e-9  # nats, of expected gradients of size 1


@dataclass(frozen=True)
class Policies:
    """A policy, the one that drew, and a reference, each with logits [prefix, token] for every prefix."""

    logits: Tensor
    logits_old: Tensor
    logits_ref: Tensor

    def logp(self, logits: Tensor) -> Tensor:
        """[responses, T] log-probabilities of the tokens of every response."""
        return logits.log_softmax(1)[PREFIX, RESPONSES]


RESPONSES = torch.cartesian_prod(*[torch.arange(VOCABULARY)] * TOKENS)
"[V^T, T] every response."
PREFIX = torch.stack(
    [
        sum(
            (RESPONSES[:, u] * VOCABULARY ** (t - 1 - u) for u in range(t)),
            torch.zeros(len(RESPONSES), dtype=torch.long),
        )
        + sum(VOCABULARY**u for u in range(t))
        for t in range(TOKENS)
    ],
    1,
)
"[V^T, T] the row of the logits for each token: one for each prefix."
PREFIXES = sum(VOCABULARY**t for t in range(TOKENS))


def policies(count: int = 3) -> list[Policies]:
    """Random policies, float64; ratios of a token within e^-2.2 and e^2.2, where no usual clamp of a KL term acts."""
    generator = torch.Generator().manual_seed(11)
    shape = (count, 3, PREFIXES, VOCABULARY)
    return [Policies(*each) for each in torch.randn(shape, generator=generator, dtype=torch.float64) / 2]


def divergences(logp: Tensor, ref: Tensor, old: Tensor) -> dict[str, Tensor]:
    """The divergences that a term may have, with a gradient; for whole responses, and token by token.

    Token by token, the prefixes are drawn from pi_old and have no gradient: the sum over the tokens of the divergence
    of the next token.
    """
    s, pi = logp.sum(1) - ref.sum(1), logp.sum(1).exp()
    reference = ref.sum(1).exp()
    whole = {
        "KL(pi||ref)": (pi * s).sum(),
        "KL(ref||pi)": (-reference * s).sum(),
        "1/2 chi2(pi||ref)": ((pi - reference) ** 2 / reference).sum() / 2,
        "1/2 chi2(ref||pi)": ((pi - reference) ** 2 / pi).sum() / 2,
        "the total variation": (pi - reference).abs().sum() / 2,
    }
    # the probability of a prefix under pi_old, then the next token enumerated: sum over responses of
    # pi_old(prefix) * f(token | prefix) / V^(tokens after it)
    before = torch.cat([torch.zeros_like(old[:, :1]), old.cumsum(1)[:, :-1]], 1).exp()
    weight = before / VOCABULARY ** (TOKENS - 1 - torch.arange(TOKENS)).double()
    p, q, d = logp.exp(), ref.exp(), logp - ref
    steps = {
        "KL(pi||ref)": p * d,
        "KL(ref||pi)": -q * d,
        "1/2 chi2(pi||ref)": (p - q) ** 2 / q / 2,
        "1/2 chi2(ref||pi)": (p - q) ** 2 / p / 2,
        "the total variation": (p - q).abs() / 2,
    }
    by_token = {f"{name}, token by token": (weight * each).sum() for name, each in steps.items()}
    return whole | by_token


@dataclass(frozen=True)
class KLVerdict:
    """What a KL term is, in words for each use.

    Attributes:
        loss: its gradient as a loss, with draws from pi.
        off_policy: the same with draws from pi_old, which is another policy.
        reward: its gradient as a penalty in the reward: the detached term times the gradient of log pi(y).
        value: what its sum over a response estimates, with draws from pi.
        right: whether the gradient as a loss, with draws from pi, is that of a divergence with a positive factor.
    """

    loss: str
    off_policy: str
    reward: str
    value: str
    right: bool

    def sentence(self) -> str:
        """The verdict, one line for each use."""
        return (
            f"as a loss, draws from pi: {self.loss}\nas a loss, draws from pi_old: {self.off_policy}\n"
            f"in the reward, draws from pi: {self.reward}\nits value, draws from pi: {self.value}"
        )


def certify_kl(term: KLTerm) -> KLVerdict:
    """Name the divergence whose gradient a KL term has.

    Args:
        term: see `KLTerm`; it takes logp_old if it has four parameters.

    Raises:
        UsageError: the term has another shape, or it or its gradient is not finite.
    """
    takes_old = len([p for p in inspect.signature(term).parameters.values() if p.default is p.empty]) >= 4
    problems = policies()
    on_policy = [evaluate(term, takes_old, each, each.logits) for each in problems]
    off_policy = [evaluate(term, takes_old, each, each.logits_old) for each in problems]
    loss, right = name_gradient([x.loss for x in on_policy], [x.known for x in on_policy])
    off, _ = name_gradient([x.loss for x in off_policy], [x.known for x in off_policy])
    if right and off != loss:
        off = f"biased by draws from pi_old{'' if takes_old else ': it does not take logp_old'}; {off}"
    reward, _ = name_gradient([x.reward for x in on_policy], [x.known for x in on_policy])
    return KLVerdict(loss, off, reward, name_value(on_policy), right)


@dataclass(frozen=True)
class Enumerated:
    """Expected gradients by the logits, expected value, and every divergence with its gradient."""

    loss: Tensor
    reward: Tensor
    value: float
    known: dict[str, tuple[float, Tensor]]


def evaluate(term: KLTerm, takes_old: bool, problem: Policies, logits_old: Tensor) -> Enumerated:
    """The term of every response, weighted by its probability under the policy that drew."""
    logits = problem.logits.clone().requires_grad_()
    logp, old, ref = problem.logp(logits), problem.logp(logits_old), problem.logp(problem.logits_ref)
    term_of = per_response(term, takes_old, logp, ref, old)
    drawn = old.sum(1).exp()
    gradient = torch.zeros_like(logits)
    if term_of.requires_grad:
        (gradient,) = torch.autograd.grad((drawn * term_of).sum(), logits, retain_graph=True)
    if not bool(gradient.isfinite().all()):
        raise UsageError(
            "the gradient of the KL term has NaN or infinite entries; expected finite numbers: select by `where` "
            "before a sqrt or log of 0"
        )
    (reward,) = torch.autograd.grad((drawn * term_of.detach() * logp.sum(1)).sum(), logits, retain_graph=True)
    known = {}
    for name, value in divergences(logp, ref, old).items():
        (slope,) = torch.autograd.grad(value, logits, retain_graph=True)
        known[name] = float(value.detach()), slope
    return Enumerated(gradient, reward, float((drawn * term_of.detach()).sum()), known)


def per_response(term: KLTerm, takes_old: bool, logp: Tensor, ref: Tensor, old: Tensor) -> Tensor:
    """[responses] the term of each response, asked alone, with a column of padding."""
    rows = []
    pad = torch.zeros(1, 1, dtype=logp.dtype)
    mask = torch.tensor([[True] * TOKENS + [False]])
    for n in range(len(logp)):
        a, b, c = (torch.cat([x[n : n + 1], pad], 1) for x in (logp, ref, old))
        value = term(a, b, c, mask) if takes_old else term(a, b, mask)
        if not isinstance(value, Tensor) or value.shape not in ((), (1,), mask.shape):
            raise UsageError(
                f"the KL term returned {getattr(value, 'shape', value)!r:.80} for logp [1, {TOKENS + 1}]; expected "
                f"[1, {TOKENS + 1}] per token, [1] per response, or one number, from (logp, logp_ref, [logp_old,] mask)"
            )
        row = torch.where(mask, value, 0.0).sum() if value.shape == mask.shape else value.sum()
        if not bool(row.isfinite()):
            raise UsageError(f"the KL term is {float(row.detach())}; expected a finite number of nats")
        rows.append(row.double())
    return torch.stack(rows)


def name_gradient(found: list[Tensor], known: list[dict[str, tuple[float, Tensor]]]) -> tuple[str, bool]:
    """The divergence with this gradient on every problem, up to one factor; and whether the factor is positive."""
    target = torch.cat([x.flatten() for x in found])
    if float(target.norm()) < NO_GRADIENT:
        return "gradient 0: it pulls nowhere, and only adds noise", False
    nearest = ("", float("inf"))
    for name in known[0]:
        slope = torch.cat([each[name][1].flatten() for each in known])
        constant = float(slope @ target / (slope @ slope))
        error = float((target - constant * slope).norm() / target.norm())
        if error < REL_TOL:
            return f"the gradient of {name}{factor_in_words(constant)}", constant > 0
        nearest = min(nearest, (name, error), key=lambda each: each[1])
    return f"the gradient of none of these; nearest is {nearest[0]}, {nearest[1]:.1g} off", False


def factor_in_words(constant: float) -> str:
    """A factor in front of a divergence."""
    sign = ", sign reversed" if constant < 0 else ""
    size = abs(constant)
    named = {1.0: "", 0.5: ", half of it", 2.0: ", twice", 1 / TOKENS: ", divided by the tokens of the response"}
    size_words = next(
        (words for value, words in named.items() if abs(size / value - 1) < REL_TOL), f", times {size:.4g}"
    )
    return size_words + sign


def name_value(found: list[Enumerated]) -> str:
    """The divergence that the term estimates without bias, or none."""
    values = torch.tensor([each.value for each in found], dtype=torch.float64)
    if float(values.abs().max()) < NO_GRADIENT:
        return "0"
    known = {
        name: torch.tensor([each.known[name][0] for each in found], dtype=torch.float64) for name in found[0].known
    }
    for end in ("", ", token by token"):
        known[f"chi2(pi||ref) - KL(pi||ref){end}"] = 2 * known[f"1/2 chi2(pi||ref){end}"] - known[f"KL(pi||ref){end}"]
    for name, exact in known.items():
        constant = float(exact @ values / (exact @ exact))
        if float((values - constant * exact).norm() / values.norm()) < REL_TOL:
            return f"estimates {name}{factor_in_words(constant)}"
    low, high = float((values / known["KL(pi||ref)"]).min()), float((values / known["KL(pi||ref)"]).max())
    return f"estimates none of these; it is {low:.2g} to {high:.2g} times KL(pi||ref)"
