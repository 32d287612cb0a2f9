# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 100: Eight words in pictures: what is policy mirror descent?
#
# * You learn: policy, reward, policy gradient, baseline, nat, KL, log-partition and
#   mirror descent, a picture each.
# * You need: probabilities, logarithms, a little Python.
# * Time: 20 minutes to read, 5 seconds to run, 30 minutes for the exercises.
#
# A **policy** is a list of probabilities: how often a model gives each response to a
# prompt. A language model is a policy over texts, a loaded die is one over six numbers.
# Here one prompt has four responses, A to D, and the policy is four numbers that sum to
# one. That is small enough to print, and nothing that follows depends on the size.
#
# A **reward** is a number that says how good a response was. A verifier gives 1 for
# right and 0 for wrong; a judge may give anything between. Only the response is judged,
# never the policy. The policy as a whole is worth the average of what its responses
# earn: the *mean reward* $J = E_\pi\, r = \sum_y \pi(y)\, r(y)$. Learning means
# changing the probabilities so that $J$ rises.

# %%
import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import theory
from pmdkit.figures.style import BLACK, GREY
from pmdkit_lab.figures import simplex, style
from pmdkit_lab.figures.looks import COLOURS, look

style()
names = ["A", "B", "C", "D"]
pi = np.array([0.1, 0.4, 0.3, 0.2])  # the policy
reward = np.array([1.0, 0.6, 0.2, 0.0])  # what each response earns, reward units
mean = pi @ reward

# %%
# alt: Three bar charts over the responses A to D. The policy gives A 0.1, B 0.4, C 0.3
#   and D 0.2. The rewards are 1, 0.6, 0.2 and 0; a dashed line marks the mean reward
#   0.4. After one step of policy mirror descent at tau 0.5 the policy is 0.27, 0.49,
#   0.16 and 0.07: A and B have grown, C and D have shrunk.
after = theory.pmd_part(pi, reward, 0.5).probs
fig, axes = plt.subplots(1, 3, figsize=(8, 2.6))
axes[0].bar(names, pi, color=GREY)
axes[1].bar(names, reward, color=COLOURS["rloo"])
axes[1].axhline(mean, color=BLACK, linestyle="--", label=f"mean reward {mean:.1f}")
axes[1].legend()
axes[2].bar(names, after, color=COLOURS["pmd-part"])
axes[2].bar(names, pi, color="none", edgecolor=BLACK, linestyle=":")
axes[0].set(title="policy", ylabel="probability", ylim=(0, 0.6))
axes[1].set(title="reward", ylabel="reward units")
axes[1].set(xlabel="response")
axes[2].set(title="policy after one step", ylabel="probability", ylim=(0, 0.6))
plt.show()

# %% [markdown]
# **What to see.** The policy on the left, what its responses earn in the middle, and on
# the right the policy after one step, with the old one dotted. A is best but still
# rare: the step does not jump to it. C earns something, yet shrinks.
# <!-- claim: A is best but still rare :: after[0] < after[1] and reward[0] ==
#   reward.max() -->
# <!-- claim: C earns something, yet shrinks :: reward[2] > 0 and after[2] < pi[2] -->
#
# ## Predict
#
# C has a reward of 0.2, which is more than nothing. Why does it shrink? And which
# response gains the most probability when we only move a little: A, which is best, or
# B, which is good and four times as likely?
# <!-- claim: C has a reward of 0.2 :: said(reward[2]) -->
#
# <!-- predict: C earns 0.2, more than nothing. What does the step do to it?
#   - it grows a little
#   + it shrinks
#   - nothing
#   = The mean reward is 0.4, and only what is above the mean grows. -->
# <!-- predict: Which response gains the most probability in a small step?
#   - A, the best
#   + B, good and four times as likely
#   - both the same
#   = A response that is given more often moves more. B is above the mean as well. -->
#
# ## Run
#
# The **policy gradient** says how the mean reward changes when the policy is nudged. A
# network does not store probabilities but *logits*, one per response, with
# $\pi \propto e^{\text{logit}}$. The slope of $J$ along the logit of a response is
#
# $$ \frac{\partial J}{\partial\, \text{logit}(y)} = \pi(y)\,\big(r(y) - J\big). $$
#
# Two factors decide: how often the response is given, and how much better it is than
# the mean. Better than the mean goes up, worse goes down, and rare responses move
# little because they are seldom seen. This answers both questions: C earns less than
# the mean of 0.4, and B moves more than A because it is given more often. The slopes
# add up to zero: what one response gains, others lose.
# <!-- claim: C earns less than the mean of 0.4, and B moves more than A :: said(mean)
#   and reward[2] < mean and pi[1] * (reward[1] - mean) > pi[0] * (reward[0] - mean) -->
# <!-- claim: The slopes add up to zero :: abs((pi * (reward - mean)).sum()) < 1e-12 -->
#
# In practice nobody can sum over all responses. We draw a few and average
# $(r - b)\,\nabla\log\pi(y)$. The **baseline** $b$ may be any number that does not
# depend on the response drawn: the average stays the same, because $\nabla\log\pi$
# averages to zero. What it changes is the noise. Without a baseline every response that
# earns anything is pushed up, and only the comparison of many draws tells good from
# bad. With the mean reward as the baseline, a single draw already has the right sign.
# The reward minus the baseline has a name of its own, the *advantage*.

