"""Does a sampler that the loss does not know of move SmolLM2 as the sampler law says? `run RUNS [WORKERS]|record`.

Stated before the first run. The law (`theory.sampler_push`): responses come from q, the loss divides by pi_old, and a
loss whose advantages have the mean -c under q pushes the logits by c (pi - q) from the first step on. PMD-part has
c > 0, so a q that is sharper than pi flattens the policy; PMD-mean has c = 0. On small transformers
(`sampler_law.py`) PMD-part did so under random rewards in all four comparisons, and where rewards decide the push died
out as the pass rate rose.

Here: the recipe `smollm2`, 10 steps of 8 prompts, 8 responses each, one ministep, lr 1e-5, tau 0.05. q is the policy at
top_p 0.9 and temperature 0.8, or the policy itself; pi_old is always the whole policy at temperature 1. Rewards are the
task's, or a coin that is tossed once for each text and problem and falls on 1 with probability 0.2. Cells: PMD-mean and
PMD-part x two samplers x two rewards.

Measures, of the whole policy after the last step, on the fixed evaluation of 64 held-out problems, two responses each:
the *entropy* of a response, estimated by the mean of -log pi over these draws and divided by what it was before the
first step; and the *pass rate*, by the task's rewards or by the coin.

Comparisons, sampler minus full, paired by seed:

- entropy, PMD-part, coin: predicted up.
- entropy, PMD-part, task: predicted up.
- entropy, PMD-mean, coin: predicted alike.
- pass rate, PMD-part, task: predicted down, since a flatter policy has left the format.

The four share an error of 5 % (t intervals, Bonferroni). Above the margin is *up*, below its negative *down*, inside
*alike*, else *undecided*; margins 0.1 for the entropy and 0.05 for the pass rate. The law *holds* here if all four come
out as predicted, is *contradicted* if one comes out as another word but undecided, else *undecided*. PMD-mean under the
task's rewards is reported, and nothing is predicted of it.

Five seeds, 0 to 4, all cells of a seed before the next; nothing is recorded before three are whole. Nothing was tuned:
rates are the recipe's. Runs may be made days apart and beside other work.

Kept because docs/use/sampler.md is to say what comes out.
"""

import hashlib
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from harness import journal
from harness.machine import machine, versions
from smollm2_objectives import COLUMNS, one
from smollm2_stale import interval

from pmdkit.llm.engines.transformers import TransformersEngine

SEEDS, LEAST, STEPS, LR, TAU, MARGIN = range(5), 3, 10, "1e-5", "0.05", {"entropy": 0.1, "pass_rate": 0.05}
SAMPLERS = {"full": (1.0, 1.0), "cut": (0.9, 0.8)}  # top_p, temperature
REWARDS, COIN = ("coin", "task"), 0.2
ROLLOUT, EVALUATION = 40, 48  # tokens: a longer budget tells the engine that it draws for the evaluation
SETTINGS = ("schedule.ministeps=1", "run.checkpoint_every=1", "run.keep=1", "rollout.old=recompute")
SETTINGS += (f"rollout.width={ROLLOUT}", f"evaluation.width={EVALUATION}", "evaluation.problems=64", "evaluation.k=2")
PREDICTED = {
    ("entropy", "pmd-part", "coin"): "up",
    ("entropy", "pmd-part", "task"): "up",
    ("entropy", "pmd-mean", "coin"): "alike",
    ("pass_rate", "pmd-part", "task"): "down",
}
SET = [[*SEEDS], LEAST, STEPS, LR, TAU, MARGIN, SAMPLERS, REWARDS, COIN, SETTINGS, [*PREDICTED.items()]]
DIGEST = hashlib.sha256(json.dumps([__doc__, SET]).encode()).hexdigest()[:16]  # frozen: the law is in the lab now
PLACE = Path(__file__).parent / "results" / "smollm2-sampler.json"
JOURNAL = PLACE.with_suffix(".jsonl")
KEYS = ("objective", "sampler", "rewards", "seed")
CELLS = [(name, sampler, rewards) for rewards in REWARDS for name in ("pmd-mean", "pmd-part") for sampler in SAMPLERS]


class Cut(TransformersEngine):
    """Draws rollouts at a top_p and a temperature that the trainer is not told of, and evaluations from the policy.

    What evaluations draw is kept with its log-probabilities: their mean is minus the entropy of a response.
    """

    @classmethod
    def from_config(cls, config):
        engine = super().from_config(config)
        engine.given = config.options
        return engine

    def generate(self, prompts, group, seeds, sampling, progress=None):
        if sampling.width == ROLLOUT:
            how = replace(sampling, top_p=self.given["top_p"], temperature=self.given["temperature"])
            return super().generate(prompts, group, seeds, how, progress)
        drawn = super().generate(prompts, group, seeds, sampling, progress)
        row = [self.version, int(seeds[0]), float(drawn.logp.double().sum()), len(drawn.logp)]
        with open(self.given["kept"], "a") as file:
            file.write(json.dumps(row) + "\n")
        return drawn


