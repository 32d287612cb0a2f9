# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 107: A sampled bandit: when does sampling noise decide?
#
# * You learn: to compare methods on the same draws, to put an interval on a difference,
#   and to make a bandit of your own.
# * You need: lesson 105.
# * Time: 15 minutes to read, 55 seconds to run, 30 minutes for the exercises.
#
# Now everything is drawn: 16 responses per prompt, rewards of 0 and 1, and gradient
# steps on what came back. A run then depends on its *seed*, and a comparison of two
# runs depends on luck. This lesson asks how much, on bandits where the truth is known.

# %%
import tempfile
from pathlib import Path

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from gymnasium.utils.env_checker import check_env
from scipy.stats import ttest_ind

import pmdkit_course as learn
from pmdkit import train
from pmdkit.envs import Bandit
from pmdkit.objectives import GRPO, RLOO, PMDMean, PMDPart
from pmdkit.specs import find
from pmdkit.stats import mean_interval, paired_difference
from pmdkit_lab.figures import style
from pmdkit_lab.figures.looks import COLOURS, look

style()
np.set_printoptions(precision=3, suppress=True)
folder = Path(tempfile.mkdtemp())  # where the runs are kept
seeds = range(10)
methods = {
    "pmd-mean": PMDMean(tau=0.05),
    "pmd-part": PMDPart(tau=0.05),
    "grpo": GRPO(),
    "rloo": RLOO(),
}


def ten_runs(env, method, steps, passes):
    """One run per seed: groups of 16, so many optimizer passes over each batch."""
    rare = {"schedule.passes": passes, "run.checkpoint_every": steps}
    where = folder / f"{env}-{method}"
    fixed = {"backend": "bandit", "env": env, "group": 16, "steps": steps}
    runs = [
        train(methods[method], **fixed, seed=seed, out=where / str(seed), options=rare)
        for seed in seeds
    ]
    return runs


# %% [markdown]
# The needle again: 100 arms, one of them right. Ten seeds of PMD-mean, and ten of
# PMD-part, with the same ten seeds.

# %%
# alt: Exact pass rate against the step from 1 to 60, ten thin lines per method. The ten
#   lines of PMD-mean rise from 0.01 between steps 12 and 32 and are near 1 from step 40
#   on. The ten lines of PMD-part stay at 0.01 far longer: six rise between steps 42 and
#   60, four are still below 0.25 at step 60.
results = {"needle": {m: ten_runs("needle", m, steps=60, passes=4) for m in methods}}

fig, ax = plt.subplots()
for method in ("pmd-mean", "pmd-part"):
    for run in results["needle"][method]:
        exact = [row["gauge"][0]["pass_rate"] for row in run.metrics]
        label = method if run is results["needle"][method][0] else None
        ax.plot(range(1, 61), exact, **look(method) | {"linewidth": 1}, label=label)
ax.set(xlabel="step", ylabel="pass rate, exact", title="the needle, ten seeds")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Within a colour, only the draws differ. PMD-mean's ten runs
# tell one story, a few steps apart. PMD-part's take off at step 42, or 55, or not yet.
# The mean of their final pass rates, about 0.6, describes none of them.
# <!-- claim: The mean of their final pass rates, about 0.6, ::
#   about(np.mean([run.summary["pass_rate_last"] for run in
#   results["needle"]["pmd-part"]])) -->
#
# ## Predict
#
# Four methods run on the same ten seeds: PMD-mean, PMD-part, GRPO and RLOO. There are
# three bandits:
#
# * the *needle*, four optimizer passes over each batch;
# * *pass-rates*: 64 problems with the measured pass rates of a 1.5B model, one pass;
# * *two-hills*: many arms that pass half of the time, and a few rare ones that always
#   do, eight passes.
#
# 1. On pass-rates, with a single pass over each batch: how far apart do RLOO and
#    PMD-mean end?
# 2. On which bandits can ten seeds tell GRPO from PMD-mean?
# 3. On two-hills luck may lead to the wrong hill. Which method do you expect there?
#
# <!-- predict: On pass-rates, how far apart do RLOO and PMD-mean end?
#   + they agree to four digits
#   - by a percent or so
#   - by ten percent
#   = One pass never leaves the old policy, and there PMD-mean's gradient is RLOO. -->
# <!-- predict: On which bandits can ten seeds tell GRPO from PMD-mean?
#   - on all three
#   + on two of them
#   - on none
#   = On the needle the interval of the difference holds 0; on the other two it does
#     not. -->
# <!-- predict: Which method does best on two-hills?
#   - PMD-mean
#   + PMD-part
#   - GRPO
#   = Failures push hard, so an arm that fails half of the time cannot hold it. -->
#
# ## Run
#
# A bandit is an ordinary Gymnasium environment: the observation is the prompt, the
# action a response, and every episode has one step. A seed fixes all of it.

