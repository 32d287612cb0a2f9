"""Configurations that nobody wants: a decided outcome for each, one line for a person, soon, and nothing on the disk.

A misspelt key never passes for none, whatever slip of whatever key, in a file, after --set or as an option. Seconds are
those of the processor: another process on the machine does not make them more.
"""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import fields
from functools import cache

import pytest

from pmdkit import specs
from pmdkit.cli import main
from pmdkit.cli.options import RunOptions
from pmdkit.specs import Spec, find
from pmdkit.training import resolve_spec

from .bad_input import all_slips, command, known_keys, run, slips
from .harness import scaled

SPEC = '[env]\nkind = "needle"\n[objective]\nname = "pmd-mean"\n'


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """A name on the hub is not there, whatever this machine can reach."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def hang_ends():
    """A test that hangs fails after a minute."""

    def stop(number, frame):
        raise TimeoutError("still busy after a minute")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(outcome, told="", code=2):
    """Assert that a command said one line and nothing else."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("pmdkit: error: ")
    assert outcome.err.count("\n") == 1
    assert len(outcome.err) < 4000
    assert told in outcome.err


@pytest.mark.parametrize(
    ("pair", "told"),
    [
        ('tau="1e-2"', "unknown tau rule '1e-2'"),
        ('lr="0.1"', "schedule.lr is '0.1'"),
        ('steps="3"', "schedule.steps is '3'"),
        ("steps=true", "schedule.steps is True"),
        ("steps=3.0", "schedule.steps is 3.0"),
        ("steps=010", "schedule.steps is '010'"),
        ("steps=1__0", "schedule.steps is '1__0'"),
        ("steps=-1", "expected an integer >= 1"),
        ("steps=0", "expected an integer >= 1"),
        ("steps=−3", "schedule.steps is '−3'"),
        ("steps=2147483648", "expected an integer of at most 2,147,483,647"),
        ("steps=99999999999999999999", "schedule.steps is an integer of 67 bits"),
        ("steps=" + "9" * 5000, "schedule.steps is '999"),
        ("steps=0x" + "f" * 5000, "schedule.steps is an integer of 20000 bits"),
        ("steps=[3]", "schedule.steps is [3]"),
        ("steps={a=3}", "schedule.steps is {'a': 3}"),
        ("steps=", "schedule.steps is ''"),
        ("steps=1979-05-27", "is the date or time 1979-05-27"),
        ("group=1", "expected at least 2"),
        ("group=0", "expected an integer >= 1"),
        ("lr=true", "schedule.lr is True"),
        ("lr=0,1", "schedule.lr is '0,1'"),
        ("lr=nan", "schedule.lr is nan"),
        ("lr=inf", "schedule.lr is inf"),
        ("lr=1e400", "schedule.lr is inf"),
        ("lr=-0.0", "expected a finite number > 0"),
        ("lr=null", "schedule.lr is None"),
        ("tau=nan", "objective.tau is nan"),
        ("tau=-inf", "objective.tau is -inf"),
        ("tau=1e400", "objective.tau is inf"),
        ("tau=0", "tau is 0"),
        ("tau=true", "tau is True"),
        ("tau=07:32:00", "is the date or time 07:32:00"),
        ("tau=[0.1]", "tau is [0.1]"),
        ("tau={a=1}", "the name of a rule under the key 'rule'"),
        ('tau={rule="pass-rate",scale="x"}', "scale is 'x'"),
        ("tau=" + "[" * 5000, "unknown tau rule"),
        ("objective.name=3", "objective.name is 3"),
        ("objective.name=null", "objective.name is not set"),
        ('objective.name=""', "unknown objective ''"),
        ("env.kind=3", "env.kind is 3"),
        ("env.arms=true", "env.arms is True"),
        ("env.arms=2.0", "env.arms is 2.0"),
        ('env.arms="20"', "env.arms is '20'"),
        ("env.arms=1000000000", "so that the table fits into memory"),
        ("report_to=wandb", "run.report_to is 'wandb'"),
        ("seed=1.5", "run.seed is 1.5"),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(pair, told, tmp_path):
    refused(run("bandit", "needle", "--dry-run", "--set", pair), told)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"),
    [("--steps", value) for value in ("3.7", "1e2", "010", "1_0", "٣", "−3", "0x10", "", "inf", "nan", "9" * 5000)]
    + [("--tau", value) for value in ("", "0,1", "1_0", "٠.٥", "0.1x", "−1", "1e400", "-1")]
    + [("--lr", value) for value in ("", "0,1", "true", "1e", "inf", "nan")]
    + [("--seed", "1.5"), ("--group", "8.0"), ("--out", ""), ("--json", "3")],
)
def test_a_value_of_an_option_is_read_as_it_is_or_not_at_all(option, value, tmp_path):
    """The parser's own reading takes 3.7 for 4 and digits of any script."""
    refused(run("bandit", "needle", "--dry-run", f"{option}={value}"))
    assert not list(tmp_path.iterdir())


def test_numbers_are_read_as_they_are_meant():
    for tau, value in ((".5", 0.5), ("5.", 5.0), ("1e-2", 0.01), ("+1", 1.0)):
        for option in (f"--tau={tau}", f"--set=tau={tau}"):
            outcome = run("bandit", "needle", "--dry-run", option)
            assert json.loads(outcome.out)["objective"]["tau"] == value, (option, outcome.err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "steps=3", "steps=4"],
        ["--set", "steps=3", "--set", "steps=4"],
        ["--set", "steps=3", "schedule.steps=4"],
        ["--steps", "3", "--set", "steps=4"],
        ["--steps", "3", "--set", "schedule.steps=4"],
        ["--tau", "0.1", "--tau", "0.2"],
        ["--objective", "grpo", "--set", "objective.name=rloo"],
    ],
)
def test_a_key_with_two_values_is_refused(arguments):
    outcome = run("bandit", "needle", "--dry-run", *arguments)
    refused(outcome)
    assert "given twice" in outcome.err or "multiple times" in outcome.err


