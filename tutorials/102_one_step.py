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
# * Time: 20 minutes to read, 5 seconds to run, 35 minutes for the exercises.
#
# A verifier says right or wrong: reward 1 or 0. Then everything about a prompt that
# matters to an exact update is one number, the **pass rate** $p$: the probability that
# a response is right. One update turns $p_t$ into $p_{t+1}$. How far? The
# **contraction** $\eta$ is the share of the gap to 1 that the step closes:
# $1 - p_{t+1} = (1 - \eta)(1 - p_t)$.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import theory
from pmdkit_lab.figures import style
from pmdkit_lab.figures.looks import look, shades

style()
p0, tau = 0.01, 0.05  # a pass rate, and a temperature in reward units

# %%
# alt: Contraction eta against the pass rate from 0.0001 to 1, for tau 0.5, 0.05 and
#   0.005. PMD-part at tau 0.05 and 0.005 is at 1 everywhere. PMD-mean rises gradually
#   from near 0 to 1; at small tau it passes one half where the pass rate is about a
#   third of tau. At tau 0.5 the two methods lie close together.
p = np.geomspace(1e-4, 0.99, 200)
fig, ax = plt.subplots(figsize=(8, 3.6))
for color, each in zip(shades(3), (0.5, 0.05, 0.005), strict=True):
    for method in ("pmd-part", "pmd-mean"):
        line = look(method) | {"color": color, "label": f"τ = {each:g}, {method}"}
        ax.plot(p, theory.binary(p, each, method).eta, **line)
ax.set(xscale="log", title="one exact step")
ax.set(xlabel="pass rate before the step", ylabel="share of the gap closed, η")
fig.legend(loc="outside right center")
plt.show()

# %% [markdown]
# **What to see.** For PMD-mean the step is small where the pass rate is far below
# $\tau$. At a small $\tau$ it closes half of the gap at a pass rate of about $\tau/3$.
# PMD-part at a small $\tau$ closes everything at once, even for a prompt that is solved
# once in ten thousand tries. That is ideal when the pass rate is known, and reckless
# when it is guessed from 16 draws.
# <!-- claim: it closes half of the gap at a pass rate of about $\tau/3$ :: abs(1e-3 /
#   theory.tau_for_eta(1e-3, 0.5) - 1 / 3) < 0.05 -->
# <!-- claim: PMD-part at a small $\tau$ closes everything at once ::
#   theory.binary(1e-4, 0.05, "pmd-part").eta > 0.999 -->
#
# ## Predict
#
# The *needle*: 100 arms, one of them right, all equally likely. So $p_0 = 0.01$. We
# make one exact update with $\tau = 0.05$, in units of a reward that is 0 or 1.
#
# PMD-part reweights the right arm by $e^{1/0.05} = e^{20}$. PMD-mean regresses its
# log-ratio on $\Delta/\tau = 19.8$, nearly the same number. Find $p_0$ in the picture:
# which pass rates do you expect after one step? And how many steps will the slower one
# need to reach 0.99? And where in the picture would the line of PMD-mean for
# $\tau = 0.02$ lie?
# <!-- claim: $\Delta/\tau = 19.8$, nearly the same number :: said((1 - p0) / tau) -->
#
# <!-- predict-curve: The picture has no line for τ = 0.02. Draw the share of the
#   gap that one step of PMD-mean closes there.
#   : tau 0.02
#   = It is the line for 0.05, moved left by a factor of 2.5: where both are small, only
#     p / tau counts. -->
# <!-- predict: At τ = 0.05, what is the pass rate after one step of PMD-mean?
#   - 0.02
#   + 0.38
#   - nearly 1, as after one of PMD-part
#   = Probabilities must sum to one, so the right arm cannot follow its target of 19.8
#     nats. -->
# <!-- predict: How many steps does PMD-mean need to reach 0.99?
#   + 2
#   - 5
#   - 20
#   = Its step grows with the pass rate: caution costs about one step. -->
#
# ## Run
#
# First the prediction of the theory, then a real run of the bandit. Each is one call.

# %% tags=["torch"]
import tempfile

from pmdkit import train

folder = tempfile.mkdtemp()  # where the two runs are kept
for method in ("pmd-part", "pmd-mean"):
    predicted = theory.trajectory(p0, tau, 1, method)[-1]
    out = f"{folder}/{method}"
    run = train(method, backend="bandit", env="needle", tau=tau, steps=1, out=out)
    after = run.summary["pass_rate_last"]
    print(f"{method}: predicted {predicted:.5f}   run {after:.5f}")