# %%
env = gymnasium.make("pmdkit/Bandit-v0", env="pass-rates")
for seed in (3, 3, 4):
    prompt, info = env.reset(seed=seed)
    _, reward, *_, after = env.step(5)
    print(f"seed {seed}: prompt {prompt} with pass rate {info['pass_rate']:.3f}")
    print(f"        arm 5 paid {reward:g}, its true chance is {after['success']:g}")

many = gymnasium.make_vec("pmdkit/Bandit-v0", num_envs=5, env="pass-rates")
many.reset(seed=3)
print("five prompts at once pay", many.step(np.array([0, 5, 5, 40, 40]))[1])

# %% [markdown]
# The trainer uses the same bandit underneath. Here are the other runs, and the final
# pass rates, exact for each policy that was learned.

# %%
for name, steps, passes in (("pass-rates", 40, 1), ("two-hills", 50, 8)):
    results[name] = {m: ten_runs(name, m, steps, passes) for m in methods}

final = {
    name: {
        m: np.array([run.summary["pass_rate_last"] for run in runs[m]]) for m in runs
    }
    for name, runs in results.items()
}
print("              mean of ten [95 % interval]      minus PMD-mean, paired")
for name, by_method in final.items():
    print(name)
    for method, values in by_method.items():
        alone = mean_interval(values)
        versus = paired_difference(by_method["pmd-mean"], values).difference
        print(
            f"   {method:9s} {alone.mean:6.3f} [{alone.low:6.3f}, {alone.high:6.3f}]",
            f"  {versus.mean:+9.5f} [{versus.low:+9.5f}, {versus.high:+9.5f}]",
        )

# %% [markdown]
# PMD-mean and RLOO agree on pass-rates to the last digits. On the needle GRPO cannot be
# told from PMD-mean: the interval of the difference holds 0. On the other two it can,
# once narrowly and once by a wide margin. And on two-hills the method that did worst
# elsewhere does best.
# <!-- claim: PMD-mean and RLOO agree on pass-rates to the last digits ::
#   np.abs(final["pass-rates"]["rloo"] - final["pass-rates"]["pmd-mean"]).max() < 1e-4
#   -->
# <!-- claim: On the needle GRPO cannot be told from PMD-mean: the interval of the
#   difference holds 0 :: paired_difference(final["needle"]["pmd-mean"],
#   final["needle"]["grpo"]).difference.low < 0 and
#   paired_difference(final["needle"]["pmd-mean"],
#   final["needle"]["grpo"]).difference.high > 0 -->
# <!-- claim: On the other two it can, once narrowly and once by a wide margin ::
#   paired_difference(final["pass-rates"]["pmd-mean"],
#   final["pass-rates"]["grpo"]).difference.high < 0 and
#   paired_difference(final["two-hills"]["pmd-mean"],
#   final["two-hills"]["grpo"]).difference.low > 0.02 -->
# <!-- claim: on two-hills the method that did worst elsewhere does best :: max(methods,
#   key=lambda m: final["two-hills"][m].mean()) == min(methods, key=lambda m:
#   final["needle"][m].mean()) -->
#
# ## Look
#
# On pass-rates the means of GRPO and PMD-mean have the same interval, and yet the
# difference is decided. How? Follow each seed through the four methods.

