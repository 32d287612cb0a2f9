"""Planted faults that `pmdkit autopsy` reads from scalars: `python benchmarks/autopsy_logs.py build|judged|table`.

A policy of four shared parts is trained by policy gradients in numpy: which form to answer in, which answer to each of
24 kinds of prompts, which of 40 words to write, and when to stop. An answer is the policy's own only if its response is
long enough for its kind. Reward, engine, data, optimizer and loss can each have one fault; the trainer logs what TRL or
verl would, and not what is planted.

Protocol, written before `judged` was made. FAULTS has what is planted and the causes that may be named for it,
HEALTHY has runs without a fault. Each is made with two seeds. `build` served to write rules, as often as needed.
`judged` has other seeds, sizes of groups, batches, lengths, rates, noise, strengths, places of a change and formats,
by `setting`; it is made and read once, after the last change of a rule, and stored as it comes out. A finding is a
cause, or where there is none, something to watch. A fault is *first* if the first finding may be named for it,
*later* if another may, *wrong* if a cause is named and none may, else *nothing*. A healthy run is *accused* if it
gets a cause, *watched* if it gets something to watch. At the first reading of `build`, before any rule was changed,
20 of 68 faults were first, and no healthy run was accused; one kind of fault was then taken out, with its rule.
Later rules were changed on other runs, and `judged` was made and read again: what is stored is no longer blind.
Kept because docs/use/autopsy.md says how often the causes of a log are right.
"""

import csv
import json
import math
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

STORED = Path(__file__).parent / "results" / "autopsy-logs.json"
KINDS, ANSWERS, WORDS, FORMS = 24, 12, 40, 3
SPEED = {
    "form": 1,
    "answer": 3,
    "word": 0.3,
    "stop": 0.15,
}  # of learning; the manner of a language model changes slowly

