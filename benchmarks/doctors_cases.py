"""The runs that doctors.py asks about: what is wrong with each, and the files that tell of it.

A case is a folder with a number for a name, so that no path says what is planted in it, and one entry of the list that
`make` returns. Logs are written as TRL names its metrics; where a fault is planted by somebody else's generator, the
generator runs in the environment of the doctors.
Kept because doctors.py asks about these runs.
"""

import contextlib
import itertools
import json
import subprocess
import tomllib
from collections import defaultdict, deque
from pathlib import Path

import autopsy as planted  # the language model that is a table of logits, and its faults
import numpy as np

KNOWN = tomllib.loads((Path(__file__).parent / "doctors.toml").read_text(encoding="utf-8"))
ROWS = {  # of a dump: our name of a column, and that of planted.table_run
    "step": "step", "group": "group", "prompt": "prompt", "response": "text", "gold": "gold", "reward": "reward",
    "advantage": "advantage", "cut": "cut", "version": "version", "logp_engine": "engine", "logp": "trainer",
}  # fmt: skip
PER_STEP = planted.PROMPTS * planted.GROUP
MIDDLE = planted.STEPS // 2 * PER_STEP
POINTS, CHANGE = 120, 70  # of a log of draws: its steps, and the one after which columns change


# ---- Graders with a fault, around the right one


def dies(judge, rng):
    """From the middle of the run on, every verdict is 0."""
    asked = itertools.count()
    return lambda *given: judge(*given) * (next(asked) < MIDDLE)


def one_form(judge, rng):
    """From the middle on, only boxed answers are read."""
    asked = itertools.count()
    return lambda *given: judge(*given) * (next(asked) < MIDDLE or "boxed" in given[0])


def shuffled(judge, rng):
    """From the middle on, a response gets the verdict of the response 64 places before it."""
    asked, before = itertools.count(), deque([0.0] * 65, maxlen=65)

    def verdict(*given):
        before.append(judge(*given))
        return before[-1] if next(asked) < MIDDLE else before[0]

    return verdict


def noisy(judge, rng):
    """Four verdicts in ten are turned."""
    return lambda *given: abs(judge(*given) - (rng.random() < 0.4))


def by_length(judge, rng):
    """Each word is worth 0.05 beside the right answer's 1."""
    return lambda *given: judge(*given) + 0.05 * len(given[0].split())


GRADERS = {each.__name__: each for each in (dies, one_form, shuffled, noisy, by_length)}


# ---- Ours: a table of logits, toy transformers, draws at a given pass rate


def as_trl(step, rows):
    """The scalars that TRL logs of the rows of a step, by TRL's names."""
    groups = defaultdict(list)
    for row in rows:
        groups[row["group"]].append(row["reward"])
    std = np.array([np.std(each, ddof=1) for each in groups.values()])
    trainer, engine = ([row[key] or row["logp_engine"] for row in rows] for key in ("logp", "logp_engine"))
    gap = [np.subtract(*each) for each in zip(trainer, engine, strict=True)]
    weight = np.exp(np.clip([each.sum() for each in gap], -20, 20))
    mean = float(np.mean([row["reward"] for row in rows]))
    found = {
        "step": step, "reward": mean, "rewards/grade/mean": mean, "reward_std": float(std.mean()),
        "frac_reward_zero_std": float(np.mean(std == 0)), "entropy": -float(np.concatenate(trainer).mean()),
        "completions/mean_length": float(np.mean([len(each) for each in trainer])),
        "clip_ratio/region_mean": 0.0, "clip_ratio/low_mean": 0.0, "clip_ratio/high_mean": 0.0,
        "sampling/sampling_logp_difference/mean": float(np.abs(np.concatenate(gap)).mean()),
    }  # fmt: skip
    for key in ("min", "mean", "max"):
        found[f"sampling/importance_sampling_ratio/{key}"] = float(getattr(weight, key)())
    if rows[0]["cut"] is not None:
        found["completions/clipped_ratio"] = float(np.mean([row["cut"] for row in rows]))
    return found


