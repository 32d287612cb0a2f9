# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 104: The hidden regulariser: how strong is the chi2 term, and for whom?
#
# * You learn: how the strength of the $\chi^2$ term follows from the prompt, what is
#   left of it when $\tau$ goes to 0, and how to read the regulariser of *any* loss off
#   the loss itself.
# * You need: lesson 103.
# * Time: 20 minutes to read, 10 seconds to run, 35 minutes for the exercises.
#
# Lesson 103 found what PMD-mean solves: the reward minus $\tau$ KL minus
# $\frac{\lambda}{2\tau}\chi^2$. Nobody chose $\lambda$. So let us ask who gets how much
# of it.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import theory
from pmdkit_lab.figures import style
from pmdkit_lab.figures.looks import look, shades

style()
np.set_printoptions(precision=3, suppress=True)
pass_rates = np.array([0.01, 0.1, 0.3, 0.5, 0.9])
taus = (0.5, 0.2, 0.05, 0.02, 0.005)  # reward units

# %% [markdown]
# A regulariser sets the price of every ratio. To rest at the ratio
# $z = \pi_{new}/\pi_{old}$, a response must earn $f'(z)$ more than one that rests at
# ratio 1. Under KL alone $f'(z) = \tau\log z$. PMD-mean adds
# $\frac{\lambda}{\tau}(z - 1)$. Here are the prices of three prompts, at one $\tau$.

# %%
# alt: Price f' in reward units against the ratio from 0.1 to 100 on a logarithmic axis,
#   at tau 0.05. KL alone is a straight line that reaches 0.23 at ratio 100. The curves
#   of PMD-mean bend upwards away from it: for pass rate 0.01 the price passes 1 near
#   ratio 40, for pass rate 0.1 near 10, for pass rate 0.5 near 5. A dot marks where
#   the right responses of each prompt rest: at ratios 38, 9 and 2.
tau = 0.05
ratio = np.geomspace(0.1, 100, 300)

fig, ax = plt.subplots()
ax.plot(ratio, tau * np.log(ratio), **look("pmd-part"), label="KL alone (PMD-part)")
for color, p in zip(shades(3), (0.01, 0.1, 0.5), strict=True):
    step = theory.binary(p, tau)
    strength = step.lam / tau
    ax.plot(
        ratio,
        tau * np.log(ratio) + strength * (ratio - 1),
        "-",
        color=color,
        label=f"PMD-mean, p = {p:g}",
    )
    best = np.exp(step.log_ratio_pos)
    ax.plot(best, tau * np.log(best) + strength * (best - 1), "o", color=color)
ax.set(xscale="log", ylim=(-0.3, 1.5), title=f"what a ratio costs, τ = {tau:g}")
ax.set(xlabel="ratio π_new / π_old", ylabel="price f' (reward units)")
ax.legend(title="dots: right responses rest here")
plt.show()

