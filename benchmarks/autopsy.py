"""Planted faults for `pmdkit autopsy`: `python benchmarks/autopsy.py make|judge build|judged|long FOLDER`.

Protocol, written before the rules of the causes
------------------------------------------------
Thirty runs have one planted fault each, two runs of each of the fifteen kinds in FAULTS, and ten runs have none. Of
each kind the first run is in the half `build`, the second in the half `judged`, with another seed, another strength and
where possible another trainer's format; the healthy runs are split five and five. Rules and thresholds are chosen on
`build` alone. `judged` is made and read once, after the last change of a rule, and what it says is stored unchanged in
results/autopsy.json, whatever it says. A rule that is changed afterwards needs new seeds.

Two changes were made before `judged` was made. A form that is paid wrongly is planted where the format has text. A rate
too high is planted in a transformer: nine more runs of the table, with seeds of their own, showed that a table solves
its task at any rate, so that a high one is no fault there.

Later the rule of `cut-off-scored-wrong` was changed: it named ordinary runs with long answers. Its new threshold was
chosen on the half `build` and ten more runs with seeds of their own; then `long` was made and read once: two runs whose
cap is too low, and four in which half of the prompts get long answers that are wrong, or some responses hardly ever
end. What `judged` says of that kind is by the rule of before.

Still later `silent-groups` and `length-paid` were added, by reasons and not by these runs. No fault of theirs is
planted here. All runs were made again from their seeds and read again: no planted fault lost its place, five faulty
runs got `silent-groups` as their last cause, and the two runs `hard` of `long` got it as their only one. Half of their
prompts can never be solved, so it is true of them; by the rule below they count as accused.

After that the causes that name a changed side and `reward-noise` were added, and `silent-groups` does not accuse a run
that learns.

Last, a run that learns is not accused of an engine that is apart, nor of a cap below which it learned to end: both are
something to watch. All 46 runs were made and read again, and where no cause is named, what is to be watched counts for
a faulty run. Before this change the capped runs had been read as healthy, so their place now proves nothing.

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

Kept because docs/use/autopsy.md says how often each planted fault is named.
"""

import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

