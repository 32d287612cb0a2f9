# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 202: Can a small transformer learn to reason from rewards alone?
#
# * You learn: what rewards can teach and what they can only sharpen, and how to read a
#   run by its pass rate, its lengths, its silent groups and its responses.
# * You need: lesson 201.
# * Time: 10 minutes to read, 50 seconds to run, 40 minutes for the exercises.
#
# Post-training starts from a model that can already do something. Then it draws
# responses, looks at nothing but right or wrong, and learns. Here is the whole of it on
# a task that is small enough to read every response.
#
# In **parity** the prompt has 12 bits, and the model says whether the number of ones is
# odd: `= 1` or `= 0`. Before the `=` there is room for a thought that nobody grades.
# The teacher of the warm start uses it to say the running parity bit by bit. A response
# is right if it *ends* right. One run starts from random weights. The other starts
# after a warm start that stops as soon as 60% of the answers are right.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit import train
from pmdkit.envs.tokens import TokenTask, make_tokens
from pmdkit.figures.style import style
from pmdkit.observe import checkpoint
from pmdkit.toy.model import Transformer
from pmdkit.toy.sampling import generate
from pmdkit_lab.figures.looks import shades

style()
folder = tempfile.mkdtemp()  # where the runs are kept
common = {"objective": "pmd-mean", "backend": "toy", "tau": 0.05, "group": 16}
options = {"run.checkpoint_every": 1000, "run.keep": 1000, "model.heads": 4}


def parity(name, seed, lr, steps=30, **more):
    """A run of 64 prompts per step."""
    changes = options | {"schedule.lr": lr} | more
    place = {"env": "parity", "steps": steps, "seed": seed, "out": f"{folder}/{name}"}
    return train(**common, **place, options=changes)


# %%
# alt: Pass rate of the draws against steps. From random weights it rises from 0.1 to
#   0.5 within ten steps and stays there. After a warm start it rises from 0.65 to about
#   0.9 in 30 steps.
cold = {"warm_start.pass_rate": 0}
runs = {"parity, from random weights": parity("cold", 0, 1e-3, 20, **cold)}
runs |= {"parity, warm start, seed 0": parity("warm-0", 0, 3e-4)}

fig, ax = plt.subplots()
for name, run in runs.items():
    ax.plot([row["pass_rate"] for row in run.metrics], label=name)
ax.axhline(0.5, color="0.8", linestyle=":", zorder=0)
ax.set(xlabel="steps so far", ylabel="pass rate of the draws")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Both learn something. From the warm start most answers become right.
# From random weights the model learns until every second answer is right, and no
# further.
# <!-- claim: From random weights the model learns until every second answer is right ::
#   abs(runs["parity, from random weights"].metrics[-1]["pass_rate"] - 0.5) < 0.1 -->
#
# ## Predict
#
# Models train with PMD-mean on rewards 0 and 1. What will they learn here?
#
# * **Modular sum**, from random weights. The answer is one token out of 11, and a blind
#   guess is right once in 11 times.
# * Parity after a warm start, with other seeds, and with a larger learning rate.
# * The thoughts before the `=`: nobody grades them. Will they get shorter, and will
#   they stay what the teacher said?
#
# <!-- predict: Is the modular sum learned from random weights?
#   + yes
#   - no
#   = A blind guess is right once in 11 times, so a group of 16 nearly always holds a
#     right one. -->
# <!-- predict: Where does parity with the larger learning rate end?
#   - above 0.9
#   + near 0.5
#   - at 0
#   = The first updates take the thought apart, and a guess is then the better bet.
#     -->
# <!-- predict: Do the thoughts stay what the teacher said?
#   - in all responses
#   + only in some of the responses
#   = The reward looks at the answer alone. -->
#
# ## Run
#
# One call each. The warm start is phase 0 of the run and is kept as checkpoint 0. The
# modular sum also learns in your browser: see *Train one* among the site's explorables.

# %%
place = {"env": "modular-sum", "steps": 60, "out": f"{folder}/sum"}
runs["sum, from random weights"] = train(**common, **place, options=options)
for seed in (1, 2):
    runs[f"parity, warm start, seed {seed}"] = parity(f"warm-{seed}", seed, 3e-4)
