"""What a resume goes on from, and what it refuses. Kills are in tests/faults."""

import hashlib

import pytest

from pmdkit import train
from pmdkit.errors import ResumeRefused, UsageError
from pmdkit.observe.checkpoint import steps

RECIPE = {"env": "two-hills", "group": 8, "prompts": 16, "ministeps": 4, "seed": 5}


def weights(folder):
    """Digest of the last checkpoint, manifest aside."""
    last = folder / "checkpoints" / f"step-{steps(folder / 'checkpoints')[-1]}"
    digest = hashlib.sha256()
    for path in sorted(last.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def test_a_finished_run_is_left_alone(tmp_path):
    train(out=tmp_path / "run", steps=3, **RECIPE)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*") if p.name != "run.lock"}
    run = train(out=tmp_path / "run", steps=3, resume=True, **RECIPE)
    assert run.summary["steps"] == 3
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "run").rglob("*") if p.name != "run.lock"}


def test_resume_starts_what_never_started(tmp_path):
    run = train(out=tmp_path / "new", steps=2, resume=True, **RECIPE)
    assert run.summary["steps"] == 2
    (tmp_path / "empty").mkdir()
    assert train(out=tmp_path / "empty", steps=2, resume=True, **RECIPE).summary["steps"] == 2


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 6}, "run.seed was 5 and is now 6"),
        ({"group": 16}, "schedule.group was 8 and is now 16"),
        ({"steps": 2}, "schedule.steps was 4 and is now 2"),
        ({"objective": "rloo"}, "objective.name was pmd-mean and is now rloo"),
        ({"env": "needle"}, "holds a run of 'bandit two-hills'"),
    ],
)
def test_resume_of_another_run_is_refused(tmp_path, change, told):
    train(out=tmp_path / "run", steps=4, **RECIPE)
    before = weights(tmp_path / "run")
    with pytest.raises(ResumeRefused, match=told):
        train(out=tmp_path / "run", resume=True, **{**RECIPE, "steps": 4, **change})
    assert weights(tmp_path / "run") == before


def test_a_strange_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    with pytest.raises(UsageError):
        train(out=tmp_path, steps=2, resume=True)
    for text in ("{}", '{"tier": "bandit"}', '{"tier": 1, "tier": 2}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UsageError):
            train(out=tmp_path, steps=2, resume=True)
    assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex", "config.json"}


def test_a_time_limit_ends_behind_a_checkpoint_and_the_run_goes_on_to_the_same_bits(tmp_path):
    """run.max_time may differ on resume: it changes no number."""
    from pmdkit.errors import Stopped

    train(out=tmp_path / "whole", steps=6, **RECIPE)
    with pytest.raises(Stopped, match=r"run\.max_time is near after step 1 of 6"):
        train(out=tmp_path / "short", steps=6, max_time=1e-3, **RECIPE)
    assert steps(tmp_path / "short" / "checkpoints") == [1]
    train(out=tmp_path / "short", steps=6, resume=True, max_time=1e6, **RECIPE)
    assert weights(tmp_path / "short") == weights(tmp_path / "whole")


def test_callbacks_of_ones_own_see_every_step_once_somebody_has_named_their_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from pmdkit.fit import TrainerCallback\n\n\nclass Mine(TrainerCallback):\n"
        "    def on_step_end(self, run, result):\n"
        "        (run.folder.path / f'seen-{result.step}').write_text(str(result.row['reward_mean']))\n"
    )
    options = {"run.callbacks": [f"{file}:Mine"]}
    train(out=tmp_path / "run", steps=2, options=options, **RECIPE)
    assert len(list((tmp_path / "run").glob("seen-*"))) == 2
    with pytest.raises(UsageError):
        train(out=tmp_path / "run", steps=3, resume=True, **RECIPE)
