# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 302: What will a real run cost, and when do more GPUs stop helping?
#
# * You learn: what fills a GPU's memory, where the paper's factor of 4.5 comes from,
#   what a lag adds to it, and what no number of GPUs can buy.
# * You need: lessons 203 and 301.
# * Time: 20 minutes to read, 5 seconds to run, 20 minutes for the exercises.
#
# The paper trains Qwen2.5-7B on 32 GPUs. Before you rent them, ask what you would get.
# `pmdkit plan` answers from the model's configuration alone; here are the same numbers
# in Python. **They are predictions, not measurements**, good to a factor of two. The
# page *Plan a run* of the site says how far off they are where somebody published
# numbers.

# %%
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import pmdkit_course as learn
from pmdkit.figures.style import BLUE, GREEN, GREY, ORANGE, PURPLE, VERMILLION, style
from pmdkit.resolve import resolve
from pmdkit_lab.planner.cluster import cluster
from pmdkit_lab.planner.predict import Prediction, best
from pmdkit_lab.planner.timeline import timeline
from pmdkit_lab.planner.workload import draw, lengths, sizes_of, work_of

_ = style()
spec, _ = resolve("llm", "qwen2.5-7b", {})  # the recipe of the paper's run
work, shape = work_of(spec), lengths("direct", spec.rollout.width)
paper = Prediction(sizes_of(spec), work, shape, cluster("32xH100"))


# %%
# alt: Tokens per second against GPUs, 8 to 512, for the paper's run. The curve follows
#   the straight line, nothing lost, up to 32 GPUs, and then bends: on 512 it is at
#   250,000 where the line is at 1,340,000.
def on(gpus, **changes):
    """The same run on another number of GPUs, with other values in the recipe."""
    place = cluster(f"{gpus}xH100")
    return replace(paper, cluster=place, work=replace(work, **changes))


def rates(runs):
    """Response tokens per second of the whole cluster."""
    return np.array([run.tokens / run.seconds for run in runs])


counts = [8, 16, 32, 64, 128, 256, 512]
turns = [on(gpus) for gpus in counts]
rate = rates(turns)

fig, ax = plt.subplots()
ax.plot(counts, rate, "o-", color=BLUE, label="predicted")
ax.plot(counts, rate[0] * np.array(counts) / 8, ":", color=GREY, label="nothing lost")
ax.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="tokens per second")
ax.set_xticks(counts, counts)
ax.minorticks_off()
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Up to 32 GPUs, each one adds nearly its share. Every doubling after
# that adds less, and the last one adds only 14%. What holds it back?
# <!-- claim: Up to 32 GPUs, each one adds nearly its share :: rate[2] / rate[0] > 0.8 *
#   4 -->
# <!-- claim: the last one adds only 14% :: said(100 * (rate[-1] / rate[-2] - 1)) -->
#
# ## Predict
#
# A step of that run: 512 problems, 16 responses to each of up to 8,192 tokens, then 16
# updates of 32 problems each.
#
# * What needs more memory on a GPU, writing the responses or learning from them?
# * One update per rollout batch, or 16: how does that change the time *per token*?
# * A step takes 4.3 minutes on 32 GPUs. How long on 64? On 512? And what would help
#   there: writing the next batch meanwhile, or a larger batch?
#
# <!-- predict: What needs more memory on a GPU?
#   + writing the responses
#   - learning from them
#   = The engine fills its share of the GPU with keys and values. -->
# <!-- predict: What does twice the number of GPUs, 64, bring?
#   - twice the speed
#   + about 1.6 times the speed
#   - no more than a tenth
#   = The longest response takes just as long on any number of GPUs. -->
#
# ## Run

# %%
print(f"{paper.sizes.weights / 1e9:.1f} billion weights, ", end="")
print(f"{work.rows:,.0f} responses of {shape.mean:,.0f} tokens on average")
print(f"generation {paper.generation.seconds:4.0f} s per step")
print(f"scoring    {paper.scoring:4.0f} s: pi_old, by the trainer")
print(f"update     {paper.update.seconds:4.0f} s, {work.ministeps} ministeps")
print(f"together   {paper.seconds:4.0f} s, ", end="")
hours = spec.schedule.steps * paper.seconds / 3600
print(f"{hours:.0f} h for {spec.schedule.steps} steps")

