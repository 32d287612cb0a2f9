"""Extras: remedies can be copied and install what is asked for. `tools/wheel.sh` uses the base without torch."""

import json

import pytest

from pmdkit import extras
from pmdkit.cli.doctor import unmet
from pmdkit.errors import EnvironmentLacks


def test_a_remedy_outside_a_checkout_names_what_is_missing_and_never_pmdkit(monkeypatch, tmp_path):
    """The name pmdkit on an index need not be ours: whoever registered it would be installed."""
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    monkeypatch.setitem(extras.EXTRAS, "llm", ("torch", "absent_one", "absent_two"))
    assert extras.remedy("llm") == "pip install absent_one absent_two"
    assert extras.install("pmdkit-lab").startswith("pip install pmdkit_lab-*.whl")
    with pytest.raises(EnvironmentLacks, match=r"to_pandas needs absent\.inner, .* install absent here"):
        extras.need("absent.inner", "to_pandas")


def test_the_extras_of_pyproject_hold_the_modules_that_are_asked_for():
    import tomllib

    file = extras.CHECKOUT / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"]
    for extra, modules in extras.EXTRAS.items():
        wanted = " ".join(project["optional-dependencies"][extra]).replace("-", "_")
        for module in modules:
            assert module in wanted, (extra, module)
    base = [line.split(">")[0] for line in project["dependencies"]]
    assert not {"torch", "gymnasium", "transformers"} & set(base), json.dumps(base)


def test_doctor_names_what_a_vllm_asks_for_and_does_not_get(tmp_path, monkeypatch):
    folder = tmp_path / "vllm-0.33.0.dist-info"
    folder.mkdir()
    lines = [
        "Name: vllm",
        "Version: 0.33.0",
        "Requires-Dist: torch==1.0",
        "Requires-Dist: numpy",
        "Requires-Dist: flashinfer==1",
    ]
    (folder / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert unmet("vllm") == ["torch==1.0, not " + extras.version_of("torch")]
    assert unmet("no-such-package") == []
