# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 304: Your first real model: what does it say before and after ten steps?
#
# * You learn: how a language model changes in ten steps, what of it is format and what
#   is arithmetic, which gauges to look at, and how to find out that a grader pays for
#   wrong answers.
# * You need: lessons 301 and 303.
# * Time: 15 minutes to read, 5 seconds to run, 30 minutes for the exercises.
#
# SmolLM2-135M-Instruct is a real language model: 135 million weights, taught on two
# trillion tokens and then to follow instructions. It fits a laptop. Here it meets eight
# small problems, in its own chat format and after two examples that end with `Answer:`
# and a number. It answers each of them sixteen times.
#
# The lesson reads a run that is stored with the course, the first ten steps of 24, and
# needs no network, no GPU and no torch. If you have ten minutes, 92 MB and 6 GB of
# memory, it makes the run on your machine instead.

# %%
import json
import re
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import theory
from pmdkit.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, style

style()
stored = learn.stored_run("first")  # a copy of its folder; nothing is trained here
print("reads the stored run: ten steps of 8 problems, 16 answers to each")


def answers(folder, step):
    """The recorded responses of a step, one dictionary each, problem by problem."""
    lines = (folder / f"rollouts/step-{step}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def by_problem(rows):
    """The responses of a step as groups, {problem: its responses}."""
    groups = {}
    for row in rows:
        groups.setdefault(row["problem"], []).append(row)
    return groups


# %%
# alt: Bars of 16 answers each to eight problems, before training. Right: none for
#   8 + 36 and a story about apples, 1 for 17 + 25 and a story about coins, 2 for
#   29 + 28, and 3, 4 and 7 for smaller sums. Between 4 and 13 have no answer in the
#   format, most for the two stories. The rest are wrong.
first = by_problem(answers(stored, 1))
kinds = {
    "right": (GREEN, lambda row: row["reward"] > 0),
    "wrong": (PURPLE, lambda row: not row["reward"] and row["extracted"]),
    "no answer": (GREY, lambda row: not row["reward"] and not row["extracted"]),
}
fig, ax = plt.subplots(figsize=(8, 3.2))
left = np.zeros(len(first))
for name, (color, belongs) in kinds.items():
    count = np.array([sum(bool(belongs(row)) for row in g) for g in first.values()])
    ax.barh([text[:34] for text in first], count, left=left, color=color, label=name)
    left += count
ax.invert_yaxis()
ax.set(xlabel="answers before training (of 16)", ylabel="", xticks=range(0, 17, 4))
ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.15), ncols=3)
plt.show()

# %% [markdown]
# **What to see.** A model that can speak and can hardly add. Some answers are right,
# for six problems of the eight; many do not end in the format at all.
# <!-- claim: for six problems of the eight :: sum(any(row["reward"] for row in g) for
#   g in first.values()) == 6 and len(first) == 8 -->
#
# ## Predict
#
# Now it is trained for ten steps with PMD-mean at $\tau = 0.05$. Four of the problems
# are asked in every step: 8 + 36, 17 + 25, 29 + 28, and the story about Mia's coins.
# Four others are new in each step.
#
# * To 8 + 36 it gave 16 wrong answers, to 17 + 25 it gave 15. What becomes of the two?
# * What is learned first, the format or the sums?
# * Ten times smaller $\tau$: how far down would an exact step take wrong answers?
#
# <!-- predict: One of 16 answers to 17 + 25 is right, and none of those to 8 + 36.
#   After ten steps that ask both, how many are right?
#   - nearly all of both
#   + all of the one, none of the other
#   - a few of both
#   = A group of equal rewards says nothing: what is never drawn is never rewarded. -->
# <!-- predict: What is learned first?
#   + the format
#   - the sums
#   - both at the same pace
#   = Every right answer has the format, whatever the problem, so all problems teach
#     it. -->
# <!-- predict: How far would an exact step take the wrong answers to 17 + 25 at a tau
#   of 0.005, if it is 1.6 nats at 0.05?
#   - 1.6 nats as well
#   - 3 nats
#   + more than 10 nats
#   = The target of a response is its advantage divided by tau. -->
#
# ## Run
#
# Set `start` to True, and your machine makes the run. In a terminal, the same is
# `pmdkit llm followed.toml --steps 10` in a folder with the two files of the recipe.

# %%
start = False  # True: ten steps here; downloads 92 MB once, needs pmdkit[llm]
run = stored
if start:
    from pmdkit import train

    place = Path(tempfile.mkdtemp())
    text = (stored / "followed.toml").read_text("utf-8")
    recipe = place / "followed.toml"
    recipe.write_text(text.replace("four.jsonl", (stored / "four.jsonl").as_posix()))
    run = train("pmd-mean", "llm", str(recipe), steps=10, out=place / "run").path

lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
metrics = [json.loads(line) for line in lines]
steps = [row["step"] for row in metrics]
spent = sum(row["seconds_rollout"] + row["seconds_update"] for row in metrics)
print(f"your own run, in {run}" if start else "the stored run")
print(f"{len(steps)} steps took {spent / 60:.0f} minutes where it was made")

# %% [markdown]
# ## Look
#
# First the texts: the most frequent answers to the four problems, before the first
# update and in the tenth step.

# %%
first, last = (by_problem(answers(run, step)) for step in (1, steps[-1]))
followed = [problem for problem in first if problem in last]
hard = "What is 8 + 36?"
for problem in followed:
    print(problem)
    for step, groups in ((1, first), (steps[-1], last)):
        said = Counter(" / ".join(r["response"].split("\n")) for r in groups[problem])
        for text, times in said.most_common(3):
            print(f"  step {step:2}, {times:2} times: {text[:76]}")

# %%
# alt: Left, share of right answers of 16 over the ten steps, a line per problem. Three
#   rise from about 0.1 to 1 within three to six steps; 8 + 36 stays at 0. Right, all
#   problems: the share in the answer format rises from 0.55 to 0.97 in three steps and
#   to 1; right given the format moves between 0.25 and 0.86.
rows = [answers(run, step) for step in steps]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
for problem, color in zip(followed, (ORANGE, BLUE, SKY, GREEN), strict=False):
    right = [np.mean([r["reward"] for r in by_problem(each)[problem]]) for each in rows]
    axes[0].plot(steps, right, "o-", color=color, label=problem[:21])
form = np.array([np.mean([r["extracted"] is not None for r in each]) for each in rows])
given = np.array([np.mean([r["reward"] for r in each]) for each in rows]) / form
axes[1].plot(steps, form, "s-", color=GREY, label="in the format")
axes[1].plot(steps, given, "o-", color=PURPLE, label="right, given the format")
axes[0].set(xlabel="step", ylabel="share of the answers", title="four problems")
axes[1].set(xlabel="step", ylabel="", title="all eight problems")
axes[0].legend(loc="center right", fontsize=7)
axes[1].legend(loc="lower right", fontsize=7)
plt.show()

# %% [markdown]
# **What to see.** Three of the four sums are learned in a few steps, from one or two
# right answers in the first. The fourth is never learned. The format needs no more than
# three steps. And being right, given the format, jumps about: four problems are new in
# each step, and some are easy.
# <!-- claim: Three of the four sums are learned in a few steps, from one or two right
#   answers in the first :: sorted(sum(r["reward"] for r in last[p]) for p in followed)
#   == [0, 16, 16, 16] and sorted(sum(r["reward"] for r in first[p]) for p in followed)
#   == [0, 1, 1, 2] -->
# <!-- claim: The format needs no more than three steps :: form[2] > 0.95 and form[0] <
#   0.6 -->
#
# Did it learn to add? On the four repeated problems it learned four answers, and
# repeating them is part of why. The honest question is about problems that it has never
# seen. The recipe without repeated problems has been run with three seeds, for 30
# steps: held-out sums rise from about a quarter right to six in ten, problems of two
# steps stay near none. `docs/use/llm.md` has the table, with intervals.
#
# ## Explain
#
# **The gauges.** Each line of `metrics.jsonl` says more than a pass rate. Four gauges
# come first: do engine and trainer agree, how old are the answers, which groups say
# anything, and what would PMD-part do with them?

# %%
# alt: Four panels over ten steps. Mismatch between engine and trainer: from 2e-6 down
#   to 1e-7 nats per token. Staleness: 1 in every step. Silent groups: 2 of 8 at the
#   start, 7 of 8 in steps 8 and 9. Push of PMD-part over its pull: from 10 down to
#   between 0.3 and 4, above the line at 1 in all steps but one.
panels = {
    "mismatch_mean": "mismatch (nats per token)",
    "staleness": "staleness (updates)",
    "zero_variance_groups": "silent groups (of 8)",
    "anchor": "anchor: push / pull of PMD-part",
}
fig, axes = plt.subplots(2, 2, figsize=(8, 4.6), sharex=True)
for ax, (key, name) in zip(axes.flat, panels.items(), strict=True):
    ax.plot(steps, [row[key] for row in metrics], "o-", color=BLUE)
    ax.set(ylabel=name, xlabel="step")
axes[0, 0].set_yscale("log")
axes[0, 1].set_ylim(0, 2)
axes[1, 0].set_ylim(0, 8.3)
axes[1, 1].axhline(1, color=GREY, linestyle="--", linewidth=1)
axes[1, 1].set_yscale("log")
plt.show()