runs["parity, seed 1, lr = 0.003"] = parity("large", 1, 3e-3)

for name, run in runs.items():
    first, last = (run.summary[f"pass_rate_{end}"] for end in ("first", "last"))
    print(f"{name:28} {first:.2f} to {last:.2f}")

# %% [markdown]
# The sum is learned from scratch. Parity from random weights ends at 0.5: the model has
# learned the *form* of an answer, and then it guesses. From the warm start it goes from
# two thirds to well above 0.8 with every seed; with a learning rate ten times as large
# it falls back to the level of guessing. Parity is measured on prompts that no training
# step used. (Your digits will differ: processors add numbers in different orders, and
# training amplifies even a difference in the last bit.)
# <!-- claim: Parity from random weights ends at 0.5 :: said(runs["parity, from random
#   weights"].summary["pass_rate_last"]) -->
# <!-- claim: to well above 0.8 with every seed :: min(runs[f"parity, warm start, seed
#   {seed}"].summary["pass_rate_last"] for seed in range(3)) > quoted[0] -->
# <!-- claim: it falls back to the level of guessing :: abs(runs["parity, seed 1, lr =
#   0.003"].summary["pass_rate_last"] - 0.5) < 0.06 -->
# <!-- claim: The sum is learned from scratch :: runs["sum, from random
#   weights"].summary["pass_rate_last"] > 0.9 -->
#
# ## Look
#
# First, three curves of each run.

# %%
# alt: Three panels over 30 steps. Pass rate: the three seeds from the warm start rise
#   from 0.65 to well above 0.8; the run from random weights rises to 0.5 and stays; the
#   run with learning rate 0.003 drops below 0.2 in its first steps and comes
#   back to 0.5. Response length: 14 to 15 tokens for the three seeds, about 5 from
#   random weights; the run with the larger learning rate shrinks from 14 to 5. Groups
#   of equal rewards: from 0 to about 20 or 30 out of 64 for the three seeds; more than
#   40 for the larger learning rate.
kept = {name: run for name, run in runs.items() if name.startswith("parity")}
colors = ["0.5", *shades(3), "C1"]
marks = ["-", "-", "-", "-", "--"]
panels = {
    "pass_rate": ("pass rate of the draws", "pass rate"),
    "response_length": ("response length", "tokens"),
    "zero_variance_groups": ("groups of equal rewards", "groups out of 64"),
}
fig, axes = plt.subplots(1, 3, figsize=(10, 3.6))
for ax, (key, (title, unit)) in zip(axes, panels.items(), strict=True):
    for color, dash, name in zip(colors, marks, kept, strict=True):
        values = [row[key] for row in kept[name].metrics]
        steps = range(1, len(values) + 1)
        ax.plot(steps, values, dash, color=color, label=name)
    ax.set(title=title, xlabel="step", ylabel=unit)
axes[0].axhline(0.5, color="0.8", linestyle=":", zorder=0)
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# **What to see.** From the warm start the responses keep their length: thinking pays,
# so it stays. From random weights they are short. The run with the larger learning rate
# unlearns thinking in a few steps: its first updates took the thought apart, and a
# guess with no thought was then the better bet. It does not come back. The right panel
# counts the groups in which all 16 responses get the *same* reward. For the three seeds
# their number grows because prompts are solved. A model that is sure of its guesses has
# many as well: it always answers half of the prompts right and the other half wrong.
# Such a group has no advantage to learn from, and is silent.
# <!-- claim: From the warm start the responses keep their length :: min(runs[f"parity,
#   warm start, seed {seed}"].metrics[-1]["response_length"] for seed in range(3)) > 13
#   -->
# <!-- claim: The run with the larger learning rate unlearns thinking :: runs["parity,
#   seed 1, lr = 0.003"].metrics[-1]["response_length"] < 8 -->
#
# A rising number of silent groups can mean success or the end of learning. Read it
# beside the pass rate, and read the responses.

# %%
run = runs["parity, warm start, seed 1"]
problem = make_tokens(run.spec.env)
prompts = TokenTask(problem, prompts=1).held_out(256)
thoughts = np.repeat(prompts.numpy().cumsum(1) % 2, 4, axis=0)  # the teacher's


