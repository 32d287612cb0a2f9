# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 103: What does PMD-mean really solve?
#
# * You learn: the exact solution of PMD-mean, the problem it answers, and where the
#   small-$\tau$ formula fails.
# * You need: lessons 101 and 102.
# * Time: 25 minutes to read, 5 seconds to run, 50 minutes for the exercises.
#
# PMD-part maximises the reward minus $\tau$ times a KL divergence. PMD-mean was meant
# as a shortcut to the same goal: put the mean reward where the normaliser belongs. It
# ends elsewhere (101) and moves less (102). So it must answer another question. Which?
# This picture shows how much it holds back.

# %%
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import pmdkit_course as learn
from pmdkit import theory
from pmdkit_lab.figures import style
from pmdkit_lab.figures.looks import look, shades
from pmdkit_lab.small_tau import hard_prompt

style()
np.set_printoptions(precision=5, suppress=True)
rng = np.random.default_rng(3)

# %%
# alt: How many times more a right response gains in one step under PMD-part than under
#   PMD-mean, against the pass rate from 0.001 to 1. At pass rate 0.001 it is 8 for tau
#   0.05 and 2.5 for tau 0.005, and falls to 1 as the pass rate rises; for tau 0.5 it
#   stays below 1.4.
p = np.geomspace(1e-3, 0.999, 200)
fig, ax = plt.subplots()
for color, each in zip(shades(3), (0.5, 0.05, 0.005), strict=True):
    both = (theory.binary(p, each, name) for name in ("pmd-part", "pmd-mean"))
    part, mean = (solution.log_ratio_pos for solution in both)
    ax.plot(p, np.exp(part - mean), "-", color=color, label=f"τ = {each:g}")
ax.set(xscale="log", xlabel="pass rate", title="a right response, one exact step")
ax.set(ylabel="gain under PMD-part / PMD-mean")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** On easy prompts the two do the same. On hard ones something holds
# PMD-mean back, most of all at an intermediate $\tau$: with a pass rate of 0.001 and
# $\tau = 0.05$, a right response gains 8 times less. No line of its loss says so.
# <!-- claim: On easy prompts the two do the same :: abs(np.exp(theory.binary(0.9, 0.05,
#   "pmd-part").log_ratio_pos - theory.binary(0.9, 0.05).log_ratio_pos) - 1) < 0.05 -->
# <!-- claim: with a pass rate of 0.001 and $\tau = 0.05$, a right response gains 8
#   times less. No :: said(None, None, np.exp(theory.binary(1e-3, 0.05,
#   "pmd-part").log_ratio_pos - theory.binary(1e-3, 0.05).log_ratio_pos)) -->
#
# ## Predict
#
# The regression wants every log-ratio to be $\Delta/\tau$. But the ratios of a policy
# must average to one, and $E_\pi\, e^{\Delta/\tau} > 1$. To hold the sum at one the
# regression needs a multiplier, $\lambda$. Before you go on: does $\lambda$ rise or
# fall as $\tau$ gets small? And is it the same for a prompt that is nearly always
# solved and one that almost never is?
#
# <!-- predict: What does λ do as τ gets small?
#   + it falls
#   - it stays
#   - it rises
#   = It falls in proportion to τ; at large τ it is half the variance of the
#     reward. -->
# <!-- predict: For which prompt is λ higher?
#   - one that is almost never solved
#   + one that is solved now and then
#   = Where rewards hardly vary, the targets nearly fit a policy. -->
#
# ## Run
#
# **Theorem 1, derived.** Write $u$ for the log-ratio of an action, and $E$ for the mean
# under the old policy.
#
# > 1. Minimise $\frac{1}{2\tau}E\,(\Delta - \tau u)^2$, subject to $E\,e^u = 1$. *Why:*
# >    the loss; $E\,e^u$ is the sum of $\pi_{new}$.
# > 2. Minimise $\frac{1}{2\tau}E\,(\Delta - \tau u)^2 + \mu\,(E\,e^u - 1)$. *Why:* a
# >    multiplier $\mu$ for the sum.
# > 3. $-(\Delta - \tau u) + \mu\,e^u = 0$ for every action. *Why:* the derivative by
# >    its $u$, divided by its probability.
# > 4. $u + \frac{\lambda}{\tau^2}e^u = \frac{\Delta}{\tau}$. *Why:* divided by $\tau$,
# >    with the name $\lambda$ for $\tau\mu$.
# > 5. $w\,e^w = \frac{\lambda}{\tau^2}e^{\Delta/\tau}$, with
# >    $w = \frac{\lambda}{\tau^2}e^u$. *Why:* $u = \frac{\Delta}{\tau} - w$ in the
# >    exponent of $w$.
# > 6. $u = \frac{\Delta}{\tau} - W\big(\frac{\lambda}{\tau^2}e^{\Delta/\tau}\big)$.
# >    *Why:* Lambert's $W$ is the solution $w$.
# > 7. $\lambda > 0$, and there is one. *Why:* line 4, differentiated by $\lambda$, is
# >    $(1 + \frac{\lambda}{\tau^2}e^u)\,u' = -\frac{1}{\tau^2}e^u$, so every $u$ falls
# >    and with it $E\,e^u$; at $\lambda = 0$ that is $E\,e^{\Delta/\tau} > 1$ (Jensen),
# >    far out it is 0.
# > 8. This is the minimum. *Why:* allow $E\,e^u \le 1$ too. Then the problem is convex,
# >    and a point with $\mu \ge 0$ and lines 3 and 7 solves it; its sum is one, so it
# >    solves ours.
#
# Let us check the equation and the sum on random numbers, and whether an optimiser that
# knows none of these lines ends there when it fits the loss.

