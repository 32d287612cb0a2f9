# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 101: Policies on a simplex: what does a policy update look like?
#
# * You learn: to see a policy as a point, an update as an arrow, and a loss as a
#   landscape.
# * You need: lesson 100, or its eight words; a little Python.
# * Time: 10 minutes to read, 10 seconds to run, 40 minutes for the exercises.
#
# A policy over three actions is three numbers that sum to one: a point in a triangle,
# the *simplex*. At a corner the policy always picks one action; in the middle it picks
# all three equally often. Policy mirror descent moves this point. It has a temperature
# $\tau$, the weight of a penalty for moving, in reward units. It comes in two kinds:
#
# * **PMD-part** reweights the policy by $e^{r/\tau}$ and normalises:
#   $\pi_{new} \propto \pi\, e^{r/\tau}$.
# * **PMD-mean** fits $\log(\pi_{new}/\pi)$ to $\Delta/\tau$, the reward minus its mean.
#   This is what is used in practice, because a mean is easy to estimate and a
#   normaliser is not.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import theory
from pmdkit_lab.figures import simplex, style
from pmdkit_lab.figures.looks import look

style()
pi = np.array([0.6, 0.3, 0.1])  # the policy before the update
reward = np.array([0.0, 0.7, 1.0])  # reward units

# %%
# alt: A triangle whose corners are the three actions. Both paths start at the policy
#   (0.6, 0.3, 0.1) and first run together, away from action 1. The path of PMD-part
#   then bends along the edge and ends in the corner of action 3. The path of PMD-mean
#   goes straight on and stops on the edge between actions 2 and 3, at (0, 0.63, 0.37).
tau = np.geomspace(100, 1e-3, 200)  # from a huge temperature to a tiny one
part = theory.pmd_part(pi, reward, tau)
mean = theory.pmd_mean(pi, reward, tau)
actions = ["action 1\nreward 0", "action 2\nreward 0.7", "action 3\nreward 1"]

fig, ax = plt.subplots(figsize=(5.5, 5))
simplex.triangle(ax, actions)
simplex.path(ax, part.probs, label="PMD-part", **look("pmd-part"))
simplex.path(ax, mean.probs, label="PMD-mean", **look("pmd-mean"))
ax.plot(*simplex.to_xy(pi), "ko", markersize=6, label="before the update")
ends = simplex.to_xy([part.probs[-1], mean.probs[-1]])
ax.plot(*ends.T, "kx", label="τ = 0.001", zorder=3)
ax.legend(loc="upper left", title="τ from 100 to 0.001")
plt.show()

# %% [markdown]
# **What to see.** The two paths leave in the same direction, then part. PMD-part goes
# to the corner of the best action. PMD-mean stops on the edge between actions 2 and 3,
# however small $\tau$ gets. What stops it?
# <!-- claim: PMD-part goes to the corner of the best action :: part.probs[-1][2] >
#   0.999 -->
# <!-- claim: PMD-mean stops on the edge between actions 2 and 3 :: mean.probs[-1][0] <
#   1e-6 and min(mean.probs[-1][1:]) > 0.1 -->
#
# ## Predict
#
# Two changes, one at a time. Where do the two paths end for each? Write your guess down
# before you go on.
#
# * The policy starts at (0.1, 0.3, 0.6), with the same rewards.
# * The rewards are 0, 0 and 1, with the same policy.
#
# <!-- predict-path: Where does the path of PMD-mean end if the policy starts at (0.1,
#   0.3, 0.6)? Drag the end of the path there.
#   : pi 0.1 0.3 0.6
#   : reward 0 0.7 1
#   = The mean reward is 0.81 now. Only action 3 is above it, so nothing else
#     survives. -->
# <!-- predict: And with rewards 0, 0 and 1?
#   - on an edge
#   + in the corner of action 3
#   - where it starts
#   = Again only one action is above the mean. -->
#
# ## Run
#
# `pmdkit.theory` knows both solutions exactly.

# %%
cases = {
    "the picture": (pi, reward),
    "another policy": (np.array([0.1, 0.3, 0.6]), reward),
    "other rewards": (pi, np.array([0.0, 0.0, 1.0])),
}
print(f"{'':16}end of PMD-part   end of PMD-mean")
for name, (start, earned) in cases.items():
    ends = (f(start, earned, 1e-4).probs for f in (theory.pmd_part, theory.pmd_mean))
    print(f"{name:16}" + "   ".join(f"{np.round(end, 2)!s:15}" for end in ends))