# %% [markdown]
# The advantage and $\tau$ are the same, and yet PMD-part finishes in one step while
# PMD-mean goes from 0.01 to 0.38. The run and the theory agree to all digits shown,
# since both are exact.
# <!-- claim: PMD-part finishes in one step while PMD-mean goes from 0.01 to 0.38 ::
#   said(p0, after) and theory.trajectory(p0, tau, 1, "pmd-part")[-1] > 0.9999 -->
# <!-- claim: The run and the theory agree to all digits shown :: abs(after - predicted)
#   < 5e-6 -->
#
# ## Look
#
# An update is two numbers: how much a right response gains, and how much a wrong one
# loses. Both are log-ratios.

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
    ax.set(xlabel="τ (reward units)", ylabel="log-ratio (nats)")
axes[1].legend(fontsize="small")
plt.show()

# %% [markdown]
# **What to see.** A right response can gain at most $\log(1/p)$: then it is certain.
# PMD-part is there once $\tau$ is well below $1/\log(1/p)$; PMD-mean needs a $\tau$
# near $p$ itself. On wrong responses PMD-part pushes by $1/\tau$ nats, PMD-mean by
# about $p/\tau$ once $\tau$ is small. For hard prompts the two are orders of magnitude
# apart.
# <!-- claim: PMD-part pushes by $1/\tau$ nats, PMD-mean by about $p/\tau$ once $\tau$
#   is small :: abs(theory.binary(0.1, 0.01, "pmd-part").log_ratio_neg * 0.01 + 1) <
#   0.05 and abs(theory.binary(0.1, 0.01).log_ratio_neg / 10 + 1) < 0.1 -->
# <!-- claim: For hard prompts the two are orders of magnitude apart ::
#   theory.binary(0.01, 0.01, "pmd-part").log_ratio_neg / theory.binary(0.01,
#   0.01).log_ratio_neg > 50 -->
#
# Steps add up. Here are the first steps of both on the needle, also with a larger
# $\tau$.

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
            "label": f"τ = {each:g}, {method}",
        }
        ax.plot(range(steps + 1), theory.trajectory(p0, each, steps, method), **line)
ax.set(xlabel="exact steps", ylabel="pass rate", title="from the needle, p = 0.01")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Caution costs about one step. As soon as the pass rate has grown,
# PMD-mean speeds up: its step adapts to the prompt, though $\tau$ stays the same.
# <!-- claim: Caution costs about one step :: [(theory.trajectory(p0, tau, 9, name) >=
#   0.99).argmax() for name in ("pmd-part", "pmd-mean")] == [1, 2] -->
#
# ## Explain
#
# **The two ratios, derived.** Write $a$ for the log-ratio of right responses, and $w$
# for how far wrong ones are pushed down. A pass rate has to stay a probability.
#
# > 1. $p\,e^a + (1-p)\,e^{-w} = 1$. *Why:* the new policy sums to one.
# > 2. $1 - \eta = e^{-w}$. *Why:* the gap is the mass of wrong responses, all of which
# >    change by $e^{-w}$.
# > 3. PMD-part: $a + w = \frac{1}{\tau}$. *Why:*
# >    $\log\pi_{new} = \log\pi + \frac{r}{\tau} - \log Z$, and $\log Z$ cancels in the
# >    difference.
# > 4. $\eta_{part} = 1 - \frac{1}{1 - p + p\,e^{1/\tau}}$. *Why:*
# >    $e^a = e^{1/\tau}e^{-w}$ in the first line, solved for $e^{-w}$.
# > 5. PMD-mean: minimise $p\,(\frac{1-p}{\tau} - a)^2 + (1-p)\,(w - \frac{p}{\tau})^2$.
# >    *Why:* a regression on $\Delta/\tau$, which is $\frac{1-p}{\tau}$ or
# >    $-\frac{p}{\tau}$.
# > 6. $(\frac{1-p}{\tau} - a)\,e^{-a} = (w - \frac{p}{\tau})\,e^{w}$. *Why:* the
# >    derivatives by $a$ and by $-w$, over those of the sum, are equal.

# %%
for method in ("pmd-part", "pmd-mean"):
    step = theory.binary(p0, tau, method)
    a, w = step.log_ratio_pos, -step.log_ratio_neg
    sums = p0 * np.exp(a) + (1 - p0) * np.exp(-w)
    print(f"{method}: sum {sums:.12f}, a + w {a + w:.6f}, 1 / tau {1 / tau:g}")
    print("  last line:", ((1 - p0) / tau - a) * np.exp(-a), (w - p0 / tau) * np.exp(w))

# %% [markdown]
# Both sum to one. For PMD-part alone, $a + w$ is $1/\tau$; for PMD-mean alone, the two
# numbers of the last line are equal.
#
# PMD-mean would like to raise right responses by $(1-p)/\tau$ nats and lower wrong ones
# by $p/\tau$. It cannot raise them that far: the probabilities must sum to one. Right
# responses are rare, so an error there counts little in the loss. Nearly all of the
# weight is on the wrong ones, and they come close to their target. So $p/\tau$ sets the
# size of the step.
#
# **Two reward scales.** The theory uses rewards 0 and 1; the paper's experiments use −1
# and 1. A gap of 2 instead of 1 is the same update at twice the $\tau$: $\tau = 0.1$
# there is $\tau = 0.05$ here. Every number needs its scale beside it.
# <!-- claim: A gap of 2 instead of 1 is the same update at twice the $\tau$ ::
#   np.abs(theory.pmd_mean([0.01, 0.99], [1.0, 0.0], 0.05).probs -
#   theory.pmd_mean([0.01, 0.99], [1.0, -1.0], 0.1).probs).max() < 1e-12 -->

