# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 105: Estimating targets: what can sixteen rollouts say about a prompt?
#
# * You learn: what leave-one-out does, how far estimated targets are from the right
#   ones, and why a lone success is the hardest case.
# * You need: lessons 102 and 103; the binomial distribution.
# * Time: 20 minutes to read, 5 seconds to run, 30 minutes for the exercises.
#
# So far every average has been exact. A language model has no table of responses: it
# draws `n` of them for a prompt, 16 in the paper, and guesses the baseline from those.
# To keep a response from being compared with itself, its baseline comes from the
# *others*. That is called leave-one-out.
#
# How good is the guess? Rewards are 0 and 1 and there are 15 others, so all that
# matters is how many of the 15 are right. Here is every target that a wrong response
# may get, with its probability.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import binom

import pmdkit_course as learn
from pmdkit import theory
from pmdkit_lab.figures import style
from pmdkit_lab.figures.bootstrap import bootstrap
from pmdkit_lab.figures.looks import look, shades
from pmdkit_lab.ledger import of_item

style()
np.set_printoptions(precision=2, suppress=True)
p, tau, n = 0.05, 0.05, 16  # pass rate, temperature in reward units, group size

# %%
# alt: Two panels of probabilities against the target of a wrong response in nats, for
#   pass rate 0.05, tau 0.05 and groups of 16. Left, PMD-mean: bars at 0, -1.3, -2.7 and
#   so on with probabilities 0.46, 0.37, 0.13; the dashed line of the exact update is at
#   -1.3. Right, PMD-part: one bar of 0.46 at 0 and the others close together between
#   -17 and -19; the exact update is at -17.0.
methods = ("pmd-mean", "pmd-part")
right_peers = np.arange(n)
one_wrong = np.arange(1, n) <= right_peers[:, None]  # row S: S of the 15 others pass
groups = np.concatenate([np.zeros((n, 1)), one_wrong], axis=1)

fig, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharex=True, sharey=True)
for ax, method in zip(axes, methods, strict=True):
    targets = theory.leave_one_out_targets(groups, tau, method)[:, 0]
    ideal = theory.binary(p, tau, method).log_ratio_neg
    color = look(method)["color"]
    ax.vlines(targets, 0, binom.pmf(right_peers, n - 1, p), color=color, linewidth=4)
    ax.axvline(ideal, color="k", linestyle="--", label="the exact update")
    ax.set(title=method, xlabel="target of a wrong response (nats)")
axes[0].set(ylabel="probability", xlim=(-21, 1))
axes[0].legend()
plt.show()

# %% [markdown]
# **What to see.** PMD-mean's guesses scatter around the right answer, a nat or two
# away. PMD-part's fall into two heaps. Where some other response is right, the wrong
# one is told to go down by 17 nats or a little more, as it should. With probability
# 0.46 none is, and it is told to stay where it is: 17 nats off.
# <!-- claim: told to go down by 17 nats or a little more :: said(-theory.binary(p, tau,
#   "pmd-part").log_ratio_neg) -->
# <!-- claim: With probability 0.46 none is :: said((1 - p) ** (n - 1)) -->
#
# ## Predict
#
# More rollouts help. But how?
#
# 1. At a pass rate of 0.05, from $n = 16$ to $n = 256$: does the mean squared error of
#    PMD-part's targets fall by a factor of 16, by much more, or by much less?
# 2. And PMD-mean's?
# 3. On which prompts has PMD-part the *smaller* error with 16 rollouts?
#
# <!-- predict: From 16 to 256 rollouts, by how much does PMD-part's error fall?
#   - by a factor of 16
#   + by a factor of more than 1000
#   - hardly
#   = It drops off a cliff once n is a few times 1 / p. -->
# <!-- predict: And PMD-mean's?
#   - by a factor of 16
#   - by a factor of more than 1000
#   + hardly
#   = Its error sits in the targets of right responses, and no number of rollouts
#     removes it. -->
# <!-- predict: On which prompts has PMD-part the smaller error with 16 rollouts?
#   - on hard ones
#   + on easy ones
#   - on none
#   = There a group nearly always holds a right response. -->
#
# ## Run
#
# One group first, as a trainer sees it: sixteen verdicts, one of them right.