# %% [markdown]
# **What to see.** *Mismatch* is rounding, a millionth of a nat: the engine has the
# trainer's weights. *Staleness* is 1: two updates for each batch, and the second learns
# from answers that are one update old. *Silent groups*: up to seven of eight have equal
# rewards, all right or all wrong. They teach nothing; what still moves in them comes
# from other problems. *Anchor*: had this been PMD-part, its targets would push away
# from the old policy ten times as strongly as $\tau$ pulls back, in the first step.
# <!-- claim: up to seven of eight have equal rewards :: max(row["zero_variance_groups"]
#   for row in metrics) == 7 -->
# <!-- claim: *Staleness* is 1 :: {row["staleness"] for row in metrics} == {1} -->
# <!-- claim: ten times as strongly as $\tau$ pulls back, in the first step ::
#   abs(metrics[0]["anchor"] - 10) < 1 -->
# <!-- claim: is rounding, a millionth of a nat :: 0.5e-6 < metrics[0]["mismatch_mean"]
#   < 5e-6 -->
#
# **Why 8 + 36 is never learned.** In step 1 five of its answers are 24, and none is 44.
# All rewards are 0, so every advantage is 0. By the tenth step the model has become
# sure, through other problems, and says 24 fourteen times of sixteen. Its entropy has
# fallen from 1.4 to 0.05 nats per token: ten steps on 16 answers have made a cautious
# guesser into a firm one, also where it is wrong.
# <!-- claim: In step 1 five of its answers are 24, and none is 44 :: (lambda found:
#   found.count("24") == 5 and "44" not in found)([r["extracted"] for r in first[hard]])
#   -->
# <!-- claim: says 24 fourteen times of sixteen :: [r["extracted"] for r in
#   last[hard]].count("24") == 14 -->
# <!-- claim: fallen from 1.4 to 0.05 nats per token ::
#   said(metrics[0]["token_entropy"], metrics[-1]["token_entropy"]) -->
#
# **Another $\tau$.** The first step is recorded, so one can ask what another $\tau$
# would have made of the *same* answers. Take each group as if its sixteen responses
# were all there are; the exact update is then that of lesson 301, with lengths.
# `pmdkit replay` prints these numbers as "exact", from a run with `--record`.

# %%
# alt: Mean log-ratio of the exact update against tau from 0.005 to 1, right and wrong
#   answers to 17 + 25 and 24 + 8. Right answers: nearly the same for all small tau, 2.8
#   and 0.8 nats, falling slowly from 0.1 on. Wrong answers: for PMD-mean from -0.1 nats
#   at tau 1 to -12 and -88 at 0.005.
taus = np.geomspace(0.005, 1, 25)
equal = np.full(16, 1 / 16)
fig, ax = plt.subplots(figsize=(6, 3.4))
for problem, mark in (("What is 17 + 25?", "-"), ("What is 24 + 8?", "--")):
    reward = np.array([row["reward"] for row in first[problem]])
    tokens = np.array([row["tokens"] for row in first[problem]])
    exact = [theory.pmd_mean(equal, reward, tau, length=tokens) for tau in taus]
    for value, color, word in ((1, GREEN, "right"), (0, PURPLE, "wrong")):
        moved = [each.log_ratio[reward == value].mean() for each in exact]
        ax.plot(taus, moved, mark, color=color, label=f"{problem[8:-1]}, {word}")
ax.set(xscale="log", xlabel=r"$\tau$ (reward units)", ylabel="exact log-ratio (nats)")
ax.set_yscale("symlog", linthresh=1)
ax.axvline(0.05, color=GREY, linewidth=0.8)
ax.legend(fontsize=7, loc="lower right")
plt.show()


def wrong_at(tau, problem="What is 17 + 25?"):
    """Mean exact log-ratio of the wrong answers to a problem, nats."""
    reward, tokens = np.array([[r["reward"], r["tokens"]] for r in first[problem]]).T
    exact = theory.pmd_mean(equal, reward, tau, length=tokens)
    return exact.log_ratio[reward == 0].mean()


reward = np.array([[row["reward"] for row in group] for group in first.values()])
for tau in (0.005, 0.05, 0.2, 1.0):
    push = (theory.group_anchor(reward, tau) / tau).mean()
    print(f"tau {tau:5}: PMD-part would push {push:6.2f} times as hard as tau pulls")

