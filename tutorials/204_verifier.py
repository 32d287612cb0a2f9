# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 204: Why is a missing verdict not a wrong answer?
#
# * You learn: how a response becomes a reward, what happens to a whole group when one
#   verdict is missing, and how a verifier can be cheated.
# * You need: lessons 102 and 202.
# * Time: 15 minutes to read, 10 seconds to run, 20 minutes for the exercises.
#
# A language model writes text, and the objective wants a number. Between them is a
# *verifier*. It says right or wrong, and sometimes it gives no verdict: the comparison
# ran out of time or memory. What number stands for a missing verdict?
#
# Eight responses to one problem: four are right, four are wrong. For one of the right
# ones the verifier ran out of time. Two trainers continue from here. One leaves the
# response out: it gets mass 0, and the other seven share the group. The other counts it
# as wrong: reward 0.

# %%
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import pmdkit_course as learn
from pmdkit import theory
from pmdkit.envs.math_answers import FunctionGrader
from pmdkit.figures.style import GREEN, GREY, PURPLE, style
from pmdkit.objectives import Groups, PMDMean
from strict_answers import Grader, Item, audit, verify
from strict_answers.conventions import TABLE

style()
folder = Path(tempfile.mkdtemp())
objective = PMDMean(tau=0.05)  # rewards are 0 and 1

# %%
# alt: Advantages of eight responses as bars, in three panels. All eight known: four
#   right ones at 0.57, four wrong ones at -0.57. No verdict, mass 0: three right
#   ones at 0.67, four wrong ones at -0.50, the unjudged one at 0. No verdict, reward 0:
#   three right ones at 0.71, four wrong ones and the unjudged one at -0.43.
reward = torch.tensor([[1.0, 1, 1, 0, 0, 0, 0, 0]], dtype=torch.float64)  # last: none
truth = torch.tensor([[1.0, 1, 1, 0, 0, 0, 0, 1]], dtype=torch.float64)
equal = torch.full((1, 8), 1 / 8, dtype=torch.float64)
left_out = torch.tensor([[1 / 7] * 7 + [0]], dtype=torch.float64)
cases = {
    "all eight known": objective.advantage(Groups(truth, equal))[0],
    "no verdict, mass 0": objective.advantage(Groups(reward, left_out))[0],
    "no verdict, reward 0": objective.advantage(Groups(reward, equal))[0],
}
fig, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True)
for ax, (name, advantage) in zip(axes, cases.items(), strict=True):
    colors = [GREEN] * 3 + [PURPLE] * 4 + [GREY]
    ax.bar(range(1, 9), advantage, color=colors)
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(title=name, xlabel="response (the last: no verdict)", ylabel="advantage")
    ax.label_outer()
plt.show()

# %% [markdown]
# **What to see.** Grey is the right response without a verdict. Left out, it is not
# moved, and the seven others are compared among themselves. Counted as 0, it is pushed
# down as hard as a wrong answer, and that is not all: the mean of the group moved, and
# every advantage hangs on it. Right answers are pushed up too much, wrong ones down too
# little, and more so than in the group of seven.
# <!-- claim: Left out, it is not moved, and the seven others are compared among
#   themselves :: cases["no verdict, mass 0"][7] == 0 and abs(cases["no verdict, mass
#   0"].sum()) < 1e-9 -->
# <!-- claim: Counted as 0, it is pushed down as hard as a wrong answer ::
#   cases["no verdict, reward 0"][7] == cases["no verdict, reward 0"][3] -->
# <!-- claim: Right answers are pushed up too much, wrong ones down too little ::
#   cases["no verdict, reward 0"][0] > cases["no verdict, mass 0"][0] and cases["no
#   verdict, reward 0"][3] > cases["no verdict, mass 0"][3] and cases["no verdict, mass
#   0"][0] > cases["all eight known"][0] -->
#
# ## Predict
#
# One response is bad luck. But missing verdicts are not spread evenly: long expressions
# are slow to compare, short integers never are. Let a policy be right in two ways, a
# quarter of its responses each. One way is checked at once; the other gets no verdict
# with some probability.
#
# * What does each trainer teach the policy about the slow way?
# * Above which share without a verdict is it pushed *down*?
# * The right answer is 34. Which of these should pay: `034`, `34%`, `34 cm`,
#   `30 + 4 = 34`, `34 or 35`, `2^5 + 2`?
#
# <!-- predict: No verdict counts as reward 0. What happens to the slow right answers
#   as more of them get none?
#   - they are raised less, never lowered
#   + from some share on they are pushed down
#   = A response that often earns 0 ends up below the mean of its group. -->
# <!-- predict: From which share on?
#   - one third
#   - one half
#   + two thirds
#   = The mean reward of the group falls too, so it takes more than half. -->
# <!-- predict: The right answer is 34. Which of these does not pay?
#   - 034
#   - 34 cm
#   + 34%
#   - 30 + 4 = 34
#   = 34% is 0.34 or a slip for 34, and the verifier does not guess. -->
#
# ## Run
#
# The advantages are computed by the objective itself, for 20,000 groups of 8.