# %% [markdown]
# **What to see.** One loss, one $\tau$, three curves of prices. Under KL a ratio of
# 100 costs a quarter of a reward. Under PMD-mean the same ratio is out of reach for all
# three prompts, and the curve is steepest for the prompt that is solved half of the
# time.
# <!-- claim: Under KL a ratio of 100 costs a quarter of a reward :: abs(tau *
#   np.log(100) - 0.25) < 0.025 -->
# <!-- claim: the same ratio is out of reach for all three prompts ::
#   max(np.exp(theory.binary(x, tau).log_ratio_pos) for x in (0.01, 0.1, 0.5)) < 100 -->
# <!-- claim: the curve is steepest for the prompt that is solved half of the time ::
#   theory.binary(0.5, tau).lam > theory.binary(0.1, tau).lam and theory.binary(0.1,
#   tau).lam > theory.binary(0.01, tau).lam -->
#
# ## Predict
#
# Call $\lambda/\tau$ the strength of the $\chi^2$ term. $\tau$ shrinks from 0.5 to
# 0.005, so KL gets a hundred times cheaper.
#
# 1. What does the strength of $\chi^2$ do at a pass rate of 0.5: shrink too, stay, or
#    grow?
# 2. At $\tau = 0.01$ and a pass rate of 0.01, PMD-mean moves less than PMD-part. Which
#    $\tau$ would PMD-part need to move as little?
#
# Write both down.
#
# <!-- predict: From τ = 0.5 to 0.005, what does the strength of chi2 do at a pass
#   rate of 0.5?
#   - it shrinks by a factor of a hundred
#   - it shrinks a little
#   + it grows a little
#   = It settles on p (1 - p): turning τ down turns off KL and leaves chi2 on. -->
# <!-- predict: Which τ does PMD-part need to move as little as PMD-mean at τ =
#   0.01, p = 0.01?
#   - 0.01
#   - 0.02
#   + 0.18
#   = For hard prompts PMD-mean acts like PMD-part at a temperature that is many times
#     larger. -->
#
# ## Run
#
# The theory has an answer, but do not ask it first. `pmdkit_lab.explain` knows nothing
# of Lambert-W. It takes any loss, searches for the policy where it comes to rest, and
# reads off the price $f'(z)$ with responses so rare that they move nothing else. Then
# it looks for a mix of KL, $\chi^2$ and reverse KL with the same prices.


# %% tags=["torch"]
from pmdkit.objectives import load_objective
from pmdkit_lab.explain import (
    TabularPrompt,
    explain,
    regulariser_curve,
    stationary_point,
)
from pmdkit_lab.explain.report import headline


def price_terms(objective, p):
    """Weights of the terms of f' at a pass rate p, rewards 0 and 1."""
    prompt = TabularPrompt.of([p, 1 - p], [1.0, 0.0])
    resting = stationary_point(objective, prompt, starts=2)
    return regulariser_curve(objective, prompt, resting.log_ratio).weights


found = {}
print("weight of chi2 at tau = 0.05, read off the loss, by pass rate")
print("           ", *(f"{p:8g}" for p in pass_rates))
for name in ("pmd-mean", "dro", "pmd-part", "rebel", "tb"):
    objective = load_objective(name, tau=tau)
    found[name] = [price_terms(objective, p).get("chi2", 0.0) for p in pass_rates]
    print(f"{name:12s}", *(f"{weight:8.4f}" for weight in found[name]))
print("lambda / tau", *(f"{x:8.4f}" for x in theory.binary(pass_rates, tau).lam / tau))

# %% [markdown]
# The search and the theorem agree to all digits. DRO, which others wrote for another
# purpose, turns out to hide the same term: it too regresses on the reward minus its
# mean. The losses that fit a normaliser or compare pairs (PMD-part, REBEL, TB) have
# none.
# <!-- claim: The search and the theorem agree to all digits :: np.abs(found["pmd-mean"]
#   - theory.binary(pass_rates, tau).lam / tau).max() < 5e-5 -->
# <!-- claim: turns out to hide the same term :: np.abs(np.subtract(found["dro"],
#   found["pmd-mean"])).max() < 5e-5 -->
# <!-- claim: (PMD-part, REBEL, TB) have none :: np.abs([found[name] for name in
#   ("pmd-part", "rebel", "tb")]).max() < 5e-5 -->
#
# ## Look
#
# The strength for five $\tau$, over all pass rates.

# %% tags=["torch"]
# alt: Strength lambda over tau in reward units against the pass rate from 0 to 1, for
#   tau 0.5, 0.2, 0.05, 0.02 and 0.005. Every curve is a hump that is 0 at both ends. At
#   tau 0.5 its top is 0.15; with smaller tau the humps rise and close in on the dotted
#   parabola p times 1 minus p, whose top is 0.25. Round markers, read off the loss at
#   tau 0.05, lie on the curve of that tau.
p = np.linspace(0, 1, 201)[1:-1]

fig, ax = plt.subplots()
for color, each in zip(shades(5), taus, strict=True):
    strength = theory.binary(p, each).lam / each
    ax.plot(p, strength, "-", color=color, label=f"τ = {each:g}")
