"""Policy mirror descent in one file: a small transformer learns to add modulo ten, from rewards alone.

`python pmd.py` takes the share of right answers from 0.09, which is chance, to 0.99: 100 steps, seconds on a laptop.
Read it from top to bottom. Every part computes what pmdkit computes, and a test holds the two together to 1e-12.
Letters: P prompts, G answers to each, S tokens in a prompt, V in the vocabulary, D width. Logarithms are in nats.
"""

import torch
from torch import nn

M = 10  # the task: sums modulo M. The tokens are the M numbers and an end token, which is always wrong: V = M + 1
P, G, STEPS, MINISTEPS = 128, 16, 100, 2  # a step draws 128 * 16 answers; each half of the prompts makes one update
TAU = 0.05  # temperature, in units of the reward: the price of a nat of movement away from the old policy
LR, BETA1, BETA2, DECAY, CLIP = 1e-3, 0.9, 0.999, 0.01, 1.0
D, LAYERS, HEADS, INNER, FLOOR = 64, 2, 2, 168, 1e-6

# Rotary positions: at position s the pair i of a head's coordinates is turned by s * 10000^(-2i / head's width).
ANGLE = torch.outer(torch.arange(2.0), 10000.0 ** -(torch.arange(0, D // HEADS, 2) / (D // HEADS)))
TURN = torch.polar(torch.ones_like(ANGLE), ANGLE)[:, None]  # complex numbers of modulus one


class Block(nn.Module):
    """Causal attention, then a gated feed-forward layer (Llama: RMSNorm before each, SwiGLU, no biases)."""

    def __init__(self):
        super().__init__()
        self.norm_attention, self.norm_feed = nn.RMSNorm(D, eps=FLOOR), nn.RMSNorm(D, eps=FLOOR)
        self.qkv, self.mix = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.gate_up, self.down = nn.Linear(D, 2 * INNER, bias=False), nn.Linear(INNER, D, bias=False)

    def forward(self, h):  # [P, S, D] to [P, S, D]
        q, k, v = self.qkv(self.norm_attention(h)).unflatten(-1, (3, HEADS, -1)).unbind(2)
        q, k = (torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * TURN).flatten(3) for x in (q, k))
        seen = nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True)
        h = h + self.mix(seen.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm_feed(h)).chunk(2, -1)
        return h + self.down(nn.functional.silu(gate) * up)


class Policy(nn.Module):
    """The policy pi: log-probabilities of every answer to a prompt."""

    def __init__(self, seed):
        super().__init__()
        self.embedding, self.blocks = nn.Embedding(M + 1, D), nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(D, eps=FLOOR), nn.Linear(D, M + 1, bias=False)
        rng = torch.Generator().manual_seed(seed)
        gain = {"mix": (2 * LAYERS) ** -0.5, "down": (2 * LAYERS) ** -0.5, "head": 0.1}  # a nearly uniform first policy
        for name, w in self.named_parameters():
            if w.ndim == 2:
                w.data = torch.randn(w.shape, generator=rng) * gain.get(name.split(".")[-2], 1) * w.shape[1] ** -0.5

    def forward(self, prompts):  # [P, S] to [P, V]
        h = self.embedding(prompts)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h)[:, -1]).log_softmax(-1)


def reward(prompts, answers):
    """[P, 2] and [P, G] to [P, G]: 1 if right, else 0. The sum is all that is ever said about the task."""
    return (answers == prompts.sum(1, keepdim=True) % M).double()


@torch.no_grad()
def rollout(policy, prompts, uniform):
    """The policy of this moment, pi_old, answers each prompt G times: answers and log pi_old of each, [P, G]."""
    log_pi = policy(prompts)
    cdf = log_pi.double().exp().cumsum(-1)
    answers = torch.searchsorted(cdf / cdf[:, -1:], uniform, right=True)  # uniform numbers in [0, 1) make the draws
    return answers, log_pi.gather(1, answers)