# %%
# alt: Two panels with a thin line per seed through the four methods: final pass rate
#   minus the mean of the method's ten runs. Pass-rates: the lines run level from
#   PMD-mean through GRPO to RLOO, from -0.002 to 0.004, and change places on the way to
#   PMD-part.
#   Two-hills: the lines cross between PMD-mean, GRPO and RLOO, within plus or minus
#   0.05, and all are at 0 for PMD-part.
order = ["pmd-mean", "grpo", "rloo", "pmd-part"]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4))
for ax, name in zip(axes, ("pass-rates", "two-hills"), strict=True):
    luck = np.stack([final[name][m] - final[name][m].mean() for m in order])
    ax.plot(luck, color="0.55", linewidth=0.9, linestyle="-")
    for place, method in enumerate(order):
        mark = look(method, marker=True) | {"linestyle": "none"}
        ax.plot(np.full(len(seeds), place), luck[place], **mark)
    ax.set_xticks(range(len(order)), order)
    ax.set(title=name, xlabel="method", ylabel="pass rate minus the method's mean")
    ax.margins(x=0.1)
plt.show()

# %% [markdown]
# **What to see.** On pass-rates the lines are level from PMD-mean to RLOO: a seed that
# is lucky for one is as lucky for the others. On two-hills they cross: luck there
# belongs to the run, and only PMD-part has none of it.
# <!-- claim: luck there belongs to the run, and only PMD-part has none of it ::
#   np.ptp(final["two-hills"]["pmd-part"]) < 0.1 * min(np.ptp(final["two-hills"][m]) for
#   m in ("pmd-mean", "grpo", "rloo")) -->
#
# Level lines can be used. Subtract first, seed by seed, and average the differences:
# whatever the seed does to both cancels. Here is what that is worth.

# %%
# alt: Intervals of the difference to PMD-mean, two per method. On pass-rates, GRPO: the
#   interval that ignores seeds goes from -0.0019 to 0.0013, the paired one from -0.0005
#   to -0.0001. RLOO's paired interval is a point at 0. On two-hills both kinds are
#   alike for GRPO, 0.04 to 0.08, and for RLOO the paired one is the wider, 0.003 to
#   0.068.
fig, axes = plt.subplots(1, 2, figsize=(9, 3))
for ax, name in zip(axes, ("pass-rates", "two-hills"), strict=True):
    first = final[name]["pmd-mean"]
    for place, method in enumerate(("grpo", "rloo")):
        second = final[name][method]
        strangers = ttest_ind(second, first, equal_var=False).confidence_interval()
        pairs = paired_difference(first, second).difference
        ends = ((strangers.low, strangers.high, "0.5"), (pairs.low, pairs.high, None))
        for shift, (low, high, grey) in zip((0.15, -0.15), ends, strict=True):
            color = grey or COLOURS[method]
            ax.plot([low, high], [place + shift] * 2, "|-", color=color, markersize=9)
    ax.axvline(0, color="k", linewidth=0.8)
    ax.set_yticks([0, 1], ["grpo", "rloo"])
    ax.set(title=name, xlabel="pass rate minus that of PMD-mean", ylabel="method")
    ax.set_ylim(-0.6, 1.6)
    ax.ticklabel_format(axis="x", scilimits=(-3, 3))
fig.suptitle("95 % intervals; grey: seeds ignored, colour: paired by seed", fontsize=9)
plt.show()