# %% [markdown]
# ## Look
#
# **Memory.** Each weight costs 16 bytes while it is trained: itself, its gradient and
# two moments, 4 bytes each. FSDP2 cuts these into 32 shares. The engine keeps its own
# copy in half the precision, and it keeps keys and values for every token of every
# response that is being written.

# %%
# alt: Stacked bars of memory on one GPU in GiB, with a dashed line at the 72 that a
#   plan may fill. With shares over 32 GPUs: rollout 59, most of it keys and values,
#   update 18, nearly all of it what one forward and backward pass needs. With all
#   weights in every GPU: both above the line, 141 and 140, most of it weights, moments
#   and gradients.
parts = {
    "weights": BLUE,
    "optimizer": GREEN,
    "gradients": PURPLE,
    "engine weights": ORANGE,
    "KV cache": VERMILLION,
    "one pass": GREY,
}
copies = replace(paper, work=replace(work, fsdp2=False))
bars = {}
for name, one in (("shares", paper), ("copies", copies)):
    for phase, held in one.memory.phases.items():
        bars[f"{phase},\n{name}"] = {part: held.get(part, 0) for part in parts}
        rest = sum(held.values()) - sum(bars[f"{phase},\n{name}"].values())
        bars[f"{phase},\n{name}"]["one pass"] = rest
fig, ax = plt.subplots()
below = np.zeros(len(bars))
for part, color in parts.items():
    gib = np.array([held[part] for held in bars.values()])
    ax.bar(list(bars), gib, bottom=below, color=color, label=part, width=0.6)
    below += gib
ax.axhline(paper.memory.limit, color="black", linestyle="--", linewidth=0.8)
ax.set(ylabel="memory of one GPU (GiB)", xlabel="phase of a step, and the strategy")
ax.legend(fontsize=7)
plt.show()

# %% [markdown]
# **What to see.** Writing needs more than twice as much as learning: vLLM fills the
# share of the GPU that it is given with keys and values. Learning needs activations and
# gathered layers. Without shares the state alone, 85 GiB of weights and moments, is
# more than the GPU has. `pmdkit plan` says so, and names the options that would make it
# fit.
# <!-- claim: Writing needs more than twice as much as learning ::
#   sum(bars["rollout,\nshares"].values()) > 2 * sum(bars["update,\nshares"].values())
#   -->
# <!-- claim: the state alone, 85 GiB of weights and moments :: said(12 *
#   paper.sizes.weights / 2**30) -->
#
# **Time.** Now vary the number of ministeps. The paper reports ms per token of response
# for one ministep per rollout batch of 32 problems, and for 16 per batch of 512.

# %%
# alt: Time per token against ministeps, 1 to 32. Generation falls from 0.052 ms to
#   0.0044, update stays at 0.0060. The paper's points: generation 0.051 at 1 and
#   0.0062 at 16, update 0.0057 and 0.0064.
ministeps = [1, 2, 4, 8, 16, 32]
problems = work.prompts / work.ministeps  # of one ministep, the same in all of these
runs = [
    replace(paper, work=replace(work, prompts=problems * m, ministeps=m))
    for m in ministeps
]
fig, ax = plt.subplots()
for name, color in (("generation", VERMILLION), ("update", BLUE)):
    values = [run.ms_per_token[name] for run in runs]
    ax.plot(ministeps, values, "o-", color=color, label=f"{name}, predicted")
published = {"generation": (0.0512, 0.0062), "update": (0.0057, 0.0064)}
for name, color in (("generation", VERMILLION), ("update", BLUE)):
    ax.plot(
        [1, 16], published[name], "D", color=color, mfc="white", label=f"{name}, paper"
    )
