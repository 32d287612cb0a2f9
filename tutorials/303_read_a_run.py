# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 303: Is this run really better, and how would you know?
#
# * You learn: what avg@32 on 30 problems can tell and what it cannot, how to compare
#   two models and two methods, how to read the picture of a run against theory, and
#   what choosing the best checkpoint does to its score.
# * You need: lessons 103 and 202. Two sittings do: the scores, then the runs, from
#   *Explain* on.
# * Time: 25 minutes to read, 20 seconds to run, 35 minutes for the exercises.
#
# Here is a table as papers print it: the scores of arXiv:2602.05933 with its smaller
# model, one run per row, the mean of 32 answers to each of 30 problems.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import train
from pmdkit.evaluation.sampling import load_policy, sample_held_out
from pmdkit.figures.style import BLUE, GREY, ORANGE, style
from pmdkit.observe import gauge
from pmdkit.stats import (
    GradedDraws,
    estimate_at_k,
    mean_interval,
    measure_at_k,
    paired_difference,
    pass_at_k,
)
from pmdkit_lab.figures import table
from pmdkit_lab.figures.looks import COLOURS
from pmdkit_lab.figures.scores import over_draws, over_problems
from pmdkit_lab.figures.tables import GSPO, SCORES
from pmdkit_lab.figures.training_curves import setting

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
# * Two methods are trained with five seeds each. One ends at 0.85 on average, the other
#   at 0.70. Is the first one better?
# * Sixteen checkpoints are equally good, and you report the one with the best score. By
#   how many points does it flatter?
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
spec, setup, _, _ = load_policy(half.path)
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
# ## Explain
#
# **Read the run before its score.** A score says that something went well or badly; the
# gauges say what. They compare, prompt by prompt, what a step did to right and wrong
# responses with what the exact update would do to this prompt *alone*. First a bandit
# whose update is exact, then the toy transformer, then a policy that shares 32
# parameters among 16 prompts.

# %%
runs = {
    name: train(
        "pmd-mean", tier, env, tau=0.05, **shape, options=more, out=tempfile.mkdtemp()
    )
    for name, tier, env, shape, more in (
        ("table, exact", "bandit", "needle", {"steps": 10}, {}),
        ("transformer", "toy", "modular-sum", {"steps": 12, **stale}, small),
        ("shared", "bandit", "shared-features", {"steps": 30}, {}),
    )
}


def reached(run, key):
    """Share of the exact log-ratio that the steps reached on average."""
    names = f"log_ratio_{key}", f"theory_log_ratio_{key}"
    pairs = [tuple(row[name] for name in names) for row in run.metrics]
    known = np.array([pair for pair in pairs if None not in pair])
    return known[:, 0].sum() / known[:, 1].sum()


for name, run in runs.items():
    last = run.summary["pass_rate_last"]
    shares = ", ".join(f"{reached(run, key):5.2f}" for key in ("pos", "neg"))
    print(
        f"{name:13} pass rate {last:.2f}; measured / exact, right and wrong: {shares}"
    )

# %%
# alt: Picture of the transformer's run, a panel per question. Pass rate from 0.09 to
#   0.93 over 12 steps. The log-ratios of right and wrong responses have the signs of
#   the exact ones and are smaller: 0.29 of them for right responses, 0.09 for wrong.
runs["transformer"].figure()

# %% [markdown]
# **What to see.** Each panel answers its question. *Does it learn?* Yes. *How far does
# one step go?* Right responses rise and wrong ones fall, as they should, a third and a
# tenth of the way that exact steps would go (the dashes). That is not a fault: 16
# ministeps of Adam do not finish a regression, and the targets of wrong responses are
# 15 nats down, where nobody needs to go. *Which prompts move?* All kinds, each in its
# own direction. A table with exact steps has shares of 1.00; where yours does not, look
# for a bug.
# <!-- claim: a third and a tenth of the way that exact steps would go ::
#   abs(reached(runs["transformer"], "pos") - 1 / 3) < 0.06 and
#   abs(reached(runs["transformer"], "neg") - 0.1) < 0.03 -->
# <!-- claim: A table with exact steps has shares of 1.00 :: said(reached(runs["table,
#   exact"], "pos")) -->

# %%
# alt: Picture of the run with shared parameters. The pass rate climbs to 0.75 in five
#   steps and stays there. By pass rate: prompts that are nearly never solved have a
#   measured log-ratio of right responses of -2 where the exact update says +17.
runs["shared"].figure()