# %% [markdown]
# **What to see.** Where right answers go hardly depends on $\tau$: all of the
# probability is theirs, and one of sixteen cannot rise by more than $\log 16$, 2.8
# nats. Where wrong answers go does: at 0.05 to $-1.6$ nats for 17 + 25, at 0.005 to
# $-12.5$. So rare an answer is never drawn again, and a few updates cannot make it so
# rare. The table says the same of PMD-part: only near $\tau = 1$ does it pull
# towards the old policy at all.
# <!-- claim: cannot rise by more than $\log 16$, 2.8 nats :: said(None, np.log(16)) -->
# <!-- claim: at 0.05 to $-1.6$ nats for 17 + 25, at 0.005 to $-12.5$ :: said(None,
#   wrong_at(0.05), None, None, None, wrong_at(0.005)) -->
#
# **KL in the first steps.** The column `kl` estimates $KL(\pi_{new}\|\pi_{old})$ from
# draws of the *old* policy: each counts with its ratio $w = e^s$ of new to old, as $w s
# - w + 1$. A response that became 1,400 times likelier adds nine thousand to that sum,
# and did in another run: `kl` read 140 in a step whose other 63 responses moved little.
# Look at `log_ratio_max` beside it (exercise 2).
#
# ## Exercise
#
# Three exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("304.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 304.1: format or arithmetic?** Difficulty 2 of 5, about 10 minutes.
#
# The pass rate is a product: the share in the format times the share of these that is
# right. `before` and `after` hold these two shares each. Split the gain of the pass
# rate into a part that came through the format and a part that came through being
# right, so that the two add up and neither is preferred.


# %% tags=["exercise", "304.1"]
def two_parts(before, after):
    """Parts of the gain: format, being right; before, after [2] = (format, right)."""
    return ...


# %% tags=["check", "304.1"]
learn.check("304.1", two_parts)

# %% [markdown]
# **Exercise 304.2: one response makes the KL.** Difficulty 3 of 5, about 10 minutes.
#
# `log_ratio` holds $s_i = \log \pi_{new}/\pi_{old}$ of N responses that the *old*
# policy drew. Write the estimate of $KL(\pi_{new}\|\pi_{old})$ whose terms are never
# negative, and the share of its sum that the largest term makes.


# %% tags=["exercise", "304.2"]
def kl_and_largest(log_ratio):
    """Estimate of KL(new || old), nats, and its largest term's share; log_ratio [N]."""
    return ...


# %% tags=["check", "304.2"]
learn.check("304.2", kl_and_largest)

# %%
planted = learn.stored_run("planted")
found = [
    row
    for path in sorted(planted.glob("rollouts/*.jsonl"))
    for row in map(json.loads, path.read_text("utf-8").splitlines())
]
number = re.compile(r"Answer: *(-?[0-9]+)")
read = [number.search(row["response"]) for row in found]
planted_gold = np.array([int(row["answer"]) for row in found])
planted_given = np.array([-1 if each is None else int(each[1]) for each in read])
planted_reward = np.array([row["reward"] for row in found])
print(f"{len(found)} responses, {planted_reward.mean():.2f} of them paid")

# %% [markdown]
# **Exercise 304.3: a fault in a run's folder.** Difficulty 3 of 5, about 10 minutes.
#
# The folder `planted` holds a run of the same model, whose grader somebody wrote in a
# hurry; the cell above reads it. Write the two shares in which a grader can be wrong:
# of the wrong answers, how many were paid; of the right ones, how many were not.
# `gold` and `given` hold N whole numbers; `given` is $-1$ where a response has no
# answer.


# %% tags=["exercise", "304.3"]
def grader_errors(gold, given, reward):
    """Paid of the wrong ones, unpaid of the right ones; gold, given, reward [N]."""
    return ...


# %% tags=["check", "304.3"]
learn.check("304.3", grader_errors)

# %%
print(grader_errors(planted_gold, planted_given, planted_reward))

# %% [markdown]
# Once your function is right, print the paid rows whose answer is wrong, gold beside
# given, and say what the grader compares. The pass rate alone would not have shown it:
# it more than doubles from the first step to the second, on 4 and then 6 right answers
# of 32. `grader.py` in the folder is the fault, in one regular expression.

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Where would one exact step at $\tau = 0.1$ take the wrong answers to 17 + 25?
#
# <details>
# <summary>What we got</summary>
#
# To -0.94 nats, against the -1.6 of 0.05.
# <!-- claim: To -0.94 nats :: said(wrong_at(0.1)) -->
#
# </details>
#
# **2.** And at 0.05 those to 24 + 8, of which seven in sixteen are right?
#
# <details>
# <summary>What we got</summary>
#
# To -8.8 nats. The more of a group is right, the harder its wrong answers are pushed.
# <!-- claim: To -8.8 nats :: said(wrong_at(0.05, "What is 24 + 8?")) -->
#
# </details>
