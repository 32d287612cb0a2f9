# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 303: Is this model really better, and how would you know?
#
# * You learn: what avg@32 on 30 problems can tell and what it cannot, how to compare
#   two models on the same problems, and what separates avg@k, pass@k and maj@k.
# * You need: lesson 202.
# * Time: 15 minutes to read, 5 seconds to run, 15 minutes for the exercises.
#
# Here is a table as papers print it: the scores of arXiv:2602.05933 with its smaller
# model, one run per row, the mean of 32 answers to each of 30 problems.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import train
from pmdkit.evaluation.bandit_and_toy import sample_held_out
from pmdkit.figures.style import BLUE, GREY, ORANGE, style
from pmdkit.stats import (
    GradedDraws,
    estimate_at_k,
    measure_at_k,
    paired_difference,
    pass_at_k,
)
from pmdkit_lab.figures import table
from pmdkit_lab.figures.scores import over_draws, over_problems
from pmdkit_lab.figures.tables import GSPO, SCORES

style()
rng = np.random.default_rng(303)

# %%
# alt: Bars of Avg@32 in percent for six methods with the 7B model, AIME 2024 and 2025.
#   GRPO 17.1 and 10.5, on-policy 18.7 and 18.3, PMD-mean at tau 0.005 19.7 and 19.5, at
#   0.01 17.6 and 17.5, at 0.02 22.5 and 16.7, GSPO 15.5 and 12.0.
rows = [score for score in (*SCORES, *GSPO) if score.model == "7B"]
fig, axes = plt.subplots(1, 2, figsize=(8, 2.6), sharey=True)
for ax, year in zip(axes, ("aime24", "aime25"), strict=True):
    ax.barh(
        [row.name for row in rows], [getattr(row, year) for row in rows], height=0.6
    )
    ax.set(xlabel="Avg@32 (%)", ylabel="", title=f"AIME 20{year[-2:]}")
axes[0].invert_yaxis()
plt.show()

# %% [markdown]
# **What to see.** A ranking. PMD-mean is ahead of GRPO, nearly twice as good on AIME
# 2025; a $\tau$ of 0.02 is best on one contest and 0.005 on the other. Nothing in
# the picture says how much of this ranking would survive a repetition.
# <!-- claim: a $\tau$ of 0.02 is best on one contest and 0.005 on the other :: "0.02"
#   in max(rows, key=lambda row: row.aime24).name and "0.005" in max(rows, key=lambda
#   row: row.aime25).name -->
# <!-- claim: PMD-mean is ahead of GRPO, nearly twice as good on AIME 2025 ::
#   abs(max(row.aime25 for row in rows) / [row.aime25 for row in rows if row.name ==
#   "GRPO"][0] - 1.9) < 0.1 -->
#
# ## Predict
#
# Write down a number for each before you go on.
#
# * The *same* model answers the *same* 30 problems another 32 times. By how many
#   points do you expect its score of 17 to move?
# * It answers 30 *other* problems of the same kind. By how many now?
# * Two models answer the same problems, and their scores differ by a quarter of a
#   point. How far apart may the models be?
#
# <!-- predict: The same model answers the same 30 problems again. How far does its
#   score move?
#   + by about one point
#   - by about four
#   - by ten
#   = Other problems of the same kind would move it by about four. -->
#
# ## Run
#
# The paper gives no scores per problem, so take a model that somebody asked more often:
# two checkpoints of one run with a 3B model, 50 answers to each of the 40 problems of
# AMC 2023. Here is how many of the 50 are right. (Counted from the files of
# open-thought/reasoning-gym-eval at commit 5f09fecc, Apache-2.0; numbers only.)

# %%
# fmt: off
step_400 = np.array([
    39, 5, 9, 0, 1, 0, 1, 0, 15, 8, 3, 0, 0, 25, 1, 0, 16, 5, 1, 0,
    0, 12, 5, 6, 19, 0, 3, 1, 5, 1, 31, 0, 0, 20, 33, 8, 6, 0, 9, 0,
])
step_800 = np.array([
    38, 4, 4, 0, 3, 4, 0, 0, 20, 5, 11, 1, 0, 16, 0, 0, 18, 2, 0, 3,
    0, 14, 2, 6, 2, 0, 3, 0, 6, 0, 31, 0, 0, 38, 33, 6, 7, 0, 1, 5,
])
# fmt: on
p = step_400 / 50  # of each problem, as well as 50 answers tell
print(
    f"mean {100 * p.mean():.1f} %; never right: {(p == 0).sum()} of {len(p)} problems"
)