# %%
verdicts = (np.random.default_rng(1).random(n) < p).astype(float)
print("verdicts", verdicts.astype(int))
for method in methods:
    exact = theory.binary(p, tau, method)
    guess = theory.leave_one_out_targets(verdicts, tau, method)
    right, wrong = guess[verdicts == 1], guess[verdicts == 0]
    print(f"{method}: right {right.mean():6.2f} nats, exact {exact.log_ratio_pos:6.2f}")
    print(f"          wrong {wrong.mean():6.2f} nats, exact {exact.log_ratio_neg:6.2f}")

# %% [markdown]
# The right one is alone: none of its peers passed. Both methods tell it to rise by 20
# nats, a factor of $e^{20}$. It can rise by 3 at most, for then it is certain.
# <!-- claim: none of its peers passed. Both methods tell it to rise by 20 nats ::
#   verdicts.sum() == 1 and said(guess[verdicts == 1].mean()) -->
# <!-- claim: It can rise by 3 at most :: said(np.log(1 / p)) -->
#
# Now for the error over all groups that may be drawn. `theory.target_error` adds up the
# binomial exactly; `theory.simulate_target_error` draws groups, as the paper does.

# %%
print("mean squared target error (nats^2), n = 16")
for each in (0.01, 0.05, 0.2):
    for method in methods:
        exact = theory.target_error(each, n, tau, method).mean
        drawn = theory.simulate_target_error(each, n, tau, method, 20_000, 1).mean
        print(
            f"p = {each:4g}  {method}: exact {exact:7.2f}   20000 groups {drawn:7.2f}"
        )

# %% [markdown]
# <!-- explore: rollouts -->
#
# ## Look
#
# This is the paper's figure: the error against the size of the group. The paper draws
# 100 groups for each point; the exact lines are added.

# %%
# alt: Mean squared target error in nats squared against the group size from 4 to 1024
#   on logarithmic axes, for pass rates 0.01, 0.05 and 0.2. PMD-part starts near 200 for
#   all three and falls off a cliff, at n = 200 for p = 0.01, at 50 for 0.05, at 15 for
#   0.2, to below 0.2. PMD-mean is nearly flat at 3, 14 and 45. The simulated
#   points lie on the exact lines except on the cliffs, where some lie far below.
sizes = 2 ** np.arange(2, 11)
fine = np.unique(np.geomspace(4, 1024, 60).astype(int))

fig, ax = plt.subplots(figsize=(7, 4.2))
for color, each in zip(shades(3), (0.01, 0.05, 0.2), strict=True):
    for method in methods:
        line = look(method) | {"color": color, "label": f"p = {each:g}, {method}"}
        ax.plot(fine, theory.target_error(each, fine, tau, method).mean, **line)
        drawn = theory.simulate_target_error(each, sizes, tau, method, 100, 0)
        low, high = bootstrap(drawn.per_seed, np.ones(1))
        ax.vlines(sizes, low, high, color=color, linewidth=1)
        ax.plot(sizes, drawn.mean, look(method, marker=True)["marker"], color=color)
ax.set(xscale="log", yscale="log", ylim=(0.005, 500), title="τ = 0.05")
ax.set(xlabel="responses per prompt, n", ylabel="mean squared target error (nats^2)")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
fig.legend(loc="outside right center", title="lines: exact\npoints: 100 groups, 95 %")
plt.show()

