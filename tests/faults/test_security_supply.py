"""Where the environment comes from: pins have hashes and lie in bounds, a changed file is refused, silence is told."""

import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def audit():
    """requirements/audit.py as a module."""
    spec = importlib.util.spec_from_file_location("audit", ROOT / "requirements" / "audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_pin_has_its_hashes_and_lies_in_its_bounds(audit, project):
    constraints = audit.pins(ROOT / "constraints.txt")
    assert len(constraints) > 150
    locks = [ROOT / "requirements" / name for name in ("hashes.txt", "torch.txt")]
    assert audit.wrong_locks(constraints, *locks) == []
    assert audit.wrong_bounds(constraints, project) == []
    own = audit.hashes(ROOT / "requirements" / "audit.txt")
    assert own["pip-audit"] > 0
    assert min(own.values()) > 0


def test_a_lock_that_was_left_behind_is_seen(audit, project, tmp_path):
    lock = tmp_path / "hashes.txt"
    some = "a" * 64
    lock.write_text(
        f"# of all\nold==1.0 \\\n    --hash=sha256:{some}\nbare==2.0\nextra==1 \\\n    --hash=sha256:{some}\n"
    )
    told = audit.wrong_locks({"old": "1.1", "bare": "2.0", "new": "3.0"}, lock)
    assert [line.split()[0] for line in told] == ["old", "new", "extra", "bare"]
    project = {"dependencies": ["old>=1.2", "bare<2", "free"], "optional-dependencies": {"all": ["pmdkit[llm]"]}}
    told = audit.wrong_bounds({"old": "1.10", "bare": "2.0"}, project)
    assert [line.split()[0] for line in told] == ["bare<2", "bare", "free"]
    assert audit.wrong_versions({}), "nothing that is installed here was tested"


SAYS = {
    "nothing is known of the canary": ({"jinja2": []}, None, 3, "it knows of no hole"),
    "the service does not answer": (None, None, 3, "does not know jinja2"),
    "it stops in the middle": ({"jinja2": ["CVE-1"]}, None, 3, "does not know numpy"),
    "all is well": ({"jinja2": ["CVE-1"]}, {"numpy": []}, 0, ""),
    "a hole": ({"jinja2": ["CVE-1"]}, {"numpy": ["CVE-2", "CVE-3"]}, 4, "numpy 2.0: CVE-2, CVE-3"),
}


@pytest.mark.parametrize("case", SAYS)
def test_an_audit_that_could_not_ask_does_not_pass(audit, case, tmp_path, monkeypatch):
    """A stand-in for pip-audit answers as the real one does, in its JSON; None is its answer without the service."""
    canary, rest, code, told = SAYS[case]
    stand_in = tmp_path / "pip-audit"
    stand_in.write_text(
        f"import json, sys\nasked = open(sys.argv[-1]).read().split('==')[0]\n"
        f"known = {{'jinja2': {canary!r}, 'numpy': {rest!r}}}[asked]\n"
        "one = {'name': asked, 'skip_reason': 'not found'} if known is None else "
        "{'name': asked, 'vulns': [{'id': i} for i in known[asked]]}\n"
        "print(json.dumps({'dependencies': [one]}))\n"
        "sys.exit(1 if known and known[asked] else 0)\n"
    )
    monkeypatch.setattr(audit, "AUDIT", [sys.executable, str(stand_in)])
    found, lines = audit.vulnerable({"numpy": "2.0"})
    assert found == code
    assert told in " ".join(lines)


def test_without_pip_audit_nobody_is_asked(audit, monkeypatch, tmp_path):
    monkeypatch.setattr(audit, "AUDIT", [str(tmp_path / "nothing")])
    assert audit.vulnerable({"numpy": "2.0"})[0] == 3
    monkeypatch.setattr(audit, "AUDIT", [sys.executable, "-c", "import sys; sys.exit('no network')"])
    assert audit.vulnerable({"numpy": "2.0"}) == (3, ["nobody could be asked for vulnerabilities: no network"])


def test_ci_installs_by_hash_before_it_tests():
    """And with options that check every file, take no source distribution, and add nothing that is not listed."""
    ci = (ROOT / ".ci" / "run").read_text()
    assert ci.index("make hashed") < ci.index("requirements/audit.py") < ci.index("make test")
    assert {"--require-hashes", "--no-deps", "--only-binary"} <= set(options())


def options():
    """The options of pip in the Makefile."""
    line = re.search(r"^HASHED := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1]
    return [word for word in line.split() if word != "$(PIP_FLAGS)"]


def wheel(folder, text):
    """A wheel whose one module holds a text."""
    folder.mkdir()
    path = folder / "planted-1.0-py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n", "RECORD": ""}
    about["WHEEL"] = "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("planted.py", text)
        for name, content in about.items():
            archive.writestr(f"planted-1.0.dist-info/{name}", content)
    return path


def test_a_changed_file_is_refused(tmp_path):
    """The very options of `make hashed`: the right wheel installs, another of the same name and version does not."""
    import hashlib

    good = wheel(tmp_path / "good", "x = 1")
    wheel(tmp_path / "bad", "x = 2")
    lock = tmp_path / "hashes.txt"
    lock.write_text(f"planted==1.0 --hash=sha256:{hashlib.sha256(good.read_bytes()).hexdigest()}\n")
    for folder, code in (("bad", 1), ("good", 0)):
        out = tmp_path / f"out-{folder}"
        pip = [sys.executable, "-m", "pip", "install", *options(), "--isolated", "--no-index", "--no-cache-dir"]
        places = ["--find-links", str(tmp_path / folder), "--target", str(out), "-r", str(lock)]
        done = subprocess.run([*pip, *places], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert (out / "planted.py").exists() == (code == 0)