# %%
# alt: Left, the policy gradient along the four logits: 0.06 for A, 0.08 for B, -0.06
#   for C and -0.08 for D. Right, histograms of 4000 estimates of the slope along the
#   logit of C, each from eight draws. Both have their mean at -0.06. Without a baseline
#   the estimates spread widely; with the mean reward as baseline they lie closer
#   together.
rng = np.random.default_rng(0)
slope = pi * (reward - mean)
drawn = rng.choice(4, size=(4000, 8), p=pi)  # 4000 times eight responses
push = (drawn == 2) - pi[2]  # of log pi along the logit of C
plain = (reward[drawn] * push).mean(1)
centred = ((reward[drawn] - mean) * push).mean(1)

fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3), width_ratios=(1, 1.5))
left.bar(names, slope, color=[COLOURS["rloo"] if s > 0 else "#B3588C" for s in slope])
left.axhline(0, color=BLACK, linewidth=0.8)
left.set(title="policy gradient", ylabel="slope of J along the logit")
bins = np.linspace(-0.3, 0.15, 46)
right.hist(plain, bins, color="0.55", label="no baseline")
right.hist(centred, bins, histtype="step", color=COLOURS["pmd-mean"], linewidth=1.8)
right.hist([], bins, color=COLOURS["pmd-mean"], label="baseline: mean reward")
right.axvline(slope[2], color=BLACK, linestyle="--", label="exact")
right.set(title="slope along C, from eight draws", xlabel="estimate", ylabel="count")
right.legend()
plt.show()
print("standard deviation without a baseline:", plain.std().round(3))
print("standard deviation with the mean reward:", centred.std().round(3))

# %% [markdown]
# **What to see.** B moves most, A less, C and D go down. Both histograms have the same
# centre; the baseline makes the estimate narrower, and costs nothing. Along D, which
# earns nothing, it makes it wider: without a baseline a draw of D pushes nothing. Over
# all four logits together the variance falls to 38 %.
# <!-- claim: B moves most, A less, C and D go down :: slope.argmax() == 1 and 0 <
#   slope[0] and slope[2] < 0 and slope[3] < 0 -->
# <!-- claim: Both histograms have the same centre :: abs(plain.mean() - centred.mean())
#   < 0.005 -->
# <!-- claim: the baseline makes the estimate narrower :: centred.std() < plain.std()
#   -->
# <!-- claim: Along D, which earns nothing, it makes it wider :: np.subtract(*[(pi @
#   ((reward - b)[:, None] * (np.eye(4) - pi) - pi * (reward - mean)) ** 2)[3] for b in
#   (mean, 0.0)]) > 0 -->
# <!-- claim: all four logits together the variance falls to 38 % :: said(100 *
#   np.divide(*[(pi @ ((reward - b)[:, None] * (np.eye(4) - pi) - pi * (reward - mean))
#   ** 2).sum() for b in (mean, 0.0)])) -->
#
# ## Look
#
# How far does a step go? Compare probabilities by their ratio, and ratios by their
# logarithm: the *log-ratio* $\log\frac{\pi_{new}}{\pi}$. Then "twice as likely" and
# "half as likely" are equally far from zero, and steps add up. The unit of a natural
# logarithm is the **nat**. One nat up is 2.7 times as likely, two nats are 7.4 times,
# and one nat down leaves 37 %. A bit, the unit of a logarithm to base 2, is 0.69 nats.
# Everything in this course that is called a log-ratio, a divergence or an entropy is in
# nats. Rewards are not: they have units of their own.
# <!-- claim: One nat up is 2.7 times as likely, two nats are 7.4 times, and one nat
#   down leaves 37 % :: said(np.e, np.e**2, 100 / np.e) -->
# <!-- claim: a logarithm to base 2, is 0.69 nats :: said(None, np.log(2)) -->
#
# The **KL divergence** turns the log-ratios of a whole policy into one distance: their
# average under the new policy,
# $\mathrm{KL}(\pi_{new}\|\pi) = E_{\pi_{new}} \log\frac{\pi_{new}}{\pi}$. It is zero
# when nothing has changed, and never negative. It is not a ruler: the way there and the
# way back differ. Taking up what the old policy never did costs without bound;
# dropping a response has a finite one. A KL of 0.2 nats says that a response of the
# new policy is, in the geometric mean, $e^{0.2} = 1.2$ times as likely as it was.
# <!-- claim: A KL of 0.2 nats :: said(theory.kl(after, pi)) -->
# <!-- claim: $e^{0.2} = 1.2$ times :: said(None, np.exp(0.2)) -->