def before(run):
    """The model after the warm start."""
    model = Transformer(run.policy.config)
    state = checkpoint.load_step(run.path / "checkpoints/step-0")
    model.load_state_dict(state["model"])
    return model


def answers(model):
    """Four responses to each of 256 held-out prompts, and which are right."""
    limits = problem.width, problem.eos
    responses, _, mask = generate(model, prompts, 4, *limits, seed=0)
    graded = problem.grade(prompts.numpy(), responses.numpy(), mask.numpy())
    return responses.numpy(), graded.ravel() == 1


for title, model in (("before", before(run)), ("after", run.policy)):
    responses, right = answers(model)
    print(title)
    for row in range(0, 32, 4):
        verdict = "right" if right[row] else "wrong"
        asked, said = (problem.text(x) for x in (prompts[row // 4], responses[row]))
        print(f"  {asked.replace(' ', '')} -> {said.replace(' ', ''):14} {verdict}")

# %%
said_by = {}  # shares of each seed, before and after
lines = [f"{'':16} right   teacher's thought: share, right   other: share, right"]
for seed in (0, 1, 2):
    run = runs[f"parity, warm start, seed {seed}"]
    for title, model in (("before", before(run)), ("after", run.policy)):
        responses, right = answers(model)
        same = (responses[:, :12] == thoughts).all(1) & (responses[:, 12] == 2)
        shares = right.mean(), same.mean(), right[same].mean(), right[~same].mean()
        said_by[seed, title] = shares
        line = "{:9.2f} {:25.2f} {:6.2f}".format(*shares[:3])
        line += f" {1 - shares[1]:14.2f} {shares[3]:6.2f}"
        lines.append(f"seed {seed} {title:6}{line}")
print("\n".join(lines))

# %% [markdown]
# Most responses were already well formed before training, and the slips were where a
# thought lost its way or forgot its end. Afterwards most answers are right. But look at
# the thoughts. How many are still the teacher's depends on the seed, and on rounding:
# anything from a third to nearly all. The others think *differently*, and most of those
# are right all the same; before training one in six was. Some leave a bit out, some run
# through other parities. The reward looks at the answer alone, so the thought is free
# to become whatever serves it. Do not read a chain of thought as a report of what was
# computed.
# <!-- claim: anything from a third to nearly all :: min(said_by[seed, "after"][1] for
#   seed in range(3)) > 1 / 3 and max(said_by[seed, "after"][1] for seed in range(3)) <
#   0.97 -->
# <!-- claim: most of those are right all the same; before training one in six was ::
#   np.average([said_by[seed, "after"][3] for seed in range(3)], weights=[1 -
#   said_by[seed, "after"][1] for seed in range(3)]) > 0.7 and
#   abs(np.mean([said_by[seed, "before"][3] for seed in range(3)]) - 1 / 6) < 0.06 -->
#
# ## Explain
#
# **Rewards reweight what is drawn.** The update multiplies the probability of a
# response; what never occurs is never raised. An untrained model says the teacher's 15
# tokens with probability $4^{-15} \approx 10^{-9}$, so no group ever holds one. A short
# answer such as `=1` has probability $4^{-3}$, with its end, and is right half of the
# time. That is found, raised, and kept. The modular sum is learned from random weights
# because its answer is one token: at one chance in 11 per draw, the right one is there
# in four out of five groups of 16.
# <!-- claim: the right one is there in four out of five groups :: abs(1 - (10 / 11) **
#   16 - 0.8) < 0.05 -->
#
# **Pass rate 0.5 is a trap.** From there, thinking pays only if the whole thought is
# right: one slip in it and the answer is a guess again. So a half-learned thought earns
# no more than none, and costs 12 tokens of risk.
# <!-- claim: Pass rate 0.5 is a trap :: said(runs["parity, from random
#   weights"].summary["pass_rate_last"]) -->
#
# **Silent groups.** With a pass rate $p$, all $G$ draws are right with probability
# $p^G$ and all wrong with $(1-p)^G$. PMD-mean then has advantage 0 in the group. That
# is not quite nothing: if the policy has moved since the draws, the squared log-ratio
# still pulls it back to where it was. Policy gradients do nothing at all.
#
# ## Exercise
#
# Four exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("202.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 202.0: groups, masks and lengths.** Difficulty 3 of 5, about 10 minutes.
#
# The ninth function of `my_pmd.py`: the loss of P groups of G responses of up to T
# tokens. `logp`, `logp_old` and the boolean `mask` are tensors, [P, G, T]; the padding
# holds whatever the network said there, nan included. The log-ratio of a *response*
# adds up its tokens. Its advantage compares its reward with the others of its group, as
# your `loo_advantage` does. Its loss is that of lesson 103, divided by its length; the
# loss of the batch is the mean over all responses.


# %% tags=["exercise", "202.0"]
def sequence_loss(logp, logp_old, mask, reward, tau):
    """The loss, one number, of responses [P, G, T] with rewards [P, G]; all tensors."""
    return ...


# %% tags=["check", "202.0"]
learn.check("202.0", sequence_loss)

# %% [markdown]
# **Exercise 202.1: silent groups.** Difficulty 2 of 5, about 10 minutes.
#
# Given the pass rates of many prompts, which share of groups do you expect to be
# silent?


# %% tags=["exercise", "202.1"]
def silent(pass_rates, group):
    """Expected share of groups whose rewards are all equal; pass_rates is [P]."""
    return ...


# %% tags=["check", "202.1"]
learn.check("202.1", silent)

# %% [markdown]
# **Exercise 202.2: how many draws until one is right.** Difficulty 2 of 5, about 10
# minutes.
#
# A reward can only raise what is drawn. How many draws of a prompt with pass rate `p`
# are needed so that at least one is right with probability `sure`? Mind that `p` may be
# as small as $4^{-15}$, the untrained model's, or smaller.


# %% tags=["exercise", "202.2"]
def draws_needed(p, sure):
    """Draws of pass rate p, so that at least one is right with probability sure."""
    return ...


# %% tags=["check", "202.2"]
learn.check("202.2", draws_needed)


# %% [markdown]
# **Exercise 202.3: broken: the solved task that comes undone.** Difficulty 4 of 5,
# about 10 minutes.
#
# A run has solved its task: for hundreds of steps every group is silent and every
# gradient is 0. Then one verdict differs, a tiny gradient comes, and the policy falls
# apart. Its learning rate was never changed. Compute what Adam does: from all gradients
# of one weight so far, the size of its *last* step in units of the learning rate, with
# sign, without the small `eps`. Then try a long silence and a last gradient of any
# size.


# %% tags=["exercise", "202.3"]
def last_step(gradients, beta1, beta2):
    """Adam's last step over the learning rate, from a weight's gradients, [T]."""
    return ...


# %% tags=["check", "202.3"]
learn.check("202.3", last_step)

# %% [markdown]
# Average the silent share, not the pass rate: a set of prompts of which half are always
# right and half always wrong has an average of 0.5 and is silent altogether. That is a
# model that is sure of its guesses. And after a silence Adam's step no longer depends
# on the size of the gradient: a smaller learning rate helps, and so does a clip.

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Learn the modular sum with groups of 2, the smallest that can be compared.
# Where is it after 60 steps, and where with 4?
#
# <details>
# <summary>What we got</summary>
#
# Near 0.82 with 2 and 0.96 with 4: few draws hold a right answer beside a wrong one,
# and the others are silent.
# <!-- claim: Near 0.82 with 2 :: abs(train("pmd-mean", "toy", "modular-sum", tau=0.05,
#   group=2, steps=60, options=options,
#   out=tempfile.mkdtemp()).summary["pass_rate_last"] - 0.82) < 0.1 -->
# <!-- claim: 0.96 with 4 :: abs(train("pmd-mean", "toy", "modular-sum", tau=0.05,
#   group=4, steps=60, options=options,
#   out=tempfile.mkdtemp()).summary["pass_rate_last"] - 0.96) < 0.05 -->
#
# </details>
#
# **2.** At a pass rate of 1/11, which share of groups is silent with 2 draws, with 4
# and with 16?
#
# <details>
# <summary>What we got</summary>
#
# 83 %, 68 % and 22 %.
# <!-- claim: 83 %, 68 % and 22 % :: said(*(100 * ((1 / 11) ** n + (10 / 11) ** n) for n
#   in (2, 4, 16))) -->
#
# </details>