ax.set(xscale="log", yscale="log", xlabel="ministeps per rollout batch")
ax.set(ylabel="time per token (ms)")
ax.set_xticks(ministeps, ministeps)
ax.set_yticks([0.003, 0.01, 0.03], [0.003, 0.01, 0.03])
ax.minorticks_off()
ax.legend(fontsize=8)
plt.show()
for m, run in zip(ministeps, runs, strict=True):
    print(f"{m:3} ministeps: {run.speedup:4.2f} times on-policy", end=", ")
    print(f"staleness {run.staleness}")

# %% [markdown]
# **What to see.** The update costs the same per token, with any number of ministeps.
# Generation gets nine times cheaper, and the whole step 5.0 times; the paper measured
# 4.5. Here the planner is within an eighth of the paper, but its constants were fitted
# to this run, among others. On runs that it had not seen it is good to a factor of two.
# <!-- claim: Generation gets nine times cheaper ::
#   abs(runs[0].ms_per_token["generation"] / runs[4].ms_per_token["generation"] - 9) <
#   0.5 -->
# <!-- claim: the whole step 5.0 times; the paper measured 4.5 :: said(runs[4].speedup,
#   sum(values[0] for values in published.values()) / sum(values[1] for values in
#   published.values())) -->
#
# ## Explain
#
# **Why a larger batch is cheaper to write.** A decode step gives one token to every
# response that is not finished, and reads all weights once for all of them. Here are
# all 32 engines, with the 512 responses of a ministep and the 8,192 of a rollout batch.

# %%
# alt: Share of the responses that are still being written against seconds, on a
#   logarithmic axis. Of 512 responses nine in ten are done after 36 seconds, and the
#   last one after 71. Of 8,192 nine in ten are done after 72 seconds, the last ones
#   after 125.
drawn = draw(shape, int(work.prompts), work.group, seed=0, step=0)
finished = {}  # seconds until the last response
fig, ax = plt.subplots()
for count, color, name in ((32, VERMILLION, "on-policy"), (512, BLUE, "16 ministeps")):
    ends = []  # second at which each response is finished
    for mine in np.array_split(drawn[:count].ravel(), 32):  # the responses of an engine
        t = np.arange(mine.max())
        left = (mine[:, None] > t).sum(0)  # that are still being written at token t
        decode = paper.engine.decode(left.astype(float), left * (work.prompt + t))
        ends.append(decode.cumsum()[mine - 1])
    ends = np.sort(np.concatenate(ends))
    finished[name] = ends[-1]
    ax.plot(ends, 1 - np.arange(len(ends)) / len(ends), color=color, label=name)
    each = 1e3 * ends[-1] / drawn[:count].sum()
    print(f"{len(ends):5} responses: the last after {ends[-1]:3.0f} s", end=", ")
    print(f"half of them after {np.median(ends):3.0f} s, {each:.4f} ms per token")
ax.set(yscale="log", xlabel="time (s)", ylabel="share that is still being written")
ax.legend()
plt.show()

# %% [markdown]
# **What to see.** Sixteen times as many responses take three quarters as long again.
# Both curves end in a long tail, where 32 GPUs wait for a few responses, and a whole
# GPU reads 15 GB of weights to write a token or two. A rollout batch pays for its tail
# once, so a larger one pays less per token. The price is the staleness of lesson 203:
# the last ministep learns from responses that a policy of 15 updates ago wrote.
# <!-- claim: Sixteen times as many responses take three quarters as long again ::
#   abs(finished["16 ministeps"] / finished["on-policy"] - 1.75) < 0.05 -->
# <!-- claim: reads 15 GB of weights :: said(2 * paper.sizes.weights / 1e9) -->
#
# **What a lag adds.** Engines wait while the trainer works, and the trainer while they
# do. Give each GPUs of its own, and let step $s$ learn from responses of the policy
# after step $s - 1 - \text{lag}$: with a lag of 1 the next batch is written meanwhile.