# %%
# alt: Left, the log-ratios of the step of the first picture: 1.0 nats for A, 0.2 for B,
#   -0.6 for C and -1.0 for D; an axis on the right gives them as factors 2.7, 1.2, 0.5
#   and 0.4. Right, the KL divergence from a policy that gives a response with
#   probability 0.1, against its new probability. It is 0 at 0.1, rises to 2.3 nats at 1
#   and to 0.1 nats at 0. The reverse direction lies below it up to about 0.9, and grows
#   without limit near 1 and near 0.
log_ratio = np.log(after / pi)
fig, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
left.bar(names, log_ratio, color=COLOURS["pmd-part"])
left.axhline(0, color=BLACK, linewidth=0.8)
left.set(title="one step at τ = 0.5", ylabel="log-ratio (nats)", ylim=(-1.3, 1.3))
times = left.twinx()  # the same heights, as factors
times.set(ylim=left.get_ylim(), ylabel="times as likely")
times.set_yticks(np.log([0.3, 0.5, 1, 2, 3.5]), ["0.3", "0.5", "1", "2", "3.5"])
times.grid(False)

new = np.linspace(0.001, 0.999, 300)
both, old = np.stack([new, 1 - new], -1), np.array([0.1, 0.9])
right.plot(new, theory.kl(both, old), color=BLACK, label="KL(new || old)")
right.plot(new, theory.kl(old, both), color="0.5", ls="--", label="KL(old || new)")
right.axvline(0.1, color="0.8", zorder=0)
right.set(title="an old probability of 0.1", xlabel="new probability", ylim=(0, 3))
right.set(ylabel="KL divergence (nats)")
right.legend()
plt.show()
print("KL of the step:", theory.kl(after, pi).round(2), "nats")

# %% [markdown]
# **What to see.** On the left the bars are nats and the axis on the right says what
# they mean. On the right, always doing what was done one time in ten costs 2.3 nats;
# never doing it again costs 0.1. The grey line is the same question asked backwards.
# <!-- claim: one time in ten costs 2.3 nats :: said(theory.kl([1.0, 0.0], [0.1,
#   0.9])) -->
# <!-- claim: never doing it again costs 0.1 :: said(theory.kl([0.0, 1.0], [0.1,
#   0.9])) -->
#
# ## Explain
#
# How far *should* a step go? **Mirror descent** answers with a penalty: of all
# policies, take the one that maximises
#
# $$ E_{\pi_{new}}\, r - \tau\, \mathrm{KL}(\pi_{new}\|\pi). $$
#
# The *temperature* $\tau$ says how many reward units a nat costs. The solution has a
# closed form: multiply every probability by $e^{r/\tau}$ and divide by the sum,
# $\pi_{new} = \pi\, e^{r/\tau} / Z$. "Mirror" refers to where the step is taken: not
# among the probabilities, where a straight step along the gradient soon leaves the
# triangle and probabilities turn negative, but in their logarithms, where adding
# $r/\tau$ is always allowed. The exponential brings it back.

