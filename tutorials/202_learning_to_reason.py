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
# * Time: 20 minutes to read, 40 seconds to run, 10 minutes for the exercise.
#
# Post-training starts from a model that can already do something. Then it draws
# responses, looks at nothing but right or wrong, and learns. Here is the whole of it on
# a task that is small enough to read every response.

# %%
import tempfile

import matplotlib.pyplot as plt
import numpy as np

from pmdkit import train
from pmdkit.envs.tokens import TokenTask, make_tokens
from pmdkit.figures.style import look, shades, style
from pmdkit.observe import checkpoint
from pmdkit.toy.model import Transformer
from pmdkit.toy.sampling import generate

style()
folder = tempfile.mkdtemp()  # where the runs are kept

# %% [markdown]
# ## Predict
#
# Two tasks. In **modular sum** the answer is one token out of 11, and a blind guess is
# right once in 11 times. In **parity** the prompt has 12 bits, and the model says
# whether the number of ones is odd: `= 1` or `= 0`. Before the `=` there is room for a
# thought that nobody grades. The teacher of the warm start uses it to say the running
# parity bit by bit. A response is right if it *ends* right.
#
# Three models train with PMD-mean on rewards 0 and 1. What will each of them learn?
#
# * modular sum, from random weights;
# * parity, from random weights;
# * parity, after a warm start that stops as soon as 60% of the answers are right.
#
# ## Run
#
# One call each. The warm start is phase 0 of the run and is kept as checkpoint 0.

# %%
common = {"objective": "pmd-mean", "backend": "toy", "tau": 0.05, "group": 16}
options = {"run.checkpoint_every": 1000, "run.keep": 1000}  # checkpoints 0 and last


def parity(name, seed, lr, **more):
    """A run of 30 steps, 64 prompts each."""
    changes = options | {"schedule.lr": lr} | more
    place = {"env": "parity", "steps": 30, "seed": seed, "out": f"{folder}/{name}"}
    return train(**common, **place, options=changes)


place = {"env": "modular-sum", "steps": 60, "out": f"{folder}/sum"}
runs = {"sum, from random weights": train(**common, **place, options=options)}
cold = {"warm_start.pass_rate": 0}
runs["parity, from random weights"] = parity("cold", 0, 1e-3, **cold)
for seed in (0, 1, 2):
    name = f"parity, warm start, seed {seed}"
    runs[name] = parity(f"warm-{seed}", seed, 3e-4)
runs["parity, seed 1, lr = 0.001"] = parity("large", 1, 1e-3)

for name, run in runs.items():
    first, last = (run.summary[f"pass_rate_{end}"] for end in ("first", "last"))
    print(f"{name:28} {first:.2f} to {last:.2f}")

# %% [markdown]
# The sum is learned from nothing. Parity from random weights ends at 0.5: the model has
# learned the *form* of an answer, and then it guesses. From the warm start it goes from
# 0.66 to 0.94, give or take 0.02 over the seeds. These pass rates are measured on
# prompts that were never trained on.
#
# ## Look
#
# First at three curves of each run.

# %%
# alt: ALT
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
        ax.plot(range(1, 31), values, dash, color=color, label=name)
    ax.set(title=title, xlabel="step", ylabel=unit)
axes[0].axhline(0.5, color="0.8", linestyle=":", zorder=0)
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
plt.show()

# %% [markdown]
# **What to see.**

# %%
run = runs["parity, warm start, seed 1"]
problem = make_tokens(run.spec.env)
prompts = TokenTask(problem, prompts=1).held_out(256)
thoughts = np.repeat(prompts.numpy().cumsum(1) % 2, 4, axis=0)  # the teacher's


def before(run):
    """The model after the warm start."""
    model = Transformer(run.policy.config)
    model.load_state_dict(checkpoint.read(run.path / "checkpoints/step-0")["model"])
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
print("                  right   teacher's thought: share, right   other: share, right")
for seed in (0, 1, 2):
    run = runs[f"parity, warm start, seed {seed}"]
    for title, model in (("before", before(run)), ("after", run.policy)):
        responses, right = answers(model)
        same = (responses[:, :12] == thoughts).all(1) & (responses[:, 12] == 2)
        shares = right.mean(), same.mean(), right[same].mean(), right[~same].mean()
        line = "{:10.2f} {:19.2f} {:12.2f}".format(*shares[:3])
        print(f"seed {seed} {title:6}{line} {1 - shares[1]:14.2f} {shares[3]:8.2f}")