def test_a_key_with_the_same_value_twice_is_that_value():
    outcome = run("bandit", "needle", "--dry-run", "--steps", "3", "--set", "steps=3", "schedule.steps=3")
    assert json.loads(outcome.out)["schedule"]["steps"] == 3


FILES = {
    "not UTF-8": (b"\xff\xfe" + SPEC.encode("utf-16-le"), "is not valid TOML"),
    "bytes that are no text": (SPEC.encode() + b"# \xff\n", "is not valid TOML"),
    "a NUL": (SPEC.encode() + b"x = \0\n", "is not valid TOML"),
    "the same key twice": (SPEC.encode() + b"tau = 0.1\ntau = 0.1\n", "is not valid TOML"),
    "the same table twice": (SPEC.encode() + b"[env]\n", "is not valid TOML"),
    "ten megabytes of arrays": (
        SPEC.encode() + b"tau = " + b"[" * 5_000_000 + b"]" * 5_000_000,
        "expected at most 1,000,000",
    ),
    "arrays without end": (SPEC.encode() + b"tau = " + b"[" * 400_000, "nests values too deeply"),
    "tables in tables": (SPEC.encode() + b"[schedule]\n" + b"a." * 30 + b"a = 1\n", "more than 8 deep"),
    "an integer of ten thousand digits": (SPEC.encode() + b"tau = " + b"9" * 10_000, "is not valid TOML"),
    "nothing": (b"", "has no [env] table"),
    "JSON": (b'{"env": {"kind": "needle"}}', "is not valid TOML"),
    "no kind": (b'[env]\n[objective]\nname = "pmd-mean"\n', "has no kind"),
    "no objective": (b'[env]\nkind = "needle"\n[objective]\n', "objective.name is not set"),
    "a value for a table": (b'env = 3\n[objective]\nname = "pmd-mean"\n', "env is 3; expected a table"),
    "a list of tables": (b'[[env]]\nkind = "needle"\n[objective]\nname = "pmd-mean"\n', "expected a table"),
    "a key outside of tables": (b"steps = 3\n" + SPEC.encode(), "unknown table 'steps'"),
    "an escape sequence": (SPEC.encode() + b'"\\u001b[31mx" = 1\n', "unknown option"),
}