# %% [markdown]
# Now take these shares as the truth, ask 30 of the problems 32 times each, and do that
# ten thousand times: once with the same 30 problems, once with 30 newly drawn ones.

# %%
trials = 10_000
some = rng.choice(p, 30, replace=False)
same = rng.binomial(32, some, size=(trials, 30)).mean(1) / 32
other = rng.binomial(32, rng.choice(p, size=(trials, 30))).mean(1) / 32
coin = np.sqrt(some.mean() * (1 - some.mean()) / (30 * 32))

for name, scores in (("same problems", same), ("other problems", other)):
    low, high = np.percentile(100 * scores, [2.5, 97.5])
    print(f"{name:15} standard deviation {100 * scores.std():.2f} points", end=", ")
    print(f"95 % of the scores from {low:.1f} to {high:.1f}")
print(f"960 flips of one coin: {100 * coin:.2f} points")

# %% [markdown]
# ## Look

# %%
# alt: Two histograms of Avg@32 in percent. The same 30 problems asked again: a narrow
#   peak about 2 points either way. Other problems: broad and flat, from 6 to 26.
bins = np.arange(0, 32, 0.5)
fig, ax = plt.subplots(figsize=(6, 3))
looks = (("the same 30 problems", same, BLUE), ("30 other problems", other, ORANGE))
for name, scores, color in looks:
    ax.hist(100 * scores, bins, density=True, color=color, alpha=0.6, label=name)
ax.set(xlabel="Avg@32 on 30 problems (%)", ylabel="density (per point)")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Two different questions. The same problems asked again move the score
# by one point up or down, a little less than 960 flips of one coin would: most of these
# problems are never solved, and what never happens adds no luck. Other problems of the
# same kind move it by four. As a benchmark, AIME 2024 is all there is, and the narrow
# peak is the one to compare two models with. As a measure of what a model can do,
# believe the broad one.
# <!-- claim: The same problems asked again move the score by one point up or down ::
#   abs(100 * same.std() - 1) < 0.25 -->
# <!-- claim: a little less than 960 flips of one coin would :: same.std() < coin -->
# <!-- claim: Other problems of the same kind move it by four :: abs(100 * other.std()
#   - 4) < 0.5 -->
#
# Back to the first picture, now with both intervals. The paper has no scores per
# problem, so the thick bars are those of one coin, the widest that luck of the draws
# can make; for the thin ones, the part of the variance that lies between problems is
# taken from our 40 problems. That part is an assumption, and the picture says so.

# %%
# alt: Dots of Avg@32 of the six methods with two intervals each, AIME 2024 and 2025.
#   The thick bars, same problems, are 5 points wide and overlap for most pairs on AIME
#   2024; on AIME 2025 GRPO lies below the others with a gap, but for GSPO. The thin
#   bars, other problems, are 15 to 20 points wide and all overlap.
fig, axes = plt.subplots(1, 2, figsize=(8, 2.8), sharey=True, sharex=True)
for ax, year in zip(axes, ("aime24", "aime25"), strict=True):
    for place, row in enumerate(rows):
        value = getattr(row, year)
        for found, width in ((over_problems(value), 1), (over_draws(value), 5)):
            ends = [found.low, found.high]
            (line,) = ax.plot(ends, [place, place], "-", color=BLUE, linewidth=width)
            line.set(alpha=0.5, solid_capstyle="butt")
        ax.plot(value, place, "o", color=BLUE)
    ax.set(xlabel="Avg@32 (%)", ylabel="", title=f"AIME 20{year[-2:]}", xlim=(0, 40))
axes[0].set_yticks(range(len(rows)), [row.name for row in rows])
axes[0].invert_yaxis()
plt.show()

