"""A scoreboard of programs that say what is wrong with a run: `python benchmarks/doctors.py run [--ward FOLDER]`.

doctors.toml is the protocol: it was written before the first run, and holds the cases, what is right for each,
what each verdict can mean, and how answers are judged.
Kept because docs/use/doctors.md says how often each doctor is right.

    python benchmarks/doctors.py run --ward FOLDER   makes all, asks all, writes results/doctors.json
    python benchmarks/doctors.py check               the same without the ward, against what is stored; make nightly
    python benchmarks/doctors.py table               the tables of docs/use/doctors.md
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
VENV = HERE.parent / ".venv-doctors"
STORED = HERE / "results" / "doctors.json"
KNOWN = tomllib.loads((HERE / "doctors.toml").read_text(encoding="utf-8"))
DOCTORS = KNOWN["doctors"]
ILL = ("first", "later", "wrong", "nothing")


def environment():
    """The folder of the doctors' commands; .venv-doctors is made if it is missing or older than its requirements."""
    wanted, done = HERE.parent / "requirements" / "doctors.txt", VENV / "installed.txt"
    if not done.exists() or done.read_text() != wanted.read_text():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        install = [
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            *os.environ.get("PIP_FLAGS", "").split(),
        ]
        options = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", wanted]
        subprocess.run([VENV / "bin" / "python", *install, *options], check=True)
        done.write_text(wanted.read_text())
    return VENV / "bin"


# ---- Asking: each gives the verdicts as (name, whether it is a warning), in order


def called(*command, **options):
    """The JSON that a command prints; whatever its exit code, a doctor's verdict may be in it."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, **options)
    return json.loads(done.stdout)


def rldoctor(files, bin, work):
    """Findings by severity, as its report has them."""
    order = ("CRITICAL", "WARNING", "INFO")
    found = called(bin / "rl-doctor", "diagnose", files["log"], "-f", "json")["findings"]
    kept = [x for x in found if x["severity"] in order]
    for each in sorted(kept, key=lambda x: (order.index(x["severity"]), x["detector"])):
        name, text = each["detector"], each["summary"]
        if name == "advantage_collapse":
            name += ":" + each["metrics"]["regime"]
        elif name == "kl_drift" and "pinned" in text:
            name += ":pinned"
        elif name == "gradient_pathology":
            name += ":spikes" if "spike" in text or "non-finite" in text else ":vanishing"
        yield name, each["severity"] != "INFO"


def feed(tool, records, work):
    """Runs in the doctors' environment: give logged rows to the callback that `attach` adds to a trainer of TRL."""
    sys.modules["transformers"] = types.ModuleType("transformers")  # both take only this base class from it
    sys.modules["transformers"].TrainerCallback = object
    hooks, GRPOTrainer = [], type("GRPOTrainer", (), {"add_callback": lambda self, hook: hooks.append(hook)})
    if tool == "rlprobe":
        from rlprobe.integrations.trl import attach

        attach(GRPOTrainer(), f"{work}/recording")
    else:
        import rlwatch

        monitor = rlwatch.attach(framework="trl", trainer=GRPOTrainer())
    arguments = types.SimpleNamespace(to_dict=dict, world_size=1, process_index=0)
    control, (hook,) = types.SimpleNamespace(), hooks
    if tool == "rlprobe":
        hook.on_train_begin(arguments, types.SimpleNamespace(global_step=0), control)
    for line in Path(records).read_text().splitlines():
        row = json.loads(line)
        state = types.SimpleNamespace(global_step=int(row.pop("step")))
        hook.on_log(arguments, state, control, logs=row)
    hook.on_train_end(arguments, state, control) if tool == "rlprobe" else monitor.stop()


def rlprobe(files, bin, work):
    """Its findings as ranked: of its own recording, or of one that its callback made."""
    if "recording" not in files:
        subprocess.run([bin / "python", __file__, "feed", "rlprobe", files["records"], work], check=True)
    for each in called(bin / "rlprobe", "doctor", files.get("recording", work / "recording"), "--json"):
        yield each["signature_id"], each["severity"] != "info"


def rlwatch(files, bin, work):
    """Its alerts, by step; each name once."""
    command = [bin / "python", __file__, "feed", "rlwatch", files["records"], work]
    subprocess.run(command, check=True, cwd=work, capture_output=True)
    names = {}
    for each in called(bin / "rlwatch", "diagnose", "--format", "json", cwd=work)["alerts"]:
        up = ":upward" if "upward" in each["message"] else ":downward"
        names[each["detector"] + (up if each["detector"] == "reward_mean_drift" else "")] = True
    yield from names.items()


def rlvr_audit(files, bin, work):
    """Its verdicts by the number of prompts that have each; none if most are healthy."""
    report = called(bin / "rlvr-audit", "inspect", "--file", files["groups"], "--G", files["size"])
    ranked = sorted(report["verdict_histogram"].items(), key=lambda each: -each[1])
    if ranked[0][0] != "HEALTHY":
        yield from ((name, True) for name, _ in ranked if name != "HEALTHY")


def reward_doctor(files, bin, work):
    """Its profile of a reward function."""
    profile = called(bin / "reward-doctor", "audit", files["function"], "-f", "json")["profile"]
    if profile != "balanced":
        yield profile, True


def autopsy_rows(files, bin, work):
    """Our causes of a dump of rows; what is to be watched is a note."""
    from pmdkit_lab.autopsy.report import autopsy

    found, _ = autopsy(Path(files["dump"]), files.get("columns", {}))
    yield from ((each["name"], level == "causes") for level in ("causes", "watch") for each in found[level])