@pytest.mark.parametrize(("data", "told"), FILES.values(), ids=FILES)
def test_a_file_that_is_no_spec_is_refused(data, told, tmp_path):
    (tmp_path / "mine.toml").write_bytes(data)
    outcome = run("bandit", "mine.toml", "--dry-run")
    refused(outcome, told)
    assert outcome.err.rstrip("\n").isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_a_byte_order_mark_is_no_part_of_a_spec(tmp_path):
    (tmp_path / "mine.toml").write_bytes(b"\xef\xbb\xbf" + SPEC.encode())
    assert run("bandit", "mine.toml", "--dry-run").code == 0


def test_a_path_that_is_no_file_is_refused_and_nobody_waits_for_it(tmp_path, hang_ends):
    os.mkfifo("pipe.toml")
    os.mkdir("folder.toml")
    os.symlink("loop.toml", "loop.toml")
    os.symlink("/dev/zero", "endless.toml")
    os.symlink("nowhere", "dangling.toml")
    before = sorted(path.name for path in tmp_path.iterdir())
    missing = ["missing.toml", "x" * 300 + ".toml", "no/such/folder/x.toml", "a\0b.toml", ".toml", "\n.toml"]
    for name in before + missing:
        for tier in ("bandit", "toy", "llm"):
            refused(run(tier, name, "--dry-run"), "spec file")
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize(("tier", "share"), [("bandit", 220), ("toy", 180), ("llm", 100)])
def test_no_configuration_ends_in_a_traceback(tier, share, tmp_path, hang_ends):
    """Exit 0, 2 or 3, one line where it is not 0, and nothing created."""
    signal.alarm(60 + share * scaled(1))
    run(tier, "nothing.toml", "--dry-run")  # what is imported on first use is not the configuration's time
    outcomes = dict.fromkeys((0, 2, 3), 0)
    for number in range(scaled(share)):
        arguments = command(number, tmp_path, tier)
        outcome = run(*arguments)
        assert outcome.code in outcomes, (number, arguments, outcome)
        outcomes[outcome.code] += 1
        if outcome.code:
            refused(outcome, code=outcome.code)
        else:
            json.loads(outcome.out)
        assert [path.name for path in tmp_path.iterdir()] == ["hostile.toml"], (number, arguments)
    assert outcomes[2] > share // 2
    assert outcomes[0] > 0


def test_a_bug_would_be_seen(monkeypatch, tmp_path):
    """The outcome of a TypeError is exit 1, which no configuration may have."""
    from pmdkit import training

    def slip(*arguments):
        raise TypeError("a slip")

    monkeypatch.setattr(training, "resolve_spec", slip)
    assert run("bandit", "needle", "--dry-run").code == 1
    with pytest.raises(TypeError):
        main(["bandit", "needle", "--dry-run", "--debug"])


# Misspelt keys.

ENV = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
SPECS = {"bandit": "needle", "toy": "copy", "llm": "qwen2.5-7b"}


@cache
def spec_of(tier: str) -> Spec:
    """A spec of that tier, read once."""
    return specs.SPECS[tier].read(SPECS[tier])


def hint(told: str) -> str:
    """The name that an error takes the misspelt one for."""
    found = re.search(r"did you mean '([^']+)'", told)
    assert found, told
    return found[1]


def is_meant(typo: str, name: str) -> bool:
    """Whether the typo is one slip of the name, or of its last part."""
    return any(typo in all_slips(part) for part in (name, name.rpartition(".")[2]))


