# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 401: What does your own objective solve?
#
# * You learn: how to write an objective that every tier of pmdkit accepts, and to ask
#   what it secretly solves. Lesson 402 races it.
# * You need: lessons 103 and 104.
# * Time: 10 minutes to read, 15 seconds to run, 20 minutes for the exercises.
#
# Here is an idea to begin with. PMD-mean regresses the log-ratio of a response on the
# target $\Delta/\tau$. At $\tau = 0.05$ a right answer to a hard prompt has a target of
# 18 nats, a factor of 65 million that no policy can follow. So cap it, softly:
# $c\,\tanh(\Delta / c\tau)$ is the same near 0 and never exceeds $c$ nats.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import brentq

import pmdkit_course as learn
from pmdkit.figures.style import BLACK, BLUE, GREY, ORANGE, style
from pmdkit.objectives import load_objective
from pmdkit.testing import check_objective
from pmdkit_lab.explain import RATIOS, explain
from pmdkit_lab.explain.report import facts, headline
from pmdkit_lab.figures.looks import look

style()
folder = Path(tempfile.mkdtemp())  # for the objectives

# %%
# alt: Target log-ratio in nats against reward minus mean, -1 to 1, at tau 0.05. The one
#   of PMD-mean is a straight line from -20 to 20. The capped one follows it near 0 and
#   levels off at -3 and 3.
delta = np.linspace(-1, 1, 401)
fig, ax = plt.subplots(figsize=(5.5, 3))
ax.plot(delta, delta / 0.05, **look("pmd-mean"), label="PMD-mean")
ax.plot(delta, 3 * np.tanh(delta / 0.15), "--", color=ORANGE, label="capped, c = 3")
ax.set(xlabel="reward minus mean (reward units)", ylabel="target log-ratio (nats)")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** The two agree where the reward is near the mean. Beyond that, a
# right answer to a hard prompt and one to an easy prompt have nearly the same capped
# target.
# <!-- claim: The two agree where the reward is near the mean :: abs(3 * np.tanh(0.01 /
#   0.15) / (0.01 / 0.05) - 1) < 0.01 -->
#
# ## Predict
#
# PMD-mean maximises the reward minus a mix of KL and $\chi^2$. What does the capped one
# pay for a ratio $\pi/\pi_{old}$ of $e^{2}$? Of $e^{4}$?
#
# <!-- predict: What does the capped objective pay for a ratio of e to the 4?
#   - as much as PMD-mean
#   - half as much
#   + no reward is enough
#   = The cap becomes two walls; beyond them nothing comes to rest. -->
#
# ## Run
#
# **Write it down.** An objective is a frozen dataclass in a file. `advantage` sees
# whole groups of rewards and is the only place where the reward enters. `loss` sees
# rows and returns one number each; the loop does the averaging. The fields are the
# options. A copy of `pmdkit/objectives/skeleton.py` is a good start.

# %%
DRAFT = '''
from dataclasses import dataclass
from typing import ClassVar

import torch

from pmdkit.objectives.baselines import peer_mean, zero_absent


@dataclass(frozen=True)
class Capped:
    """Regress the log-ratio on cap * tanh(Delta / (cap * tau))."""

    equal_groups: ClassVar[str] = "anchor"  # equal rewards: a pull back to pi_old

    tau: float = 0.05  # reward units
    cap: float = 3.0  # nats
    norm: str = "length"

    def advantage(self, groups):
        return zero_absent(groups.reward - peer_mean(groups), groups)

    def loss(self, batch):
        target = self.cap * torch.tanh(batch.advantage / (self.cap * batch.tau))
        return batch.tau / 2 * (target - batch.seq_log_ratio) ** 2
'''
characters = (folder / "draft.py").write_text(DRAFT)

# %% [markdown]
# **Check it.** `check_objective` tests for what an objective must never do: change with
# the order of rows, read what is under the mask, return NaN for a group of equal
# rewards, or take another first step than it declares.

