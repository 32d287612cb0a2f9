"""The lecturer's half-semester: answers are computed twice, weights and minutes add up, the leaderboard races."""

import csv
import io
import json
import math
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import lambertw

import pmdkit_course as learn
from pmdkit import theory
from pmdkit.errors import UsageError
from pmdkit.objectives import load_objective
from pmdkit_course import exports
from pmdkit_course.exercises import lessons, of_lesson
from pmdkit_course.grading import ABSENT
from pmdkit_course.kit import exam, exam_pictures, read_toml, syllabus, weeks
from pmdkit_lab import ratio_form

HERE = Path(learn.__file__).parent
EXAM = read_toml("exam.toml")
QUESTIONS, PREREQUISITES = EXAM["question"], EXAM["prerequisite"]
PLAN = read_toml("half_semester.toml")
PROJECT = HERE / "kit_files" / "project"
BY_HAND = {name: getattr(math, name) for name in ("e", "exp", "log", "sqrt", "pi", "ceil")}
BY_HAND |= {"brentq": brentq, "lambertw": lambertw, "stats": stats, "sum": sum, "range": range}


@pytest.mark.parametrize("asked", [*QUESTIONS, *PREREQUISITES], ids=lambda asked: asked["question"][:30])
def test_an_answer_is_what_two_computations_say(asked):
    """The printed digits agree with the formula of the answer and with pmdkit.theory, which share no code; a function
    that is to be debugged runs, and gives what the answer says."""
    names = {
        "theory": theory,
        "ratio_form": ratio_form,
        "np": np,
        "stats": stats,
        "brentq": brentq,
        "quad": quad,
        "asked": asked,
    }
    exec(asked.get("code", ""), names)
    names["code"] = list(names.values())[-1]
    (printed,) = re.findall(r"\*\*([-\d.e]+)\*\*", asked["answer"])
    by_hand = float(eval(asked["by_hand"], {"__builtins__": {}} | BY_HAND))
    again = float(eval(asked["again"], names))
    assert by_hand == pytest.approx(again, rel=2e-4)
    digits = len(re.sub(r"e.*|[-.]", "", printed).lstrip("0"))
    for value in (by_hand, again):
        assert float(f"{value:.{digits}g}") == pytest.approx(float(printed), rel=1e-9), value


def test_a_third_of_the_exam_is_no_number_and_every_question_has_its_points():
    assert len(QUESTIONS) == len({asked["question"] for asked in QUESTIONS}) == 30
    assert {asked["week"] for asked in QUESTIONS} == set(range(1, len(weeks()) + 1))
    open_ones = [asked for asked in QUESTIONS if asked["kind"] != "number"]
    assert {asked["kind"] for asked in open_ones} == {"derive", "debug", "picture", "claim"}
    assert 3 * len(open_ones) >= len(QUESTIONS)
    text, paper = exam(), exam(answers=False)
    for asked in QUESTIONS:
        assert 2 <= sum(points for points, _ in asked["rubric"]) <= 7
        assert asked["question"] in text
        assert asked["question"] in paper
        assert asked["answer"] in text
        assert asked["answer"] not in paper
    assert set(re.findall(r"\((\d\.\d\.svg)\)", paper)) == exam_pictures().keys()


def test_the_plan_holds_every_lesson_once_and_ninety_minutes_a_session_and_marks_of_a_hundred():
    planned = [each for week in weeks() for each in week["lessons"]]
    assert sorted(planned) == [number for number in lessons() if number != "100"]
    assert max(len(week["lessons"]) for week in weeks()) < 5
    assert {sum(session["minutes"].values()) for week in weeks() for session in week["sessions"]} == {90}
    project = (PROJECT / "README.md").read_text(encoding="utf-8")
    assert sum(map(int, re.findall(r"\| (\d+) % \|", project))) == sum(PLAN["grading"].values()) == 100
    assert "L103, L104" in syllabus("L{0}").splitlines()[4]