# %%
# alt: A triangle whose corners are three actions with rewards 0, 0.7 and 1, shaded by
#   reward minus tau times KL at tau 0.3. From the policy (0.6, 0.3, 0.1) a grey
#   straight arrow along the gradient leaves the triangle through the edge between
#   actions 2 and 3. The curve of mirror descent, for tau from large to small, bends
#   along that edge to the corner of action 3 and never leaves. Its point at tau 0.3
#   lies on the brightest spot.
start, earned, tau = np.array([0.6, 0.3, 0.1]), np.array([0.0, 0.7, 1.0]), 0.3


def worth(policies):
    """Reward minus the penalty for moving, of many policies, [K, 3] to [K]."""
    return policies @ earned - tau * theory.kl(policies, start)


fig, ax = plt.subplots(figsize=(5.5, 4.8))
simplex.triangle(
    ax, ["action 1\nreward 0", "action 2\nreward 0.7", "action 3\nreward 1"]
)
simplex.contour(ax, worth, 12, filled=True, cmap="Greys_r", alpha=0.5)
step = theory.pmd_part(start, earned, np.geomspace(100, 0.01, 200)).probs
simplex.path(ax, step, label="mirror descent, any τ", **look("pmd-part"))
best = theory.pmd_part(start, earned, tau).probs
ax.plot(*simplex.to_xy(best), "s", color=COLOURS["pmd-part"], label=f"τ = {tau}")
straight = start + 1.3 * (earned - earned.mean())
ends = simplex.to_xy(np.stack([start, straight]))
arrow = {"arrowstyle": "->", "color": "0.35"}
ax.annotate("", ends[1], ends[0], arrowprops=arrow, annotation_clip=False)
ax.plot([], [], color="0.35", label="straight along the gradient")
ax.plot(*simplex.to_xy(start), "ko", markersize=6, label="before the step")
ax.legend(loc="upper left", bbox_to_anchor=(-0.1, 1.05))
plt.show()
print("end of the straight step:", straight.round(2))

# %% [markdown]
# **What to see.** The straight arrow ends outside, where action 1 would have a negative
# probability. The curve stays inside for every temperature, and at $\tau = 0.3$ it
# stands on the brightest spot of the shading: reward minus the penalty.
# <!-- claim: where action 1 would have a negative probability :: straight[0] < 0 -->
# <!-- claim: stands on the brightest spot of the shading :: worth(best) >=
#   worth(simplex.grid()).max() -->
#
# What is $Z$? It is the number that makes the new probabilities sum to one,
# $Z = E_\pi\, e^{r/\tau}$, and physicists call it the *partition function*. The
# **log-partition** $\tau\log Z$ has the units of a reward, and it is a soft maximum: as
# $\tau$ grows it goes to the mean reward, as $\tau$ falls to the best reward there is.
# Take logarithms of the closed form,
#
# $$ \tau\log\frac{\pi_{new}}{\pi} = r - \tau\log Z, $$
#
# and the step has become a line through the rewards, which a network can be *fitted* to
# by least squares. But $\tau\log Z$ depends on rare, good responses, and sixteen draws
# may hold none of them. The mean of sixteen draws is off too, but right on average. So
# in practice the mean is written where $\tau\log Z$ belongs, and that is the subject of
# this course.

# %%
# alt: The log-partition tau log Z against tau on a logarithmic axis from 0.01 to 10. At
#   large tau it lies on the mean reward 0.4, at small tau it rises towards the best
#   reward, 1. Grey dots are estimates from sixteen draws each. At large tau they
#   scatter around the curve; at small tau most lie near 1 and some near the second-best
#   reward, 0.6.
taus = np.geomspace(0.01, 10, 100)
soft = np.array([t * np.log(pi @ np.exp((reward - 1) / t)) + 1 for t in taus])
few = reward[rng.choice(4, size=(40, 16), p=pi)]

fig, ax = plt.subplots(figsize=(6.5, 3.2))
for t in taus[::9]:
    guess = t * np.log(np.exp((few - 1) / t).mean(1)) + 1
    ax.plot(np.full(40, t), guess, ".", color="0.5", markersize=4, zorder=0)