# %% [markdown]
# **What to see.** The pass rate stops at 0.75, and its curve does not say why. *Which
# prompts move?* does: near a pass rate of 0 the exact update would raise right
# responses by 17 nats, and the run *lowered* them by 2. No prompt alone would do that;
# the updates of the others did. Four of the 16 prompts are traps, where the features
# that help elsewhere are wrong. Learning the other twelve made the policy unlearn these
# four, and in the end the twelve, all solved, have nothing more to say.
# <!-- claim: The pass rate stops at 0.75 ::
#   said(runs["shared"].summary["pass_rate_last"]) -->
# <!-- claim: responses by 17 nats, and the run *lowered* them by 2 :: (lambda row:
#   said(row["theory_log_ratio_pos"], -row["log_ratio_pos"]))(gauge.merge(row["gauge"]
#   for row in runs["shared"].metrics)[0]) -->

# %%
merged = gauge.merge(row["gauge"] for row in runs["shared"].metrics)
for row in merged:
    measured, exact = row["log_ratio_pos"], row["theory_log_ratio_pos"]
    print(f"pass rate {gauge.label(row['bucket']):11} right responses", end=": ")
    print(f"measured {measured:+6.2f}, exact {exact:+6.2f} nats", end=" ")
    print(f"({row['prompts']} prompts and steps)")

# %% [markdown]
# So, when a share is far from 1, check in this order:
#
# 1. *Between 0 and 1:* the step did not finish. More ministeps or a larger learning
#    rate would take it further; whether that helps is the question of lesson 203.
# 2. *Negative or above 1:* other prompts moved this one. Look at which pass rates.
# 3. *In a language model, a third suspect:* the engine that writes and the trainer that
#    learns round differently. `mismatch_mean` and `mismatch_response` in the metrics
#    are these differences in nats. Where a response's mismatch is as large as its
#    log-ratio, the gauge measures noise, and so does the update.
#
# **Training involves luck too.** All intervals so far are about *one* trained model.
# Another seed gives another model. These are the final pass rates of the parity task,
# five seeds per method, from the records that come with pmdkit.

# %%
# alt: Final pass rates on parity of five seeds each with means and 95 % intervals.
#   PMD-mean 0.85, four seeds near 0.9 and one at 0.53; GRPO 0.70, seeds at 0.48, 0.52,
#   0.66, 0.88 and 0.96; GSPO 0.89; RLOO 0.59, four seeds near 0.5 and one at 0.98.
methods = ("pmd-mean", "grpo", "gspo", "rloo")
final = {name: np.array(setting("sequence", name)["last"]) for name in methods}
fig, ax = plt.subplots(figsize=(6, 2.8))
for place, (name, values) in enumerate(final.items()):
    ends = mean_interval(values)
    color = COLOURS[name]
    ax.plot([ends.low, min(ends.high, 1)], [place, place], "-", color=color)
    ax.plot(ends.mean, place, "D", color=color, markersize=6)
    ax.plot(values, np.full(5, place + 0.25), "o", color=color, alpha=0.5)
ax.set_yticks(range(4), methods)
ax.set(xlabel="final pass rate, parity", ylabel="", xlim=(0.28, 1.02), ylim=(3.6, -0.4))
plt.show()

for name in methods[1:]:
    versus = paired_difference(final[name], final["pmd-mean"])
    gap = versus.difference
    print(f"PMD-mean minus {name:5}: {gap.mean:+.2f}", end=", ")
    print(f"{gap.low:+.2f} to {gap.high:+.2f}", end="; ")
    print(f"higher with {versus.wins} of 5 seeds, equal with {versus.ties}")

# %% [markdown]
# **What to see.** The seeds of a method lie farther apart than the methods. Most fall
# into two heaps: those that found the rule, and those at 0.5 that guess the last bit.
# PMD-mean is ahead of GRPO by 15 points, never behind, and the paired interval still
# reaches from $-11$ to $+41$. Five seeds cannot say which is better here. To do the
# same with your own runs: `pmdkit compare RUN... --by objective`.
# <!-- claim: those at 0.5 that guess the last bit ::
#   sum(abs(np.concatenate([*final.values()]) - quoted[0]) < 0.06) >= 4 -->
# <!-- claim: ahead of GRPO by 15 points, never behind, and the paired interval still
#   reaches from $-11$ to $+41$ :: (lambda gap: said(100 * gap.mean, 100 * gap.low, 100
#   * gap.high))(paired_difference(final["grpo"], final["pmd-mean"]).difference) -->
#
# How many could? An interval of $n$ differences with standard deviation $\sigma$ has a
# half-width of about $2\sigma/\sqrt n$. To find a true difference $d$ in four out of
# five races takes about $n = (2.8\,\sigma/d)^2$ seeds, and a few more if $n$ is small.