ax.plot(p, p * (1 - p), "k:", label="p (1 - p)")
mark = {"linestyle": "none", "fillstyle": "none", "markersize": 6}
ax.plot(pass_rates, found["pmd-mean"], "ko", **mark, label="read off the loss")
ax.set(xlabel="pass rate", ylabel="λ / τ (reward units)", ylim=(0, 0.3))
ax.set(title="strength of the χ² term, rewards 0 and 1")
ax.legend(ncols=2, loc="lower center")
plt.show()

# %% [markdown]
# **What to see.** $\tau$ falls a hundredfold, and the strength does not shrink: it
# grows a little and settles on $p(1-p)$. If you turn $\tau$ down, you turn KL off and
# leave $\chi^2$ on. And the strength adapts: prompts that are nearly always or nearly
# never solved have almost none of it, prompts in between have the most.
# <!-- claim: $\tau$ falls a hundredfold, and the strength does not shrink ::
#   theory.binary(0.5, 0.005).lam / 0.005 > theory.binary(0.5, 0.5).lam / 0.5 -->
# <!-- claim: it grows a little and settles on $p(1-p)$ :: abs(theory.binary(0.5,
#   0.005).lam / 0.005 - 0.25) < 0.005 -->
#
# But a price is not yet a step. Where a rare response is to be raised, $\chi^2$ is
# huge, and even a small weight bites. So translate all of this into one number per
# prompt: the $\tau$ at which PMD-part, with KL alone, would make *the same step*. With
# two rewards there is exactly one such $\tau$.

# %%
# alt: Factor between the equivalent tau and tau, from 1 to several hundred, against the
#   pass rate from 0.0001 to 1, both logarithmic, for tau 0.5, 0.1, 0.02, 0.005 and
#   0.001. All curves lie below the dotted line 1 over p. From the right each follows
#   the line up to a pass rate near tau, then bends and levels off: at tau 0.5 near 1,
#   at tau 0.02 near 8, at tau 0.001 above 100.
p = np.geomspace(1e-4, 0.999, 200)

fig, ax = plt.subplots()
for color, each in zip(shades(5), (0.5, 0.1, 0.02, 0.005, 0.001), strict=True):
    step = theory.binary(p, each)
    apart = step.log_ratio_pos - step.log_ratio_neg  # nats; 1 / tau under PMD-part
    ax.plot(p, 1 / apart / each, "-", color=color, label=f"τ = {each:g}")
ax.plot(p, 1 / p, "k:", label="1 / p")
ax.set(xscale="log", yscale="log", ylim=(0.8, 400))
ax.set(xlabel="pass rate", ylabel="equivalent τ / τ")
ax.set(title="PMD-mean acts like PMD-part at a larger τ")
ax.legend()
plt.show()

step = theory.binary(0.01, 0.01)
print("tau = 0.01, p = 0.01:", 1 / (step.log_ratio_pos - step.log_ratio_neg))