# %% [markdown]
# **What to see.** PMD-part's error does not fall like $1/n$: it stays, then drops by
# orders of magnitude once $n$ is a few times $1/p$. From 16 to 256 at $p = 0.05$ it
# falls by a factor of 1500. PMD-mean's hardly falls at all. And with 16 rollouts
# PMD-part has the smaller error where $p = 0.2$: on easy prompts. On the cliffs 100
# groups are too few: the rare group without a success dominates the mean, and when
# none is drawn, the point and its interval lie below the truth.
# <!-- claim: From 16 to 256 at $p = 0.05$ it falls by a factor of 1500 :: about(None,
#   None, None, theory.target_error(0.05, 16, tau, "pmd-part").mean /
#   theory.target_error(0.05, 256, tau, "pmd-part").mean) -->
# <!-- claim: PMD-mean's hardly falls at all :: theory.target_error(0.05, 256, tau).mean
#   > 0.85 * theory.target_error(0.05, 16, tau).mean -->
# <!-- claim: with 16 rollouts PMD-part has the smaller error where $p = 0.2$ ::
#   [theory.target_error(x, 16, tau, "pmd-part").mean < theory.target_error(x, 16,
#   tau).mean for x in (0.01, 0.05, 0.2)] == [False, False, True] -->
#
# Whose targets are off? Here is the same error, right and wrong responses apart.

# %%
# alt: Two panels of squared target error in nats squared against the group size from 4
#   to 1024, both logarithmic, for pass rates 0.01, 0.05 and 0.2. Left, right responses:
#   PMD-mean is flat, between 200 and 270, PMD-part falls off its cliff from about 200.
#   Right, wrong responses: PMD-part is the same as on the left, PMD-mean falls with n,
#   from 1.4 to 21 at n = 4 to about 0.1 at n = 1024.
fig, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True)
for color, each in zip(shades(3), (0.01, 0.05, 0.2), strict=True):
    for method in methods:
        error = theory.target_error(each, fine, tau, method)
        line = look(method) | {"color": color, "label": f"p = {each:g}, {method}"}
        axes[0].plot(fine, error.positive, **line)
        axes[1].plot(fine, error.negative, **line)
for ax, kind in zip(axes, ("right", "wrong"), strict=True):
    ax.set(xscale="log", yscale="log", ylim=(0.005, 500), title=f"{kind} responses")
    ax.set(xlabel="responses per prompt, n", ylabel="squared target error (nats^2)")
    ax.set_xticks(sizes[::2], sizes[::2])
    ax.minorticks_off()
axes[1].legend(fontsize="small")
plt.show()

# %% [markdown]
# **What to see.** PMD-mean's error sits in the right responses, and no number of
# rollouts removes it. Its targets for wrong responses, which are nearly all of them on
# a hard prompt, are good. PMD-part errs as much on both kinds: its error is that of the
# normaliser, which they share.
# <!-- claim: PMD-mean's error sits in the right responses, and no number of rollouts
#   removes it :: theory.target_error(0.05, 1024, tau).positive > 0.9 *
#   theory.target_error(0.05, 4, tau).positive -->
# <!-- claim: Its targets for wrong responses, which are nearly all of them on a hard
#   prompt, are good :: theory.target_error(0.05, 16, tau).negative < 0.05 *
#   theory.target_error(0.05, 16, tau).positive -->
#
# ## Explain
#
# **PMD-mean: noise and a floor.** A mean of $n-1$ verdicts has variance
# $p(1-p)/(n-1)$, so the target has noise of $p(1-p)/((n-1)\tau^2)$. The rest is
# not the rollouts' fault: even the exact $\Delta/\tau$ is not the log-ratio of a policy
# (103). It overshoots by $w = \Delta/\tau - \log\frac{\pi_{new}}{\pi}$, a lot for right
# responses. That is the floor.

# %%
best = theory.binary(p, tau)
overshoot = np.array([1 - p, -p]) / tau - [best.log_ratio_pos, best.log_ratio_neg]
noise = p * (1 - p) / ((n - 1) * tau**2)
floor = np.array([p, 1 - p]) @ overshoot**2
print(f"noise {noise:.2f} + floor {floor:.2f} = {noise + floor:.2f} nats^2")
print(f"theory.target_error: {theory.target_error(p, n, tau).mean:.2f} nats^2")

