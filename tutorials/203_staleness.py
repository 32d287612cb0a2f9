# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 203: What does staleness cost, and what does it buy?
#
# * You learn: why the temperature matters only when rollouts are stale, which objective
#   bears staleness, and what one gains in time.
# * You need: lessons 102, 103 and 201.
# * Time: 20 minutes to read, 40 seconds to run, 10 minutes for the exercise.
#
# Drawing responses is the expensive part of post-training, and large batches draw
# better. So one draws many responses at once and makes several updates with them,
# *ministeps*. From the second on, the policy is no longer the one that drew: the
# rollouts are stale. With 16 ministeps the last update is 15 updates behind.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import torch

from pmdkit import theory, train
from pmdkit.figures.style import shades, style
from pmdkit.objectives import Groups, PMDMean, PMDPart

style()
folder = tempfile.mkdtemp()  # where the runs are kept
no_checkpoints = {"run.checkpoint_every": 1000, "model.heads": 4}  # but the last

# %% [markdown]
# ## Predict
#
# The modular sum of lesson 201, with 16 draws per prompt. Every run makes 192 updates
# of 16 prompts each: the same number of prompts, draws and updates. Only the staleness
# differs. With 1 ministep there are 192 rollout batches of 16 prompts, with 64
# ministeps there are 3 of 1024.
#
# * Does a smaller `tau` move the policy farther when there is one ministep?
# * PMD-mean and PMD-part, at `tau = 0.05`: which of them suffers more from staleness?
# * How much faster is a run with 64 ministeps?
#
# ## Run
#
# The first question has an exact answer. Two runs with temperatures 40 times apart, all
# other options equal, and then all weights compared, bit by bit.


# %%
def go(objective, tau, ministeps, seed, updates=192, **more):
    """A run of so many updates, 16 prompts each."""
    return train(
        objective,
        backend="toy",
        env="modular-sum",
        tau=tau,
        ministeps=ministeps,
        prompts=16 * ministeps,
        steps=updates // ministeps,
        group=16,
        seed=seed,
        options=no_checkpoints,
        out=tempfile.mkdtemp(dir=folder),
        **more,
    )


def farthest(one, other):
    """Largest difference of any weight of two trained models."""
    pairs = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    with torch.no_grad():
        return max((a - b).abs().max().item() for a, b in pairs)


cases = {
    "PMD-mean, 1 ministep": ("pmd-mean", {"ministeps": 1}),
    "PMD-mean, 1 ministep, 2 passes": ("pmd-mean", {"ministeps": 1, "passes": 2}),
    "PMD-mean, 2 ministeps": ("pmd-mean", {"ministeps": 2}),
    "PMD-part, 1 ministep": ("pmd-part", {"ministeps": 1}),
}
lines = []
for name, (objective, shape) in cases.items():
    pair = [go(objective, tau, seed=0, updates=32, **shape) for tau in (0.05, 2.0)]
    first = [run.metrics[0]["loss"] for run in pair]
    told = "first losses {:.3f} and {:.3f}".format(*first)
    lines.append(f"{name:31} weights differ by {farthest(*pair):6.3g}, {told}")
print("\n".join(lines))

# %% [markdown]
# With one ministep the two PMD-mean runs end on the *same weights*, to the last bit,
# though their losses differ by a factor of 40. A second pass over the batch, a second
# ministep, or PMD-part instead, and `tau` matters.
#
# What exactly is equal? At $\pi = \pi_{old}$ the log-ratio $s$ is 0, and the derivative
# of $\frac{1}{2\tau}(\Delta - \tau s)^2$ by $s$ is $-\Delta$: the policy gradient, with
# no `tau` in it. So the gradient of the weights is the same, and with it whatever an
# optimizer does: the clipping of its norm, the step of Adam, the decay of the weights.
# The loss itself is not: at $s = 0$ it is $\Delta^2 / 2\tau$. PMD-part is not equal,
# because its advantage $r - \tau \log Z$ holds `tau` itself. The bits are equal here
# since the network gives its own draws the same log-probabilities when it is asked
# again. Where a trainer and an engine round differently, $s$ is a rounding error
# instead of 0, and the weights are equal up to that.
#
# Now the comparison: four degrees of staleness, three objectives, three seeds.