# %%
rng = np.random.default_rng(0)
kinds = rng.choice(3, p=[0.25, 0.25, 0.5], size=(20_000, 8))  # quick, slow, wrong
luck = rng.random(kinds.shape)
shares = np.linspace(0, 0.95, 11)


def pushes(share, booked_as_wrong):
    """Mean advantage of each kind, over draws; a response with mass 0 gets none."""
    unjudged = (kinds == 1) & (luck < share)
    reward = np.where(unjudged | (kinds == 2), 0.0, 1.0)
    mass = np.ones_like(reward) if booked_as_wrong else np.where(unjudged, 0.0, 1.0)
    mass /= np.maximum(mass.sum(1, keepdims=True), 1)
    groups = Groups(torch.from_numpy(reward), torch.from_numpy(mass))
    advantage = objective.advantage(groups).numpy()
    return [advantage[kinds == kind].mean() for kind in range(3)]


curves = {
    name: np.array([pushes(share, booked) for share in shares])
    for name, booked in (("no verdict, mass 0", False), ("no verdict, reward 0", True))
}

# %%
# alt: Two panels of mean advantage against the share of missing verdicts on slow right
#   answers, 0 to 0.95. No verdict, mass 0: quick right answers rise from 0.5 to 0.65,
#   slow ones fall from 0.5 to near 0 and stay above it. No verdict, reward 0: quick
#   right answers rise from 0.5 to 0.74, slow ones fall in a straight line, cross zero
#   at two thirds and end at -0.21. Wrong answers rise from -0.5 to -0.35 and -0.26.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
labels = "right, quick to check", "right, slow to check", "wrong"
looks = (GREEN, "-"), (GREY, "--"), (PURPLE, ":")
for ax, (name, curve) in zip(axes, curves.items(), strict=True):
    for kind, (color, dash) in enumerate(looks):
        ax.plot(shares, curve[:, kind], dash, color=color, label=labels[kind])
    ax.axhline(0, color="black", linewidth=0.8)
    ax.set(title=name, xlabel="share of slow answers without a verdict")
    ax.set(ylabel="mean advantage")
    ax.label_outer()
axes[0].legend()
plt.show()

# %% [markdown]
# **What to see.** With mass 0 a right answer that is hard to check is raised *less
# often*, never lowered. With a false 0 the push turns round where two thirds of these
# answers get no verdict, and from there the policy unlearns a right way to answer. Only
# the clock taught it that.
# <!-- claim: With mass 0 a right answer that is hard to check is raised *less often*,
#   never lowered :: curves["no verdict, mass 0"][:, 1].min() > 0 and curves["no
#   verdict, mass 0"][-1, 1] < curves["no verdict, mass 0"][0, 1] -->
# <!-- claim: With a false 0 the push turns round where two thirds of these answers get
#   no verdict :: abs(np.interp(0, -curves["no verdict, reward 0"][:, 1], shares) - 2 /
#   3) < 0.03 -->
# <!-- claim: Only the clock taught it that :: curves["no verdict, reward 0"][-1, 1] < 0
#   -->
#
# ## Look
#
# This is why a verdict in pmdkit has three values: `correct` is True, False, or None.

# %%
slow = "(a+b+c+d+e+f)^{20}(a+b+c-d-e-f)^{20}"
gold = "((a+b+c)^2-(d+e+f)^2)^{20}"  # the same, but to see it math-verify expands both
asked = [
    Item("Answer: 34", "34"),
    Item("So it is 34.", "34"),
    Item("Answer: 9^{9^{9}}", "34"),
    Item("Answer: 2^5 + 2", "34"),
    Item(f"Answer: {slow}", gold),
    Item("Answer: 33 + 2", "34"),
]
with Grader(seconds=0.5) as grader:  # 0.8 unless you say otherwise
    verdicts = grader.grade(asked)
for item, verdict in zip(asked, verdicts, strict=True):
    response = item.response.ljust(44)
    reason = verdict.reason.partition(" within")[0]  # a busy machine waits longer
    print(f"{response} {verdict.correct!s:6} {verdict.path:9} {reason}")

