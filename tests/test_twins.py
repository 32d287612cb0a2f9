"""The page of twins shows the numbers of its record, and the record counts the programs that are there."""

import importlib.util
import json
import sys
import tomllib

import pytest

from .test_rules import ROOT

RECORD = json.loads((ROOT / "benchmarks" / "results" / "twins.json").read_text())
PAGE = (ROOT / "docs" / "use" / "twins.md").read_text()
TASKS = {"format": "format reward", "calculator": "calculator"}
SIDES = {"pmdkit": "pmdkit", "trl": "TRL 1.16"}


@pytest.fixture(scope="module")
def twins():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        spec = importlib.util.spec_from_file_location("twins_benchmark", ROOT / "benchmarks" / "twins.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))


def test_the_table_is_that_of_the_readings(twins):
    assert twins.table(RECORD["readings"]) == RECORD["table"]
    assert RECORD["versions"]["trl"].startswith("1.16.")
    for task, name in TASKS.items():
        for side, title in SIDES.items():
            row = RECORD["table"][task][side]
            line = f"| {name} | {title} | {row['lines']} | {row['cpu']:.0f} | {row['first']:.2f} | {row['last']:.2f} |"
            assert line in PAGE, line


def test_both_sides_train_on_the_same_schedule(twins):
    for task, sides in twins.PROGRAMS.items():
        recipe = tomllib.loads((ROOT / "benchmarks" / "twins" / sides["pmdkit"][0]).read_text())
        program = (ROOT / "benchmarks" / "twins" / sides["trl"][0]).read_text()
        schedule = recipe["schedule"]
        for said in (
            f"max_steps={schedule['steps']}",
            f"num_generations={schedule['group']}",
            f"per_device_train_batch_size={schedule['prompts'] * schedule['group']}",
            f"max_completion_length={recipe['rollout']['width']}",
        ):
            assert f"{said}," in program, (task, said)
        assert float(program.partition("learning_rate=")[2].partition(",")[0]) == schedule["lr"]
        assert recipe["objective"]["name"] == "grpo"
