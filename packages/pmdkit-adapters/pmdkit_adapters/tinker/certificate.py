r"""Prove, before the first update, that a server takes the gradient that it is asked for.

A server may divide by the sum of the weights, by a length or by the number of sequences, or turn the sign; Adam hides
most of that, and such a run still looks as if it learned. The proof needs no number that the server reports. With an
eps far above the gradient, a step of Adam is one of gradient descent, $\Delta\theta = -\tfrac{lr}{eps}\,g$, and the
change of the log-probabilities shows g. So four pairs of steps must undo each other, each half of a pair asking for
the same gradient in another way, and the first must raise what it is to raise.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.errors import CheckFailed
from pmdkit.llm.engines.base import Tokens
from pmdkit_adapters.tinker.replies import WrongReply
from pmdkit_adapters.tinker.service import TrainingClient

EPS = 1e4  # of Adam: gradient norms of a few tokens are around 1 to 100
MOVES = (0.05, 0.01)  # nats that a step moves: above bfloat16's rounding, or where that is too curved, nearly linear
MOST = 2.0  # nats that a few such steps move: more is a wrong scale, whatever is left of it
AMOUNT = 10.0  # factor by which a step may move more or less than the same step moved before training
TOLERANCE = 0.2  # share of the move that may remain; the smallest fault, a mean over two sequences, leaves 0.5
RATE, TRIES = 1e-6, 12  # of gradient descent: the first rate, and how many are tried until log-probabilities move
CALLS = ("forward_backward_custom", "importance_sampling")

Ask = tuple[Sequence[int], dict[int, float]]
"A sequence, and the coefficients of some of its log-probabilities, by place, in a sum that is to rise."


@dataclass
class Witness:
    """A certified client that trains nothing else, kept so that its server can be certified again during a run.

    Attributes:
        tokens: the sequence that it was certified on.
        move, rate: size and learning rate of the steps that certified it.
    """

    client: TrainingClient
    tokens: Tokens
    move: float
    rate: float

    def fault(self) -> str | None:
        """The server's present fault, found in two tries; None if it has none."""
        for _ in range(2):
            wrong, _ = fault(self.client, self.tokens, self.move, self.rate)
            if wrong is None:
                break
        return wrong


def certify(make: Callable[[], TrainingClient], tokens: Tokens) -> tuple[Witness, list[str]]:
    """The call by which a server takes the right gradient, proved on clients that are not used for training.

    Args:
        make: makes a new client.
        tokens: at least 8, ordinary text.

    Returns:
        The client that proved it, and what is wrong with the calls before its own, one sentence each.

    Raises:
        CheckFailed: no call takes the right gradient.
    """
    found: list[str] = []
    for call in CALLS:
        for move in MOVES:  # one that passes is enough: a fault leaves the same share of a step of any size
            client = make()
            client.call = call
            client.step(learning_rate=0.0)  # SkyRL 0.4 leaves a client the gradient of one killed in its place
            try:
                wrong, rate = fault(client, tokens, move)
            except WrongReply as problem:  # a step of a wrong scale may leave weights that give no numbers
                wrong, rate = str(problem), 0.0
            if wrong is None:
                return Witness(client, tokens, move, rate), found
        found.append(f"{call} ({wrong})")
    raise CheckFailed(
        f"the server at {client.server.url} takes a wrong gradient by {' and by '.join(found)}, and nothing was "
        "trained: take another server, or another version of it"
    )


def fault(client: TrainingClient, tokens: Tokens, move: float, rate: float | None = None) -> tuple[str | None, float]:
    """Test a server's call by steps that move a log-probability by `move`: a description of its fault, or None.

    Also returns the learning rate of such a step. If it is given, a step by it must still move about as much.
    """
    long, short = list(tokens), list(tokens[: len(tokens) // 2])  # `short` begins `long`: the same gradient there
    place, other = client.logp([short])[0].argsort()[:2].tolist()  # of unlikely tokens, whose gradient is not tiny

    def step(rate: float, asked: Sequence[Ask]) -> Tensor:
        """Step up the sum of coefficients times log-probabilities; returns all log-probabilities afterwards."""

        def loss(logps: list[Tensor]) -> Tensor:
            rises = [c * logp[at] for logp, (_, of) in zip(logps, asked, strict=True) for at, c in of.items()]
            return sum((0 * logp.sum() for logp in logps), -torch.stack(rises).sum())

        client.backward([sequence for sequence, _ in asked], loss)
        client.step(learning_rate=rate * EPS, beta1=0.0, eps=EPS)
        return client.logp([long])[0]

    one: Ask = (short, {place: 1.0})
    back: Ask = (short, {place: -1.0})
    here, known, rate = client.logp([long])[0], rate, rate or RATE
    for _ in range(TRIES if known is None else 1):
        before, here = here, step(rate, [one])
        moved = furthest(before, here)
        if known is not None and not move / AMOUNT < moved < move * AMOUNT:
            return f"a step that moved {move:.2g} nats before now moves {moved:.2g}", rate
        if known is not None or moved > move:
            break
        rate *= min(max(2 * move / (moved + 1e-9), 2.0), 100.0)  # the move grows with the rate
    else:
        return "no step moves a log-probability", rate
    if not here[place] > before[place]:
        return f"a step that is to raise a log-probability moves it by {here[place] - before[place]:.2g} nats", rate
    undone: dict[str, list[list[Ask]]] = {  # steps whose gradients sum to 0
        "coefficients of both signs": [
            [(long, {place: 1.0, other: -1.0})],
            [(long, {place: -1.0})],
            [(long, {other: 1.0})],
        ],
        "a coefficient of 2": [[(short, {place: 2.0})], [back], [back]],
        "a second sequence": [[one, (long, {})], [back]],
        "a longer sequence": [[(long, {place: 1.0})], [back]],
    }
    for what, steps in undone.items():
        before, moved = here, 0.0
        for asked in steps:
            here = step(rate, asked)
            moved = max(moved, furthest(before, here))
        left = furthest(before, here)
        if not left <= TOLERANCE * moved <= TOLERANCE * MOST:
            return f"with {what}, {left:.2g} of {moved:.2g} nats are left of small steps that sum to 0", rate
    return None, rate


def furthest(one: Tensor, other: Tensor) -> float:
    """The largest difference of log-probabilities, nats; infinite if one is not a number."""
    return float(torch.nan_to_num((one - other).abs(), torch.inf).max())