def test_the_good_report_quotes_its_race_its_theorem_and_its_row():
    text = " ".join((PROJECT / "reports" / "good.md").read_text(encoding="utf-8").split())
    record = json.loads((PROJECT / "reports" / "race.json").read_text(encoding="utf-8"))
    (own,) = (row for row in record["tables"]["bandit"] if row.get("yours"))
    (mean,) = (row for row in record["tables"]["bandit"] if row["method"] == "pmd-mean")
    ends = ["{mean:.3f} [{low:.3f}, {high:.3f}]".format(**row["auc"]) for row in (mean, own)]
    assert f"| {ends[0]} | {ends[1]} |" in text
    assert np.mean([run["auc"] for run in record["runs"]]) == pytest.approx(own["auc"]["mean"], abs=1e-6)
    assert f"| {mean['final']['mean']:.3f} | {own['final']['mean']:.3f} |" in text
    assert f"| {100 * mean['volume']:.0f} % | {100 * own['volume']:.0f} % |" in text
    gain = "{mean:+.3f} [{low:+.3f}, {high:+.3f}]".format(**own["gain"])
    assert f"The gain is {gain}: **{own['outcome']}**" in text
    ahead = [mine > his for mine, his in record["equal settings"]]
    assert f"ahead in {sum(ahead)} of {len(ahead)}" in text
    assert f"seed 0 gave {record['again']['bandit']['here']:.4f} here" in text

    def closed(p, c, tau=0.05):
        """1 - the ratio of a wrong response, with its weight c."""

        def ratio(x, delta, w):
            return np.exp(delta / tau - lambertw(x / w * np.exp(delta / tau)).real)

        x = brentq(lambda x: p * ratio(x, 1 - p, 1) + (1 - p) * ratio(x, -p, c) - 1, 1e-9, 50)
        return 1 - ratio(x, -p, c)

    for p in (0.01, 0.1):
        assert closed(p, 1) == pytest.approx(float(theory.binary(p, 0.05).eta), abs=1e-9)
        assert f"{closed(p, 0.25):.3f}" in text
        assert f"{closed(p, 1):.3f}" in text
    loss = load_objective(f"{PROJECT / 'losses' / 'lenient.py'}:Lenient")
    row = SimpleNamespace(advantage=torch.tensor([-1 / 3]), tau=0.05, seq_log_ratio=torch.tensor([-0.1]))
    assert f"= {loss.loss(row).item():.4f}$" in text
    for name in ("good", "bad"):
        heading, *marks = re.findall(r"\b(\d+) of \d+(?:\n|\.\*\*)", (PROJECT / "reports" / f"{name}.md").read_text())
        assert int(heading) == sum(map(int, marks)), name
        assert len(marks) == 4


SMALL = """
import json, sys
from dataclasses import replace
from pathlib import Path
from pmdkit.cli import main
from pmdkit_lab.studies import entrant, race
whole, standings = race.read_protocol(), Path(__file__).with_name("standings.json")
options = {"env.arms": 8, "env.contexts": 4, "env.dim": 4, "env.traps": 0, "schedule.group": 4, "schedule.steps": 3}
options |= {"schedule.update": "gradient"}
task = replace(whole.tasks[0], points=2, updates=(1,), seeds=2, tuning=1, options=options)
small = replace(whole, methods=whole.methods[:2], tasks=(task,))
race.read_protocol, entrant.STANDINGS = lambda short=False: small, standings
if not standings.exists():
    standings.write_text(json.dumps(entrant.standings(race.race(standings.with_name("stored"), small))))
sys.argv[1:1] = ["race"]
main()
"""
LOSS = """
from dataclasses import dataclass
from pmdkit.objectives import PMDMean

@dataclass(frozen=True)
class Own(PMDMean):
    def loss(self, batch):
        return {sign} * super().loss(batch)
"""


@pytest.mark.slow
def test_a_leaderboard_ranks_the_losses_of_a_class_and_a_broken_file_costs_its_row(tmp_path):
    """`pmdkit race` itself, under a small protocol: PMD-mean's own square gains 0, and its negative loses."""
    (tmp_path / "small.py").write_text(SMALL)
    own = tmp_path / "losses"
    own.mkdir()
    for name, text in {
        "away": LOSS.format(sign=-1),
        "level": LOSS.format(sign=1),
        "a": "class A: pass",
        "b": "(",
    }.items():
        (own / f"{name}.py").write_text(text)
    names = runpy.run_path(str(PROJECT / "leaderboard.py"))
    call = (own, tmp_path / "out", "10m", (sys.executable, str(tmp_path / "small.py")))
    lines = names["main"](*call).splitlines()
    assert [line.split(" |")[0] for line in lines[2:6]] == ["| level", "| away", "| a", "| b"]
    assert "+0.000 [+0.000, +0.000]" in lines[2]
    assert float(lines[3].split("|")[-2]) < 0
    assert {line.count("|") for line in lines[:6]} == {4}
    for name in ("away", "a", "b"):
        (own / f"{name}.py").unlink()
    (journal,) = (tmp_path / "out").glob("level-*/runs.jsonl")
    before = journal.read_bytes()
    assert names["main"](*call).splitlines()[2] == lines[2]
    assert journal.read_bytes() == before, "nothing is run twice"


