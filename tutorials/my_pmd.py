# Your own program: policy mirror descent on a table, written function by function.
#
# Each function is an exercise of the lesson in its tag. Fill them in as you go. With
# `pmdkit learn check my_pmd.py` you check what you have. When all seven are right, run
# `python my_pmd.py`: your policy learns, and its curve is drawn beside that of pmdkit.

# %%
import numpy as np


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
def main(steps=120, tau=0.05, lr=1.0, passes=2):
    """One of a hundred arms is good. Both programs see the same random numbers."""
    import matplotlib.pyplot as plt

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

    print(f"the good arm ends with probability {mine[-1]:.4f}")
    print(
        f"up to there pmdkit differs by {np.abs(mine[:-1] - theirs).max():.0e} at most"
    )
    figure, axes = plt.subplots()
    axes.plot(range(1, steps), theirs, linewidth=5, alpha=0.3, label="pmdkit")
    axes.plot(range(1, steps + 1), mine, label="my_pmd.py")
    axes.set(xlabel="step", ylabel="probability of the good arm")
    axes.legend()
    figure.savefig("my_pmd.png")


# %% tags=["main"]
if __name__ == "__main__":
    main()