# %%
try:
    check_objective(load_objective(f"{folder}/draft.py:Capped"))
except AssertionError as complaint:
    print(complaint)

# %% [markdown]
# It has found something that is true. In pmdkit every objective's first step is the
# policy gradient of its own advantage, unless it says otherwise. Ours squeezes the
# advantage on its way into the loss. That is the idea, so we say otherwise: a *trait*,
# one line. (If it were a bug, we would fix the loss.)

# %%
equal = "    equal_groups"
trait = "    first_step_is_policy_gradient: ClassVar[bool] = False\n"
(folder / "capped.py").write_text(DRAFT.replace(equal, trait + equal))
objective = load_objective(f"{folder}/capped.py:Capped")
for name, verdict in check_objective(objective).items():
    print(f"{name:15} {verdict}")

# %% [markdown]
# **Some prompts may count more.** A third method does that if you write it:
# `group_weight` returns one factor per prompt. The rewards decide it, so the first step
# is biased, and PMD-mean's `unbiased = True` must not be inherited. Without that line
# `check_objective` asks for it.

# %%
WEIGHTED = '''
from dataclasses import dataclass
from typing import ClassVar

from pmdkit.objectives import PMDMean, expect


@dataclass(frozen=True)
class Hard(PMDMean):
    """PMD-mean in which a prompt that all responses solve counts half."""

    unbiased: ClassVar[bool] = False

    def group_weight(self, groups):
        return 1 - expect(groups.reward, groups.mass)[:, 0] / 2
'''
characters = (folder / "hard.py").write_text(WEIGHTED)
verdicts = check_objective(load_objective(f"{folder}/hard.py:Hard"))
print("unbiased:", verdicts["unbiased"])

# %% [markdown]
# ## Look
#
# **Ask what it solves.** `explain` knows nothing of our formula. It finds the policy
# where the loss comes to rest on graded rewards, and reads off which reward a response
# needs to rest at which ratio: $f'(\pi/\pi_{old})$, the slope of the regulariser. In a
# terminal: `pmdkit explain capped.py:Capped`.

# %%
answer = explain(objective)
print(headline(answer))
for sentence in facts(answer):
    print("*", sentence)

# %%
# alt: Slope of the implied regulariser, in reward units, against the ratio from 0.05 to
#   20. PMD-mean, KL and chi-squared mixed, bends upwards and passes 1 at ratio 10. The
#   capped one is flatter near ratio 1 and lies between two vertical lines, at ratios
#   0.048 and 2.9, at which it turns down and up. Dots of the formula lie on it.
found = answer.curves["graded rewards"]
x = -answer.rests["graded rewards"].multiplier / 0.05  # what normalisation costs
walls = [brentq(lambda z, c=c: np.log(z) + x * z - c, 1e-3, 20) for c in (-3, 3)]
inside = np.geomspace(1.01 * walls[0], 0.99 * walls[1], 21)
needed = 3 * 0.05 * np.arctanh((np.log(inside) + x * inside) / 3)
formula = needed - 3 * 0.05 * np.arctanh(x / 3)  # f' is 0 at ratio 1
mean = explain("pmd-mean").curves["graded rewards"]

fig, ax = plt.subplots(figsize=(6, 3.6))
ax.plot(RATIOS, mean.slope, **look("pmd-mean"), label="PMD-mean, found")
ax.plot(RATIOS, 0.05 * np.log(RATIOS), ":", color=BLUE, label="KL alone")
ax.plot(RATIOS, found.slope, "--", color=ORANGE, label="capped, found")
ax.plot(inside, formula, "o", color=BLACK, mfc="none", label="capped, formula")
for wall in walls:
    ax.axvline(wall, color=GREY, linestyle="-", linewidth=0.8)
ax.set(xscale="log", xlabel="ratio π / π_old", ylim=(-0.7, 1.2))
ax.set(ylabel="f ' (reward units)")
ax.set_xticks([0.05, 0.2, 1, 5, 20], ["0.05", "0.2", "1", "5", "20"])
ax.legend()
plt.show()
print("walls at ratios", np.round(walls, 3))