# %%
spread = (final["pmd-mean"] - final["grpo"]).std(ddof=1)
for d in (0.3, 0.15, 0.05):
    print(f"to see a difference of {d:.2f}: about {(2.8 * spread / d) ** 2:4.0f} seeds")

# %% [markdown]
# **The best checkpoint flatters.** Take checkpoints that are all *exactly equally
# good*, the model of our 40 problems. Ask each one 30 problems 32 times, report the
# best, then ask the winner again.

# %%
# alt: Score in percent against the number of checkpoints, 1 to 64. The score of the
#   best one rises from 13.2 to 15.3; the same checkpoint asked again stays at 13.2.
counts = 2 ** np.arange(7)
scores = rng.binomial(32, some, size=(2000, 64, 30)).mean(2) / 32
told = [100 * scores[:, :count].max(1).mean() for count in counts]
again = [
    100 * rng.binomial(32, some, size=(2000, 30)).mean() / 32 for count in counts
]  # all are equally good, so the winner is asked like any other
fig, ax = plt.subplots(figsize=(6, 3))
ax.plot(counts, told, "o-", color=ORANGE, label="the best, as reported")
ax.plot(counts, again, "s--", color=BLUE, label="the same one, asked again")
ax.set(xscale="log", xlabel="checkpoints to choose from", ylabel="Avg@32 (%)")
ax.set_xticks(counts, counts)
ax.minorticks_off()
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Choosing among 16 adds 1.6 points out of nothing, as much as many a
# paper claims. The score falls back when the winner is asked again: *regression to the
# mean*. The same holds for a temperature chosen on the problems that are reported,
# for seeds, and for prompts chosen because they were hard. The cure is to choose on one
# set and to report on another (exercise 4).
# <!-- claim: Choosing among 16 adds 1.6 points out of nothing :: said(None, told[4] -
#   100 * some.mean()) -->
#
# **What is an interval over?** Say it in the caption. There are four kinds of luck:
#
# | luck | repeat what? | here, points | what shrinks it |
# |---|---|---|---|
# | of the draws | answers, same problems | $\pm 2$ | more draws |
# | of the problems | all, other problems | $\pm 7$ | more of them, pairing |
# | of training | all, another seed | $\pm 20$ (parity) | more runs, pairing |
# | of choosing | nothing: it is a bias | $+1.6$ (of 16) | a second set of problems |
#
# ## Exercise
#
# Four exercises, checked on your own machine. Each begins with a cell to fill in; the
# cell below it says what is wrong. `learn.hint("303.1")` gives a hint, and a second
# argument goes further.

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
# **Exercise 303.3: a difference, paired by seed.** Difficulty 2 of 5, about 10 minutes.
#
# Two methods were run with the same S seeds; `first` and `second` are their final pass
# rates. Write the mean of second minus first with both ends of its 95 % interval by
# Student's t, three numbers.


# %% tags=["exercise", "303.3"]
def difference(first, second):
    """Mean of second minus first, low and high end; both [S], paired by seed."""
    return ...


# %% tags=["check", "303.3"]
learn.check("303.3", difference)

# %% [markdown]
# **Exercise 303.4: what the best checkpoint is worth.** Difficulty 3 of 5, about 10
# minutes.
#
# `scores[c, i]` is the share of right answers of checkpoint c on problem i. The best
# mean flatters: luck helped to choose it. Choose the best checkpoint on the problems 0,
# 2, ... and take its mean on 1, 3, 5, ..., then the other way round. Write the mean of
# the two.


# %% tags=["exercise", "303.4"]
def honest_best(scores):
    """What the best checkpoint is worth, a share; scores [K, P], problems last."""
    return ...


# %% tags=["check", "303.4"]
learn.check("303.4", honest_best)

# %% [markdown]
# None of this makes a true claim smaller. It says how much you must do before
# you may make it: more draws are cheap, more problems are scarce, and more runs are
# expensive. Lesson 401 puts an objective of your own to this test.