# %% [markdown]
# The floor is a flaw in the yardstick more than in the method. A fit over policies
# cannot follow a target above $\log(1/p)$: it must sum to one, and ends at the exact
# update all the same. (The paper's refined lemma says so. Lesson 106 looks at it.)
#
# **PMD-part: a bias that only luck removes.** The logarithm of a mean is not the mean
# of a logarithm. If no peer passes, the guessed $\log Z$ is 0 instead of 17, and that
# happens with probability $(1-p)^{n-1}$. So the guess is too low on average.
# <!-- claim: the guessed $\log Z$ is 0 instead of 17 :: said(None, theory.pmd_part([p,
#   1 - p], [1.0, 0.0], tau).log_z) -->

# %%
# alt: Bias and standard deviation of the estimated log Z in nats against the group size
#   from 4 to 1024, at pass rate 0.05 and tau 0.05. The bias starts near 14 and falls to
#   1 at n = 60 and to almost 0 at n = 128. The standard deviation rises from 7 to
#   almost 9 at n = 16 and falls after it. The probability that no peer passes, on the
#   right axis, falls together with the bias.
error = theory.target_error(p, fine, tau, "pmd-part").mean
exact_log_z = theory.pmd_part([p, 1 - p], [1.0, 0.0], tau).log_z
seen = (p + theory.anchor(p, tau, fine)) / tau  # of log Z, by groups on average
bias = exact_log_z - seen

fig, ax = plt.subplots()
ax.plot(fine, bias, **look("pmd-part"), label="bias of log Z")
ax.plot(fine, np.sqrt(error - bias**2), "-", color="0.3", label="its spread")
no_luck = ax.twinx()
no_luck.plot(fine, (1 - p) ** (fine - 1), "k:", label="P(no peer passes)")
ax.set(xscale="log", xlabel="responses per prompt, n", ylabel="nats", ylim=(0, 20))
no_luck.set(ylabel="probability", ylim=(0, 1))
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
fig.legend(loc="outside upper center", ncols=3)
plt.show()

# %% [markdown]
# **What to see.** The bias is the dotted line in other units: 17 nats times the
# probability that no peer passes. The spread is largest where that is a toss-up, as it
# is for a group of 16 at a pass rate of 0.05.
# <!-- claim: The bias is the dotted line in other units: 17 nats times the probability
#   that no peer passes :: said(exact_log_z) -->
# <!-- claim: for a group of 16 at a pass rate of 0.05 :: said(None, p) and abs((1 - p)
#   ** (n - 1) - 0.5) < 0.1 -->
#
# **The anchor law, derived.** A baseline $b$ other than the mean reward $E\,r$ does
# more than shift a target. Write $c = b - E\,r$, and $u$ for the log-ratio of a policy.
#
# > 1. $2\tau L_b = E\,(r - b - \tau u)^2 = E\,(x - c)^2$, with $x = r - E\,r - \tau u$.
# >    *Why:* a regression with the baseline $b$; $x$ is the residual of PMD-mean.
# > 2. $E\,(x - c)^2 = E\,x^2 - 2c\,E\,x + c^2$. *Why:* the square, expanded.
# > 3. $E\,x = -\tau E\,u = \tau\,\mathrm{KL}(\pi_{old}\,\|\,\pi)$. *Why:* the mean of
# >    $r - E\,r$ is 0, and $-E\,u$ is that KL.
# > 4. $L_b = L_{mean} - c\,\mathrm{KL}(\pi_{old}\,\|\,\pi) + \frac{c^2}{2\tau}$.
# >    *Why:* divided by $2\tau$. PMD-part's $b = \tau\log Z$ is above $E\,r$: it
# >    pushes away.
# > 5. $L_{mean} = \mathrm{const} - E\,(r - E\,r)\,u + \frac{\tau}{2}E\,u^2$, and
# >    $\frac{1}{2}E\,u^2 = \mathrm{KL}(\pi_{old}\,\|\,\pi)$ to second order in $u$.
# >    *Why:* $1 = E\,e^u = 1 + E\,u + \frac{1}{2}E\,u^2 + \dots$, so
# >    $\frac{1}{2}E\,u^2 = -E\,u$ but for terms of third order.
#
# So PMD-mean pulls back with $\tau\,\mathrm{KL}$, PMD-part with $(\tau - c)\,
# \mathrm{KL}$: near the old policy the *net pull* is $\tau - c$, to second order.

