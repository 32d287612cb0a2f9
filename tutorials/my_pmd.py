# Your own program: policy mirror descent, written function by function.
#
# Each function is an exercise of the lesson in its tag. Fill them in as you go. With
# `pmdkit learn check my_pmd.py` you check what you have. When the first seven are
# right, run `python my_pmd.py`: a table learns, and its curve is drawn beside that of
# pmdkit. When all ten are, a transformer learns to add.

# %%
import numpy as np
import torch


# %% tags=["exercise", "101.0"]
def log_softmax(logits):
    """Log-probabilities, nats, of logits [..., A]; the last axis is the actions."""
    return ...


# %% tags=["exercise", "102.0"]
def log_ratios(logits, logits_old, actions):
    """log pi / pi_old, nats, of drawn actions [G]; both logits are [A]."""
    return ...


# %% tags=["exercise", "103.0"]
def pmd_mean_loss(log_ratio, advantage, tau):
    """The loss of G draws, one number; log-ratios and advantages are [G]."""
    return ...


# %% tags=["exercise", "104.0"]
def loss_gradient(logits, logits_old, actions, advantage, tau):
    """Gradient [A] of the loss in `logits` [A]; actions and advantages are [G]."""
    return ...


# %% tags=["exercise", "105.0"]
def draw_actions(logits, uniform):
    """The actions, integers [G], that the numbers `uniform` [G] draw from logits."""
    return ...


# %% tags=["exercise", "105.1"]
def loo_advantage(reward):
    """Leave-one-out advantages, [P, n], of P groups of n rewards, [P, n]."""
    return ...


# %% tags=["exercise", "107.0"]
def train_table(logits, reward, uniform, tau, lr, passes):
    """Expected reward [S] after each step; logits, reward [A]; uniform [S, G]."""
    return ...


# %%
HEADS = 2


def normed(h, gain):
    """[..., D] divided by its root mean square, times the gains [D]."""
    return h / (h.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain


def turned(x):
    """At position s of [..., S, D], pair i is turned by s * 10000^(-2i / D)."""
    speed = 10000.0 ** -(torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angle = torch.outer(torch.arange(x.shape[-2]), speed)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(pairs * turn).flatten(-2)


# %% tags=["exercise", "201.0"]
def log_policy(weights, prompts):
    """Log-probabilities, [P, V] nats, of each answer to prompts of tokens, [P, S]."""
    return ...


# %% tags=["exercise", "202.0"]
def sequence_loss(logp, logp_old, mask, reward, tau):
    """The loss, one number, of responses [P, G, T] with rewards [P, G]; all tensors."""
    return ...


# %% tags=["exercise", "203.0"]
def train_policy(weights, prompts, uniform, tau, lr, ministeps):
    """Pass rates [S] of the batches; tensors prompts [S, P, 2], uniform [S, P, G]."""
    return ...


# %%
def table(steps=120, tau=0.05, lr=1.0, passes=2):
    """Both curves on a table: one of a hundred arms is good, the draws are the same."""
    import pmdkit
    from pmdkit.randomness import derive, generator

    seeds = [derive(0, "rollout", step) for step in range(1, steps + 1)]
    uniform = np.array([generator(seed, "arms").random(16) for seed in seeds])
    mine = train_table(np.zeros(100), np.eye(100)[0], uniform, tau, lr, passes)

    options = {"schedule.group": 16, "schedule.update": "gradient", "schedule.lr": lr}
    options |= {"schedule.optimizer": "sgd", "schedule.passes": passes}
    objective = pmdkit.objectives.PMDMean(tau=tau)
    run = pmdkit.train(
        objective, "bandit", "needle", steps=steps, seed=0, options=options
    )
    # a row holds the exact probability before its step
    theirs = [row["gauge"][0]["pass_rate"] for row in run.metrics][1:]
    print(f"table: the good arm ends with probability {mine[-1]:.4f}")
    print(f"differs from pmdkit by {np.abs(mine[:-1] - theirs).max():.0e} at most")
    return mine[:-1], theirs


# %%
def transformer(steps=101, tau=0.05, lr=1e-3, ministeps=2, prompts=128, group=16):
    """Both curves on the modular sum: same first weights, prompts and numbers."""
    import pmdkit
    from pmdkit.envs.tokens import TokenTask, make_tokens
    from pmdkit.randomness import derive
    from pmdkit.specs import ToySpec
    from pmdkit.toy.learner import build_model
    from pmdkit.toy.sampling import uniforms

    spec = ToySpec.read("modular-sum")
    task = TokenTask(make_tokens(spec.env), prompts, seed=0)
    model = build_model(spec.model, task.problem, derive(0, "model")).state_dict()
    parts = "norm_attention", "qkv", "mix", "norm_feed", "gate_up", "down"
    layers = [f"blocks.{i}.{part}.weight" for i in (0, 1) for part in parts]
    names = ["embedding.weight", *layers, "norm.weight", "head.weight"]
    asked = torch.stack([task.prompts(step) for step in range(1, steps + 1)])
    seeds = [derive(0, "rollout", step) for step in range(1, steps + 1)]
    numbers = [
        uniforms(seed, prompts * group, 1).view(prompts, group) for seed in seeds
    ]
    weights = [model[name] for name in names]
    mine = train_policy(weights, asked, torch.stack(numbers), tau, lr, ministeps)

    shape = {"prompts": prompts, "ministeps": ministeps, "group": group}
    objective = pmdkit.objectives.PMDMean(tau=tau)
    options = {"steps": steps, "seed": 0, "options": {"schedule.lr": lr}}
    run = pmdkit.train(objective, "toy", "modular-sum", **shape, **options)
    theirs = [row["pass_rate"] for row in run.metrics]  # of the draws
    print(f"transformer: right with probability {mine[-1]:.4f}")
    print(f"differs from pmdkit's draws by {np.abs(mine - theirs).max():.0e} at most")
    return mine, theirs


# %%
def main():
    """Draw what is filled in."""
    import inspect

    import matplotlib.pyplot as plt

    empty = inspect.getsource(train_policy).rstrip().endswith("return ...")
    parts = [table] if empty else [table, transformer]
    figure, axes = plt.subplots(1, len(parts), squeeze=False)
    for ax, part in zip(axes[0], parts, strict=True):
        mine, theirs = part()
        ax.plot(theirs, linewidth=5, alpha=0.3, label="pmdkit")
        ax.plot(mine, label="my_pmd.py")
        ax.set(xlabel="step", ylabel="pass rate", title=part.__name__)
        ax.legend()
    figure.savefig("my_pmd.png")


# %% tags=["main"]
if __name__ == "__main__":
    main()