# %%
staleness, seeds = (1, 4, 16, 64), (0, 1, 2)
methods = {
    "PMD-mean, tau = 0.05": ("pmd-mean", 0.05),
    "PMD-part, tau = 0.05": ("pmd-part", 0.05),
    "PMD-part, tau = 1": ("pmd-part", 1.0),
}
runs = {
    (name, count): [go(objective, tau, count, seed) for seed in seeds]
    for name, (objective, tau) in methods.items()
    for count in staleness
}

print("pass rate after 3072 prompts, seeds 0, 1, 2")
for name in methods:
    for count in staleness:
        rates = [run.summary["pass_rate_last"] for run in runs[name, count]]
        label = f"{name}, ministeps {count}:"
        print(f"{label:37}", *(f"{rate:.2f}" for rate in rates))

# %% [markdown]
# ## Look
#
# The same runs over the prompts they have asked. A point is the pass rate of a rollout
# batch; the last one is the evaluation after the run.

# %%
# alt: Three panels of pass rate against prompts so far, 0 to 3072, for 1, 4, 16 and 64
#   ministeps with three seeds each. PMD-mean at tau 0.05: all curves rise together from
#   0.1 to above 0.9; with 64 ministeps there are four points, 0.09, 0.33, 0.95 and
#   0.99. PMD-part at tau 0.05: 1 ministep rises late, to 0.8 to 0.9; 4 ministeps end
#   between 0.3 and 0.8; 16 and 64 stay at 0.1. PMD-part at tau 1: 1, 4 and 16 ministeps
#   rise together to above 0.9; 64 ministeps go 0.09, 0.17, 0.34, 0.56.
fig, axes = plt.subplots(1, 3, figsize=(10, 3.6), sharey=True)
for ax, name in zip(axes, methods, strict=True):
    for color, count in zip(shades(4), staleness, strict=True):
        for run in runs[name, count]:
            rates = [row["pass_rate"] for row in run.metrics]
            rates.append(run.summary["pass_rate_last"])
            asked = 16 * count * np.arange(len(rates))
            mark = "o-" if count == 64 else "-"
            (line,) = ax.plot(asked, rates, mark, color=color, linewidth=1)
        line.set_label(f"{count} ministep" + "s" * (count > 1))
    ax.set(title=name, xlabel="prompts so far")
axes[0].set(ylabel="pass rate")
axes[0].legend()
plt.show()

# %% [markdown]
# **What to see.** Three answers.
#
# * **PMD-mean at `tau = 0.05` bears any staleness here.** With 64 ministeps it is at
#   0.98 or more after three rollout batches, and needs no more prompts than with fresh
#   rollouts.
# * **PMD-part at the same `tau` does not.** It is slow already with fresh rollouts,
#   ends between 0.3 and 0.8 with 4 ministeps, and stays at chance with 16.
# * **PMD-part is not to blame, its `tau` is.** At `tau = 1` it is as good as PMD-mean
#   up to 16 ministeps. With 64 it is slow: now the temperature binds.
#
# So "PMD-mean is more stable than PMD-part" is a statement about a small `tau`. There
# it holds for every seed. Whoever may choose `tau` for each method finds no such order
# up to 16 ministeps.
#
# ## Explain
#
# **Why PMD-part breaks at a small `tau`.** Look at the advantages of a group with two
# right draws out of 16.

# %%
reward = torch.zeros(1, 16, dtype=torch.float64)
reward[0, :2] = 1
group = Groups(reward, torch.full_like(reward, 1 / 16))
for name, objective in {
    "PMD-mean": PMDMean(tau=0.05),
    "PMD-part, tau = 0.05": PMDPart(tau=0.05),
    "PMD-part, tau = 1": PMDPart(tau=1.0),
}.items():
    each = objective.advantage(group)[0]
    told = f"right {each[0]:5.2f}, wrong {each[-1]:5.2f}, sum {each.sum():7.2f}"
    print(f"{name:21} {told}")

# %% [markdown]
# PMD-mean pushes two draws up and 14 down, and its pushes add up to 0. PMD-part at
# `tau = 0.05` takes $\tau\log Z$ from the draws and finds nearly the best reward in it.
# So the right draws hardly rise and the wrong ones get $-0.9$ each. While the rollouts
# are fresh, a common shift of all advantages is mere noise: it cancels on average.
# Stale, it does not cancel. Whatever was drawn goes down, and the probability goes to
# what was *not* drawn. The regression would stop this only at its target, 18 nats down.
#
# **When `tau` binds.** With 64 ministeps each batch comes close to the end of its
# regression, as in the first picture of lesson 201. Then the theory says how far a
# batch can go.

