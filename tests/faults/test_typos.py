"""A misspelt key never passes for none: whatever slip of whatever key, in a file, after --set or as an option."""

import os
import re
import subprocess
import sys
from dataclasses import fields
from functools import cache

import pytest

from pmdkit import spec_files
from pmdkit.cli.options import RunOptions
from pmdkit.config import TABLES, Spec
from pmdkit.training import resolve_spec

from .configs import known_keys, run
from .scale import scaled
from .typos import all_slips, slips

ENV = {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
SPECS = {"bandit": "needle", "toy": "copy", "llm": "qwen2.5-7b"}


@cache
def spec_of(tier: str) -> Spec:
    """A spec of that tier, read once."""
    return Spec.read(SPECS[tier], tier)


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
    tables = spec_files.read(spec_files.find(SPECS[tier], tier))
    known = known_keys(tier, spec.env["kind"], spec.objective["name"])
    for key in known:
        section, _, name = key.partition(".")
        for typo in slips(name, scaled(1)):
            if f"{section}.{typo}" in known:
                continue
            table = {k: v for k, v in tables.get(section, {}).items() if k != name} | {typo: 1}
            with pytest.raises(ValueError, match=r"did you mean|expected") as told:
                resolve_spec(Spec.build({**tables, section: table}, tier, "mine"))
            if name not in ("kind", "name"):  # without them nobody knows what the other keys may be
                assert is_meant(typo, hint(str(told.value))), typo
    for section in TABLES[tier]:
        for typo in slips(section, scaled(1)):
            with pytest.raises(ValueError) as told:
                Spec.build({**tables, typo: tables.get(section, {})}, tier, "mine")
            assert is_meant(typo, hint(str(told.value))), typo


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
def test_a_command_is_refused_in_two_seconds_and_leaves_nothing(arguments, tmp_path):
    """A process of its own, its imports included; in seconds of the processor, and twice as many for a slow one."""
    (tmp_path / "mine.toml").write_text('[env]\nkind = "copy"\n[objective]\nname = "pmd-mean"\n[schedule]\nstpes = 3\n')
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "pmdkit", *arguments], capture_output=True, text=True, timeout=240, env=os.environ | ENV
    )
    after = os.times()
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "id you mean" in done.stderr
    assert after.children_user + after.children_system - before.children_user - before.children_system < 4
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]