# %% [markdown]
# **What to see.** On pass-rates the grey interval of GRPO is wide and holds 0; the
# paired one is narrow and does not. Same runs, same ten seeds: GRPO ends a little
# lower, by three parts in ten thousand. That it is *decided* does not make it large. On
# two-hills pairing gains nothing, because there a seed does not affect both in the same
# way.
# <!-- claim: GRPO ends a little lower, by three parts in ten thousand ::
#   abs((final["pass-rates"]["grpo"] - final["pass-rates"]["pmd-mean"]).mean() + 3e-4) <
#   5e-5 -->
#
# ## Explain
#
# **Why a seed is shared.** All draws come from a hash of (seed, step, what for). So in
# the first step all methods see the same arms and the same rewards; later each draws
# from its own policy with the same random numbers.

# %%
for name, runs in results.items():
    shown = (0, 1, 20)
    print(name, "mean reward of the draws in steps", [step + 1 for step in shown])
    for method in methods:
        rewards = [runs[method][0].metrics[step]["reward_mean"] for step in shown]
        print(f"   {method:9s}", np.array(rewards))

# %% [markdown]
# **Why RLOO is PMD-mean on pass-rates.** At $\pi = \pi_{old}$ the gradient of
# PMD-mean's regression is the policy gradient with the leave-one-out baseline, and that
# is RLOO. One pass over each batch never leaves $\pi_{old}$. Two names, one method,
# until a batch is used twice: then the term $\tau\log\frac{\pi}{\pi_{old}}$ wakes up,
# as on two-hills.
#
# **When noise decides.** Noise decides when a run hangs on a few draws.
#
# * *Needle*: a group of 16 holds the right arm with probability
#   $1 - 0.99^{16} = 0.15$. PMD-mean learns nothing from the groups without it, and
#   hardly pushes the wrong arms when it is there. With a lone success, PMD-part pushes
#   the 15 wrong arms down with nearly full advantage (105), which mostly moves
#   probability among wrong arms. How long that lasts is luck.
# * *Two-hills*: an arm that passes half of the time and was lucky twice looks like the
#   best there is. Eight passes over the batch make it so. PMD-part is spared by the
#   very thing that hurt it on the needle: failures push hard, and an arm that fails
#   half of the time cannot hold it.
# * *Pass-rates*: 64 prompts in every step, so luck averages out, and what is left is
#   shared.
# <!-- claim: $1 - 0.99^{16} = 0.15$ :: said(None, None, None, 1 - 0.99**16) -->
#
# The lesson for a real run: use the same seeds for all methods, report the paired
# difference with its interval, and look at the single runs before trusting a mean.
# `pmdkit sweep` and `pmdkit compare` do this from the command line.
#
# **A bandit of your own** needs only a file, not a fork. `envs/own_bandit.py` is a
# model to copy: how many dice should one throw to hit a number exactly? A spec names it
# as `kind = "file.py:Class"`. Gymnasium's checker and the trainer take it like any
# other; `trust` says that you know the file, since code that only a spec names is not
# run. For a first try the arrays alone will do.

# %%
own = f"{find.root() / 'envs' / 'own_bandit.py'}:OwnBandit"
check_env(gymnasium.make("pmdkit/Bandit-v0", kind=own).unwrapped)

chance = np.array([[0.2, 0.8], [0.6, 0.4]])  # that an arm passes, [contexts, arms]
uniform = np.full((2, 2), -np.log(2))  # log-probabilities of the initial policy
tiny = Bandit(name="tiny", reward=chance, log_policy=uniform, success=chance)
check_env(gymnasium.make("pmdkit/Bandit-v0", env=tiny).unwrapped)
print("check_env has no complaint about either")

spec = folder / "dice.toml"
spec.write_text(
    f"""
[env]
kind = '{own}'
contexts = 8

[objective]
name = "pmd-mean"
tau = 0.05
"""
)
fixed = {"backend": "bandit", "env": str(spec), "steps": 20, "out": folder / "dice"}
fixed["trust"] = own
dice = train("pmd-mean", **fixed)
print("number to hit       ", 3 + np.arange(8))
print("dice that are thrown", 1 + dice.policy.argmax(1))
first, last = (dice.summary[f"pass_rate_{when}"] for when in ("first", "last"))
print(f"pass rate {first:.3f} at first, {last:.3f} after 20 exact steps")

