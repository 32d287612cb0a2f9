# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 102: One exact step: how far does one step go?
#
# * You learn: how far one update moves a policy, as the pass rate and the temperature
#   vary.
# * You need: lesson 101.
# * Time: 15 minutes to read, 10 seconds to run, 10 minutes for the exercise.
#
# A verifier says right or wrong: reward 1 or 0. Then everything about a prompt that
# matters to an exact update is one number, the **pass rate** $p$: the probability that
# a response is right. One update turns $p_t$ into $p_{t+1}$. How far?

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from pmdkit import theory, train
from pmdkit.figures import style
from pmdkit.figures.style import look, shades

style()
p0, tau = 0.01, 0.05  # a pass rate, and a temperature in reward units

# %% [markdown]
# ## Predict
#
# The *needle*: 100 arms, one of them right, all equally likely. So $p_0 = 0.01$. We
# make one exact update with `tau = 0.05`, in units of a reward that is 0 or 1.
#
# PMD-part reweights the right arm by $e^{1/0.05} = e^{20}$. PMD-mean regresses its
# log-ratio on $\Delta/\tau = 19.8$, nearly the same number. Which pass rates do you
# expect after one step?
#
# ## Run
#
# First the prediction of the theory, then a real run of the bandit. Each is one call.

# %%
folder = tempfile.mkdtemp()  # where the two runs are kept
for method in ("pmd-part", "pmd-mean"):
    predicted = theory.trajectory(p0, tau, 1, method)[-1]
    out = f"{folder}/{method}"
    run = train(method, backend="bandit", env="needle", tau=tau, steps=1, out=out)
    after = run.summary["pass_rate_last"]
    print(f"{method}: predicted {predicted:.5f}   run {after:.5f}")

# %% [markdown]
# The same advantage, the same `tau`: and PMD-part finishes in one step while PMD-mean
# goes from 0.01 to 0.38. The run and the theory agree to all digits shown, since both
# are exact.
#
# ## Look
#
# An update is two numbers: how much a right response gains, and how much a wrong one
# loses. Both as a log-ratio.

# %%
# alt: Two panels of log-ratios against tau from 0.01 to 10, for pass rates 0.01, 0.1
#   and 0.5. Left, right responses: as tau falls all curves rise from near 0 to the
#   logarithm of 1 over p; PMD-mean gets there at a smaller tau than PMD-part, the more
#   so the lower p is. Right, wrong responses on a logarithmic axis: at tau 0.01
#   PMD-part pushes down by 100 nats at every pass rate, PMD-mean by 50, 10 and 1.4
#   nats.
taus = np.geomspace(0.01, 10, 200)
fig, axes = plt.subplots(1, 2, figsize=(9, 4))
for color, p in zip(shades(3), (0.01, 0.1, 0.5), strict=True):
    for method in ("pmd-part", "pmd-mean"):
        step = theory.binary(p, taus, method)
        line = look(method) | {"color": color, "label": f"p = {p:g}, {method}"}
        axes[0].plot(taus, step.log_ratio_pos, **line)
        axes[1].plot(taus, -step.log_ratio_neg, **line)
axes[0].set(xscale="log", title="right responses: pushed up by")
axes[1].set(xscale="log", yscale="log", title="wrong responses: pushed down by")
for ax in axes:
    ax.set(xlabel="tau (reward units)", ylabel="log-ratio (nats)")
axes[1].legend(fontsize="small")
plt.show()

# %% [markdown]
# **What to see.** A right response can gain at most $\log(1/p)$: then it is certain.
# PMD-part is there once `tau` is well below $1/\log(1/p)$; PMD-mean needs a `tau` near
# $p$ itself. On wrong responses PMD-part pushes by $1/\tau$ nats, PMD-mean by about
# $p/\tau$ once `tau` is small. For hard prompts that is orders of magnitude apart.
#
# One more number sums it up. The **contraction** $\eta$ is the share of the gap to 1
# that the step closes: $1 - p_{t+1} = (1 - \eta)(1 - p_t)$.

# %%
# alt: Contraction eta against the pass rate from 0.0001 to 1, for tau 0.5, 0.05 and
#   0.005. PMD-part at tau 0.05 and 0.005 is at 1 everywhere. PMD-mean rises gradually
#   from near 0 to 1; at small tau it passes one half where the pass rate is about a
#   third of tau. At tau 0.5 the two methods lie close together.
p = np.geomspace(1e-4, 0.99, 200)
fig, ax = plt.subplots(figsize=(8, 3.6))
for color, each in zip(shades(3), (0.5, 0.05, 0.005), strict=True):
    for method in ("pmd-part", "pmd-mean"):
        line = look(method) | {"color": color, "label": f"tau = {each:g}, {method}"}
        ax.plot(p, theory.binary(p, each, method).eta, **line)