# what is planted: its options, and the causes that may be named for it
FAULTS = {
    "a step that breaks the policy": ({"broken": 5.0}, "rate-too-large"),
    "rate 3000 times too small": ({"lr": 1 / 3000}, "rate-too-small"),
    "rate at 0 after a tenth of the run": ({"schedule": "ends"}, "rate-too-small"),
    "optimizer without parameters": ({"frozen": True}, "rate-too-small"),
    "sign turned": ({"sign": -1}, "advantage-sign reward-falls"),
    "sign turned, small steps": ({"sign": -1, "lr": 0.3}, "advantage-sign reward-falls"),
    "grader dies": ({"grader": "dies"}, "grader-changed"),
    "grader reads one form from a step on": ({"grader": "strict"}, "grader-changed"),
    "verdicts of other rows from a step on": ({"grader": "shuffled"}, "verdicts-shuffled grader-changed"),
    "verdicts of a coin": ({"grader": "coin"}, "reward-noise"),
    "cap too low": ({"cap": 0.4, "need": 1.3}, "cut-off"),
    "cap lowered in the middle": ({"cap": 0.3, "late": ("cap",)}, "cut-off"),
    "prompts too hard": ({"skill": -9.0}, "too-hard"),
    "prompts too easy": ({"skill": 6.0, "need": 0}, "too-easy"),
    "a form that no pattern matches": ({"grader": "unreadable"}, "format-never-found equal-rewards"),
    "length is paid": ({"grader": "length"}, "length-paid"),
    "the form is paid and the answer is not": ({"grader": "form"}, "proxy-paid"),
    "few prompts, learned by heart": ({"memory": True}, "proxy-paid"),
    "KL in the loss that pushes": ({"beta": 1.0, "kl": "k1", "top": 0.6, "lr": 2}, "kl-pushes uniform-policy"),
    "KL of the wrong sign": ({"beta": -15.0}, "kl-sign kl-runaway kl-pushes"),
    "KL that holds the policy": ({"beta": 30.0, "lr": 0.5}, "rate-too-small kl-pushes kl-holds"),
    "bonus for entropy too large": ({"bonus": 0.6}, "entropy-grows kl-pushes"),
    "engine with noise": ({"noise": 0.5}, "engine-mismatch temperature"),
    "engine at another temperature": ({"temperature": 0.6}, "engine-mismatch temperature"),
    "engine with noise from a step on": ({"noise": 0.5, "late": ("noise",)}, "engine-changed engine-mismatch"),
    "engine draws with old weights": ({"lag": 24, "lr": 3}, "stale-policy"),
    "engine gets no weights from a step on": ({"stuck": True, "lr": 2}, "stale-policy engine-changed"),
    "engine takes the likeliest token": ({"temperature": 0.02, "blind": True}, "no-variety"),
    "gradient is no number from a step on": ({"nan": True}, "not-finite"),
    "gradient with spikes": ({"spikes": True}, "gradient-spikes rate-too-large"),
    "harder prompts from a step on": ({"data": True}, "data-changed grader-changed"),
    "entropy gone before the answers are found": (
        {"lr": 12, "skill": -2.0, "babble": 20},
        "entropy-collapse rate-too-large",
    ),
    "many updates on a batch": ({"updates": 12, "lr": 12}, "clip-saturation rate-too-large entropy-collapse"),
}
HEALTHY = {
    "plain": {},
    "hard and slow": {"skill": -2.5, "lr": 0.5},
    "easy": {"skill": 1.0},
    "solved early": {"skill": 0.5, "lr": 3, "need": 0},
    "curriculum": {"curriculum": True},
    "KL in the loss": {"beta": 0.05},
    "large batch": {"prompts": 4},
    "warm-up": {"schedule": "warm"},
    "cosine": {"schedule": "cosine"},
    "resumed": {"resumed": True},
    "asynchronous": {"lag": 2},
    "graded": {"grader": "graded"},
    "penalty on length": {"grader": "penalty", "need": 0.3},
    "two components": {"grader": "both"},
    "longer answers needed": {"need": 2.0, "cap": 2.0},
    "a tenth of the verdicts turned": {"grader": "turned"},
    "four updates": {"updates": 4},
    "clipped gradient": {"clip": 0.05},
    "held-out prompts": {"held": True},
    "engine with rounding": {"noise": 0.01},
}  # fmt: skip


def setting(half, number, seed):
    """What no fault depends on: sizes, lengths, rates and formats, other ones in each half."""
    rng = np.random.default_rng((17 if half == "build" else 9041, number, seed))
    sizes, steps = ((8, 4, 16), (90, 140)) if half == "build" else ((6, 12, 24), (110, 200))
    return {
        "rng": rng, "group": int(rng.choice(sizes)), "prompts": int(rng.integers(12, 40)),
        "steps": int(rng.integers(*steps)), "lr": float(rng.uniform(0.02, 0.04)), "tokens": float(rng.uniform(25, 70)),
        "skill": float(rng.uniform(0, 0.6)), "change": float(rng.uniform(0.4, 0.65)),
        "format": str(rng.choice(["state.json", "wandb.csv", "tidy.csv", "verl.jsonl", "verl.log"])),
        "dropped": rng.random() < 0.3, "strength": 1.0 if half == "build" else float(rng.uniform(0.6, 1.5)),
    }  # fmt: skip