# %%
zero_one = theory.pmd_mean([0.01, 0.99], [1.0, 0.0], 0.05)
plus_minus = theory.pmd_mean([0.01, 0.99], [1.0, -1.0], 0.1)
print(zero_one.probs, plus_minus.probs)

# %% [markdown]
# ## Exercise
#
# Four exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("102.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 102.0: how far an action has moved.** Difficulty 2 of 5, about 5 minutes.
#
# The second function of `my_pmd.py`. Everything in PMD is said in log-ratios,
# $\log\frac{\pi(a)}{\pi_{old}(a)}$. Write them for some drawn actions, from the logits
# of the new and of the old policy. Use your `log_softmax` of 101.0: paste it into the
# cell, or work in `my_pmd.py` and check that with `pmdkit learn check my_pmd.py`.


# %% tags=["exercise", "102.0"]
def log_ratios(logits, logits_old, actions):
    """log pi / pi_old, nats, of drawn actions [G]; both logits are [A]."""
    return ...


# %% tags=["check", "102.0"]
learn.check("102.0", log_ratios)

# %% [markdown]
# **Exercise 102.1: how many steps.** Difficulty 2 of 5, about 10 minutes.
#
# From a pass rate `p0`, with rewards of **-1 and 1** and $\tau$ on that scale: how many
# exact PMD-mean steps until the pass rate is above `goal`? Guess for
# `steps_needed(0.001, 0.4, 0.9)` first. `theory.trajectory` counts in rewards 0 and 1.


# %% tags=["exercise", "102.1"]
def steps_needed(p0, tau, goal):
    """Exact PMD-mean steps from pass rate p0 to above goal, at rewards -1 and 1."""
    return ...


# %% tags=["check", "102.1"]
learn.check("102.1", steps_needed)

# %% [markdown]
# **Exercise 102.2: a log-partition that survives a small tau.** Difficulty 2 of 5,
# about 10 minutes.
#
# PMD-part needs $\log Z = \log \sum_y \mathrm{mass}(y)\, e^{r(y)/\tau}$. With rewards
# of up to 5 and $\tau = 0.005$ the exponent is 1000, and $e^{1000}$ overflows. Write a
# `log Z` that survives this. An action with mass 0 does not count, whatever its reward.


# %% tags=["exercise", "102.2"]
def log_partition(reward, mass, tau):
    """Log of the mass-weighted sum of exp(reward / tau), nats; both [A]."""
    return ...


# %% tags=["check", "102.2"]
learn.check("102.2", log_partition)

# %% [markdown]
# **Exercise 102.3: the temperature that gets there.** Difficulty 2 of 5, about 10
# minutes.
#
# How small must $\tau$ be for *one* exact PMD-part step, with rewards 0 and 1, to take
# a pass rate from `p` to `goal`? Give it as a formula. What is left of the normaliser
# in the *odds* $p/(1-p)$?


# %% tags=["exercise", "102.3"]
def tau_for_goal(p, goal):
    """The tau, [P], at which one exact PMD-part step takes p, [P], to goal."""
    return ...


# %% tags=["check", "102.3"]
learn.check("102.3", tau_for_goal)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Start from a pass rate of $10^{-6}$, at $\tau = 0.05$. How many steps of
# PMD-mean lead to 0.99?
#
# <details>
# <summary>What we got</summary>
#
# 3 steps, through 0.003 and 0.23. The first one multiplies the pass rate by more than
# three thousand.
# <!-- claim: 3 steps, through 0.003 and 0.23 :: said((theory.trajectory(1e-6, 0.05, 9)
#   >= 0.99).argmax(), *theory.trajectory(1e-6, 0.05, 2)[1:]) -->
# <!-- claim: by more than three thousand :: theory.trajectory(1e-6, 0.05, 1)[1] > 3e-3
#   -->
#
# </details>
#
# **2.** Which $\tau$ takes the needle from 0.01 to 0.9 in one step, for each of the
# two?
#
# <details>
# <summary>What we got</summary>
#
# 0.0048 for PMD-mean and 0.147 for PMD-part, thirty times as much.
# <!-- claim: 0.0048 for PMD-mean and 0.147 for PMD-part :: abs(theory.trajectory(0.01,
#   quoted[0], 1)[-1] - 0.9) < 0.005 and abs(theory.trajectory(0.01, quoted[1], 1,
#   "pmd-part")[-1] - 0.9) < 0.005 -->
#
# </details>