# %% [markdown]
# PMD-part ends in the corner of the best action every time. PMD-mean ends there too in
# both new cases; only in the first case does it end on an edge. What do the new cases
# have in common? Compare each reward with the mean reward of the policy.
# <!-- claim: PMD-part ends in the corner of the best action every time ::
#   min(theory.pmd_part(*case, 1e-4).probs[2] for case in cases.values()) > 0.999 -->
# <!-- claim: PMD-mean ends there too in both new cases; only in the first case does it
#   end on an edge :: [theory.pmd_mean(*case, 1e-4).probs[2] > 0.99 for case in
#   cases.values()] == [False, True, True] -->
#
# <!-- explore: simplex -->
#
# ## Look
#
# The paths show where each update goes. The *log-ratio* $\log(\pi_{new}/\pi)$ of each
# action shows how hard it is pushed.

# %%
# alt: Log-ratio of each action against its reward at tau 0.2. For PMD-part the three
#   actions lie on a straight line of slope 5. For PMD-mean the line bends: it rises
#   steeply from reward 0 to 0.7 and is nearly flat from 0.7 to 1. Its action with
#   reward 0 is pushed down less, its action with reward 1 pushed up less than under
#   PMD-part.
tau_one = 0.2
part_one = theory.pmd_part(pi, reward, tau_one)
mean_one = theory.pmd_mean(pi, reward, tau_one)

fig, ax = plt.subplots()
ax.axhline(0, color="0.8", zorder=0)
ax.plot(reward, part_one.log_ratio, label="PMD-part", **look("pmd-part", marker=True))
ax.plot(reward, mean_one.log_ratio, label="PMD-mean", **look("pmd-mean", marker=True))
ax.set(xlabel="reward of the action (reward units)", ylabel="log-ratio (nats)")
ax.set(title=f"one update at τ = {tau_one}")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** PMD-part is a straight line of slope $1/\tau$: its normaliser shifts
# all actions by the same amount. PMD-mean bends: a good action is held back, and a bad
# one is pushed down less hard.
# <!-- claim: PMD-part is a straight line of slope $1/\tau$ ::
#   np.abs(np.diff(part_one.log_ratio) / np.diff(reward) - 1 / tau_one).max() < 1e-9 -->
# <!-- claim: a good action is held back, and a bad one is pushed down less hard ::
#   mean_one.log_ratio[2] < part_one.log_ratio[2] and mean_one.log_ratio[0] >
#   part_one.log_ratio[0] -->
#
# ## Explain
#
# PMD-mean is fitted by regression. Its loss is an average over the policy *before* the
# update, of a squared residual:
#
# $$ L(\pi_{new}) = \frac{1}{2\tau} \sum_y \pi(y)\,
#    \Big(\Delta(y) - \tau \log\frac{\pi_{new}(y)}{\pi(y)}\Big)^2 $$
#
# The weight $\pi(y)$ is called **mass** in pmdkit. When all actions are enumerated, the
# mass is the policy itself; with $G$ draws it is $1/G$ for each. Nothing else differs
# between an exact bandit and a language model, so there is one loss for both. This is
# the only place in the course where we write a loss by hand, to compare it with
# pmdkit's.

# %% tags=["torch"]
from dataclasses import replace

import torch

from pmdkit.objectives import Groups, PMDMean, credit, total

old, new = torch.tensor(pi), torch.tensor([0.3, 0.4, 0.3], dtype=torch.float64)
r = torch.tensor(reward)


def by_hand(new):
    """The loss of one new policy, or of many."""
    delta = r - (old * r).sum()
    return (old * (delta - tau_one * (new / old).log()) ** 2).sum(-1) / (2 * tau_one)


objective = PMDMean(tau=tau_one)
# one prompt, all three actions; an action is a response of one token
groups = Groups(reward=r[None], mass=old[None], sampled=False)
one_token = torch.ones(3, 1, dtype=torch.bool)
batch = credit(objective, groups, logp_old=old.log()[:, None], mask=one_token)
batch = replace(batch, logp=new.log()[:, None])