def write(path, records):
    """Write JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def log_files(place, records, config):
    """A log as a trainer_state.json, and as JSON lines after a configuration; the records alone are for callbacks."""
    (place / "trainer_state.json").write_text(json.dumps({"log_history": records}))
    write(place / "log.jsonl", [{"config": config}, *records])
    write(place / "records.jsonl", records)
    return {"log": "log.jsonl", "scalars": "trainer_state.json", "records": "records.jsonl"}


def group_file(place, rows):
    """The rewards of each prompt, its groups one after the other; groups of one run have one size."""
    groups, prompts = defaultdict(list), defaultdict(list)
    for row in rows:
        groups[row["step"], row["group"]].append(row)
    for each in groups.values():
        prompts[each[0]["prompt"]] += [row["reward"] for row in each]
    write(place / "groups.jsonl", ({"prompt_id": prompt, "rewards": x} for prompt, x in prompts.items()))
    return {"groups": "groups.jsonl", "size": len(each)}


def table(place, fault, strength, seed):
    """A run of planted.table_run, with its rows, its log and its groups."""
    rows, records = [], []

    def keep(folder, step, given, logged):
        now = [{key: row[theirs] for key, theirs in ROWS.items()} | {"length": len(row["tokens"])} for row in given]
        rows.extend(now)
        records.append(as_trl(step, now) | {"learning_rate": 0.1} | logged)

    judge, grader = planted.pay, GRADERS.get(fault, lambda judge, rng: judge)
    planted.WRITERS["doctors"], planted.pay = keep, grader(judge, np.random.default_rng(seed))
    try:
        planted.table_run(place, fault, "doctors", strength, seed)
    finally:
        planted.pay = judge
    write(place / "dump.jsonl", rows)
    config = {"num_generations": planted.GROUP, "max_completion_length": planted.CAP}
    files = {"dump": "dump.jsonl", "columns": {key: key for key in (*ROWS, "length")}}
    return files | log_files(place, records, config) | group_file(place, rows)


def toy(place, env, rate, seed, steps=40):
    """A run of `pmdkit toy` with recorded steps; its own files, and the same as TRL would log it."""
    from pmdkit import train
    from pmdkit_lab.dumps.readers import Source, read

    options = {"objective.tau": 0.05, "schedule.ministeps": 2, "schedule.lr": rate, "schedule.prompts": 64}
    more = {"model.dimension": 32, "model.layers": 1}
    train("pmd-mean", "toy", env, out=place / "run", steps=steps, seed=seed, record=1, options=options | more)
    by_step = defaultdict(list)
    for _, row in read(place / "run", {}, Source()):
        by_step[row.step].append({key: getattr(row, key) for key in ROWS})
    records = []
    for line in (place / "run" / "metrics.jsonl").read_text().splitlines():
        own = json.loads(line)
        kept = {key: own[key] for key in ("entropy", "grad_norm", "loss")}
        records.append(as_trl(own["step"], by_step[own["step"]]) | kept | {"learning_rate": rate})
    rows = [row for each in by_step.values() for row in each]
    files = log_files(place, records, {"learning_rate": rate})
    return files | {"scalars": "run/metrics.jsonl", "dump": "run"} | group_file(place, rows)


def draws(place, given, seed):
    """A log of 32 groups of eight draws in each step, at a pass rate that is set."""
    rng, records = np.random.default_rng(seed), []
    usual = {"entropy": 0.8, "kl": 0.02, "completions/mean_length": 200.0, "completions/clipped_ratio": 0.02}
    usual |= {"grad_norm": 0.3, "learning_rate": 1e-6, "rate": 0.35, "spread": 0.25}
    for n in range(POINTS):
        row = {"step": n + 1, "loss": 0.01 * rng.normal()}
        for key, x in (usual | given).items():
            if not key.startswith("late "):
                now = np.linspace(*x, POINTS)[n] if isinstance(x, list) else x
                row[key] = float(given.get(f"late {key}", now) if n >= CHANGE else now)
        each = np.clip(row.pop("rate") + row.pop("spread") * rng.uniform(-1.7, 1.7, 32), 0, 1)
        drawn = (rng.random((32, 8)) < each[:, None]).astype(float)
        std = drawn.std(1, ddof=1)
        row |= {"reward": drawn.mean(), "reward_std": std.mean(), "frac_reward_zero_std": float(np.mean(std == 0))}
        for key in ("entropy", "kl", "completions/mean_length", "grad_norm"):
            row[key] *= 1 + 0.03 * rng.normal()
        records.append(row)
    return log_files(place, records, {"num_generations": 8})


# ---- Theirs, by the generators that they ship

OUR_FUNCTIONS = '''import re


def any_box(completion, reference):
    """Pays every box."""
    return float("\\\\boxed{" in completion)


def hashes_only(completion, reference):
    """Reads the number after #### and nothing else."""
    found = re.search(r"#### (\\S+)", completion)
    return float(found is not None and found[1] == reference)
