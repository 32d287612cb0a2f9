"""Published runs that the planner is held against, and which of them its constants were taken from."""

import json
from pathlib import Path

ROWS = [json.loads(line) for line in (Path(__file__).parent / "published.jsonl").read_text().splitlines()]
COUNTED = [row for row in ROWS if "left_out" not in row]


def test_every_other_run_by_name_is_calibrated_on_and_the_rest_are_checked():
    """The rule was committed before any constant was fitted: sorted by name, the second, fourth, ... calibrate."""
    names = [row["id"] for row in ROWS]
    assert names == sorted(set(names))
    assert [row["split"] for row in COUNTED] == [("check", "calibrate")[n % 2] for n in range(len(COUNTED))]
    assert all(row["source"] and row["framework"] and row["model"] for row in ROWS)
    assert all("split" not in row for row in ROWS if "left_out" in row)
