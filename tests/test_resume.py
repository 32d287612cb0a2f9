"""What a resume goes on from, and what it refuses. Kills are in tests/faults."""

import hashlib
import re
from types import SimpleNamespace

import pytest

from pmdkit import fit, train
from pmdkit.errors import ResumeRefused, Stopped, UsageError
from pmdkit.fit import Display
from pmdkit.observe.checkpoint import steps
from pmdkit.observe.run_folder import RunFolder, flatten
from pmdkit.plugins import NOTHING
from pmdkit.resolve import read_spec
from pmdkit.start import check_same_run

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


MAY_DIFFER = {"schedule.steps", "run.max_time", "remote.url"}


@pytest.mark.parametrize("name", ["bandit needle", "toy modular-sum", "llm qwen2.5-7b"])
def test_any_option_but_a_few_is_the_same_on_a_resume(name, tmp_path):
    """Every key of the resolved configuration, changed alone; more steps may follow, fewer may not."""
    stored = read_spec(*name.split(), NOTHING)
    keys = dict(flatten(stored.record()))
    assert keys.keys() >= {"schedule.lr", "run.seed", "run.record", "objective.name", "env.kind"}
    for key, value in [*keys.items(), ("schedule.steps", keys["schedule.steps"] - 2)]:
        changed = stored.record()
        *path, last = key.split(".")
        place = changed
        for part in path:
            place = place[part]
        place[last] = value + 1 if isinstance(value, int | float) else "another"
        resumed = SimpleNamespace(record=lambda changed=changed: changed)
        fewer = key == "schedule.steps" and place[last] < keys[key]
        if (key in MAY_DIFFER and not fewer) or key.startswith("parallel."):
            check_same_run(stored, resumed, RunFolder(tmp_path), Display())
        else:
            with pytest.raises(ResumeRefused, match=rf"{re.escape(key)} was "):
                check_same_run(stored, resumed, RunFolder(tmp_path), Display())


def test_resume_of_another_run_is_refused(tmp_path):
    train(out=tmp_path / "run", steps=4, **RECIPE)
    before = weights(tmp_path / "run")
    with pytest.raises(ResumeRefused, match=r"schedule\.lr was 0\.05 and is now 0.1"):
        train(out=tmp_path / "run", resume=True, steps=4, lr=0.1, **RECIPE)
    with pytest.raises(ResumeRefused, match="holds a run of 'bandit two-hills'"):
        train(out=tmp_path / "run", resume=True, steps=4, **RECIPE | {"env": "needle"})
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
    train(out=tmp_path / "whole", steps=6, **RECIPE)
    with pytest.raises(Stopped, match=r"run\.max_time is near after step 1 of 6"):
        train(out=tmp_path / "short", steps=6, max_time=1e-3, **RECIPE)
    assert steps(tmp_path / "short" / "checkpoints") == [1]
    train(out=tmp_path / "short", steps=6, resume=True, max_time=1e6, **RECIPE)
    assert weights(tmp_path / "short") == weights(tmp_path / "whole")


@pytest.mark.parametrize(("limit", "last"), [(9.0, 6), (6.5, 5), (4.5, 3)])
def test_a_time_limit_leaves_room_for_another_step_of_twice_the_length(limit, last, tmp_path, monkeypatch):
    """By a clock on which a step takes a second: after step s it is s, and another begins if s + 2 is in the limit."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(fit.time, "monotonic", lambda: clock.now)
    real = Display.show

    def tick(self, row):
        clock.now += 1.0
        real(self, row)

    monkeypatch.setattr(Display, "show", tick)
    if last == 6:
        train(out=tmp_path / "run", steps=6, max_time=limit, **RECIPE)
    else:
        with pytest.raises(Stopped, match=f"after step {last} of 6"):
            train(out=tmp_path / "run", steps=6, max_time=limit, **RECIPE)
    assert steps(tmp_path / "run" / "checkpoints")[-1] == last


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