# %%
old, new, right = np.array([p, 1 - p]), np.array([0.2, 0.8]), np.array([1.0, 0.0])
c = tau * exact_log_z - p
x = right - p - tau * np.log(new / old)
print("L_b   ", old @ (x - c) ** 2 / (2 * tau))
print("line 4", old @ x**2 / (2 * tau) - c * theory.kl(old, new) + c**2 / (2 * tau))

# %% [markdown]
# **The lone success, in floating point.** PMD-part wants to raise a lone success by
# $2/\tau$ nats on rewards of −1 and 1: its advantage, $\tau$ times that, is 2. The code
# that the authors published computes something else. It takes the full sum of
# $e^{r/\tau}$ minus the response's own term, and floors the mean of the others at
# $10^{-8}$ of the largest term. For a lone success the floor is all that is left.

# %% tags=["torch"]
import torch

from pmdkit.objectives import Groups, PMDMean, PMDPart

lone = torch.full((1, n), -1.0, dtype=torch.float64)
lone[0, 0] = 1.0
group = Groups(lone, torch.full_like(lone, 1 / n))
cap = -np.log(1e-8)  # 18.4 nats
for name, objective in (
    ("PMD-mean", PMDMean(tau=0.005)),
    ("PMD-part, as in the paper", PMDPart(tau=0.005)),
    ("PMD-part, as in their code", PMDPart(tau=0.005, target_cap=cap)),
):
    advantage = objective.advantage(group)[0].numpy()
    print(f"{name:27s} right {advantage[0]:6.3f}   wrong {advantage[1]:6.3f}")
print("the ledger:", *(row["note"] for row in of_item("code:target_clamp")))

# %% tags=["torch"]
# alt: Advantage of the lone success among 16 against tau from 0.001 to 1 on a
#   logarithmic axis, rewards -1 and 1. By the formula it is 2 everywhere. With the
#   floor of the code it rises in proportion to tau from 0.02 at tau 0.001 through 0.09
#   at 0.005, and meets the formula at tau 0.11. A grey band marks the temperatures of
#   the paper's runs, 0.005 to 0.1, all below that.
taus = np.geomspace(0.001, 1, 100)


def of_the_lone(**options):
    """Its advantage at every tau."""
    return [PMDPart(tau=t, **options).advantage(group)[0, 0].item() for t in taus]


fig, ax = plt.subplots()
ax.axvspan(0.005, 0.1, color="0.9", label="τ of the paper's runs")
ax.plot(taus, of_the_lone(), **look("pmd-part"), label="PMD-part, the formula")
ax.plot(taus, of_the_lone(target_cap=cap), "k:", label="with the floor of the code")
ax.set(xscale="log", xlabel="τ (reward units)", ylim=(0, 2.3))
ax.set(ylabel="advantage of the lone success (reward units)")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** At every temperature of the paper's runs the floor, not the formula,
# says what a lone success is worth: 0.09 in place of 2 at $\tau = 0.005$. The very
# responses that carry a hard prompt are muffled. The PMD-part of the published code,
# then, is not the PMD-part of the analysis. pmdkit sums the others by themselves and
# needs no floor; `target_cap` is there to reproduce the code.
# <!-- claim: 0.09 in place of 2 at $\tau = 0.005$ :: said(PMDPart(tau=0.005,
#   target_cap=cap).advantage(group)[0, 0].item(),
#   PMDPart(tau=0.005).advantage(group)[0, 0].item(), None) -->
# <!-- claim: At every temperature of the paper's runs the floor, not the formula, says
#   what a lone success is worth :: max(a for t, a in zip(taus,
#   of_the_lone(target_cap=cap)) if t <= 0.1) < 1.95 -->
#
# `pmdkit figure target-error target-error-split` draws the paper's two figures with
# all its pass rates.
#
# ## Exercise
#
# Four exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("105.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 105.0: a draw.** Difficulty 2 of 5, about 5 minutes.
#
# The fifth function of `my_pmd.py`; 105.1 is the sixth. A computer draws an action from
# a number that is uniform in [0, 1). Lay the probabilities side by side from 0 to 1, in
# the order of the actions: the action is the one whose piece holds the number.