@pytest.mark.parametrize("tier", SPECS)
def test_every_slip_of_every_key_is_refused_with_the_key_that_was_meant(tier):
    """As `--set section.key=1`; a slip that is another key is none."""
    spec = spec_of(tier)
    keys = known_keys(tier, spec.env["kind"], spec.objective["name"])
    bare = {key.partition(".")[2] for key in keys}
    tried = 0
    for key in keys:
        for typo in slips(key, scaled(1)):
            if typo in keys or typo in bare:
                continue
            with pytest.raises(ValueError) as told:
                resolve_spec(spec.override({typo: 1}))
            tried += 1
            section, dot, _ = typo.partition(".")
            if not dot and key.startswith(("env.", "objective.")):
                continue  # which options a problem has besides those in the spec is known by its section alone
            meant = hint(str(told.value))
            assert is_meant(typo, meant) or is_meant(section, meant), (typo, meant)
    assert tried > 40 * len(keys)


@pytest.mark.parametrize("tier", SPECS)
def test_every_slip_of_a_bare_key_is_refused(tier):
    """As `--set key=1`."""
    spec = spec_of(tier)
    tables = spec.tables()
    bare = {name for table in tables.values() if table is not None for name in table}
    for key in sorted(bare):
        for typo in slips(key, scaled(1)):
            if typo in bare:
                continue
            with pytest.raises(ValueError) as told:
                resolve_spec(spec.override({typo: 1}))
            if len(key) > 1:  # of a name of one letter another one is left, or none
                assert is_meant(typo, hint(str(told.value))), typo


@pytest.mark.parametrize("tier", SPECS)
def test_every_slip_in_a_file_is_refused(tier):
    """Keys of every table, and the names of the tables."""
    spec = spec_of(tier)
    tables = find.read(find.spec_file(SPECS[tier], tier))
    known = known_keys(tier, spec.env["kind"], spec.objective["name"])
    for key in known:
        section, _, name = key.partition(".")
        for typo in slips(name, scaled(1)):
            if f"{section}.{typo}" in known:
                continue
            table = {k: v for k, v in tables.get(section, {}).items() if k != name} | {typo: 1}
            with pytest.raises(ValueError, match=r"did you mean|expected") as told:
                resolve_spec(specs.SPECS[tier].build({**tables, section: table}, "mine"))
            if name not in ("kind", "name"):  # without them nobody knows what the other keys may be
                assert is_meant(typo, hint(str(told.value))), typo
    for section in specs.SPECS[tier].known_tables():
        for typo in slips(section, scaled(1)):
            with pytest.raises(ValueError) as told:
                specs.SPECS[tier].build({**tables, typo: tables.get(section, {})}, "mine")
            assert is_meant(typo, hint(str(told.value))), typo


@pytest.mark.nightly
def test_every_slip_of_an_option_is_refused(tmp_path):
    """As `--tau`; a dash may be written as an underscore, and is the same option then."""
    options = [field.name for field in fields(RunOptions)]
    for option in options:
        value = [] if option in ("resume", "json", "dry_run", "record") else ["1"]
        for typo in slips(option, scaled(1)):
            if typo.replace("-", "_") in (*options, "help", "version"):
                continue
            outcome = run("bandit", "needle", "--dry-run", "--" + typo.replace("_", "-"), *value)
            assert outcome.code == 2, typo
            assert f"Unknown option: --{typo.replace('_', '-')}" in outcome.err
            assert re.search(r"Did you mean --[a-z-]+", outcome.err), typo
            assert outcome.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments",
    [
        ["bandit", "needle", "--set", "objective.taw=0.1"],
        ["bandit", "needle", "--taau", "0.1"],
        ["llm", "starter", "--set", "rollout.widht=8"],
        ["toy", "mine.toml"],
    ],
)
def test_a_command_is_refused_in_one_line_and_leaves_nothing(arguments, tmp_path):
    """A process of its own, its imports included."""
    (tmp_path / "mine.toml").write_text('[env]\nkind = "copy"\n[objective]\nname = "pmd-mean"\n[schedule]\nstpes = 3\n')
    done = subprocess.run(
        [sys.executable, "-m", "pmdkit", *arguments], capture_output=True, text=True, timeout=240, env=os.environ | ENV
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "id you mean" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