torch.testing.assert_close(by_hand(new), total(objective, batch))
print("by hand:", by_hand(new).item(), "  pmdkit:", total(objective, batch).item())

# %% [markdown]
# The loss is a number for every point of the triangle. So draw it as a landscape, and
# put the exact solution on top.


# %% tags=["torch"]
# alt: The triangle shaded by the logarithm of the PMD-mean loss at tau 0.2. The loss
#   grows towards every edge and corner and has one bright valley. The exact solution of
#   PMD-mean lies at the bottom of the valley; the exact solution of PMD-part lies
#   outside it, towards action 3.
def height(policies):
    """log10 of the loss of many policies, [K, 3] to [K]."""
    return by_hand(torch.tensor(policies)).log10().numpy()


fig, ax = plt.subplots(figsize=(6.5, 5))
simplex.triangle(ax, actions)
shades = {"filled": True, "cmap": "Greys", "extend": "both"}
levels = simplex.contour(ax, height, np.linspace(-1.2, 0.8, 11), **shades)
fig.colorbar(levels, label="log10 of the PMD-mean loss (reward units)")
ax.plot(*simplex.to_xy(pi), "ko", markersize=6, label="before the update")
for method, exact in (("pmd-part", part_one), ("pmd-mean", mean_one)):
    mark = look(method, marker=True) | {"linestyle": "none", "markersize": 8}
    ax.plot(*simplex.to_xy(exact.probs), **mark, label=f"exact {method}")
ax.legend(loc="upper left")
plt.show()
print("loss at the exact solution:", by_hand(torch.tensor(mean_one.probs)).item())
print("lowest of a fine grid:     ", by_hand(torch.tensor(simplex.grid())).min().item())

# %% [markdown]
# **What to see.** The landscape has one valley, and the exact solution of PMD-mean is
# its lowest point. No point of the grid lies lower. The solution of PMD-part lies
# higher: it is the answer to another question.
# <!-- claim: No point of the grid lies lower :: by_hand(torch.tensor(mean_one.probs))
#   <= by_hand(torch.tensor(simplex.grid())).min() -->
# <!-- claim: The solution of PMD-part lies higher ::
#   by_hand(torch.tensor(part_one.probs)) > by_hand(torch.tensor(mean_one.probs)) -->
#
# Why is PMD-mean cautious? Its target $\Delta/\tau$ is not the log-ratio of any policy:
# ratios $e^{\Delta/\tau}$ average to more than one. No point of the triangle fits every
# target. The fit gives way where a nat saves the most probability: at the highest
# targets. Lesson 102 measures how much; lesson 103 says exactly what is solved instead.
# <!-- claim: ratios $e^{\Delta/\tau}$ average to more than one :: pi @ np.exp((reward -
#   pi @ reward) / tau_one) > 1 -->
#
# **What this is for.** Put a small transformer in place of the three numbers. The
# question is a sum of two digits modulo ten, the reward is 1 for the right digit, and
# nobody shows it an answer. It draws sixteen answers to each of 128 questions and takes
# two steps down the loss above, with the mean of its own draws for a baseline. That is
# a *step*; here are a hundred.

# %% tags=["torch"]
# alt: Pass rate of a transformer on sums of two digits modulo ten, against steps, 0 to
#   100. It starts near 0.09, which is chance, passes one half after 20 to 25 steps and
#   ends near 0.99.
import tempfile

from pmdkit import train

where = tempfile.mkdtemp()  # of the run
run = train("pmd-mean", "toy", "modular-sum", steps=100, tau=0.05, out=f"{where}/sum")
rates = [row["pass_rate"] for row in run.metrics]
fig, ax = plt.subplots()
ax.plot(rates, **look("pmd-mean"))
ax.set(xlabel="steps so far", ylabel="pass rate", title="PMD-mean, τ = 0.05")
plt.show()