# %% [markdown]
# `path` says how it was decided.
#
# | path | decided by | costs |
# |---|---|---|
# | `integer` | exact comparison of integers | microseconds |
# | `none` | nothing found after the last `Answer:`: wrong | microseconds |
# | `rejected` | a rule, such as cut off or several answers: wrong | microseconds |
# | `symbolic` | math-verify, in a process that may be killed | milliseconds |
# | `timeout` | it ran over its time or memory, twice: **no verdict** | the limit |
# | `own` | a grader of your own, in the same kind of process | yours |
#
# The fifth answer is right: one factor is $x + y$, the other $x - y$, with $x = a+b+c$
# and $y = d+e+f$. A person sees that at once. A program that multiplies out faces
# millions of terms, and it had half a second. So there is no verdict. The answer held
# up nothing but itself: its process was killed, and the next answer got a new one. In a
# run such responses are counted as `unscored`. If more than one in a hundred is
# unscored, the run stops, since then it is the verifier that is broken.
# <!-- claim: The fifth answer is right :: abs((lambda x, y: (x + y) ** 20 * (x - y) **
#   20 - (x**2 - y**2) ** 20)(7, 3)) == 0 -->
# <!-- claim: So there is no verdict :: [verdict.correct for verdict in verdicts] ==
#   [True, False, False, True, None, False] and verdicts[4].path == "timeout" -->
#
# ## Explain
#
# **The table.** What counts as the same answer is a decision, not mathematics. pmdkit's
# decisions are rows of a table, and its tests execute every row.

# %%
shown = ("leading zeros", "unit", "percent", "computation = value", "or", "expression")
for row in TABLE:
    if row.what in shown:
        answer = f"{row.gold} or {row.answer}?".ljust(20)
        print(f"{answer} {row.correct!s:6} {row.path:9} {row.why}")
        assert verify(f"Answer: {row.answer}", row.gold).correct == row.correct

# %% [markdown]
# **Doors for reward hacking.** A policy under pressure finds whatever pays. Here is a
# grader that takes a minute to write: it asks whether the gold answer is somewhere in
# the last line. How many of the answers that the table refuses would it accept?

# %%
refused = [row for row in TABLE if not row.correct]
paid = [row for row in refused if row.gold in row.answer]
print(f"{len(paid)} of {len(refused)} refused answers, such as:")
print("  " + "   ".join(row.answer for row in paid if row.path == "rejected")[:77])


def audited(texts):
    """Counts of what the verifier decided, by path and outcome."""
    items = [Item(text, "34") for text in texts]
    rows = audit(items, [verify(text, "34") for text in texts])
    return [(row["path"], row["outcome"], row["count"]) for row in rows]


print(audited([f"Answer: {number}" for number in range(20, 40)]))
print(audited(["Answer: " + ", ".join(str(number) for number in range(100))]))

# %% [markdown]
# A policy need not solve anything to be paid by that grader. It lists all numbers below
# 100. No exploration is needed either: a list of two pays twice as often as one number,
# so the reward leads there step by step. Hence the rules: one commitment, the last
# `Answer:` counts, a chain of equalities must agree with itself, a cut-off response is
# wrong whatever it says. Before a long run, look at what your verifier decides: a run
# writes `audit.json` and prints it.
# <!-- claim: It lists all numbers below 100 :: audited(["Answer: " + ",
#   ".join(str(number) for number in range(100))])[0][0] == "rejected" -->
#
# **A grader of your own** is a function of two texts that returns a number from 0 to 1.
# This one gives half for a near miss. It also contains a mistake that is easily made:
# its regular expression takes exponential time on some texts.

# %%
(folder / "mine.py").write_text(r"""
import re

def grade(response, gold):
    if not re.match(r"^(\w+ ?)*: ?-?\d+$", response):  # (..+ ?)* backtracks for ever
        return 0.0
    off = abs(int(response.split(":")[1]) - int(gold))
    return {0: 1.0, 1: 0.5}.get(off, 0.0)
""")
answers = ["Answer: 34", "Answer: 35", "no idea", "a" * 40 + "!", "Answer: 34"]
with FunctionGrader(f"{folder}/mine.py:grade", seconds=0.5) as grader:
    half = grader.grade([Item(answer, "34") for answer in answers])
for answer, verdict in zip(answers, half, strict=True):
    reason = verdict.reason.partition(" within")[0]
    print(f"{answer[:20]:20} value {verdict.value!s:5} {reason}")