# %%
# alt: Two charts of four steps over time. In turns on all 32 GPUs: generation, then
#   update, then generation. With a lag of 1: 16 GPUs train without a pause, while 16
#   generate and then wait, and each step ends a little sooner.
late = replace(work, lag=1, recompute=False)  # pi_old is the engine's: see below
lagged = best(replace(paper, work=late))
fig, axes = plt.subplots(2, 1, sharex=True, figsize=(7, 3.4))
for ax, one, apart in ((axes[0], paper, False), (axes[1], lagged, True)):
    training = one.scoring + one.update.seconds
    both = np.full(5, one.generation.seconds), np.full(5, training)
    times = timeline(*both, one.work.lag, apart)
    for row, spans, color in (
        (1, times.generation, VERMILLION),
        (0, times.update, BLUE),
    ):
        for step, (begin, end) in enumerate(spans[:4], 1):
            ax.barh(row, end - begin, left=begin, color=color, edgecolor="white")
            ax.text(
                (begin + end) / 2, row, step, ha="center", va="center", color="white"
            )
    sides = one.generators.count, one.trainers.count
    ax.set_yticks([1, 0], [f"generate: {sides[0]} GPUs", f"train: {sides[1]} GPUs"])
    ax.set(title=f"lag {one.work.lag}: {one.seconds:.0f} s per step", ylabel="")
axes[1].set(xlabel="time (s)")
plt.show()
print(f"staleness {paper.staleness} in turns, {lagged.staleness} with a lag of 1")

# %% [markdown]
# **What to see.** With the lag the trainer never waits, and the engines wait a quarter
# of the time: machines of eight are kept whole, and 8 and 24 would be worse. A step is
# 11% shorter, but look at where that comes from. With a lag the trainer's weights have
# moved on when a response arrives, so pi_old must be the engine's own numbers, and the
# scoring is saved. Without scoring the run in turns takes 230 s, as long as with the
# lag. All 32 GPUs were at work most of the time already; dividing them gains only what
# waiting had cost, and costs 16 updates of staleness. On the *same* GPUs a lag would
# gain nothing at all.
# <!-- claim: With the lag the trainer never waits, and the engines wait a quarter of
#   the time :: abs(1 - lagged.generation.seconds / lagged.seconds - 1 / 4) < 0.02 -->
# <!-- claim: A step is 11% shorter :: said(100 * (1 - lagged.seconds / paper.seconds))
#   -->
# <!-- claim: Without scoring the run in turns takes 230 s ::
#   about(paper.generation.seconds + paper.update.seconds, within=0.01) and
#   abs(lagged.seconds / (paper.generation.seconds + paper.update.seconds) - 1) < 0.01
#   -->
# <!-- claim: costs 16 updates of staleness :: said(lagged.staleness - paper.staleness)
#   -->
#
# **Where it stops.** Take the step apart. How long does each part take on 8 to 512
# GPUs? And what do a lag, or a batch that grows with the GPUs, make of it?