# %% [markdown]
# **What to see.** It learns to add from rewards alone, from one answer in eleven to
# 0.98 and more. The lessons up to 107 say what one such step aims at, and what draws
# can tell of it. Your own program, exercise 0 of most lessons, learns a table in 107,
# and in 203 it draws this very curve.
# <!-- claim: from one answer in eleven to 0.98 and more :: abs(rates[0] - 1 / 11) <
#   0.03 and run.summary["pass_rate_last"] >= quoted[0] -->
#
# ## Exercise
#
# Four exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("101.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 101.0: the softmax.** Difficulty 2 of 5, about 5 minutes.
#
# This is the first function of a program of your own: `my_pmd.py`, which lies beside
# the lessons. Each exercise 0 adds one, and in lesson 107 your program learns.
#
# A *table* holds a policy as logits: numbers without bounds, one for each action. The
# softmax turns them into probabilities, $\pi(a) = e^{x_a} / \sum_b e^{x_b}$. Write its
# logarithm, for one row of logits or for a table of them. Logits may be as large as
# 1000.


# %% tags=["exercise", "101.0"]
def log_softmax(logits):
    """Log-probabilities, nats, of logits [..., A]; the last axis is the actions."""
    return ...


# %% tags=["check", "101.0"]
learn.check("101.0", log_softmax)

# %% [markdown]
# **Exercise 101.1: the end of the path.** Difficulty 3 of 5, about 10 minutes.
#
# Where does the PMD-mean path end as $\tau$ goes to 0? Compare the ends in the table of
# the lesson with the advantages $\Delta$. Then write the end point as a formula in `pi`
# and `reward`, with NumPy.


# %% tags=["exercise", "101.1"]
def end_point(pi, reward):
    """The policy, [A], to which one exact PMD-mean step tends as tau goes to 0."""
    return ...


# %% tags=["check", "101.1"]
learn.check("101.1", end_point)

# %% [markdown]
# **Exercise 101.2: two distances in log space.** Difficulty 3 of 5, about 15 minutes.
#
# How far apart are two points of the simplex? Two measures come up again and again,
# $\mathrm{KL}(\pi_{new}\|\pi) = E_{\pi_{new}} \log\frac{\pi_{new}}{\pi}$ and
# $\chi^2(\pi_{new}\|\pi) = E_{\pi}[(\frac{\pi_{new}}{\pi} - 1)^2]$. Write both for
# policies that are given as log-probabilities, as a network gives them. Some are as low
# as -900 nats, and an action may be missing from the new policy.


# %% tags=["exercise", "101.2"]
def divergences(logp_new, logp_old):
    """KL(new || old), nats, and chi2(new || old), of two log-policies, [A] each."""
    return ...


# %% tags=["check", "101.2"]
learn.check("101.2", divergences)

# %% [markdown]
# **Exercise 101.3: a temperature for a given distance.** Difficulty 3 of 5, about 10
# minutes.
#
# A *trust region* fixes how far a step goes and asks for the temperature. Find the
# $\tau$ at which one exact PMD-part step ends `budget` nats away, as
# $\mathrm{KL}(\pi_{new}\|\pi)$. `theory.pmd_part` and `theory.kl` are at hand.


# %% tags=["exercise", "101.3"]
def tau_for_kl(pi, reward, budget):
    """The tau at which one exact PMD-part step has KL(new || pi) = budget nats."""
    return ...


# %% tags=["check", "101.3"]
learn.check("101.3", tau_for_kl)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Raise the reward of action 2 from 0. From which value on does PMD-mean's path
# stop on an edge?
#
# <details>
# <summary>What we got</summary>
#
# From 0.143, which is 1/7: there action 2 earns the mean reward, $0.3x + 0.1$.
# <!-- claim: From 0.143 :: theory.pmd_mean(pi, np.array([0, quoted[0] + 0.01, 1]),
#   1e-4).probs[1] > 0.01 and theory.pmd_mean(pi, np.array([0, quoted[0] - 0.01, 1]),
#   1e-4).probs[1] < 0.001 -->
#
# </details>
#
# **2.** At a large $\tau$ the two updates agree. How far apart are they at 1, and at 5?
#
# <details>
# <summary>What we got</summary>
#
# The largest difference of a probability is 0.013 at 1 and 0.0001 at 5.
# <!-- claim: difference of a probability is 0.013 at 1 and 0.0001 at 5 ::
#   said(np.abs(np.subtract(*(f(pi, reward, 1.0).probs for f in (theory.pmd_part,
#   theory.pmd_mean)))).max(), None, np.abs(np.subtract(*(f(pi, reward, 5.0).probs for f
#   in (theory.pmd_part, theory.pmd_mean)))).max(), None) -->
#
# </details>