# %% [markdown]
# Forty letters hold up the grader for hours, each further letter doubles that, and a
# model may write such a text by chance. The process is killed, and the response is
# unscored. If your function raises an error or returns something invalid, the response
# is unscored too, with the reason. But this is not a sandbox: your function may read
# files and open sockets.
# <!-- claim: The process is killed, and the response is unscored :: [verdict.value for
#   verdict in half] == [1.0, 0.5, 0.0, None, 1.0] -->
#
# **Scale.** Some verifiers pay -1 and 1. For PMD the exact step depends on reward over
# $\tau$ alone, so twice the gap needs twice the $\tau$.

# %%
pi, zero_one = np.array([0.25, 0.25, 0.5]), np.array([1.0, 1.0, 0.0])
for text, reward_of, tau in (
    ("0 and 1, tau = 0.05", zero_one, 0.05),
    ("-1 and 1, tau = 0.1", 2 * zero_one - 1, 0.1),
    ("-1 and 1, tau = 0.05", 2 * zero_one - 1, 0.05),
):
    print(f"{text:22}", np.round(theory.pmd_mean(pi, reward_of, tau).log_ratio, 3))

# %% [markdown]
# The first two are the same update. The third pushes wrong answers twice as far. And a
# missing verdict that is booked as 0 on the scale of -1 and 1 is not a wrong answer but
# one *in the middle*: a third error. Mass 0 is right on every scale.
# <!-- claim: The first two are the same update. The third pushes wrong answers twice as
#   far :: np.abs(theory.pmd_mean(pi, zero_one, 0.05).log_ratio - theory.pmd_mean(pi,
#   2 * zero_one - 1, 0.1).log_ratio).max() < 1e-9 and abs(theory.pmd_mean(pi, 2 *
#   zero_one - 1, 0.05).log_ratio[2] / theory.pmd_mean(pi, zero_one,
#   0.05).log_ratio[2] - 2) < 0.01 -->
#
# Leaving responses out costs something too. The group is smaller. If right answers go
# without a verdict more often, the pass rate that you read is too low. And an answer
# that is never checked is never raised.
#
# ## Exercise
#
# Two exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("204.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 204.1: advantages with missing verdicts.** Difficulty 2 of 5, about 10
# minutes.
#
# Write the advantages of PMD-mean for one group with unscored responses: the reward
# minus the mean reward of the *other scored* ones, 0 for an unscored response. With
# fewer than two scored ones, all are 0.


# %% tags=["exercise", "204.1"]
def advantages(reward, scored):
    """Both are [G]: rewards, and whether there is a verdict. Returns [G]."""
    return ...


# %% tags=["check", "204.1"]
learn.check("204.1", advantages)

# %% [markdown]
# **Exercise 204.2: where the push turns round.** Difficulty 2 of 5, about 10 minutes.
#
# A policy is right in a way that is quick to check with probability `quick`, right in a
# way that is slow to check with probability `slow`, and wrong otherwise. Of the slow
# answers a share gets no verdict, which is booked as reward 0. From which share on are
# slow right answers pushed *down* on average? The picture above says two thirds for
# `quick = slow = 0.25`; write the formula.


# %% tags=["exercise", "204.2"]
def turning_point(quick, slow):
    """The share of unjudged slow answers at which their mean advantage is 0."""
    return ...


# %% tags=["check", "204.2"]
learn.check("204.2", turning_point)

# %% [markdown]
# With mass 0 the advantages of the scored ones add up to 0, as in a group where every
# verdict is there. If a missing one is booked as 0, all of them add up to 0 as well, so
# no sum gives the mistake away: part of the push down has gone to an answer that nobody
# found wrong.

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Of all answers 10 % are right and quick to check, 40 % right and slow. How many
# of the slow ones may lack a verdict before they are pushed down?
#
# <details>
# <summary>What we got</summary>
#
# 83 % of them. Where most right answers are slow, they fare better: they make the mean
# themselves.
# <!-- claim: 83 % of them :: said(100 * (1 - 0.1 / (1 - 0.4))) -->
#
# </details>
#
# **2.** No slow answer ever gets a verdict, and all are booked as wrong, with shares
# 0.25, 0.25 and 0.5 and $\tau = 0.05$. Where does one exact step of PMD-mean end?
#
# <details>
# <summary>What we got</summary>
#
# Quick answers have 0.995 and slow ones 0.0016, as if they were wrong: the update
# cannot tell.
# <!-- claim: Quick answers have 0.995 and slow ones 0.0016 ::
#   said(*theory.pmd_mean([0.25, 0.25, 0.5], [1.0, 0.0, 0.0], 0.05).probs[:2]) -->
#
# </details>