ax.set(xscale="log", title="one exact step")
ax.set(xlabel="pass rate before the step", ylabel="share of the gap closed, eta")
fig.legend(loc="outside right center")
plt.show()

# %% [markdown]
# **What to see.** For PMD-mean the step is small where the pass rate is far below
# `tau`. At a small `tau` it closes half of the gap at a pass rate of about $\tau/3$.
# PMD-part at a small `tau` closes everything at once, also for a prompt that is solved
# once in ten thousand tries. This is splendid when the pass rate is known, and reckless
# when it is guessed from 16 draws.
#
# Steps add up. Here are the first steps of both, from the needle, with a larger `tau`
# too.

# %%
# alt: Pass rate against the number of exact steps from 0 to 10, starting at 0.01. At
#   tau 0.05 PMD-part is at 1 after one step; PMD-mean is at 0.38 after one and at 1
#   after two. At tau 0.5 both need about five steps, and PMD-mean stays a little below
#   PMD-part.
steps = 10
fig, ax = plt.subplots()
for color, each in zip(shades(2), (0.05, 0.5), strict=True):
    for method in ("pmd-part", "pmd-mean"):
        line = look(method, marker=True) | {
            "color": color,
            "label": f"tau = {each:g}, {method}",
        }
        ax.plot(range(steps + 1), theory.trajectory(p0, each, steps, method), **line)
ax.set(xlabel="exact steps", ylabel="pass rate", title="from the needle, p = 0.01")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Caution costs about one step. As soon as the pass rate has grown,
# PMD-mean speeds up: its step adapts to the prompt, though `tau` stays the same.
#
# ## Explain
#
# PMD-part sees only $e^{1/\tau}$: the right response is multiplied by it, and the sum
# is normalised,
#
# $$ \eta_{part} = 1 - \frac{1}{1 - p + p\,e^{1/\tau}} . $$
#
# PMD-mean would like to raise right responses by $(1-p)/\tau$ nats and lower wrong ones
# by $p/\tau$. It cannot raise so far: the probabilities must sum to one. What it gives
# up on the right responses leaves the wrong ones with little to lose, and since the
# wrong ones hold nearly all the mass, they decide where the policy ends. So $p/\tau$
# sets the size of the step.
#
# **Two reward scales.** The theory uses rewards 0 and 1, the experiments of the paper
# −1 and 1. A gap of 2 instead of 1 is the same update at twice the `tau`: `tau = 0.1`
# there is `tau = 0.05` here. Every number needs its scale.

# %%
zero_one = theory.pmd_mean([0.01, 0.99], [1.0, 0.0], 0.05)
plus_minus = theory.pmd_mean([0.01, 0.99], [1.0, -1.0], 0.1)
print(zero_one.probs, plus_minus.probs)

# %% [markdown]
# ## Exercise
#
# Difficulty 2 of 5, about 10 minutes. From $p_0 = 0.001$, with rewards of **−1 and 1**
# and `tau = 0.4` on that scale: how many exact PMD-mean steps until the pass rate is
# above 0.9? Guess first. `theory.trajectory` counts in rewards 0 and 1.


# %% tags=["exercise"]
def steps_needed():
    """The number of exact PMD-mean steps."""
    return ...


# %% tags=["check"]
def check(steps_needed):
    """Compare with the exact trajectory, and with the likely slips."""

    def count(tau, method):
        path = theory.trajectory(0.001, tau, 200, method)
        return int(np.argmax(path > 0.9))

    answer = steps_needed()
    if answer is ...:
        return "Not filled in yet."
    if answer == count(0.2, "pmd-mean"):
        return "Right."
    if answer == count(0.4, "pmd-mean"):
        return (
            "That is tau = 0.4 for rewards 0 and 1. What is it on a scale of -1 and 1?"
        )
    if answer == count(0.2, "pmd-part"):
        return "That is PMD-part."
    if answer == count(0.2, "pmd-mean") + 1:
        return "One too many: the trajectory starts before the first step."
    return "Not this many. Where does theory.trajectory first exceed 0.9?"


print(check(steps_needed))

# %% [markdown]
# <details>
# <summary>Solution</summary>
#
# ```python
# def steps_needed():
#     path = theory.trajectory(0.001, 0.2, 100, "pmd-mean")
#     return int(np.argmax(path > 0.9))
# ```
#
# Half of the `tau`, because the gap between the rewards is 2 instead of 1. Entry 0 of
# the path is the pass rate before the first step, so the position in the path is the
# number of steps.
#
# </details>
