"""Who stays stable when 16 updates are made from one batch of SmolLM2? `smollm2_stale.py run RUNS [WORKERS]|record`.

Stated before the first run. The paper's strongest claim: with 16 updates from each batch PMD-mean remains stable,
PMD-part does not, and GRPO ends lower. There a batch has 512 prompts of 16 responses, and each update takes 32 prompts
that no other has; the last is 15 updates stale. Here it is the recipe `smollm2` with 16 prompts of 4 responses a step,
and each of 16 ministeps takes one prompt: as many updates from one rollout, each row used once, and an update of 4
responses in place of 512, which is far noisier. 15 steps, 240 updates, one thread of a CPU in float32.

Arms: PMD-mean and PMD-part at tau 0.05, the recipe's; GRPO; PMD-part at tau 0.5, above its threshold: by
`theory.anchor_threshold` PMD-part from groups of 4 pushes away from the old policy below tau 0.20 at a pass rate of
0.2, and nowhere above 0.25. All have lr 3.5e-6: the recipe's 1e-5 for updates of 32 responses, divided by the square
root of 8, the usual rule for Adam. No rate was tried for its result: PMD-mean took two steps on seed 100, which is
used for nothing else, to see what a step costs and that it moves the policy. After the first step its log ratios had
a median of 0.94 nats and a minimum of -21, and 13 of the 16 groups of the second had equal rewards. At 1e-5 and groups
of 8, tried before, the minimum was -29. This chose groups of 4 and the number of steps, for their cost, and no more.

Measures, both of the pass rate of the rollouts, 64 responses a step, that a run's first step shares with all arms:

- *final*: the mean over the last five steps.
- *fall*: the largest mean of three steps in a row minus the mean of the last three; 0 if a run is best at its end.
  Problems differ from step to step, so a stable run falls a little too; they are the same for all arms of a seed. A
  run that never learns cannot fall: a fall is to be read beside the final rate.

Reported beside them, deciding nothing: the mean over all steps; the runs that *fell*, whose last three steps have less
than half of their best three; and by step the least log ratio, KL, entropy and `anchor` (c / tau). A run whose loss or
weights stop being finite has 0 for the steps it did not take.

Comparisons, paired by seed: PMD-mean minus PMD-part, minus GRPO and minus PMD-part at 0.5, and PMD-part at 0.5 minus
PMD-part at 0.05, each by both measures. The eight share an error of 5 % (t intervals of 99.375 %, Bonferroni). An
interval above MARGIN (0.05) is *more*, below -MARGIN *less*, inside +-MARGIN *alike*, else *undecided*. The first of a
pair is *steadier* if its final is more or its fall less, and neither says the contrary; *less steady* if the reverse;
*mixed* if one says each; *alike* if both are alike; else *undecided*.

Predictions of the first of each pair:

- The paper: PMD-mean is steadier than all three; PMD-part "could collapse even with a much larger tau".
- The anchor law: PMD-mean and PMD-part at 0.5 are steadier than PMD-part at 0.05, which is pushed (c / tau of 3 to 7
  at pass rates of 0.1 to 0.8); PMD-mean and PMD-part at 0.5 are alike (at most 0.3). Of GRPO it says nothing.
- Stored toy runs (`anchor_two_by_two.py`, `tuned.py`): as the law, and PMD-mean and GRPO are not told apart at the
  end. The race and SmolLM2 with two ministeps, where GRPO was 0.02 ahead: the same of GRPO.

So PMD-mean against GRPO and against PMD-part at 0.5 is where the paper and the others part. Noise of this size can hide
all: the last five steps are 320 responses of a run, and with five pairs a difference under 0.1 will be undecided.

Five seeds, 0 to 4, all arms of a seed before the next. Runs of one seed, and steps of one run, may be made days apart
and beside other work; times are therefore no result. Nothing is recorded before three seeds are whole; `record` takes
whole seeds only. Every finished run is a line of the journal; one that was killed goes on at its last step.

Kept because docs/use/smollm2.md is to have its section.
"""

import hashlib
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness import journal
from harness.machine import machine, versions
from scipy import stats
from smollm2_objectives import COLUMNS, HARDLY_EVALUATED, measure, one

SEEDS, LEAST, LR, STEPS, LAST, SPAN, MARGIN = range(5), 3, "3.5e-6", 15, 5, 3, 0.05
ARMS = {
    "pmd-mean": ("pmd-mean", LR, "0.05"),
    "pmd-part": ("pmd-part", LR, "0.05"),
    "grpo": ("grpo", LR, None),
    "pmd-part at 0.5": ("pmd-part", LR, "0.5"),
}
PAIRS = (*(("pmd-mean", name) for name in list(ARMS)[1:]), ("pmd-part at 0.5", "pmd-part"))
SETTINGS = ("schedule.prompts=16", "schedule.group=4", "schedule.ministeps=16", "run.checkpoint_every=1", "run.keep=1")
MOVES = ("log_ratio_min", "abs_log_ratio_median", "kl", "entropy", "token_entropy", "grad_norm", "skipped_updates")
SET = [[*SEEDS], LEAST, STEPS, LAST, SPAN, MARGIN, ARMS, PAIRS, SETTINGS]
DIGEST = hashlib.sha256(json.dumps([__doc__, SET]).encode()).hexdigest()[:16]
PLACE = Path(__file__).parent / "results" / "smollm2-stale.json"
JOURNAL = PLACE.with_suffix(".jsonl")
KEYS = ("objective", "lr", "tau", "seed")