# %% [markdown]
# **What to see.** On AIME 2025 the lead over GRPO is not the luck of the draws. On AIME
# 2024 it may be. And of the three temperatures of PMD-mean, one looks 5 points better
# than another, with bars that hardly touch; whether that is $\tau$, or another training
# run, nobody can say from one run each. Here is the whole table in numbers, as
# `pmdkit figure` prints it:

# %%
print(table("tab1-scores").sentence)

# %% [markdown]
# ## Explain
#
# **Two models on the same problems.** The later checkpoint of our own example has a
# score that is a quarter of a point lower. Is it worse? Its interval over problems is
# 15 points wide. But both checkpoints answered the *same* problems, and a problem that
# is hard for one is hard for the other. Take the difference problem by problem.


# %%
def drawn(right, draws=50):
    """So many right answers of each problem, as draws; all wrong answers alike."""
    graded = (np.arange(draws) < right[:, None]).astype(float)
    return GradedDraws(graded, 1 - graded.astype(int))


for name, right in (("step 400", step_400), ("step 800", step_800)):
    found = measure_at_k(drawn(right), rng)["avg_at_k"]
    ends = found.over_draws, found.over_problems
    told = [f"{100 * end.low:.1f} to {100 * end.high:.1f}" for end in ends]
    print(f"{name}: {100 * found.value:.1f} %, same problems {told[0]}", end=", ")
    print(f"other problems {told[1]}")

versus = paired_difference(step_400 / 50, step_800 / 50)
gap = versus.difference
print(f"difference {100 * gap.mean:+.2f} points", end=", ")
print(f"paired, other problems {100 * gap.low:+.1f} to {100 * gap.high:+.1f}", end=": ")
print(f"higher on {versus.wins}, equal on {versus.ties} of {versus.pairs} problems")

# %%
# alt: Left, share of right answers of 50 at step 800 against step 400, a point per
#   problem: most lie near the diagonal at the lower left, one fell from 0.38 to 0.04,
#   one rose from 0.4 to 0.76. Right, pass@k for k from 1 to 50: both checkpoints rise
#   from 0.14 to 0.67, nearly on one curve; dotted, the plug-in formula stays below.
ks = np.arange(1, 51)
fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.6))
axes[0].plot([0, 1], [0, 1], ":", color=GREY)
axes[0].plot(step_400 / 50, step_800 / 50, "o", color=BLUE, alpha=0.5)
axes[0].set(xlabel="share right at step 400", ylabel="share right at step 800")
for name, right, color in (
    ("step 400", step_400, BLUE),
    ("step 800", step_800, ORANGE),
):
    exact = [pass_at_k(50, right, int(k)).mean() for k in ks]
    axes[1].plot(ks, exact, "-", color=color, label=name)
    plugged = [(1 - (1 - right / 50) ** k).mean() for k in ks]
    axes[1].plot(ks, plugged, ":", color=color)
axes[1].set(xscale="log", xlabel="k", ylabel="pass@k", ylim=(0, 1))
axes[1].set_xticks([1, 2, 5, 10, 20, 50], [1, 2, 5, 10, 20, 50])
axes[1].legend(title="dotted: 1 - (1 - share)^k")
plt.show()

# %% [markdown]
# **What to see.** Pairing makes the interval half as wide, and it still holds 0: from
# these problems nobody can say which checkpoint is better, by up to 3 points either
# way. Pairing helps only as far as the pairs agree. On the right, a model that
# solves 14% of the draws solves two problems out of three in 50 draws: avg@k and pass@k
# answer different questions, and a claim must say which. The dotted plug-in formula is
# too low, because 0 right of 50 does not mean that it never happens (exercise 2).
# <!-- claim: a score that is a quarter of a point lower :: abs(100 * gap.mean + 0.25) <
#   0.005 -->
# <!-- claim: Pairing makes the interval half as wide, and it still holds 0 ::
#   abs((gap.high - gap.low) / (found.over_problems.high - found.over_problems.low) -
#   0.5) < 0.1 and gap.low < 0 and gap.high > 0 -->
# <!-- claim: by up to 3 points either way :: said(50 * (gap.high - gap.low)) -->
# <!-- claim: Its interval over problems is 15 points wide :: said(100 *
#   (found.over_problems.high - found.over_problems.low)) -->
# <!-- claim: a model that solves 14% of the draws solves two problems out of three in
#   50 draws :: said(100 * p.mean(), None) and abs(pass_at_k(50, step_400, 50).mean() -
#   2 / 3) < 0.03 -->
#
# There is a third one, **maj@k**: the share of problems where the most frequent answer
# of k is right. It needs the answers, so here is a run of our own, stopped half-way.
# `pmdkit eval FOLDER` prints the same.