# %%
pi, reward, tau = rng.dirichlet(np.ones(6)), rng.uniform(size=6), 0.05
solution = theory.pmd_mean(pi, reward, tau)
delta = reward - pi @ reward

u = solution.log_ratio
print("lambda:", solution.lam)
residual = u + solution.lam / tau**2 * np.exp(u) - delta / tau
print("largest residual of the equation:", np.abs(residual).max())
print("sum of the new policy:", solution.probs.sum())


def normalised(logits):
    """The policy of some logits."""
    new = np.exp(logits - logits.max())
    return new / new.sum()


def loss(logits):
    """PMD-mean's, of a policy given by logits."""
    return pi @ (delta - tau * np.log(normalised(logits) / pi)) ** 2 / (2 * tau)


fitted = normalised(minimize(loss, np.log(pi), options={"gtol": 1e-9}).x)
print("off by, when fitted:", np.abs(fitted - solution.probs).max())
np.testing.assert_allclose(fitted, solution.probs, atol=1e-5)

# %% [markdown]
# ## Look
#
# The multiplier $\lambda$ against $\tau$, for the two-valued reward of a verifier. The
# paper gives bounds for it.

# %%
# alt: Lambda against tau from 0.001 to 100 on logarithmic axes, for pass rates 0.01 and
#   0.3, each inside a shaded band between the lower and the upper bound of the paper.
#   At small tau lambda falls in proportion to tau; at large tau it levels off at p
#   times 1 minus p over 2. The band closes above tau 1 and is several orders of
#   magnitude wide below 0.1.
taus = np.geomspace(1e-3, 100, 300)
fig, ax = plt.subplots()
for color, rate in zip(shades(2), (0.01, 0.3), strict=True):
    two = np.array([rate, 1 - rate])
    lower, upper = theory.lambda_bounds(two, [1.0, 0.0], taus)
    ax.fill_between(taus, lower, upper, color=color, alpha=0.2, linewidth=0)
    exact = theory.pmd_mean(two, [1.0, 0.0], taus).lam
    ax.plot(taus, exact, "-", color=color, label=f"p = {rate:g}")
    ax.axhline(rate * (1 - rate) / 2, color=color, linestyle=":")
ax.set(xscale="log", yscale="log", ylim=(1e-6, 1))
ax.set(xlabel="τ (reward units)", ylabel="λ (reward units squared)")
ax.legend(title="line: exact, band: bounds\ndots: p (1 - p) / 2")
plt.show()