def run(runs, workers=1):
    """Make the missing runs, some at a time, all arms of one seed after another."""
    runs = Path(runs)
    runs.mkdir(parents=True, exist_ok=True)
    done = journal.read(JOURNAL, DIGEST, KEYS)
    wanted = [(*arm, seed) for seed in SEEDS for arm in ARMS.values()]

    def each(key):
        settings, columns = (*SETTINGS, *HARDLY_EVALUATED), (*COLUMNS, *MOVES)
        if found := one(runs, "cpu", 1, STEPS, *key, settings=settings, columns=columns):
            journal.append(JOURNAL, found | {"protocol": DIGEST})
            for weights in runs.glob(f"{key[0]}-{key[1]}-{key[2]}-{key[3]}/checkpoints"):
                shutil.rmtree(weights)  # 1.6 GB, of use to a run that is to go on

    with ThreadPoolExecutor(int(workers)) as pool:
        list(pool.map(each, [key for key in wanted if key not in done]))


def three(row):
    """[STEPS - SPAN + 1] means of the pass rate over SPAN steps in a row; steps that were not taken have 0."""
    rates = ([*row["pass_rate"], *[0.0] * STEPS])[:STEPS]
    return np.convolve(rates, np.full(SPAN, 1 / SPAN), "valid")


def measures(row):
    """The two measures of a run, and its mean over all steps."""
    means = three(row)
    return {
        "final": measure(row, STEPS, last=LAST),
        "fall": float(means.max() - means[-1]),
        "mean": measure(row, STEPS),
    }


def verdict(final, fall):
    """Whether the first of a pair is steadier, from the words of the two comparisons."""
    better, worse = (final == "more") + (fall == "less"), (final == "less") + (fall == "more")
    if better or worse:
        return "mixed" if better and worse else "steadier" if better else "less steady"
    return "alike" if final == fall == "alike" else "undecided"


def interval(values, level):
    """A mean with its t interval; without any spread, such as where nothing falls, the mean alone."""
    mean, error = np.mean(values), stats.sem(values)
    low, high = stats.t.interval(level, len(values) - 1, mean, error) if error > 1e-12 else (mean, mean)
    return [round(float(x), 4) for x in (mean, low, high)]


def compare(found):
    """The comparisons of all pairs, from the measures {arm: [those of each seed]}."""
    rows = []
    for one_, other in PAIRS:
        row = {"of": one_, "than": other}
        for name in ("final", "fall"):
            gap = [a[name] - b[name] for a, b in zip(found[one_], found[other], strict=True)]
            mean, low, high = interval(gap, 1 - 0.05 / 8)
            row[name] = {"difference": [mean, low, high], "verdict": journal.word(low, high, MARGIN, "more", "less")}
        rows.append(row | {"verdict": verdict(row["final"]["verdict"], row["fall"]["verdict"])})
    return rows


def record():
    """Write the arms' means, the comparisons and all runs as one JSON file, from the seeds that are whole."""
    done = journal.read(JOURNAL, DIGEST, KEYS)
    seeds = [seed for seed in SEEDS if all((*arm, seed) in done for arm in ARMS.values())]
    if len(seeds) < LEAST:
        raise SystemExit(f"{len(seeds)} seeds are whole; the protocol wants {LEAST} before anything is recorded")
    runs = {name: [done[*arm, seed] for seed in seeds] for name, arm in ARMS.items()}
    found = {name: [measures(row) for row in rows] for name, rows in runs.items()}
    arms = {}
    for name, rows in found.items():
        arms[name] = {"fell": int(sum(three(row)[-1] < three(row).max() / 2 for row in runs[name]))}
        for key in rows[0]:
            arms[name][key] = interval([row[key] for row in rows], 0.95)
    kept = {"protocol": DIGEST, "machine": machine(), "versions": versions(), "margin": MARGIN, "seeds": seeds}
    kept |= {"arms": arms, "comparisons": compare(found)}
    rows = [{key: value for key, value in row.items() if key != "protocol"} for each in runs.values() for row in each]
    PLACE.write_text(json.dumps(kept | {"runs": rows}, separators=(",", ":")) + "\n")
    print(json.dumps(kept, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) in (3, 4):
        run(*sys.argv[2:])
    elif sys.argv[1:] == ["record"]:
        record()
    else:
        raise SystemExit(f"got {sys.argv[1:]}; expected run RUNS [WORKERS], or record")