# %%
folder = tempfile.mkdtemp()
small = {"run.checkpoint_every": 1000, "model.heads": 4}
stale = {"prompts": 256, "group": 16, "ministeps": 16}
half = train(
    "pmd-mean", "toy", "modular-sum", steps=6, **stale, options=small, out=folder
)
spec, (setup, _) = half.spec, half.load_policy()
estimates = estimate_at_k(sample_held_out(spec, setup, 32, None, seed=0), 32, rng)
for name, each in estimates.items():
    print(f"{name:9} {each.value:.3f}, from {each.low:.3f} to {each.high:.3f}")

# %% [markdown]
# One policy, three scores: four out of five of its answers are right, nineteen out of
# twenty of its votes, and nearly every problem has a right answer among 32. (The
# intervals are narrow because all 100 problems are asked, many times over.) Compare
# like with like.
# <!-- claim: four out of five of its answers are right, nineteen out of twenty of its
#   votes :: abs(estimates["avg_at_k"].value - 0.8) < 0.03 and
#   abs(estimates["maj_at_k"].value - 0.95) < 0.02 -->
# <!-- claim: nearly every problem has a right answer among 32 ::
#   estimates["pass_at_k"].value > 0.97 -->
#
# **What is an interval over?** Say it in the caption. The luck of the draws comes from
# asking the same problems again: $\pm 2$ points here, and more draws shrink it. The
# luck of the problems comes from asking others of the same kind: $\pm 7$ points here,
# and only more problems or pairing shrink it.
#
# ## Exercise
#
# Two exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("303.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 303.1: two errors of one score.** Difficulty 2 of 5, about 10 minutes.
#
# `right` holds how many of `draws` answers were right on each of P problems. Write both
# standard errors of their mean share, avg@k: if the *same* problems were asked again,
# from an unbiased estimate of the variance of each problem's share; and for *other*
# problems of the same kind, of which these are a sample.


# %% tags=["exercise", "303.1"]
def two_errors(right, draws):
    """Standard errors of avg@k over draws and over problems; right [P] of `draws`."""
    return ...


# %% tags=["check", "303.1"]
learn.check("303.1", two_errors)

# %% [markdown]
# **Exercise 303.2: pass@k without bias.** Difficulty 2 of 5, about 5 minutes.
#
# Write pass@k from `draws` answers on each of P problems, `right[i]` of them right: the
# chance that `k` answers, taken from these without putting any back, hold a right one.
# Mean over the problems.


# %% tags=["exercise", "303.2"]
def pass_at(right, draws, k):
    """Mean over problems of the chance that k draws hold a right one; right [P]."""
    return ...


# %% tags=["check", "303.2"]
learn.check("303.2", pass_at)

# %% [markdown]
# More draws are cheap and more problems are scarce. Both are about *one* trained model.
# Another seed gives another model, and lesson 305 asks what that does to a comparison
# of two methods.

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Ask these 40 problems without end. Which standard error does the score keep, as
# a measure of all such problems?
#
# <details>
# <summary>What we got</summary>
#
# 3.2 points: the spread of the problems themselves.
# <!-- claim: 3.2 points :: said(100 * p.std(ddof=1) / np.sqrt(len(p))) -->
#
# </details>
#
# **2.** How many problems would bring it down to one point?
#
# <details>
# <summary>What we got</summary>
#
# About 410.
# <!-- claim: About 410 :: said(10 * round((p.std(ddof=1) / 0.01) ** 2 / 10)) -->
#
# </details>
