"""How the speed of levels of staleness is measured."""

from pmdkit_lab.studies import measurements


def test_speed_measures_every_level_about_as_long_and_in_turns(monkeypatch):
    """Half of the largest level's updates, from one rollout to eight; the levels of a seed follow one another."""
    asked, said = [], []
    monkeypatch.setattr(measurements, "measure", lambda *job: asked.append(job) or {"ms_per_token_rollout": 1.25})
    found = measurements.speed(["copy", "sort"], [1, 4, 16], [7, 8], said.append)
    assert asked == [
        (env, seed, level, turns)
        for env in ("copy", "sort")
        for seed in (7, 8)
        for level, turns in ((1, 8), (4, 2), (16, 1))
    ]
    assert [(run["env"], run["seed"], run["staleness"]) for run in found["runs"]] == [job[:3] for job in asked]
    assert {run["ms_per_token_rollout"] for run in found["runs"]} == {1.25}
    assert said == [f"speed: {env}, seed {seed}" for env in ("copy", "sort") for seed in (7, 8)]
    assert found["format"] == 1