def autopsy_logs(files, bin, work):
    """Our causes of a log; what is to be watched is a note."""
    from pmdkit_lab.autopsy.report import scalar_autopsy

    found, _ = scalar_autopsy(Path(files["scalars"]), {})
    yield from ((each["name"], level == "causes") for level in ("causes", "watch") for each in found[level])


ASK = dict(
    zip(DOCTORS, (rldoctor, rlprobe, rlwatch, rlvr_audit, reward_doctor, autopsy_rows, autopsy_logs), strict=True)
)


# ---- Judging


def outcome(doctor, case, named):
    """The outcome of a case, by the protocol; `named` says which verdicts warn, and is None if it cannot read."""
    tool = doctor.partition(",")[0]
    truth, table = set(case["truth"]), KNOWN["means"][tool]

    def means(name):
        return set((table.get(name, name) if tool == "autopsy" else table[name]).split())

    if named is None:
        return "cannot read"
    if not truth:
        alarms = (name for name, warns in named.items() if warns and not means(name) & set(case["remarks"]))
        return "alarm" if any(alarms) else "quiet"
    passed_over = KNOWN["symptoms"].get(tool, "").split()
    said = [(name, warns) for name, warns in named.items() if name not in passed_over or means(name) & truth]
    right = [bool(means(name) & truth) for name, _ in said]
    if any(right):
        return "first" if right[0] else "later"
    return "wrong" if any(warns for _, warns in said) else "nothing"


def ask_all(cases, bin, doctors=tuple(DOCTORS)):
    """Every case with what each doctor said of it, and how that is judged; several at a time."""

    def ask(case):
        said = {}
        for doctor in doctors:
            named, refusal = None, {}
            if DOCTORS[doctor]["reads"] in case["files"]:
                with tempfile.TemporaryDirectory() as work:
                    try:
                        named = dict(ASK[doctor](case["files"], bin, Path(work)))
                    except (ValueError, subprocess.SubprocessError) as error:  # a refusal costs this case alone
                        refusal = {"why": type(error).__name__}
            said[doctor] = {"outcome": outcome(doctor, case, named), "named": named} | refusal
        print(f"{case['source']:12} {case['name']:40} " + " | ".join(x["outcome"] for x in said.values()), flush=True)
        return {key: case[key] for key in ("source", "name", "truth", "remarks")} | {"said": said}

    with ThreadPoolExecutor() as pool:  # most of the time goes into starting their commands
        return list(pool.map(ask, cases))


def counts(judged, doctor, ill=True, without=()):
    """How often each outcome came out, on faulty or on healthy runs."""
    chosen = [case for case in judged if bool(case["truth"]) == ill and case["source"] not in without]
    return Counter(case["said"][doctor]["outcome"] for case in chosen)


def share(found):
    """How many of the faults that a doctor reads it names first."""
    reads = sum(found[key] for key in ILL)
    return f"{found['first']} of {reads}" if reads else "-"


def markdown(judged):
    """The tables of the page."""
    sources = list(dict.fromkeys(case["source"] for case in judged))
    heads = ["doctor", *ILL, "faults of others", "false alarms"], ["named first", *sources]
    rows = [[], []]
    for doctor, about in DOCTORS.items():
        ill, well = counts(judged, doctor), counts(judged, doctor, ill=False)
        others = share(counts(judged, doctor, without=about["own"]))
        alarms = f"{well['alarm']} of {well['alarm'] + well['quiet']}"
        rows[0].append([doctor, share(ill), *(str(ill[key]) for key in ILL[1:]), others, alarms])
        by_source = ([case for case in judged if case["source"] == source] for source in sources)
        rows[1].append([doctor, *(share(counts(each, doctor)) for each in by_source)])
    tables = (
        ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *some]]
        for head, some in zip(heads, rows, strict=True)
    )
    return "\n\n".join("\n".join(lines) for lines in tables)


def main():
    """Make and ask all, check against what is stored, or print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("run", "check", "table", "feed"))
    parser.add_argument("given", nargs="*")
    parser.add_argument("--ward", type=Path)
    options = parser.parse_args()
    if options.action == "feed":
        return feed(*options.given)
    if options.action == "table":
        return print(markdown(json.loads(STORED.read_text())["cases"]))
    import torch
    from doctors_cases import make

    torch.set_num_threads(1)
    bin = environment()
    with tempfile.TemporaryDirectory() as folder:
        judged = ask_all(make(folder, bin, options.ward and options.ward.resolve()), bin)
    if options.action == "run":
        freeze = subprocess.run(
            [bin / "python", "-m", "pip", "freeze"], check=True, capture_output=True, text=True
        ).stdout
        versions = dict(line.split("==") for line in freeze.splitlines() if line.partition("==")[0] in DOCTORS)
        versions |= {name: version(name) for name in ("pmdkit", "torch", "numpy")}
        git = ["git", "-C", HERE, "rev-parse", "--short=8", "HEAD"]
        versions["commit"] = subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
        STORED.write_text(json.dumps({"versions": versions, "cases": judged}, indent=1) + "\n")
        return print(markdown(judged))
    settled = True
    for before, now in zip(json.loads(STORED.read_text())["cases"], judged, strict=False):
        for doctor, said in now["said"].items():
            if (was := before["said"][doctor]) != said:
                print(f"{now['source']} {now['name']}: {doctor} said {was['named']}, says {said['named']}")
                # runs of torch differ between processors, and the autopsy may learn; pinned doctors on curves stay
                settled &= now["source"] in ("table", "toy") or doctor.startswith("autopsy")
    return None if settled else sys.exit("a pinned doctor changed its mind about a stored case")


if __name__ == "__main__":
    main()