ax.plot([], [], ".", color="0.5", label="from sixteen draws")
ax.plot(taus, soft, color=COLOURS["pmd-part"], label="log-partition, τ log Z")
ax.axhline(mean, color=COLOURS["pmd-mean"], linestyle="--", label="mean reward")
ax.axhline(1, color="0.7", linestyle=":", zorder=0)
ax.set(xscale="log", xlabel="τ (reward units)", ylabel="reward units")
ax.legend()
plt.show()
print("share of sixteen draws without A:", round(0.9**16, 2))

# %% [markdown]
# **What to see.** The soft maximum falls from the best reward to the mean as $\tau$
# grows. Where the two lines meet, PMD-part and PMD-mean agree, and the dots scatter
# evenly around them. Where the lines part, the dots split: of all groups of sixteen, 19
# % have no A in them, and take 0.6 for the best reward there is.
# <!-- claim: of all groups of sixteen, 19 % have no A in them, and take 0.6 for the
#   best reward :: said(100 * 0.9**16, np.sort(reward)[-2]) -->
#
# With these eight words we can ask the paper's question: *what happens when the mean
# reward takes the place of the log-partition?* Lesson 101 shows where the two
# updates go.
#
# ## Exercise
#
# Four exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("100.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 100.1: the policy gradient.** Difficulty 2 of 5, about 10 minutes.
#
# Write the slope of the mean reward along every logit of a policy
# $\pi \propto e^{\text{logit}}$, given its probabilities and the rewards, with NumPy.


# %% tags=["exercise", "100.1"]
def policy_gradient(pi, reward):
    """The slope of the mean reward along each logit, [A]."""
    return ...


# %% tags=["check", "100.1"]
learn.check("100.1", policy_gradient)

# %% [markdown]
# **Exercise 100.2: how far, in nats.** Difficulty 2 of 5, about 10 minutes.
#
# How far is a new policy from an old one? Return two numbers in nats: the KL divergence
# $\mathrm{KL}(\pi_{new}\|\pi)$, and the largest log-ratio, that of the response that
# grew most. The new policy may have dropped a response altogether.


# %% tags=["exercise", "100.2"]
def in_nats(new, pi):
    """KL(new || pi) and the largest log-ratio, nats, of two policies, [A] each."""
    return ...


# %% tags=["check", "100.2"]
learn.check("100.2", in_nats)

# %% [markdown]
# **Exercise 100.3: two constants.** Difficulty 2 of 5, about 5 minutes.
#
# Return the two constants that a regression may subtract from the reward, both in
# reward units: the mean reward, and the log-partition $\tau\log Z$.


# %% tags=["exercise", "100.3"]
def constants(pi, reward, tau):
    """The mean reward and tau log Z of a policy, reward units."""
    return ...


# %% tags=["check", "100.3"]
learn.check("100.3", constants)

# %% [markdown]
# **Exercise 100.4: one step of mirror descent.** Difficulty 2 of 5, about 5 minutes.
#
# Write the policy that maximises the mean reward minus $\tau$ times the KL divergence
# from `pi`.


# %% tags=["exercise", "100.4"]
def mirror_step(pi, reward, tau):
    """The policy, [A], after one exact step of mirror descent."""
    return ...


# %% tags=["check", "100.4"]
learn.check("100.4", mirror_step)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Below which $\tau$ does one step from the picture's policy give A more than
# half?
#
# <details>
# <summary>What we got</summary>
#
# Below 0.25.
# <!-- claim: Below 0.25 :: theory.pmd_part(pi, reward, quoted[0]).probs[0] > 0.5 and
#   theory.pmd_part(pi, reward, quoted[0] + 0.01).probs[0] < 0.5 -->
#
# </details>
#
# **2.** Repeat the step at $\tau = 0.5$ until A has 0.99. How many does it take, and
# which $\tau$ does the same in one?
#
# <details>
# <summary>What we got</summary>
#
# After 8 steps A has 0.993. One step at $\tau = 0.5 / 8$ ends at the same policy: exact
# steps of PMD-part add up.
# <!-- claim: After 8 steps A has 0.993 :: said(None, theory.pmd_part(pi, reward, 0.5 /
#   8).probs[0]) and theory.pmd_part(pi, reward, 0.5 / 7).probs[0] < 0.99 -->
#
# </details>