ROWS = [
    {"student": "ada", "exercise": "103.1", "right": True, "verdict": "Right.", "seconds": 0.5},
    {"student": "ada", "exercise": "103.2", "right": False, "verdict": "Not this.", "seconds": 0.5},
    {"student": "ada", "exercise": "", "right": False, "verdict": "b.py is a link.", "seconds": 0.0},
]


FIELDS = {
    "score", "max_score", "status", "name", "name_format", "number", "output", "output_format", "tags", "visibility",
    "extra_data",
}  # fmt: skip
"""Of a test in results.json, as gradescope-autograders.readthedocs.io/en/latest/specs had them in January 2025."""


def piped(monkeypatch, rows, *words):
    monkeypatch.setattr("sys.stdin", io.StringIO(rows if isinstance(rows, str) else json.dumps(rows)))
    return exports.main(words)


def test_gradescope_reads_points_and_sentences(monkeypatch):
    found = json.loads(piped(monkeypatch, ROWS, "gradescope", "103"))
    asked = of_lesson("103")
    assert [test["number"] for test in found["tests"]] == [each.id for each in asked]
    assert [test["max_score"] for test in found["tests"]] == [each.difficulty for each in asked]
    said = {"103.1": "Right.", "103.2": "Not this."}
    right = [each.id == "103.1" for each in asked]
    assert [test["score"] for test in found["tests"]] == [
        r * each.difficulty for r, each in zip(right, asked, strict=True)
    ]
    assert [test["status"] for test in found["tests"]] == ["passed" if each else "failed" for each in right]
    assert [test["output"] for test in found["tests"]] == [said.get(each.id, ABSENT) for each in asked]
    assert found["output"] == "b.py is a link."
    assert all(test.keys() <= FIELDS and isinstance(test["number"], str) for test in found["tests"])
    visible = {"hidden", "after_due_date", "after_published", "visible"}
    assert {found["stdout_visibility"], *(test["visibility"] for test in found["tests"])} <= visible
    nothing = json.loads(piped(monkeypatch, [], "gradescope", "103.1"))
    assert (nothing["tests"][0]["score"], nothing["tests"][0]["output"]) == (0, ABSENT)


def test_nbgraders_columns_have_a_line_for_each_lesson_and_student(monkeypatch):
    other = {"student": "=bob", "exercise": "102.1", "right": True, "verdict": "Right.", "seconds": 1}
    rows = list(csv.DictReader(io.StringIO(piped(monkeypatch, [*ROWS, other], "nbgrader", "102", "103"))))
    assert [(row["assignment"], row["student_id"]) for row in rows] == [
        (lesson, student) for lesson in ("102_one_step", "103_hidden_regulariser") for student in ("ada", "'=bob")
    ]
    assert [float(row["score"]) for row in rows] == [
        0, learn.exercise("102.1").difficulty, learn.exercise("103.1").difficulty, 0,
    ]  # fmt: skip
    assert {float(row["max_score"]) for row in rows[2:]} == {sum(each.difficulty for each in of_lesson("103"))}


@pytest.mark.parametrize(
    "words", [(), ("moodle", "103"), ("gradescope",), ("gradescope", "999"), ("gradescope", "103")]
)
def test_what_cannot_be_exported_is_refused(monkeypatch, words):
    with pytest.raises(UsageError):
        piped(monkeypatch, "not JSON" if len(words) == 2 else ROWS, *words)
    with pytest.raises(UsageError):
        exports.gradescope([*ROWS, ROWS[0] | {"student": "bob"}], of_lesson("103"))
