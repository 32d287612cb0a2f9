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

# kind: what is planted, and (maker, format, strength) in build and in judged
FAULTS = {
    "rate-too-high": ("learning rate far above what the task bears", ("toy", "pmdkit", 0.1), ("table", "prime-rl", 3.0)),
    "wrong-form-paid": ("the verifier pays a form whatever its content", ("table", "verl", 1), ("table", "open-instruct", 1)),
    "cut-off-scored-wrong": ("responses at the cap are scored 0", ("table", "slime", 9), ("table", "open-instruct", 11)),
    "stale-policy": ("responses come from a policy some steps old", ("table", "prime-rl", 8), ("table", "slime", 12)),
    "engine-mismatch": ("engine logits have noise", ("table", "prime-rl", 0.05), ("table", "columns", 0.07)),
    "temperature": ("drawn at one temperature, scored at another", ("table", "columns", 0.6), ("table", "prime-rl", 1.5)),
    "reward-cannot-read": ("the prompt asks for a form that the reward does not read", ("table", "verl", 1), ("table", "slime", 1)),
    "equal-rewards": ("every response gets the same reward", ("trl", "trl", 0.0), ("table", "open-instruct", 1.0)),
    "duplicate-prompts": ("the same few prompts fill the batch", ("table", "verl", 3), ("table", "slime", 4)),
    "kl-sign": ("the penalty on KL is a bonus", ("trl", "trl", -0.5), ("trl", "trl", -0.3)),
    "advantage-not-centred": ("the reward itself is the advantage", ("table", "open-instruct", 1), ("table", "prime-rl", 1)),
    "part-below-threshold": ("PMD-part with tau below its threshold, stale", ("toy", "pmdkit", 0.005), ("toy", "pmdkit", 0.01)),
    "mask-off-by-one": ("the mask begins one token late", ("table", "prime-rl", 1), ("table", "columns", 1)),
    "advantage-sign": ("advantages have the wrong sign", ("table", "open-instruct", 1), ("trl", "trl", 1)),
    "no-variety": ("the engine draws greedily", ("table", "verl", 0), ("table", "slime", 0)),
}  # fmt: skip
HEALTHY = {
    "build": [("table", "prime-rl"), ("table", "slime"), ("table", "verl"), ("toy", "pmdkit"), ("trl", "trl")],
    "judged": [("table", "columns"), ("table", "open-instruct"), ("table", "prime-rl"), ("toy", "pmdkit"), ("trl", "trl")],
}  # fmt: skip