# %% [markdown]
# **What to see.** The cap has become two walls. Between them, ratios above 1 are
# *cheaper* than under PMD-mean; at the walls the price goes to infinity, and beyond no
# reward brings a response to rest.
# <!-- claim: *cheaper* than under PMD-mean :: np.interp(2, RATIOS, found.slope) <
#   np.interp(2, RATIOS, mean.slope) -->
#
# ## Explain
#
# The dots are what we expect by hand. A response rests where its target is
# $\log z + x z$, with $x = \lambda/\tau^2$ as in Theorem 1. So
#
# $$ f'(z) = c\tau\,\mathrm{artanh}\frac{\log z + xz}{c} + \mathrm{const} . $$
#
# Without the cap artanh is straight, and that is the mixed KL-$\chi^2$ of lesson 103.
# The multiplier differs from prompt to prompt, and the walls with it: $e^4$ is beyond
# them everywhere, $e^2$ is within them on hard prompts, where $x$ is small. The cap
# does what it should: it forbids. Whether that is *better* is another question, and
# only runs can answer it: lesson 402.
# <!-- claim: $e^4$ is beyond them everywhere :: walls[1] < np.exp(3) -->
# <!-- claim: $e^2$ is within them on hard prompts :: brentq(lambda z: np.log(z) + 0.05
#   * z - 3, 1, 20) > np.exp(2) -->
#
# ## Exercise
#
# Two exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("401.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 401.1: a loss that cannot shout.** Difficulty 2 of 5, about 10 minutes.
#
# PMD-mean's loss is $(A - \tau s)^2 / 2\tau$ with the log ratio $s$, so the push on a
# response is its residual $A - \tau s$, however large. Bound it: keep the loss where
# the residual is at most `width` in size, and let it go on as a *straight line* beyond,
# with no jump and no kink. Then no push exceeds `width`, and none is forgotten.


# %% tags=["exercise", "401.1"]
def bounded_loss(log_ratio, advantage, tau, width):
    """PMD-mean's loss with bounded pushes, [N]; log_ratio [N] in nats, else rewards."""
    return ...


# %% tags=["check", "401.1"]
learn.check("401.1", bounded_loss)

# %% [markdown]
# **Exercise 401.2: what does a capped target solve?** Difficulty 3 of 5, about 10
# minutes.
#
# An objective regresses the log ratio on the target $c\,\tanh(\Delta / c\tau)$, where
# $\Delta$ is the reward minus the mean and $c$ is `cap`. Where normalisation costs
# nothing, a response rests where its log ratio is its target. Read off the regulariser:
# which reward above the mean, $f'(z)$, does a response need to rest at ratio $z$?


# %% tags=["exercise", "401.2"]
def implied_slope(ratio, tau, cap):
    """f' of a capped target, [N], reward units; ratio [N] within e^-cap and e^cap."""
    return ...


# %% tags=["check", "401.2"]
learn.check("401.2", implied_slope)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Where normalisation costs nothing, what does a ratio of 2 cost under the cap of
# 3 nats, and what under KL alone, at $\tau = 0.05$?
#
# <details>
# <summary>What we got</summary>
#
# 0.0353 and 0.0347 reward units: nobody notices the cap there.
# <!-- claim: 0.0353 and 0.0347 :: said(0.15 * np.arctanh(np.log(2) / 3), 0.05 *
#   np.log(2)) -->
#
# </details>
#
# **2.** And a log-ratio of 2.9 nats, just inside the wall?
#
# <details>
# <summary>What we got</summary>
#
# 0.31 and 0.15: twice as much, and the next tenth of a nat cannot be bought.
# <!-- claim: 0.31 and 0.15 :: said(0.15 * np.arctanh(2.9 / 3), 0.05 * 2.9 + 1e-9) -->
#
# </details>