# %%
# alt: Left, seconds of a step's parts against GPUs, 8 to 512. Scoring and update fall
#   in proportion, 564 seconds to 14. Generation falls from 327 to 65 and closes in on a
#   dashed line at 62, the longest response alone. Right, tokens per second: in turns,
#   scored or not, bends from 32 GPUs on, up to 250,000; a lag of 1 is above it from 64
#   on, up to 300,000; a batch that grows with the GPUs goes on to 930,000.
alone = float(paper.engine.decode(np.ones(8192), work.prompt + np.arange(8192)).sum())
lagging = {"recompute": False, "sleeps": False, "lag": 1}
designs = {
    "in turns": (turns, BLUE, "o-"),
    "unscored": ([on(n, recompute=False) for n in counts], GREY, "o--"),
    "lag 1": ([best(on(n, **lagging)) for n in counts], VERMILLION, "s--"),
    "lag 2": ([best(on(n, **lagging | {"lag": 2})) for n in counts], ORANGE, "^:"),
    "larger batch": (
        [
            on(n, prompts=work.prompts * n / 32, ministeps=work.ministeps * n // 32)
            for n in counts[2:]
        ],
        GREEN,
        "v-.",
    ),
}
fig, axes = plt.subplots(1, 2, figsize=(9.5, 3.8))
pieces = {
    "generation": ([run.generation.seconds for run in turns], VERMILLION),
    "scoring and update": ([r.scoring + r.update.seconds for r in turns], BLUE),
}
for name, (values, color) in pieces.items():
    axes[0].plot(counts, values, "o-", color=color, label=name)
axes[0].axhline(alone, color="black", linestyle="--", linewidth=0.8)
axes[0].text(8, 0.8 * alone, "the longest response alone", va="top", fontsize=8)
axes[0].set(xscale="log", yscale="log", xlabel="GPUs", ylabel="seconds of a step")
for name, (runs, color, line) in designs.items():
    axes[1].plot(counts[-len(runs) :], rates(runs), line, color=color, label=name)
axes[1].set(xscale="log", yscale="log", xlabel="GPUs", ylabel="tokens per second")
for ax in axes:
    ax.set_xticks([8, 32, 128, 512], [8, 32, 128, 512])
    ax.minorticks_off()
    ax.legend(fontsize=8)
plt.show()
for name, (runs, *_) in designs.items():
    gain = rates(runs)[1:] / rates(runs)[:-1]
    print(f"{name:13} last doubling: {gain[-1]:.2f} times the tokens", end=", ")
    print(f"staleness {runs[-1].staleness} on 512 GPUs")

# %% [markdown]
# **What to see.** Doubling 64 GPUs already gives less than half as much again. Against
# the unscored run in turns, which has its pi_old from the engine too, a lag of 1 gains
# nothing on 32 GPUs, where dividing them costs what waiting did; it gains 26% on 64 and
# 28% on 128, and a second one adds nothing. A step has three floors:
# <!-- claim: Doubling 64 GPUs already gives less than half as much again :: rate[4] <
#   1.5 * rate[3] -->
# <!-- claim: a lag of 1 gains nothing on 32 GPUs :: abs(rates(designs["lag 1"][0])[2] /
#   rates(designs["unscored"][0])[2] - 1) < 0.01 -->
# <!-- claim: it gains 26% on 64 and 28% on 128 :: (lambda g: said(100 * g[3], None, 100
#   * g[4], None))(rates(designs["lag 1"][0]) / rates(designs["unscored"][0]) - 1) -->
#
# * **The longest response.** Its 8,192 tokens come one after another, 62 seconds at
#   least, on however many GPUs. Only a faster decode step helps: tensor parallelism, or
#   a smaller width.
# * **A fixed batch over more engines.** 8,192 responses on 512 engines are 16 each, so
#   the tail that a large batch amortised is back.
# * **A fixed ministep over more trainers.** 512 responses on 512 GPUs are one each, and
#   gathering the weights takes longer than computing with them.
#
# A batch that grows with the GPUs removes the second floor, at the price of staleness:
# 255 updates on 512 GPUs. Whether the objective can bear that is lesson 203's question.
# <!-- claim: 62 seconds at least :: said(alone) -->
# <!-- claim: 255 updates on 512 GPUs :: said(designs["larger batch"][0][-1].staleness,
#   None) -->
#
# **What it costs.** Put your own price here.

# %%
price = 2.50  # dollars per GPU and hour: what you are offered
paid = {}
for gpus, run in zip(counts, turns, strict=True):
    hours = spec.schedule.steps * run.seconds / 3600
    paid[gpus] = gpus * hours * price
    print(f"{gpus:4} GPUs: {hours:6.1f} hours, {paid[gpus]:7,.0f} dollars")

# %% [markdown]
# From 8 to 32 GPUs the bill grows by a sixth, and the run is done in less than a third
# of the time. On 512 GPUs it is nearly five times the bill of 32. Evaluations,
# start-up, failures and the runs that taught you how are not included.
# <!-- claim: From 8 to 32 GPUs the bill grows by a sixth :: abs(paid[32] / paid[8] - 7
#   / 6) < 0.02 -->
# <!-- claim: the run is done in less than a third of the time :: turns[2].seconds <
#   turns[0].seconds / 3 -->
# <!-- claim: nearly five times the bill of 32 :: 4.5 < paid[512] / paid[32] < 5 -->
#
# **Other people's words.** Rented clusters come with a framework, and each has words of
# its own for the same batch: 512 prompts, 16 responses each, 16 ministeps, 32 GPUs.
#
# | framework | key | value | what it counts |
# |---|---|---|---|
# | verl | `data.train_batch_size` | 512 | prompts of a rollout batch |
# | | `actor.ppo_mini_batch_size` | 32 | prompts of an update |
# | | `rollout.n` | 16 | responses to each prompt |
# | TRL | `per_device_train_batch_size` | 2 | responses in a pass of one GPU |
# | | `gradient_accumulation_steps` | 8 | passes of an update |
# | | `steps_per_generation` | 128 | passes of a rollout batch |
# | | `num_generations` | 16 | responses to each prompt |
#
# So verl makes 512 / 32 = 16 updates per rollout batch, and TRL 2 x 32 x 128 = 8,192
# responses of 128 / 8 = 16 updates. verl counts *prompts*, TRL counts *responses on one
# GPU*, and what verl calls a training step is a rollout batch while TRL's is an update.
#
# ## Exercise
#
# Three exercises, checked on your own machine. Fill in each one; the cell below it, or
# its button on the site, then says what is wrong. In a notebook, `learn.hint("302.1")`
# gives a hint, and a second argument goes further.

# %% [markdown]
# **Exercise 302.1: read TRL's words.** Difficulty 2 of 5, about 5 minutes.
#
# A colleague's configuration says how many responses one GPU takes in one forward pass,
# how many passes make an update (accumulation), how many passes a rollout batch lasts,
# how many responses each prompt gets, and how many GPUs there are. How many prompts
# does a rollout batch have, and how stale is its last update?


# %% tags=["exercise", "302.1"]
def read_trl(per_device, accumulation, steps_per_generation, num_generations, gpus):
    """Prompts per rollout batch, and updates that its last update is stale."""
    return ...


# %% tags=["check", "302.1"]
learn.check("302.1", read_trl)

# %% [markdown]
# **Exercise 302.2: the GPUs that a model needs.** Difficulty 2 of 5, about 10 minutes.
#
# How many GPUs does it take to train a model of `weights` weights? Each weight costs 16
# bytes while it trains, cut into as many shares as there are GPUs; `one_pass` GiB for a
# forward and backward pass are needed on *every* GPU; and a tenth of a GPU's `gpu_gib`
# stays free for libraries. Return 0 where no number is enough.


# %% tags=["exercise", "302.2"]
def fewest_gpus(weights, gpu_gib, one_pass):
    """GPUs of gpu_gib GiB that hold the training of so many weights; 0 if none do."""
    return ...


# %% tags=["check", "302.2"]
learn.check("302.2", fewest_gpus)

# %% [markdown]
# **Exercise 302.3: divide the GPUs.** Difficulty 3 of 5, about 5 minutes.
#
# With a lag of 1, `serve` of `gpus` generate and the others train. Generation needs
# `work` GPU-seconds that can be spread, and on top of that the longest response,
# `floor` seconds, that cannot. The update needs `update` GPU-seconds. Which `serve`
# makes the shortest step?


# %% tags=["exercise", "302.3"]
def best_serve(work, floor, update, gpus):
    """How many of the GPUs should generate, so that a step is shortest."""
    return ...


# %% tags=["check", "302.3"]
learn.check("302.3", best_serve)

# %% [markdown]
# `pmdkit plan` does the last two with its own times and memory: `--serve 8` names the
# faster division beside yours.

# %% [markdown]
# ## Open experiments
#
# Nobody checks these. Say what you expect, try it, and then open what we got.
#
# **1.** Give 512 GPUs a batch of four times as many prompts and ministeps. How many
# times more tokens per second?
#
# <details>
# <summary>What we got</summary>
#
# 2.4 times. The longest response is waited for once, and not four times.
# <!-- claim: 2.4 times :: said(rates([on(512, prompts=4 * work.prompts, ministeps=4 *
#   work.ministeps)])[0] / rate[-1]) -->
#
# </details>
#
# **2.** Or draw 64 responses to each prompt in place of 16?
#
# <details>
# <summary>What we got</summary>
#
# 2.8 times: the updates become larger, and not more.
# <!-- claim: 2.8 times :: said(rates([on(512, group=64)])[0] / rate[-1]) -->
#
# </details>