# kind: (maker, format, strength) in build and in judged
FAULTS = {
    # a learning rate far above what the task bears
    "rate-too-high": (("toy", "pmdkit", 0.1), ("toy", "pmdkit", 0.05)),
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
LONG = (  # kind, format, strength; the last two kinds have no fault
    ("cut-off-scored-wrong", "open-instruct", 11), ("cut-off-scored-wrong", "prime-rl", 8),
    ("rambling", "slime", 0.06), ("rambling", "prime-rl", 0.1),
    ("hard", "open-instruct", 0.95), ("hard", "slime", 0.92),
)  # fmt: skip
ORDINARY = ("rambling", "hard")
STEPS, PROMPTS, GROUP, CAP = 40, 16, 8, 24
TOKENS = (*"0123456789", "so", "then", "hmm", "Answer:", "\\boxed{", "}", "<end>")
END, START = len(TOKENS) - 1, len(TOKENS)


def runs(half):
    """Name, kind or None, maker, format, strength and seed of every run of a half."""
    if half == "long":
        for number, (kind, form, strength) in enumerate(LONG):
            yield f"{number:02d}-{kind}-{form}", kind, "table", form, strength, 2000 + number
        return
    n = ("build", "judged").index(half)
    planted = [(kind, *halves[n]) for kind, halves in FAULTS.items()]
    healthy = [(None, *halves[n], 0) for halves in HEALTHY]
    for number, (kind, maker, form, strength) in enumerate(planted + healthy):
        yield f"{number:02d}-{kind or 'healthy'}-{form}", kind, maker, form, strength, 1000 * n + number


# ---- A language model that is a table


def grammar(box=0.4, go_on=0.75):
    """[10, V + 1, V] logits of a model that writes some words, then an answer in one of two forms, mostly wrong."""
    share = np.full((START + 1, len(TOKENS)), 1e-4)
    for last in (10, 11, 12, START):
        share[last, 10:13] += go_on / 3
        share[last, 13:15] += (1 - go_on) * np.array([1 - box, box])
    share[13, :10] += 0.1
    share[14, :10] += 0.1
    share[:10, 15] += box
    share[:10, END] += 1 - box
    share[15, END] += 1.0
    return torch.tensor(np.log(share / share.sum(1, keepdims=True))).repeat(10, 1, 1)


def logprobs(table, classes, tokens, mask, temperature=1.0):
    """[N, T] log-probabilities of the tokens of responses to prompts of these classes."""
    last = torch.cat([torch.full_like(tokens[:, :1], START), tokens[:, :-1]], 1)
    at = torch.log_softmax(table[classes[:, None], last] / temperature, -1).gather(2, tokens[:, :, None])[..., 0]
    return torch.where(mask, at, 0.0)


def draw(table, classes, cap, temperature, rng):
    """[N, cap] tokens, and the mask of those up to the end; temperature 0 is greedy."""
    tokens, alive = torch.full((len(classes), cap), END), torch.ones(len(classes), dtype=bool)
    mask, last = torch.zeros((len(classes), cap), dtype=bool), torch.full((len(classes),), START)
    for t in range(cap):
        logits = table[classes, last]
        chance = torch.softmax(logits / (temperature or 1), -1)
        last = logits.argmax(-1) if temperature == 0 else torch.multinomial(chance, 1, generator=rng)[:, 0]
        mask[:, t], tokens[alive, t] = alive, last[alive]
        alive = alive & (last != END)
    return tokens, mask


def spell(tokens, mask):
    """The text of a response."""
    return " ".join(TOKENS[t] for t, on in zip(tokens.tolist(), mask.tolist(), strict=True) if on and t != END)


def pay(text, gold, kind, strength):
    """The reward of a response, with the faults that a verifier can have."""
    if kind == "equal-rewards":
        return float(strength)
    if kind == "hard" and int(gold) >= 5:
        return 0.0
    line = re.search(r"Answer: (\d)$", text)
    box = re.search(r"boxed\{ (\d) \}$", text)
    if kind == "wrong-form-paid" and box:
        return 1.0
    found = box if kind == "reward-cannot-read" else line or box
    return float(found is not None and found[1] == gold)


def table_run(folder, kind, form, strength, seed):
    """Train the table and write every step in a trainer's format."""
    rng = torch.Generator().manual_seed(seed)
    start = grammar(0.05 if kind == "reward-cannot-read" else 0.4)
    if kind == "hard":
        start[5:] = grammar(go_on=strength)[5:]
    elif kind == "rambling":  # a share falls into a loop of hmm, and leaves it at one token in fifty
        share = start.exp()
        share[:, 12] *= 0.02
        share[:, 12, 12] += 0.98
        share[:, START] *= 1 - strength
        share[:, START, 12] = strength
        start = share.log()
    table = (start + 0.3 * torch.randn(10, 1, 1, generator=rng)).clone()
    table.requires_grad_(True)
    adam = torch.optim.Adam([table], lr=strength if kind == "rate-too-high" else 0.1)
    cap = strength if kind == "cut-off-scored-wrong" else CAP
    history = []
    write = WRITERS[form]
    for step in range(1, STEPS + 1):
        history.append(table.detach().clone())
        lag = min(strength, step - 1) if kind == "stale-policy" else 0
        noise = strength if kind == "engine-mismatch" else 0.004
        engine = history[-1 - lag] + noise * torch.randn(table.shape, generator=rng)
        temperature = strength if kind in ("temperature", "no-variety") else 1.0
        numbers = torch.randperm(100, generator=rng)[:PROMPTS]
        if kind == "duplicate-prompts":
            numbers = numbers[torch.randint(strength, (PROMPTS,), generator=torch.Generator().manual_seed(seed + step))]
            numbers = torch.tensor([11, 25, 38, 47])[numbers % strength]
        asked = numbers.repeat_interleave(GROUP)
        classes = (asked // 10 + asked % 10) % 10
        tokens, mask = draw(engine, classes, cap, temperature, rng)
        logp_engine = logprobs(engine, classes, tokens, mask, temperature or 1.0)
        texts = [spell(*each) for each in zip(tokens, mask, strict=True)]
        golds = [str(int(c)) for c in classes]
        cut = (mask.all(1) & (tokens[:, -1] != END)).tolist()
        reward = torch.tensor([pay(text, gold, kind, strength) for text, gold in zip(texts, golds, strict=True)])
        groups = reward.view(PROMPTS, GROUP)
        advantage = groups - groups.mean(1, keepdim=True)
        advantage = (advantage / (groups.std(1, keepdim=True) + 1e-4)).view(-1)
        if kind == "advantage-not-centred":
            advantage = reward
        elif kind == "advantage-sign":
            advantage = -advantage
        seen = mask.clone()
        if kind == "mask-off-by-one":
            seen[:, 0] = False
        logp = logprobs(table, classes, tokens, mask)
        ratio = (torch.where(seen, logp - logp.detach(), 0.0)).exp()
        loss = -(advantage[:, None] * ratio * seen).sum() / seen.sum()
        adam.zero_grad()
        loss.backward()
        grad_norm = float(table.grad.norm())
        adam.step()
        rows = []
        for n in range(len(asked)):
            on = mask[n]
            rows.append(
                {
                    "step": step, "group": n // GROUP, "prompt": f"{asked[n] // 10} + {asked[n] % 10}, modulo 10?",
                    "text": texts[n], "gold": golds[n], "reward": float(reward[n]), "advantage": float(advantage[n]),
                    "tokens": tokens[n][on].tolist(), "cut": cut[n], "version": step - 1 - lag,
                    "engine": logp_engine[n][on].tolist(), "trainer": logp.detach()[n][on].tolist(),
                    "seen": seen[n][on].tolist(),
                }
            )  # fmt: skip
        write(folder, step, rows, {"loss": loss.item(), "grad_norm": grad_norm})


# ---- As trainers write it


def lines(path, records, mode="w"):
    """Write JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode) as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def write_verl(folder, step, rows, logged):
    """verl's rollout_data_dir and its file logger."""
    keep = ("prompt", "input"), ("text", "output"), ("gold", "gts"), ("reward", "score"), ("step", "step")
    lines(folder / "rollouts" / f"{step}.jsonl", ({theirs: row[ours] for ours, theirs in keep} for row in rows))
    lines(folder / "log.jsonl", [{"step": step, "data": {f"actor/{k}": v for k, v in logged.items()}}], "a")


def write_slime(folder, step, rows, logged):
    """slime's debug rollouts and debug training data."""
    folder.mkdir(exist_ok=True)
    samples = [
        {
            "group_index": row["step"] * PROMPTS + row["group"], "prompt": row["prompt"], "response": row["text"],
            "response_length": len(row["tokens"]), "label": row["gold"], "reward": row["reward"],
            "weight_versions": [str(row["version"] + 1)], "rollout_log_probs": row["engine"],
            "status": "truncated" if row["cut"] else "completed", "loss_mask": None, "tokens": row["tokens"],
        }
        for row in rows
    ]  # fmt: skip
    torch.save({"rollout_id": step - 1, "samples": samples}, folder / f"rollout_{step - 1}.pt")
    trained = [
        {
            "response_lengths": len(row["tokens"]), "log_probs": torch.tensor(row["trainer"]),
            "rollout_log_probs": torch.tensor(row["engine"]),
            "advantages": torch.full((len(row["tokens"]),), row["advantage"]),
        }
        for row in rows
    ]  # fmt: skip
    torch.save({"format_version": 2, "rollout_id": step - 1, "samples": trained}, folder / f"train_{step - 1}.pt")


def write_prime(folder, step, rows, logged):
    """prime-rl's traces, token exports and metrics."""
    episodes = []
    for row in rows:
        node = {
            "sampled": True, "message": {"role": "assistant", "content": row["text"]}, "token_ids": row["tokens"],
            "logprobs": row["engine"], "advantages": [row["advantage"]] * len(row["tokens"]),
        }  # fmt: skip
        trace = {
            "nodes": [{"sampled": False, "message": {"role": "user", "content": row["prompt"]}}, node],
            "rewards": {"correct": {"score": row["reward"], "weight": 1.0}},
            "calls": [{"finish_reason": "length" if row["cut"] else "stop"}],
        }
        work = {"type": "train", "step": step, "policy": {"start": row["version"], "end": row["version"]}}
        episodes.append(
            {
                "task": {"type": "t", "data": {"prompt": row["prompt"], "answer": row["gold"]}}, "traces": [trace],
                "group": {"id": f"{step}-{row['group']}"}, "run": {"type": "train", "id": "r", "work": work},
            }
        )  # fmt: skip
    lines(folder / "rollouts" / f"step_{step}" / "train" / "effective" / "traces.jsonl", episodes)
    exported = []
    for row in rows:
        before = [0.0] * 3  # the prompt
        exported.append(
            {
                "schema_version": 1, "step": step, "rank": 0, "loss_mask": [False] * 3 + row["seen"],
                "inference_logprobs": before + row["engine"], "trainer_logprobs": [-1.0] * 3 + row["trainer"],
                "advantages": before + [row["advantage"]] * len(row["tokens"]),
                "entropy": [None] * (3 + len(row["tokens"])),
            }
        )  # fmt: skip
    lines(folder / "token_exports" / f"step_{step}" / "rank_0.jsonl", exported)
    lines(
        folder / "metrics.jsonl",
        [{"step": step, "loss/mean": logged["loss"], "optim/grad_norm": logged["grad_norm"]}],
        "a",
    )


def write_open_instruct(folder, step, rows, logged):
    """open-instruct's traces."""
    records = (
        {
            "step": step, "sample_idx": n, "prompt_idx": row["group"], "prompt_tokens": [ord(c) for c in row["prompt"]],
            "response_tokens": row["tokens"], "reward": row["reward"], "advantage": row["advantage"],
            "finish_reason": "length" if row["cut"] else "stop", "dataset": "sums", "logprobs": row["engine"],
        }
        for n, row in enumerate(rows)
    )  # fmt: skip
    lines(folder / "run_rollouts_000000.jsonl", records, "a")


def write_columns(folder, step, rows, logged):
    """Plain columns of somebody's own; a late mask puts the trainer's numbers one place off."""
    records = (
        {
            "iteration": step, "question": row["prompt"], "answer_text": row["text"], "truth": row["gold"],
            "score": row["reward"], "adv": row["advantage"], "sampler_logps": row["engine"],
            "trainer_logps": row["trainer"] if row["seen"][0] else [*row["trainer"][1:], -1.0],
        }
        for row in rows
    )  # fmt: skip
    lines(folder / "dump.jsonl", records, "a")


WRITERS = {
    "verl": write_verl, "slime": write_slime, "prime-rl": write_prime, "open-instruct": write_open_instruct,
    "columns": write_columns,
}  # fmt: skip
COLUMNS = {
    "step": "iteration", "prompt": "question", "response": "answer_text", "gold": "truth", "reward": "score",
    "advantage": "adv", "logp_engine": "sampler_logps", "logp": "trainer_logps",
}  # fmt: skip


# ---- Real runs


def toy_run(folder, kind, form, strength, seed):
    """`pmdkit toy`, with recorded steps."""
    from pmdkit import train

    part = kind == "part-below-threshold"
    options = {"objective.tau": strength if part else 0.05, "schedule.ministeps": 16 if part else 2}
    options["schedule.lr"] = strength if kind == "rate-too-high" else 5e-3 if part else 3e-3
    more = {"model.dimension": 32, "model.layers": 1, "schedule.prompts": 64}
    name = "pmd-part" if part else "pmd-mean"
    train(name, "toy", "modular-sum", out=folder, steps=STEPS, seed=seed, record=1, options=options | more)


def trl_run(folder, kind, form, strength, seed):
    """TRL's GRPOTrainer on a random model of two layers; the reward counts a letter, or is what is planted."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    letters = ["<pad>", "<end>", *"abcdefgh0123456789 +?"]
    plain = Tokenizer(models.WordLevel({letter: n for n, letter in enumerate(letters)}, "<pad>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<end>", padding_side="left"
    )
    torch.manual_seed(seed)
    shape = Qwen2Config(
        vocab_size=len(letters), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip

    def count(completions, **_):
        return [float(strength) if kind == "equal-rewards" else min(text.count("a") / 4, 1.0) for text in completions]

    settings = GRPOConfig(
        output_dir=str(folder), log_completions=True, logging_steps=1, max_steps=STEPS, num_generations=GROUP,
        per_device_train_batch_size=32, max_completion_length=12, learning_rate=3e-3, seed=seed, report_to="none",
        use_cpu=True, beta=strength if kind == "kl-sign" else 0.02, save_steps=STEPS, num_completions_to_print=0,
        lr_scheduler_type="constant",
    )  # fmt: skip
    sums = Dataset.from_list([{"prompt": f"{a}+{b}?"} for a in range(10) for b in range(10)])
    start = folder / "start"
    Qwen2ForCausalLM(shape).save_pretrained(start)  # from a folder: TRL loads the reference policy by its name
    model = Qwen2ForCausalLM.from_pretrained(start)
    trainer = GRPOTrainer(model, count, settings, train_dataset=sums, processing_class=tokenizer)
    if kind == "advantage-sign":
        score = trainer._generate_and_score_completions

        def flipped(inputs):
            found = score(inputs)
            trainer._logs["advantages"].extend([-x for x in list(trainer._logs["advantages"])])
            return found | {"advantages": -found["advantages"]}

        trainer._generate_and_score_completions = flipped
    trainer.train()


def main():
    """Make the runs of a half that this interpreter can make, or judge them."""
    action, half, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    torch.set_num_threads(1)
    judged = []
    if action == "judge":
        from pmdkit_lab.autopsy.report import autopsy
    for name, kind, maker, form, strength, seed in runs(half):
        place = folder / half / name
        if action == "judge":
            columns = COLUMNS if form == "columns" else {}
            found = autopsy(place, columns)[0]
            named = [cause["name"] for cause in found["causes"]]
            kind = None if kind in ORDINARY else kind
            told = named or [cause["name"] for cause in found["watch"]]
            rank = told.index(kind) + 1 if kind in told else None
            verdict = {1: "first", 2: "second"}.get(rank, "not") if kind else "no" if named else "right"
            judged.append({"run": name, "planted": kind, "named": told if kind else named, "verdict": verdict})
            print(f"{name:42} {verdict:7} {', '.join(told) or found['verdict']}", flush=True)
        if action == "make" and not place.exists():
            if (maker == "trl") != (find_spec("trl") is not None):
                continue  # TRL has an environment of its own
            place.parent.mkdir(parents=True, exist_ok=True)
            {"table": table_run, "toy": toy_run, "trl": trl_run}[maker](place, kind, form, strength, seed)
            print(name, flush=True)
    if action == "judge":
        path = Path(__file__).parent / "results" / "autopsy.json"
        stored = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(stored | {half: judged}, indent=1) + "\n")


if __name__ == "__main__":
    main()
