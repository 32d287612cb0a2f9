"""The scoreboard of doctors: what is stored obeys the protocol, and the page says what is stored."""

import json
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STORED = json.loads((ROOT / "benchmarks" / "results" / "doctors.json").read_text(encoding="utf-8"))


@pytest.fixture
def doctors(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module("doctors")


def test_every_stored_answer_is_judged_by_the_protocol_and_the_page_has_the_tables(doctors):
    """A verdict without a meaning would be a KeyError."""
    for case in STORED["cases"]:
        assert case["said"].keys() == doctors.DOCTORS.keys()
        for doctor, said in case["said"].items():
            assert doctors.outcome(doctor, case, said["named"]) == said["outcome"]
    page = (ROOT / "docs" / "use" / "doctors.md").read_text(encoding="utf-8")
    assert doctors.markdown(STORED["cases"]) in page
    assert f"commit {STORED['versions']['commit']}" in page
    pinned = (ROOT / "requirements" / "doctors.txt").read_text(encoding="utf-8")
    for doctor in doctors.DOCTORS.keys() - {"autopsy, rows", "autopsy, logs"}:
        assert f"{doctor}=={STORED['versions'][doctor]} " in pinned
        assert f"{doctor} {STORED['versions'][doctor]}" in page


def test_the_cases_are_those_that_were_planned(doctors):
    """Fifteen healthy runs and more, and as many faults of at least three makers."""
    cases = import_module("doctors_cases")
    planned = [(source, name, truth.split()) for source, name, truth, *_ in cases.planned(Path())]
    assert planned == [(case["source"], case["name"], case["truth"]) for case in STORED["cases"]]
    healthy = Counter(bool(truth) for _, _, truth in planned)
    assert min(healthy.values()) >= 15
    assert len({source for source, _, truth in planned if truth}) >= 3


RULES = (  # right causes, true remarks, verdicts of rldoctor and whether they are warnings, the outcome
    ("kl-runaway", "", {"kl_drift": True, "plateau": True}, "first"),
    ("kl-runaway", "", {"plateau": True, "kl_drift": True}, "first"),
    ("plateau", "", {"kl_drift": True, "plateau": True}, "later"),
    ("kl-runaway", "", {"kl_drift": False}, "first"),
    ("kl-runaway", "", {"entropy_collapse": True}, "wrong"),
    ("kl-runaway", "", {"entropy_collapse": False}, "nothing"),
    ("kl-runaway", "", {"plateau": True}, "nothing"),
    ("kl-runaway", "", None, "cannot read"),
    ("", "", {"plateau": True}, "alarm"),
    ("", "plateau", {"plateau": True}, "quiet"),
    ("", "", {"plateau": False}, "quiet"),
    ("", "", None, "cannot read"),
)


@pytest.mark.parametrize(("truth", "remarks", "named", "outcome"), RULES)
def test_an_answer_is_judged_by_its_order_and_weight(doctors, truth, remarks, named, outcome):
    case = {"truth": truth.split(), "remarks": remarks.split()}
    assert doctors.outcome("rldoctor", case, named) == outcome


@pytest.mark.slow
def test_the_autopsy_is_asked_in_small(doctors, tmp_path):
    """By the functions of the whole: a rate of 1e-9 is named, a healthy log is not, and a function is no log."""
    made = import_module("doctors_cases").make(tmp_path, None, only="draws")
    asked = [case for case in made if case["name"] in ("tiny rate", "healthy")]
    said = [case["said"] for case in doctors.ask_all(asked, None, ("autopsy, logs", "reward-doctor"))]
    assert [each["autopsy, logs"]["outcome"] for each in said] == ["first", "quiet"]
    assert {each["reward-doctor"]["outcome"] for each in said} == {"cannot read"}


def test_the_page_of_the_autopsy_has_the_stored_outcomes_of_its_logs():
    stored = json.loads((ROOT / "benchmarks" / "results" / "autopsy-logs.json").read_text(encoding="utf-8"))
    n = Counter(each["outcome"] for each in stored)
    faulty, healthy = n["first"] + n["later"] + n["wrong"] + n["nothing"], n["accused"] + n["watched"] + n["quiet"]
    page = (ROOT / "docs" / "use" / "autopsy.md").read_text(encoding="utf-8")
    assert f"| faulty | {faulty} | {n['first']} | {n['later']} | {n['wrong']} | {n['nothing']} | | |" in page
    assert f"| healthy | {healthy} | | | | | {n['accused']} | {n['watched']} |" in page


def test_the_page_of_the_autopsy_has_the_stored_outcomes_of_its_rows():
    stored = json.loads((ROOT / "benchmarks" / "results" / "autopsy.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "use" / "autopsy.md").read_text(encoding="utf-8")
    for half, name in (("build", "half for building"), ("judged", "half that was judged")):
        n = Counter(each["verdict"] for each in stored[half])
        assert f"| {name} | 15 | {n['first']} | {n['second']} | {n['not']} |" in page
        assert (n["right"], n["no"]) == (5, 0)
    assert [each["verdict"] for each in stored["long"]] == ["first"] * 2 + ["right"] * 4
