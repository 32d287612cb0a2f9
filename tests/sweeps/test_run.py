"""A sweep survives failing runs, and a strange folder is left alone."""

import pytest

from pmdkit.errors import UsageError
from pmdkit.sweeps import record
from pmdkit.sweeps.compare import collect
from pmdkit.sweeps.grid import expand
from pmdkit.sweeps.run import sweep

DIVERGES = {
    "schedule.prompts": 2, "schedule.ministeps": 2, "schedule.steps": 2, "schedule.update": "gradient",
    "schedule.optimizer": "sgd",
}  # fmt: skip


@pytest.mark.slow  # several processes that import torch
def test_a_failing_run_is_recorded_and_the_others_go_on(tmp_path):
    points = expand("bandit", "needle", {"schedule.lr": [0.1, 1e200]}, [0], DIVERGES)
    result = sweep(points, tmp_path / "sweep", "sweep", {})
    good, bad = result["runs"]
    assert (good["state"], bad["state"]) == ("finished", "failed")
    assert "loss is inf" in bad["reason"]
    entries, skipped = collect([tmp_path / "sweep" / "sweep.json"])
    assert len(entries) == 1
    assert skipped == [bad["name"]]
    by_folder, _ = collect([tmp_path / "sweep"])
    assert by_folder[0]["config"] == entries[0]["config"]
    assert record.rounded(by_folder[0]["summary"]) == entries[0]["summary"]


def test_a_strange_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    for resume in (True, False):
        with pytest.raises(UsageError):
            sweep(expand("bandit", "needle", {}, [0], {}), tmp_path, "sweep", {}, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
