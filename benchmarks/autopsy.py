"""Planted faults for `pmdkit autopsy`: `python benchmarks/autopsy.py make|judge build|judged FOLDER`.

Protocol, written before the rules of the causes
------------------------------------------------
Thirty runs have one planted fault each, two runs of each of the fifteen kinds in FAULTS, and ten runs have none. Of
each kind the first run is in the half `build`, the second in the half `judged`, with another seed, another strength and
where possible another trainer's format; the healthy runs are split five and five. Rules and thresholds are chosen on
`build` alone. `judged` is made and read once, after the last change of a rule, and what it says is stored unchanged in
results/autopsy.json, whatever it says. A rule that is changed afterwards needs new seeds.

A faulty run is *first* if the first cause that is named is the planted one, *second* if the second is, else *not*. A
healthy run is *right* if no cause is named. The goal is: 80 % of the faulty runs first or second, and no cause named
on a healthy run. A fault that a format cannot show (log-probabilities that were not written) is not planted in it.

Makers
------
* `table`: a language model that is a table of logits, one row for each class of prompts and last token, so that its
  log-probabilities are exact. Tasks are sums of two digits, answered as `Answer: 7` or `\\boxed{7}` after some words.
  It is trained here by policy gradients with Adam, drawn by an engine with its own copy, and written as verl, slime,
  prime-rl, open-instruct or plain columns write it; the writers are read off the same sources as the readers.
* `toy`: `pmdkit toy`, its own run folder with recorded steps.
* `trl`: TRL's GRPOTrainer with a random model of two layers; its own dumps, nothing simulated.
"""

# kind: (maker, format, strength) in build and in judged
FAULTS = {
    # a learning rate far above what the task bears
    "rate-too-high": (("toy", "pmdkit", 0.1), ("table", "prime-rl", 3.0)),
    # the verifier pays a form whatever its content
    "wrong-form-paid": (("table", "verl", 1), ("table", "columns", 1)),
    # responses at the cap, which is too low, are scored 0
    "cut-off-scored-wrong": (("table", "slime", 9), ("table", "open-instruct", 11)),
    # responses come from a policy some steps old
    "stale-policy": (("table", "prime-rl", 8), ("table", "slime", 12)),
    # the engine's logits have noise: nats per token
    "engine-mismatch": (("table", "prime-rl", 0.05), ("table", "columns", 0.07)),
    # drawn at one temperature, scored at 1
    "temperature": (("table", "columns", 0.6), ("table", "prime-rl", 1.5)),
    # the prompt asks for a form that the reward does not read
    "reward-cannot-read": (("table", "verl", 1), ("table", "slime", 1)),
    # every response gets the same reward
    "equal-rewards": (("trl", "trl", 0.0), ("table", "open-instruct", 1.0)),
    # few prompts fill the batch
    "duplicate-prompts": (("table", "verl", 3), ("table", "slime", 4)),
    # the penalty on KL is a bonus
    "kl-sign": (("trl", "trl", -0.5), ("trl", "trl", -0.3)),
    # the reward itself is the advantage
    "advantage-not-centred": (("table", "open-instruct", 1), ("table", "prime-rl", 1)),
    # PMD-part with tau below its threshold, and stale ministeps
    "part-below-threshold": (("toy", "pmdkit", 0.005), ("toy", "pmdkit", 0.01)),
    # the mask begins one token late
    "mask-off-by-one": (("table", "prime-rl", 1), ("table", "columns", 1)),
    # advantages have the wrong sign
    "advantage-sign": (("table", "open-instruct", 1), ("trl", "trl", 1)),
    # the engine draws greedily
    "no-variety": (("table", "verl", 0), ("table", "slime", 0)),
}
HEALTHY = (  # (maker, format) in build and in judged
    (("table", "prime-rl"), ("table", "columns")),
    (("table", "slime"), ("table", "open-instruct")),
    (("table", "verl"), ("table", "prime-rl")),
    (("toy", "pmdkit"), ("toy", "pmdkit")),
    (("trl", "trl"), ("trl", "trl")),
)