# %%
for objective, tau in methods.values():
    path = theory.trajectory(1 / 11, tau, 3, objective)
    print(f"three exact steps of {objective} at tau = {tau:g}:", np.round(path, 2))

# %% [markdown]
# At `tau = 1`, exact steps would pass through 0.21, 0.42 and 0.67; the run with 64
# ministeps has 0.17, 0.34 and 0.56. Not even a perfect optimizer would have got past
# 0.67 with three batches. A larger `tau` holds the policy closer to the one that drew,
# and so it needs more batches.
#
# **What it buys.** Time per token, from the metrics of all these runs.

# %%
# alt: Stacked bars of time in milliseconds per token for 1, 4, 16 and 64 ministeps. The
#   part of generation shrinks by a factor of three to four from 1 to 64 ministeps. The
#   part of the update is several times larger than that of generation in every bar and
#   does not depend on the number of ministeps.
cost = {}
for count in staleness:
    same = [run for name in methods for run in runs[name, count]]
    rows = [row for run in same for row in run.metrics]
    tokens = sum(row["tokens"] for row in rows)
    parts = [
        sum(row[f"seconds_{part}"] for row in rows) for part in ("rollout", "update")
    ]
    cost[count] = 1000 * np.array(parts) / tokens
    print(f"{count:2} ministeps, ms per token: ", *(f"{c:.4f}" for c in cost[count]))

fig, ax = plt.subplots()
place = range(len(staleness))
values = np.array(list(cost.values()))
ax.bar(place, values[:, 0], color="C0", label="generation")
ax.bar(place, values[:, 1], bottom=values[:, 0], color="0.75", label="update")
ax.set_xticks(place, [str(count) for count in staleness])
ax.set(xlabel="ministeps per rollout batch", ylabel="time (ms per token)")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Generation gets three to four times cheaper per token, most of it
# already with 4 ministeps. The whole run does not, because *here* the update costs more
# than the generation: a response has one token, and what the draws of a prompt share is
# computed once. (The exact bars depend on the machine, and on what else it does.)
#
# A language model is the other way round. The paper measures, with 16 ministeps:
#
# | ms per token | generation | update | both |
# |---|---|---|---|
# | on-policy, 1 ministep | 0.0512 | 0.0057 | 0.0569 |
# | PMD-mean, 16 ministeps | 0.0062 | 0.0064 | 0.0126 |
#
# That is a factor of 8 in generation and of 4.5 in all. Staleness buys time where
# generation dominates, and nothing where it does not. Measure first.
#
# ## Exercise
#
# Difficulty 2 of 5, about 10 minutes. To draw the responses for $M$ ministeps takes
# `fixed + M * each` seconds: something is paid once per batch, however large it is. An
# update takes `update` seconds per ministep. How many times faster is a run with $M$
# ministeps per batch than one with 1, for the same number of updates?


# %% tags=["exercise"]
def speedup(fixed, each, update, ministeps):
    """Time of the run with 1 ministep per batch over that of the run with M."""
    return ...


# %% tags=["check"]
def check(speedup):
    """Add up 64 updates both ways; then look for the likely slips."""
    fixed, each, update, m = 0.048, 0.0032, 0.0057, 16
    answer = speedup(fixed, each, update, m)
    if answer is ...:
        return "Not filled in yet."
    fresh = sum(fixed + each + update for _ in range(64))
    stale = sum(fixed + m * (each + update) for _ in range(64 // m))
    if np.isclose(answer, fresh / stale):
        return "Right."
    if np.isclose(answer, stale / fresh):
        return "Upside down: a speedup above 1 means that staleness saves time."
    if np.isclose(answer, (fixed + each) / (fixed / m + each)):
        return "That is the speedup of generation alone. Updates take time too."
    if np.isclose(answer, (fixed + each + update) / (fixed + m * (each + update))):
        return "Those are times per batch. A batch with M ministeps makes M updates."
    if np.isclose(answer, m):
        return "M would need all the time to go into what is paid once per batch."
    return f"Added up it is {fresh / stale:.2f}, the answer says {answer:.2f}."


print(check(speedup))

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def speedup(fixed, each, update, ministeps):
#     return (fixed + each + update) / (fixed / ministeps + each + update)
# ```
#
# The numbers of the check fit the generation times in the table above: 0.048 paid once
# and 0.0032 per ministep. With them the speedup is 4.8 for 16 ministeps, and no
# staleness brings more than 6.4: `each` and `update` remain.
#
# </details>