def coin(response: str, gold: str) -> float:
    """1 with probability COIN, the same for the same text and gold answer."""
    toss = hashlib.sha256(f"{gold}\0{response}".encode()).digest()
    return float(int.from_bytes(toss[:6], "big") < COIN * 2**48)


def entropies(lines):
    """The mean of -log pi before the first step and after the last; of a repeated evaluation the later one."""
    found = {(version, seed): (total, rows) for version, seed, total, rows in map(json.loads, lines)}
    at = {}
    for (version, _), (total, rows) in found.items():
        before = at.get(version, (0.0, 0))
        at[version] = (before[0] + total, before[1] + rows)
    return [-at[version][0] / at[version][1] for version in (min(at), max(at))]


def run(runs, workers=1):
    """Make the missing runs, some at a time, all cells of one seed after another."""
    done = journal.read(JOURNAL, DIGEST, KEYS)

    def each(key):
        name, sampler, rewards, seed = key
        folder = Path(runs).absolute() / f"{sampler}-{rewards}"
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / f"{name}-{seed}.logp"
        options = 'engine.options={{kept="{}", top_p={}, temperature={}}}'.format(kept, *SAMPLERS[sampler])
        settings = (*SETTINGS, f"rollout.engine={__file__}:Cut", options)
        settings += (f"reward.grade={__file__}:coin",) if rewards == "coin" else ()
        settings += ("--trust", __file__)
        columns = (*COLUMNS, "entropy", "kl")
        if found := one(folder, "cpu", 1, STEPS, name, LR, TAU, seed, settings=settings, columns=columns):
            out = folder / f"{name}-{LR}-{TAU}-{seed}"
            before, after = entropies(kept.read_text().splitlines())
            found |= dict(zip(KEYS, key, strict=True)) | {"protocol": DIGEST, "entropy_before": before}
            found |= {"entropy_after": after, "last": json.loads((out / "summary.json").read_text())["pass_rate_last"]}
            journal.append(JOURNAL, found)
            shutil.rmtree(out / "checkpoints")

    with ThreadPoolExecutor(int(workers)) as pool:
        wanted = [(*cell, seed) for seed in SEEDS for cell in CELLS]
        list(pool.map(each, [key for key in wanted if key not in done]))


def value(measure, row):
    """A measure of a run."""
    return row["last"] if measure == "pass_rate" else row["entropy_after"] / row["entropy_before"]


def record():
    """Write comparisons, the verdict and all runs as one JSON file, from the seeds that are whole."""
    done = journal.read(JOURNAL, DIGEST, KEYS)
    seeds = [seed for seed in SEEDS if all((*cell, seed) in done for cell in CELLS)]
    if len(seeds) < LEAST:
        raise SystemExit(f"{len(seeds)} seeds are whole; the protocol wants {LEAST} before anything is recorded")
    words = []
    for measure in MARGIN:
        for name, rewards in dict.fromkeys((cell[0], cell[2]) for cell in CELLS):
            runs = ([done[name, sampler, rewards, seed] for seed in seeds] for sampler in ("cut", "full"))
            gap = [value(measure, a) - value(measure, b) for a, b in zip(*runs, strict=True)]
            mean, low, high = interval(gap, 1 - 0.05 / len(PREDICTED))
            row = {"measure": measure, "objective": name, "rewards": rewards, "difference": [mean, low, high]}
            row |= {"predicted": PREDICTED.get((measure, name, rewards))}
            words.append(row | {"verdict": journal.word(low, high, MARGIN[measure])})
    stated = [row for row in words if row["predicted"]]
    against = any(row["verdict"] not in (row["predicted"], "undecided") for row in stated)
    held = all(row["verdict"] == row["predicted"] for row in stated)
    kept = {"protocol": DIGEST, "machine": machine(), "versions": versions(), "margin": MARGIN, "seeds": seeds}
    kept |= {"law": "contradicted" if against else "holds" if held else "undecided", "comparisons": words}
    rows = [done[*cell, seed] for cell in CELLS for seed in seeds]
    PLACE.write_text(json.dumps(kept | {"runs": rows}, separators=(",", ":")) + "\n")
    print(json.dumps(kept, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) in (3, 4):
        run(*sys.argv[2:])
    elif sys.argv[1:] == ["record"]:
        record()
    else:
        raise SystemExit(f"got {sys.argv[1:]}; expected run RUNS [WORKERS], or record")