# %% tags=["exercise", "105.0"]
def draw_actions(logits, uniform):
    """The actions, integers [G], that the numbers `uniform` [G] draw from logits."""
    return ...


# %% tags=["check", "105.0"]
learn.check("105.0", draw_actions)

# %% [markdown]
# **Exercise 105.1: leave-one-out advantages.** Difficulty 1 of 5, about 5 minutes.
#
# Write the leave-one-out advantage of PMD-mean for `P` groups of `n` rewards at once:
# each reward minus the mean reward of the *other* responses to the same prompt. No loop
# is needed.


# %% tags=["exercise", "105.1"]
def loo_advantage(reward):
    """Leave-one-out advantages, [P, n], of P groups of n rewards, [P, n]."""
    return ...


# %% tags=["check", "105.1"]
learn.check("105.1", loo_advantage)

# %% [markdown]
# **Exercise 105.2: the lone success, computed safely.** Difficulty 3 of 5, about 10
# minutes.
#
# Write PMD-part's leave-one-out targets of one group,
# $\frac{r_i}{\tau} - \log\frac{1}{n-1}\sum_{j\ne i} e^{r_j/\tau}$, in nats. They must
# be right for a lone success at $\tau = 0.005$ too, where two things go wrong in
# floating point: $e^{r/\tau}$ may overflow, and a full sum minus the response's own
# term may have no digits left.


# %% tags=["exercise", "105.2"]
def part_targets(reward, tau):
    """PMD-part's leave-one-out targets, [n] nats, of one group of rewards, [n]."""
    return ...


# %% tags=["check", "105.2"]
learn.check("105.2", part_targets)


# %% [markdown]
# **Exercise 105.3: broken: PMD-part below its threshold.** Difficulty 3 of 5, about 10
# minutes.
#
# A run of PMD-part with a small $\tau$ and several updates per batch drifts ever
# farther from the old policy, also in directions that the rewards say nothing about.
# Take the baseline $b$ from a group: beside PMD-mean's loss stands
# $-c\,\mathrm{KL}(\pi_{old}\,\|\,\pi)$, with $c = b - E\,r$. To second order the net
# pull back to the old policy is $\tau - c$ (line 5 above). Write it for one group, with
# the mean of its leave-one-out baselines $\tau\log\frac{1}{n-1}\sum_{j\ne
# i}e^{r_j/\tau}$ for $b$. Below 0 the loss pushes away.


# %% tags=["exercise", "105.3"]
def net_pull(reward, tau):
    """tau - c of one group of rewards, [n], in reward units; below 0 it is a push."""
    return ...


# %% tags=["check", "105.3"]
learn.check("105.3", net_pull)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** From which group size on has PMD-part the smaller target error, with $p = \tau
# = 0.05$?
#
# <details>
# <summary>What we got</summary>
#
# From 61 responses on, three times $1/p$.
# <!-- claim: From 61 responses :: said(next(k for k in range(4, 200) if
#   theory.target_error(0.05, k, 0.05, "pmd-part").mean < theory.target_error(0.05, k,
#   0.05).mean)) -->
#
# </details>
#
# **2.** And what are the two errors of a group of 16 at $\tau = 1$?
#
# <details>
# <summary>What we got</summary>
#
# 0.007 for PMD-part and 0.004 for PMD-mean, in nats squared: at a large $\tau$ neither
# is a problem.
# <!-- claim: 0.007 for PMD-part and 0.004 for PMD-mean ::
#   said(*(theory.target_error(0.05, 16, 1.0, name).mean for name in ("pmd-part",
#   "pmd-mean"))) -->
#
# </details>