# %% [markdown]
# ## Exercise
#
# Three exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("107.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 107.0: the loop.** Difficulty 3 of 5, about 10 minutes.
#
# The last function of `my_pmd.py`, and it uses all others. Each row of `uniform` is a
# step: freeze the policy as $\pi_{old}$, draw the actions, compare each reward with
# those of its peers, then take `passes` gradient steps of size `lr` on the loss. Return
# the expected reward after each step.
#
# Then run `python my_pmd.py`. Your program learns which of a hundred arms is the good
# one, pmdkit does the same with the same numbers, and `my_pmd.png` shows both curves.


# %% tags=["exercise", "107.0"]
def train_table(logits, reward, uniform, tau, lr, passes):
    """Expected reward [S] after each step; logits, reward [A]; uniform [S, G]."""
    return ...


# %% tags=["check", "107.0"]
learn.check("107.0", train_table)

# %% [markdown]
# **Exercise 107.1: an interval for a paired difference.** Difficulty 2 of 5, about 10
# minutes.
#
# Two methods ran on the same `n` seeds. Write the 95 % interval of the mean difference,
# `second` minus `first`, pair by pair, with Student's t for few seeds. Return `(low,
# high)`.


# %% tags=["exercise", "107.1"]
def paired_interval(first, second):
    """The 95 % interval (low, high) of the mean of second - first, [n] each."""
    return ...


# %% tags=["check", "107.1"]
learn.check("107.1", paired_interval)

# %% [markdown]
# **Exercise 107.2: a bandit of your own.** Difficulty 2 of 5, about 10 minutes.
#
# A bandit is a table of chances. In yours, context `s` asks for exactly `s + 1` heads,
# and arm `a` tosses `a + 1` fair coins. Write the table, `[contexts, arms]`. As
# `reward` and `success` of a `Bandit` it is an environment, which `check_env` then
# checks as in the lesson.


# %% tags=["exercise", "107.2"]
def coin_success(contexts, arms):
    """Chances, [contexts, arms], of exactly s + 1 heads among a + 1 fair coins."""
    return ...


# %% tags=["check", "107.2"]
learn.check("107.2", coin_success)

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Draw groups of 4 on the needle, then groups of 64, with PMD-mean, four passes,
# 60 steps and seed 0. What do sixteen times as many draws buy?
#
# <details>
# <summary>What we got</summary>
#
# With 4 draws it ends at 0.95, with 64 at 0.99. On this bandit, not much.
# <!-- claim: With 4 draws it ends at 0.95 :: abs(train(methods["pmd-mean"], "bandit",
#   "needle", group=4, steps=60, options={"schedule.passes": 4},
#   out=tempfile.mkdtemp()).summary["pass_rate_last"] - 0.95) < 0.03 -->
# <!-- claim: with 64 at 0.99 :: abs(train(methods["pmd-mean"], "bandit", "needle",
#   group=64, steps=60, options={"schedule.passes": 4},
#   out=tempfile.mkdtemp()).summary["pass_rate_last"] - 0.99) < 0.02 -->
#
# </details>
#
# **2.** The same with groups of 16 and a single pass over each batch?
#
# <details>
# <summary>What we got</summary>
#
# It ends at 0.07: with one pass the batches are used once, and 60 are not enough.
# <!-- claim: It ends at 0.07 :: abs(train(methods["pmd-mean"], "bandit", "needle",
#   group=16, steps=60, options={"schedule.passes": 1},
#   out=tempfile.mkdtemp()).summary["pass_rate_last"] - 0.07) < 0.03 -->
#
# </details>