# %% [markdown]
# **What to see.** At small $\tau$ it falls with $\tau$; at large $\tau$ $\lambda$ is
# half the variance of the reward, the dotted line. It is higher for the prompt that is
# solved more often. The bounds always hold. They are tight for large $\tau$ and far
# apart at the values used in practice.
# <!-- claim: At small $\tau$ it falls with $\tau$; at large $\tau$ $\lambda$ is half
#   the variance of the reward :: exact[0] < exact[100] and abs(exact[-1] / (rate * (1 -
#   rate) / 2) - 1) < 0.05 -->
# <!-- claim: It is higher for the prompt that is solved more often ::
#   theory.binary(0.3, 0.05).lam > theory.binary(0.01, 0.05).lam -->
# <!-- claim: The bounds always hold :: max(lower / exact) <= 1 + 1e-9 and min(upper /
#   exact) >= 1 - 1e-9 -->
# <!-- claim: They are tight for large $\tau$ and far apart at the values used in
#   practice :: (upper / lower)[-1] < 1.1 and (upper / lower)[np.searchsorted(taus,
#   0.05)] > 10 -->
#
# ## Explain
#
# Multiply the equation by $\tau$: $r - \tau u - \frac{\lambda}{\tau}e^u = E\,r$. Read
# it as the optimum of a maximisation over policies. A term linear in $u$ is the slope
# of a KL divergence, a term in $e^u = \pi_{new}/\pi$ that of a $\chi^2$ divergence, and
# the constant on the right is the multiplier of the policy's sum, up to constants of
# the two slopes (104 has them). So PMD-mean maximises
#
# $$ E_{\pi_{new}}[r] - \tau\, \mathrm{KL}(\pi_{new} \,\|\, \pi)
#    - \frac{\lambda}{2\tau}\, \chi^2(\pi_{new} \,\|\, \pi),
#    \qquad \chi^2(q\,\|\,\pi) = E_\pi\Big[\big(\tfrac{q}{\pi} - 1\big)^2\Big] $$
#
# Do not take this on trust. `theory.mixed` solves this problem without Lambert-W, and
# an optimiser that knows nothing about either climbs the objective from the old
# policy.


# %%
def mixed_objective(logits):
    """The mixed objective of a policy given by logits, to be maximised."""
    new = normalised(logits)
    kl = new @ np.log(new / pi)
    chi2 = pi @ (new / pi - 1) ** 2
    return new @ reward - tau * kl - solution.lam / (2 * tau) * chi2


start = np.log(pi)
climbed = minimize(lambda x: -mixed_objective(x), start, options={"gtol": 1e-10}).x
climbed = normalised(climbed)

mixed = theory.mixed(pi, reward, tau, solution.lam).probs
print("PMD-mean, Lambert-W  ", solution.probs)
print("theory.mixed         ", mixed)
print("climbed numerically  ", climbed)
print("PMD-part, only KL    ", theory.pmd_part(pi, reward, tau).probs)
np.testing.assert_allclose(mixed, solution.probs, rtol=1e-8)
np.testing.assert_allclose(climbed, solution.probs, atol=1e-5)

# %% [markdown]
# Three roads, one policy. Nobody asked for a $\chi^2$ term: it came with the mean
# baseline. And nobody sets its weight $\lambda/(2\tau)$: it follows from the prompt.
# <!-- claim: Three roads, one policy :: np.abs(mixed - solution.probs).max() < 1e-8 and
#   np.abs(climbed - solution.probs).max() < 1e-5 -->

# %%
# alt: Weight of the chi-squared term against the pass rate from 0.001 to 1, for tau
#   0.5, 0.05 and 0.005. It peaks near pass rate 0.5, at 0.07 to 0.12 reward units, and
#   falls to 0 on both sides.
fig, ax = plt.subplots()
for color, each in zip(shades(3), (0.5, 0.05, 0.005), strict=True):
    lam = theory.binary(p, each, "pmd-mean").lam
    ax.plot(p, lam / (2 * each), "-", color=color, label=f"τ = {each:g}")