def soft(logits):
    """Log-probabilities of the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


class Policy:
    """Logits of forms, answers, words and of going on; how to draw from them, and the gradient of a log-probability."""

    def __init__(self, s):
        rng = s["rng"]
        self.p = {
            "form": np.array([1.0, 0.5, 0.0]), "answer": 0.4 * rng.normal(size=(KINDS, ANSWERS)),
            "word": rng.normal(size=WORDS), "stop": np.array([math.log(s["tokens"] - 1), 0.0]),
        }  # fmt: skip
        self.p["answer"][:, 0] = 1.5 + s["base"] + rng.normal(size=KINDS)

    def copy(self):
        other = object.__new__(Policy)
        other.p = {key: x.copy() for key, x in self.p.items()}
        return other

    def logs(self):
        return {key: soft(x) for key, x in self.p.items()}

    def score(self, rows):
        """Log-probability of each row."""
        log = self.logs()
        ended = ~rows["cut"]
        return (
            log["stop"][0] * (rows["length"] - ended) + log["stop"][1] * ended + rows["words"] @ log["word"]
            + ended * (log["form"][rows["form"]] + log["answer"][rows["kind"], rows["answer"]])
        )  # fmt: skip

    def gradient(self, rows, weight):
        """Sum over rows of weight times the gradient of the log-probability."""
        prob = {key: np.exp(x) for key, x in self.logs().items()}
        ended, on = ~rows["cut"], rows["length"] - ~rows["cut"]
        grad = {key: np.zeros_like(x) for key, x in self.p.items()}
        counts = np.stack([on, ended], 1) - rows["length"][:, None] * prob["stop"]
        grad["stop"] = weight @ counts
        grad["word"] = weight @ (rows["words"] - rows["length"][:, None] * prob["word"])
        w = weight * ended
        grad["form"] = np.bincount(rows["form"], w, FORMS) - w.sum() * prob["form"]
        np.add.at(grad["answer"], (rows["kind"], rows["answer"]), w)
        np.add.at(grad["answer"], rows["kind"], -w[:, None] * prob["answer"][rows["kind"]])
        return grad


def draw(policy, kinds, group, s, cap, temperature=1.0, top=1.0, noise=0.0, need=None):
    """A group of responses for each prompt, as the engine draws them; with their log-probability in the engine."""
    rng = s["rng"]
    engine = policy.copy()
    for key, x in engine.p.items():
        x += noise * s["fixed"][key]
        x /= temperature
    if top < 1:  # of words alone: the fewest whose probabilities reach `top`
        prob = np.exp(soft(engine.p["word"]))
        order = np.argsort(-prob)
        engine.p["word"][order[np.cumsum(prob[order]) - prob[order] >= top]] = -40
    kind = np.repeat(kinds, group)
    n = len(kind)
    prob = {key: np.exp(x) for key, x in engine.logs().items()}
    length = rng.geometric(max(prob["stop"][1], 1e-6), n)
    if temperature < 0.1:  # the likeliest number of tokens of a text that goes on or stops
        length = np.full(n, int(s["tokens"]))
        length = (length * np.exp(policy.p["stop"][0] - math.log(s["tokens"] - 1))).astype(int).clip(1)
    cut = length > cap
    length = np.minimum(length, cap)
    words = rng.multinomial(length, prob["word"] / prob["word"].sum())
    pick = lambda p: (rng.random((n, 1)) > np.cumsum(p, -1)).sum(-1).clip(0, p.shape[-1] - 1)  # noqa: E731
    rows = {
        "kind": kind, "length": length, "cut": cut, "words": words,
        "form": pick(np.broadcast_to(prob["form"], (n, FORMS))),
        "answer": pick(prob["answer"][kind]),
    }  # fmt: skip
    long_enough = length >= need[kind]
    guess = rng.integers(0, ANSWERS, n)
    rows["right"] = (np.where(long_enough, rows["answer"], guess) == 0) & ~cut
    rows["engine"] = engine.score(rows)
    return rows


def run(options, s):
    """Train; the rows of a log under our own short names."""
    o = {
        "skill": s["skill"], "sign": 1, "lr": 1, "beta": 0.0, "kl": "k3", "top": 1.0, "temperature": 1.0, "noise": 0.0,
        "lag": 0, "updates": 1, "grader": "right", "late": (), "cap": 8.0, "need": 0.4, "bonus": 0.0, "prompts": 1,
        "clip": 1e9,
    }  # fmt: skip
    o |= options
    o["noise"], o["beta"], o["bonus"] = (o[key] * s["strength"] for key in ("noise", "beta", "bonus"))
    rng, s["base"] = s["rng"], o["skill"]
    need = o["need"] * s["tokens"] * rng.uniform(0.2, 1.2, KINDS)
    policy = Policy(s)
    reference, start = policy.copy(), policy.copy()
    s["fixed"] = {key: rng.normal(size=x.shape) for key, x in policy.p.items()}
    m = {key: np.zeros_like(x) for key, x in policy.p.items()}
    v = {key: np.zeros_like(x) for key, x in policy.p.items()}
    old, steps, change = [], s["steps"], int(s["change"] * s["steps"])
    some = np.arange(3) if o.get("memory") else np.arange(KINDS)
    records = []
    for step in range(steps):
        late = step >= change
        noise, cap = (
            o[key] if key not in o["late"] or late else usual for key, usual in (("noise", 0.0), ("cap", 8.0))
        )
        old.append(policy.copy())
        engine = old[max(0, len(old) - 1 - o["lag"])] if not (o.get("stuck") and late) else old[change]
        kinds = rng.choice(some, s["prompts"] * o["prompts"])
        if o.get("curriculum"):
            order = np.argsort(start.p["answer"][:, 0])[::-1]
            kinds = order[rng.integers(0, 8 + 16 * step // steps, len(kinds))]
        if o.get("data"):
            order = np.argsort(policy.p["answer"][:, 0])
            kinds = rng.choice(order[:6] if late else order[6:], len(kinds))
        cap = int(cap * s["tokens"])
        rows = draw(engine, kinds, s["group"], s, cap, o["temperature"], o["top"], noise, need)
        reward, parts = grade(o["grader"], rows, late, s, rng)
        groups = reward.reshape(-1, s["group"])
        std = groups.std(1, ddof=1)
        advantage = ((groups - groups.mean(1, keepdims=True)) / (std[:, None] + 1e-4)).ravel() * o["sign"]
        lr = (
            s["lr"]
            * o["lr"]
            * {
                "ends": float(step < steps // 10),
                "warm": min(1, (step + 1) / 20),
                "cosine": (1 + math.cos(math.pi * step / steps)) / 2,
            }.get(o.get("schedule"), 1.0)
        )
        before, clipped, norm = policy.score(rows), 0.0, 0.0
        for _ in range(o["updates"]):
            log = policy.logs()
            now = policy.score(rows)
            ratio = np.exp(np.clip((now - before) / rows["length"], -3, 3))
            out = (ratio > 1.2) & (advantage > 0) | (ratio < 0.8) & (advantage < 0)
            clipped = max(clipped, float(out.mean()))
            weight = np.where(out, 0, ratio * advantage) / s["tokens"]
            drift = (now - reference.score(rows)) / rows["length"]
            if o["kl"] == "k1":
                weight = weight - o["beta"] / s["tokens"]
            else:
                weight = weight - o["beta"] * (1 - np.exp(np.clip(-drift, -9, 9))) / s["tokens"]
            grad = policy.gradient(rows, weight / len(weight))
            if o["bonus"]:
                for key, x in log.items():
                    p = np.exp(x)
                    grad[key] = grad[key] + o["bonus"] * -p * (x - (p * x).sum(-1, keepdims=True)) / (
                        KINDS if x.ndim > 1 else 1
                    )
            norm = math.sqrt(sum(float((x**2).sum()) for x in grad.values()))
            if o.get("spikes") and late and rng.random() < 0.08:
                grad = {key: x * 300 for key, x in grad.items()}
                norm *= 300
            if o.get("nan") and late:
                norm = math.nan
                break
            grad = {key: x * min(1.0, o["clip"] / max(norm, 1e-12)) for key, x in grad.items()}
            for key, x in grad.items() if not o.get("frozen") else ():
                m[key] = 0.9 * m[key] + 0.1 * x
                v[key] = 0.99 * v[key] + 0.01 * x * x
                t = step + 1
                policy.p[key] = policy.p[key] + SPEED[key] * (o.get("babble", 1) if key == "word" else 1) * lr * (
                    m[key] / (1 - 0.9**t)
                ) / (np.sqrt(v[key] / (1 - 0.99**t)) + 1e-8)
        if o.get("broken") and step == change:
            policy.p = {key: x + o["broken"] * rng.normal(size=x.shape) for key, x in policy.p.items()}
        gap = (before - rows["engine"]) / rows["length"]
        weight = np.exp(np.clip(before - rows["engine"], -20, 2))
        moved = (policy.score(rows) - before) / rows["length"]
        drift = (before - reference.score(rows)) / rows["length"]
        row = {
            "step": step + 1, "reward": reward.mean(), "reward_std": std.mean(), "silent": np.mean(std < 1e-9),
            "entropy": -(before / rows["length"]).mean(), "kl": (np.exp(np.clip(-drift, -9, 9)) - 1 + drift).mean(),
            "length": rows["length"].mean(), "cut": rows["cut"].mean(), "grad_norm": norm, "lr": lr * 1e-4,
            "loss": -(ratio * advantage).mean() + o["beta"] * (np.exp(np.clip(-drift, -9, 9)) - 1 + drift).mean(),
            "clip": clipped, "gap": np.abs(gap).mean(), "kl_engine": -gap.mean(), "kl_step": -moved.mean(),
            "ratio_mean": weight.mean(), "ratio_max": weight.max(),
            "prompt_length": 40 + 25 * (o.get("data") is True and late) + rng.normal(),
        } | {f"part {key}": x.mean() for key, x in parts.items()}  # fmt: skip
        if o.get("nan") and late:
            row["loss"] = math.nan
        if (o.get("held") or o.get("memory")) and step % 8 == 7:
            other = np.arange(3, KINDS) if o.get("memory") else np.arange(KINDS)
            seen = draw(policy, rng.choice(other, 32), 4, s, cap, need=need)
            row["held_out"] = seen["right"].mean()
        if o.get("blind"):
            row["length"] = row["length"] + rng.normal()
        records.append(row)
    if o.get("resumed"):
        for row in records:
            row["step"] += 400
    return records


def grade(grader, rows, late, s, rng):
    """The reward of each row, and its components."""
    right = rows["right"].astype(float)
    form = ((rows["form"] == 0) & ~rows["cut"]).astype(float)
    length = rows["length"] / s["tokens"]
    if grader == "dies" and late:
        right = 0 * right
    if grader == "strict" and late:
        right = right * (rows["form"] == 2)
    if grader == "shuffled" and late:
        right = rng.permutation(right)
    if grader == "coin":
        right = (rng.random(len(right)) < 0.4).astype(float)
    if grader == "turned":
        right = np.abs(right - (rng.random(len(right)) < 0.1))
    if grader == "unreadable":
        return 0 * right, {"format": 0 * right, "answer": 0 * right}
    if grader == "length":
        return 0.3 * right + 0.5 * np.minimum(length, 4), {}
    if grader == "form":
        return 0.02 * right + form, {"format": form, "correct": 0.02 * right}
    if grader == "both":
        return right + 0.2 * form, {"format": 0.2 * form, "correct": right}
    if grader == "graded":
        return 0.6 * right + 0.4 * form * rng.uniform(0.5, 1, len(form)), {}
    if grader == "penalty":
        return right - 0.1 * length, {}
    return right, {}


TRL = {
    "reward": "reward", "reward_std": "reward_std", "silent": "frac_reward_zero_std", "entropy": "entropy", "kl": "kl",
    "length": "completions/mean_length", "cut": "completions/clipped_ratio", "grad_norm": "grad_norm",
    "lr": "learning_rate", "loss": "loss", "clip": "clip_ratio/region_mean",
    "gap": "sampling/sampling_logp_difference/mean",
    "ratio_mean": "sampling/importance_sampling_ratio/mean", "ratio_max": "sampling/importance_sampling_ratio/max",
    "held_out": "eval_reward",
}  # fmt: skip
VERL = {
    "reward": "critic/score/mean", "entropy": "actor/entropy", "kl": "actor/kl_loss", "length": "response_length/mean",
    "cut": "response_length/clip_ratio", "grad_norm": "actor/grad_norm", "lr": "actor/lr", "loss": "actor/pg_loss",
    "clip": "actor/pg_clipfrac", "kl_step": "actor/ppo_kl", "prompt_length": "prompt_length/mean",
    "held_out": "val-core/math/reward/mean@4", "kl_engine": "rollout_corr/kl",
}  # fmt: skip


def write(path, records, s):
    """Write a log in the format of the setting; three in ten lack two columns that a trainer may not log."""
    names = VERL if path.name.startswith("verl") else TRL
    lost = ("silent", "cut") if s["dropped"] else ()
    rows = []
    for record in records:
        row = {"step": record["step"]}
        for key, x in record.items():
            if key in names and key not in lost:
                row[names[key]] = float(x)
            elif key.startswith("part "):
                row[f"rewards/{key[5:]}/mean"] = float(x)
        rows.append(row)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if path.name == "state.json":
        path.write_text(json.dumps({"log_history": rows}))
    elif path.name == "verl.jsonl":
        path.write_text("".join(json.dumps({"step": row.pop("step"), "data": row}) + "\n" for row in rows))
    elif path.name == "verl.log":
        path.write_text("".join(" - ".join(f"{key}:{x!r}" for key, x in row.items()) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            table = csv.writer(file)
            if path.name == "tidy.csv":
                table.writerow(["metric", "step", "value"])
                table.writerows(
                    [key, row["step"], row[key]] for key in keys if key != "step" for row in rows if key in row
                )
            else:
                table.writerow(["Step", *(f"train/{key}" for key in keys if key != "step")])
                table.writerows([row["step"], *(row.get(key, "") for key in keys if key != "step")] for row in rows)


def judge(half, only=None):
    """Make and read every run of a half; what was said of each."""
    from pmdkit_lab.autopsy.report import scalar_autopsy

    judged = []
    cases = [(name, *each) for name, each in FAULTS.items()] + [(name, each, "") for name, each in HEALTHY.items()]
    for number, (name, options, truth) in enumerate(cases):
        for seed in (0, 1):
            if only and only not in name:
                continue
            s = setting(half, number, seed)
            with tempfile.TemporaryDirectory() as folder:
                records = run(options, s)
                path = Path(folder) / s["format"]
                write(path, records, s)
                found, _ = scalar_autopsy(path, {})
            said = [each["name"] for each in found["causes"]]
            watch = [each["name"] for each in found.get("watch", [])]
            right = [each in truth.split() for each in said + watch]
            if truth:
                outcome = "first" if right[:1] == [True] else "later" if any(right) else "wrong" if said else "nothing"
            else:
                outcome = "accused" if said else "watched" if watch else "quiet"
            judged.append(
                {"name": name, "seed": seed, "format": s["format"], "outcome": outcome, "causes": said, "watch": watch}
            )
            reward = [round(float(np.mean([x["reward"] for x in part])), 3) for part in np.array_split(records, 4)]
            print(f"{name:42} {s['format']:10} {outcome:8} {said} {watch} {found['verdict']} {reward}", flush=True)
    return judged


def table(judged):
    """Outcomes of faulty and of healthy runs, counted."""
    return Counter(each["outcome"] for each in judged)


if __name__ == "__main__":
    half = sys.argv[1]
    judged = judge(half, *sys.argv[2:])
    print(table(judged))
    if half == "judged":
        STORED.write_text(json.dumps(judged, indent=1) + "\n")