# %% [markdown]
# **What to see.** For easy prompts the factor is 1: PMD-mean and PMD-part agree. Below,
# it follows $1/p$ down to a pass rate near $\tau$, so PMD-mean acts like PMD-part at a
# temperature of $\tau/p$. For harder prompts it levels off, at a hundred or more when
# $\tau$ is small. That is the answer to the second question: $\tau = 0.01$ acts like
# 0.18. *For whom?* The weight is largest in the middle; the effect is largest for hard
# prompts.
# <!-- claim: For easy prompts the factor is 1 :: abs(1 /
#   np.subtract(theory.binary(0.99, 0.05).log_ratio_pos, theory.binary(0.99,
#   0.05).log_ratio_neg) / 0.05 - 1) < 0.05 -->
# <!-- claim: it levels off, at a hundred or more when $\tau$ is small :: 1 /
#   (theory.binary(1e-4, 0.001).log_ratio_pos - theory.binary(1e-4,
#   0.001).log_ratio_neg) / 0.001 > 100 -->
# <!-- claim: $\tau = 0.01$ acts like 0.18 :: said(None, 1 / (step.log_ratio_pos -
#   step.log_ratio_neg)) -->
#
# ## Explain
#
# **Why it stays.** Lesson 103 has the equation that every response obeys,
# $\tau u + \frac{\lambda}{\tau}e^u = \Delta$, with its log-ratio $u$. Let $\tau$ go to
# 0. The KL part, $\tau u$, vanishes for every response that keeps a share. What is left
# is the $\chi^2$ part: right ones, with $\Delta = 1 - p$, rest at a ratio of
# $(1-p)/\frac{\lambda}{\tau}$, wrong ones at 0. Ratios average to one,
# $p\,(1-p)/\frac{\lambda}{\tau} = 1$, hence $\lambda/\tau = p(1-p)$. Making the targets
# fit a policy costs something at every $\tau$, and the cost is in reward units: it
# does not shrink with $\tau$.
#
# **Why it is chi2.** Write $q$ for the new policy and $u = \log\frac{q}{\pi}$.
#
# > 1. Maximise $\sum q\,r - \tau\sum q\log\frac{q}{\pi} -
# >    \frac{\lambda}{2\tau}\sum\pi\,(\frac{q}{\pi} - 1)^2$. *Why:* reward, KL,
# >    and $\chi^2$, the mean square of the ratio less 1.
# > 2. $r - \tau(u + 1) - \frac{\lambda}{\tau}(e^u - 1) - \nu = 0$. *Why:* the
# >    derivative by $q$; $\nu$ is the multiplier of $\sum q = 1$.
# > 3. $\tau u + \frac{\lambda}{\tau}e^u = r - b$. *Why:* all that is the same for every
# >    action is called $b$.
# > 4. With PMD-mean's $\lambda$, $b = E\,r$. *Why:* then this is Theorem 1, whose $u$
# >    sums to one; the problem is strictly concave, so there is no second solution.
#
# **The same point, for every prompt at once.** At the $\lambda$ that was found, the
# mixed problem must have PMD-mean's solution. At another $\lambda$ it must not.

# %%
two = np.stack([pass_rates, 1 - pass_rates], -1)  # [prompts, arms]
solved = theory.pmd_mean(two, [1.0, 0.0], tau)
same = theory.mixed(two, [1.0, 0.0], tau, solved.lam)
less = theory.mixed(two, [1.0, 0.0], tau, solved.lam / 2)
np.testing.assert_allclose(same.probs, solved.probs, rtol=1e-8)
print("pass rate before         ", pass_rates)
print("PMD-mean                 ", solved.probs[:, 0])
print("mixed problem            ", same.probs[:, 0])
print("mixed with half of lambda", less.probs[:, 0])

kl = tau * theory.kl(same.probs, two)
chi2 = solved.lam / (2 * tau) * theory.chi2(same.probs, two)
print("share of the penalty that is chi2:", chi2 / (kl + chi2))

# %% [markdown]
# On a hard prompt, three quarters of the penalty are $\chi^2$, a term that nobody wrote
# down.
# <!-- claim: three quarters of the penalty are :: abs((chi2 / (kl
#   + chi2))[0] - 0.75) < 0.03 -->
#
# **Not only verdicts, not only PMD.** "The strength follows the pass rate" is true of
# rewards 0 and 1. In general it follows from how the rewards *spread* above their mean.
# Three prompts with the same mean reward of one half:

# %%
print("rewards                       lambda / tau at tau = 0.5, 0.05, 0.005")
for rewards in ([0.0, 1.0], [0.4, 0.6], [0.0, 0.25, 0.5, 0.75, 1.0]):
    pi = np.full(len(rewards), 1 / len(rewards))
    lams = [float(theory.pmd_mean(pi, rewards, each).lam / each) for each in taus[::2]]
    print(f"{rewards!s:30}", np.array(lams))