ax.set(xscale="log", xlabel="pass rate", title="weight of the χ² term")
ax.set(ylabel="λ / (2τ) (reward units)")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** The *weight* of the $\chi^2$ term vanishes as prompts get harder. Its
# *effect*, the first picture, does the opposite: with a pass rate of 0.001 and $\tau =
# 0.05$, a right response gains 8 times less than under KL alone. Both are true, since
# $\chi^2$ itself is huge when a rare action is raised. "More regularised when the
# reward is low" is about the effect. At $\tau = 0.5$ there is little to hold back,
# because $e^{1/\tau}$ is only 7.
# <!-- claim: The *weight* of the $\chi^2$ term vanishes as prompts get harder ::
#   theory.binary(1e-3, 0.05).lam < 0.1 * theory.binary(0.5, 0.05).lam -->
# <!-- claim: with a pass rate of 0.001 and $\tau = 0.05$, a right response gains 8
#   times less than under KL alone :: said(None, None, np.exp(theory.binary(1e-3, 0.05,
#   "pmd-part").log_ratio_pos - theory.binary(1e-3, 0.05).log_ratio_pos)) -->
# <!-- claim: At $\tau = 0.5$ there is little to hold back, because $e^{1/\tau}$ is only
#   7 :: said(None, None, np.exp(1 / 0.5)) -->
#
# ## Where the small-tau formula is off
#
# For $\tau$ towards 0 at fixed $p$ the paper has $\eta = 1 - e^{-p/\tau}$. That is
# right in the limit. Is it right where it matters, at hard prompts with $\tau$
# comparable to $p$ or larger?
#
# Let both go to zero with $p/\tau = s$ fixed, and write $x = \lambda/\tau^2$. For a
# wrong response the equation above says $-u = s + x e^u$. A right response has
# $x e^u \approx 1/\tau$, so the sum over all ratios, times $x$, says $x = s + x e^u$
# with the $u$ of the wrong ones. Hence $-u = x$. Call it $y$:
#
# $$ \eta = 1 - e^{-y}, \qquad y\,(1 - e^{-y}) = \frac{p}{\tau} $$

# %%
# alt: Contraction eta against p over tau from 0.01 to 10. The exact values for pass
#   rates 0.001 and 0.01 lie on the curve of the law for most of the range, while the
#   formula 1 minus exp of minus p over tau lies far below them for p over tau below 1:
#   at 0.1 it says 0.1 where the exact value is about 0.3. All agree above 5.
s = np.geomspace(0.01, 10, 60)
law = hard_prompt(1e-3, 1e-3 / s)  # only p/tau matters

fig, ax = plt.subplots()
ax.plot(s, law.eta, **look("pmd-mean"), label="law: y (1 - exp(-y)) = p/τ")
ax.plot(s, 1 - np.exp(-s), ":", color="0.4", label="small-τ formula: 1 - exp(-p/τ)")
for p, marker in ((1e-3, "o"), (1e-2, "s")):
    exact = theory.binary(p, p / s[::4], "pmd-mean").eta
    ax.plot(s[::4], exact, "k" + marker, fillstyle="none", label=f"exact, p = {p:g}")
ax.set(xscale="log", yscale="log", title="PMD-mean, one exact step")
ax.set(xlabel="p / τ", ylabel="share of the gap closed, η")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** The formula and the law meet where $p/\tau$ is large. Below one the
# formula is several times too low: a hard prompt moves like $\sqrt{p/\tau}$, much
# farther than $p/\tau$. The law needs a small $\tau$ too: the points leave it on the
# left, where $\tau$ is 0.1 for $p = 0.001$ and 1 for $p = 0.01$.
# <!-- claim: Below one the formula is several times too low :: theory.binary(1e-3,
#   1e-2).eta / (1 - np.exp(-0.1)) > 2.5 -->
# <!-- claim: on the left, where $\tau$ is 0.1 for $p = 0.001$ and 1 for $p = 0.01$ ::
#   said(1e-3 / s[0], None, 1e-2 / s[0], None) -->
#
# ## Exercise
#
# Five exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("103.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 103.0: the loss of PMD-mean.** Difficulty 1 of 5, about 5 minutes.
#
# The third function of `my_pmd.py`: the loss that this lesson is about, for the draws
# of one prompt, with the 1/2 of pmdkit, $\frac{1}{2\tau}\,\mathrm{mean}_i\,(A_i - \tau
# s_i)^2$. $A_i$ is the advantage of a draw and $s_i$ its log-ratio.


# %% tags=["exercise", "103.0"]
def pmd_mean_loss(log_ratio, advantage, tau):
    """The loss of G draws, one number; log-ratios and advantages are [G]."""
    return ...


# %% tags=["check", "103.0"]
learn.check("103.0", pmd_mean_loss)