'''


def of_function(place, name):
    """A reward function that reward-doctor ships, or one of ours."""
    if f"def {name}(" not in OUR_FUNCTIONS:
        return {"function": f"reward_doctor.reference:{name}"}
    (place / "reward.py").write_text(OUR_FUNCTIONS)
    return {"function": f"{place / 'reward.py'}:{name}"}


SIMULATE = """import json, sys
from rl_doctor.simulate import simulate
print(json.dumps(simulate(sys.argv[1], seed=int(sys.argv[2]))))
"""
# rlprobe records its own names; its integration knows those of TRL
AS_TRL = """import json, sys, types
sys.modules["transformers"] = types.SimpleNamespace(TrainerCallback=object, __spec__=None)
import pyarrow.parquet as parquet
from rlprobe.integrations.trl import _SCALAR_MAP
theirs = {ours: name for name, ours in _SCALAR_MAP.items()}
for row in parquet.read_table("recording/steps.parquet").to_pylist():
    row = {theirs.get(key, key): x for key, x in row.items() if isinstance(x, (int, float))}
    part = "reward_component."
    print(json.dumps({f"rewards/{key[len(part):]}/mean" if key.startswith(part) else key: x for key, x in row.items()}))
"""


def printed(*command):
    """What a command prints; it is run in the folder of the case."""
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


def of_rldoctor(place, scenario, seed, bin):
    """A scenario of rldoctor's simulator, with its configuration."""
    return log_files(place, *json.loads(printed(bin / "python", "-c", SIMULATE, scenario, seed)))


def of_rlprobe(place, pathology, seed, bin):
    """A recording of rlprobe's generator, and its scalars by TRL's names."""
    what = [] if pathology == "healthy" else ["--pathology", pathology]
    printed(bin / "rlprobe", "synth", "recording", "--seed", seed, *what)
    records = [json.loads(line) for line in printed(bin / "python", "-c", AS_TRL).splitlines()]
    return log_files(place, records, {"num_generations": 8, "max_completion_length": 1024}) | {"recording": "recording"}


def of_rlvr(place, prompt, bin):
    """One prompt of rlvr-audit's fixture, as groups and as rows; a group stands for a step."""
    printed(bin / "rlvr-audit", "make-fixture", "--out", "all.jsonl")
    made = {each["prompt_id"]: each["rewards"] for each in map(json.loads, Path("all.jsonl").read_text().splitlines())}
    rows = [{"step": n // 8 + 1, "group": str(n // 8), "prompt": "p", "reward": x} for n, x in enumerate(made[prompt])]
    write(place / "dump.jsonl", rows)
    return group_file(place, rows) | {"dump": "dump.jsonl", "columns": {key: key for key in rows[0]}}


# ---- Logs of public runs, in a folder that the reader fills

BY_TRL = {
    "reward": "reward", "reward_std": "reward_std", "silent": "frac_reward_zero_std", "entropy": "entropy", "kl": "kl",
    "length": "completions/mean_length", "cut": "completions/clipped_ratio", "grad_norm": "grad_norm", "loss": "loss",
    "lr": "learning_rate",
}  # fmt: skip


def of_ward(place, path):
    """A public log as it is; for callbacks, its longest run by TRL's names."""
    from pmdkit_lab.autopsy.scalars import read_logs
    from pmdkit_lab.dumps.readers import Source

    log = max(read_logs(path, {}, Source()), key=lambda each: len(each.step))
    columns = {BY_TRL[key]: log.columns[key] for key in BY_TRL if log.get(key) is not None}
    columns |= {f"rewards/{name}/mean": x for name, x in log.parts.items()}
    records = [
        {"step": int(step)} | {key: float(x[n]) for key, x in columns.items()} for n, step in enumerate(log.step)
    ]
    write(place / "records.jsonl", [{key: x for key, x in row.items() if x == x} for row in records])
    return {"log": str(path), "scalars": str(path), "records": "records.jsonl"}


def planned(ward):
    """Source, name, right causes, maker and its arguments of every case, in order."""
    faults = KNOWN["faults"]
    for n, (fault, strength, truth) in enumerate(KNOWN["cases"]["table"]):
        yield "table", fault, truth, table, (fault, strength, 5000 + n)
    for n, (env, rate, truth) in enumerate(KNOWN["cases"]["toy"]):
        yield "toy", f"{env} at {rate:g}", truth, toy, (env, rate, 5100 + n)
    for n, given in enumerate(KNOWN["cases"]["draws"]):
        yield "draws", given["name"], given["truth"], draws, (given["columns"], 5200 + n)
    for n, scenario in enumerate([*faults["rldoctor"], *["healthy"] * 3]):
        yield "rldoctor", scenario, faults["rldoctor"].get(scenario, ""), of_rldoctor, (scenario, 11 + n)
    for n, pathology in enumerate([*faults["rlprobe"], *["healthy"] * 3]):
        yield "rlprobe", pathology, faults["rlprobe"].get(pathology, ""), of_rlprobe, (pathology, 11 + n)
    for maker, source in ((of_rlvr, "rlvr-audit"), (of_function, "functions")):
        yield from ((source, name, truth, maker, (name,)) for name, truth in faults[source].items())
    if ward:
        yield from (("ward", name, truth, of_ward, (ward / name,)) for name, truth in faults["ward"].items())


def make(folder, bin, ward=None, only=None):
    """Write every case, or those of one source, below a folder; the list of them, with their files."""
    cases = []
    for number, (source, name, truth, maker, given) in enumerate(planned(ward)):
        if only in (None, source):
            place = Path(folder).resolve() / f"{number:03d}"
            place.mkdir(parents=True)
            more = (bin,) if maker in (of_rldoctor, of_rlprobe, of_rlvr) else ()
            with contextlib.chdir(place):
                files = maker(place, *given, *more)
            paths = {key: str(place / x) for key, x in files.items() if key not in ("columns", "size", "function")}
            case = {"source": source, "name": name, "truth": truth.split(), "files": files | paths}
            cases.append(case | {"remarks": KNOWN["remarks"].get(name, "").split()})
    return cases