# %% [markdown]
# And what do other objectives solve? `explain` puts the question to any of them, on
# graded rewards, from the loss alone. `pmdkit explain NAME` says more on the command
# line, and works for a loss of your own (`my.py:MyLoss`).

# %% tags=["torch"]
for name in ("pmd-mean", "pmd-part", "chi2-po", "grpo", "rloo"):
    print(f"{name:9s}", headline(explain(name)))

# %% [markdown]
# There are three kinds. PMD-part solves one fixed problem. PMD-mean solves a problem
# that adapts to the prompt; $\chi^2$-PO asks for $\chi^2$ on purpose and gets a third,
# adaptive term on top, since it too uses the mean reward. GRPO and RLOO have no
# minimiser at all: where they stop depends on the clip, the learning rate and the
# number of steps.
#
# ## Exercise
#
# Three exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("104.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 104.0: the gradient of the loss.** Difficulty 4 of 5, about 10 minutes.
#
# The fourth function of `my_pmd.py`. To go down the loss of 103.0 a table needs its
# gradient in the logits. Write it for drawn actions, of which some may be equal. Two
# things are enough: the slope of the loss in each log-ratio, and that the gradient of
# $\log\pi(a)$ in the logits is $e_a - \pi$, one at $a$ and minus the policy everywhere.


# %% tags=["exercise", "104.0"]
def loss_gradient(logits, logits_old, actions, advantage, tau):
    """Gradient [A] of the loss in `logits` [A]; actions and advantages are [G]."""
    return ...


# %% tags=["check", "104.0"]
learn.check("104.0", loss_gradient)

# %% [markdown]
# **Exercise 104.1: read the strength off a step.** Difficulty 2 of 5, about 10 minutes.
#
# A run tells you two log-ratios of an exact step: that of right responses and that of
# wrong ones. Read the strength $\lambda / \tau$ off them. Rewards are 0 and 1, and no
# function of the theory is needed: write the price $\tau u + \frac{\lambda}{\tau}e^u$
# of both, and remember that their difference is the difference of the rewards. For a
# step of PMD-part the answer must come out as 0.


# %% tags=["exercise", "104.1"]
def strength_of(log_ratio_right, log_ratio_wrong, tau):
    """lambda / tau of P exact steps, [P], from their log-ratios, [P] nats each."""
    return ...


# %% tags=["check", "104.1"]
learn.check("104.1", strength_of)

# %% [markdown]
# **Exercise 104.2: the strength that stays.** Difficulty 4 of 5, about 15 minutes.
#
# For rewards 0 and 1 the strength $\lambda / \tau$ tends to $p(1-p)$ as $\tau$ goes to
# 0. Write what it tends to for *any* rewards. Start from $\tau u +
# \frac{\lambda}{\tau}e^u = \Delta$, let $\tau$ go to 0, and remember that ratios
# average to one. The three prompts of the lesson are there to try your answer on.


# %% tags=["exercise", "104.2"]
def limit_strength(pi, reward):
    """What lambda / tau tends to, for a policy pi, [A], and its rewards, [A]."""
    return ...


# %% tags=["check", "104.2"]
learn.check("104.2", limit_strength)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** A prompt is solved once in a thousand, and $\tau = 0.01$. Which $\tau$ would
# make PMD-part move as little?
#
# <details>
# <summary>What we got</summary>
#
# 0.167: seventeen times as much.
# <!-- claim: 0.167 :: said(1 / (theory.binary(0.001, 0.01).log_ratio_pos -
#   theory.binary(0.001, 0.01).log_ratio_neg)) -->
#
# </details>
#
# **2.** At which pass rate is the strength $\lambda/\tau$ the largest, at $\tau = 0.5$
# and at 0.05?
#
# <details>
# <summary>What we got</summary>
#
# At 0.45 and at 0.51. In the limit it is one half.
# <!-- claim: At 0.45 and at 0.51 :: said(*(np.linspace(0.01, 0.99,
#   99)[theory.binary(np.linspace(0.01, 0.99, 99), each).lam.argmax()] for each in (0.5,
#   0.05))) -->
#
# </details>