# %% [markdown]
# **Exercise 103.1: the same contraction at every pass rate.** Difficulty 3 of 5, about
# 10 minutes.
#
# The step of PMD-mean depends on the pass rate. Suppose you want the *same* contraction
# $\eta$ on every hard prompt. Use the law to write the $\tau$ that does it, for small
# pass rates `p`.


# %% tags=["exercise", "103.1"]
def tau_for(p, eta):
    """The tau, [P], at which exact PMD-mean contracts by eta at small p, [P]."""
    return ...


# %% tags=["check", "103.1"]
learn.check("103.1", tau_for)

# %% [markdown]
# **Exercise 103.2: lambda by root finding.** Difficulty 4 of 5, about 15 minutes.
#
# Find $\lambda$ without the Lambert-W function: for a trial value, every log-ratio
# solves $u + \frac{\lambda}{\tau^2}e^u = \Delta/\tau$, and the right value makes the
# new policy sum to 1.


# %% tags=["exercise", "103.2"]
def find_lambda(pi, reward, tau):
    """Lambda of PMD-mean, reward units squared; pi and reward are [A]."""
    return ...


# %% tags=["check", "103.2"]
learn.check("103.2", find_lambda)

# %% [markdown]
# **Exercise 103.3: lambda of a step that you have seen.** Difficulty 2 of 5, about 10
# minutes.
#
# You see a policy before and after one exact PMD-mean step, and you know $\tau$. Nobody
# tells you the rewards. What was $\lambda$? Take $u + \frac{\lambda}{\tau^2}e^u =
# \Delta/\tau$, and average both sides over the old policy.


# %% tags=["exercise", "103.3"]
def lambda_of_step(pi, new, tau):
    """Lambda, reward units squared, of one exact PMD-mean step from pi to new, [A]."""
    return ...


# %% tags=["check", "103.3"]
learn.check("103.3", lambda_of_step)


# %% [markdown]
# **Exercise 103.4: broken: a baseline left in.** Difficulty 3 of 5, about 10 minutes.
#
# A colleague's loss is PMD-mean's, but the mean reward was never subtracted: it
# regresses on $r/\tau$ in place of $\Delta/\tau$. Prompts that are always solved stay
# where they are, and yet their loss is large; all others learn more slowly than they
# should. Go through Theorem 1 again with $r$ for $\Delta$. You see one exact
# step of the broken loss and the rewards: what was its $\lambda$? What does it pay on a
# prompt that is always solved?


# %% tags=["exercise", "103.4"]
def left_in(pi, new, reward, tau):
    """Lambda, reward units squared, of one step of the broken loss; arrays are [A]."""
    return ...


# %% tags=["check", "103.4"]
learn.check("103.4", left_in)

# %% [markdown]
# $\tau$ in proportion to the pass rate gives every hard prompt the same step. An exact
# form for all pass rates is `theory.tau_for_eta`, and `pmdkit.objectives.Contraction`
# turns it into an adaptive temperature.

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Add 10 to every reward. What does $\lambda$ do, at a pass rate of 0.3 and $\tau
# = 0.05$?
#
# <details>
# <summary>What we got</summary>
#
# Nothing: it stays at 0.0096. The mean takes every constant away.
# <!-- claim: it stays at 0.0096 :: said(theory.pmd_mean([0.3, 0.7], [11.0, 10.0],
#   0.05).lam) and abs(theory.binary(0.3, 0.05).lam / theory.pmd_mean([0.3, 0.7], [11.0,
#   10.0], 0.05).lam - 1) < 1e-9 -->
#
# </details>
#
# **2.** Multiply the rewards by 10, and $\tau$ too. What changes?
#
# <details>
# <summary>What we got</summary>
#
# The policy does not, and $\lambda$, in rewards squared, is now 0.96, a hundred times
# as large.
# <!-- claim: is now 0.96 :: said(theory.pmd_mean([0.3, 0.7], [10.0, 0.0], 0.5).lam) -->
# <!-- claim: The policy does not :: abs(theory.pmd_mean([0.3, 0.7], [10.0, 0.0],
#   0.5).probs[0] - theory.pmd_mean([0.3, 0.7], [1.0, 0.0], 0.05).probs[0]) < 1e-9 -->
#
# </details>