def advantages(r):
    """[P, G] to [P, G]: how much better an answer is than its peers, the other answers to its prompt."""
    return r - (r.sum(1, keepdim=True) - r) / (r.shape[1] - 1)


def pmd_mean(logp, logp_old, advantage):
    """The loss of PMD-mean: fit TAU times the log-ratio to the advantage, by least squares."""
    log_ratio = (logp - logp_old).double()
    return ((advantage - TAU * log_ratio) ** 2 / (2 * TAU)).mean()


class AdamW:
    """A step is the mean gradient over the root of the mean square: every weight moves by up to about LR."""

    def __init__(self, weights):
        self.weights, self.t = list(weights), 0
        self.mean, self.square = ([torch.zeros_like(w) for w in self.weights] for _ in range(2))

    @torch.no_grad()
    def step(self):
        """Clip the gradient, then take the step. Both means start at 0: 1 - beta^t is the weight gathered so far."""
        nn.utils.clip_grad_norm_(self.weights, CLIP)
        self.t += 1
        for w, mean, square in zip(self.weights, self.mean, self.square, strict=True):
            mean.lerp_(w.grad, 1 - BETA1)
            square.lerp_(w.grad**2, 1 - BETA2)
            root = (square / (1 - BETA2**self.t)).sqrt() + 1e-8
            w.mul_(1 - LR * DECAY).sub_(LR * (mean / (1 - BETA1**self.t)) / root)
            w.grad = None


def pass_rate(policy):
    """The probability of the right answer, a mean over all M * M prompts: exact, nothing is drawn."""
    prompts = torch.cartesian_prod(torch.arange(M), torch.arange(M))
    return policy(prompts).double().exp().gather(1, prompts.sum(1, keepdim=True) % M).mean().item()


def gauges(policy, prompts, answers, logp_old, r):
    """Mean log-ratios of wrong and right answers: of the step as taken, and of the exact step on the same groups."""
    change, p = (policy(prompts).gather(1, answers) - logp_old).double(), r.mean(1)
    change, r, p = (x[(p > 0) & (p < 1)] for x in (change, r, p))
    taken = [(those * change).sum(1) / those.sum(1) for those in (1 - r, r)]
    return [x.mean().item() for x in (*taken, *theorem_1(p))]


def theorem_1(p):
    """Log-ratios u at the minimum of the loss: u + x e^u = (r - p) / TAU, with the one x for which E e^u = 1."""
    low, high = torch.full_like(p, -1 / TAU), torch.zeros_like(p)
    for _ in range(64):  # bisection for u of the wrong
        wrong = (low + high) / 2
        right = ((1 - (1 - p) * wrong.exp()) / p).log()  # from E e^u = 1; the two equations then agree on x
        too_low = -p / TAU - wrong > ((1 - p) / TAU - right) * (wrong - right).exp()
        low, high = torch.where(too_low, wrong, low), torch.where(too_low, high, wrong)
    return wrong, right


def train(seed=0):
    """Answer, compare with the peers, update twice. The second update is stale: the policy has moved by the first."""
    rng, policy = torch.Generator().manual_seed(seed), Policy(seed)
    optimizer = AdamW(policy.parameters())
    print("step", "passed", "wrong", "right", "exact: wrong, right", sep="\t")
    for step in range(1, STEPS + 1):
        prompts = torch.randint(M, (P, 2), generator=rng)
        answers, logp_old = rollout(policy, prompts, torch.rand(P, G, generator=rng, dtype=torch.float64))
        r = reward(prompts, answers)
        for part in torch.arange(P).chunk(MINISTEPS):
            logp = policy(prompts[part]).gather(1, answers[part])
            pmd_mean(logp, logp_old[part], advantages(r)[part]).backward()
            optimizer.step()
        if step % 10 == 0:
            row = pass_rate(policy), *gauges(policy, prompts, answers, logp_old, r)
            print(step, *(f"{x:.3f}" for x in row), sep="\t")
    return policy


if __name__ == "__main__":
    train()
