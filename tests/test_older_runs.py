"""Runs that an earlier pmdkit left behind: they resume to the same bits, and can be replayed, evaluated and drawn.

The earlier code is taken from the repository's own history and run as it was; nothing here is made by hand.
"""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from tests.nightly import mostly_nightly

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
COMMIT = "69cf9e0f6cd337b1a9812ee841a54ede0643cfbc"  # the last one before modules moved
NEW = {"skipped_updates"}  # columns that the earlier code did not have
QUICK = (
    "warm_start.pass_rate=0.3 schedule.prompts=8 schedule.group=4 evaluation.problems=8 "
    "rollout.lag=1 rollout.record_every=1"
)
RUNS = {
    "bandit": ("bandit pass-rates --group 16", 3, 6),
    "toy": ("toy modular-sum", 3, 6),
    "llm": ("llm starter --ministeps 2 " + " ".join(f"--set {option}" for option in QUICK.split()), 2, 4),
}


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the earlier commit, as files."""
    folder = tmp_path_factory.mktemp("earlier")
    found = subprocess.run(
        ["git", "-C", str(ROOT), "archive", COMMIT, "pmdkit", "envs", "llm"], capture_output=True, check=False
    )
    if found.returncode:
        pytest.skip("the earlier commit is not in this checkout's history")
    with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def pmdkit(code: Path, *words: str) -> str:
    """Standard output of a command, run by the code that lies in a folder."""
    environment = os.environ | {"PYTHONPATH": str(code), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pmdkit", *words], cwd=code, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def metrics(run: Path) -> list[dict]:
    """The rows of a run without what depends on the clock or the machine."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: v for key, v in row.items() if "second" not in key and "memory" not in key} for row in rows]


def weights(run: Path) -> dict[str, str]:
    """A digest of each tensor of the newest checkpoint."""
    newest = max((run / "checkpoints").glob("step-*"), key=lambda path: int(path.name.split("-")[1]))
    return {
        name: hashlib.sha256(tensor.tobytes()).hexdigest()
        for path in sorted(newest.rglob("model*.safetensors"))
        for name, tensor in load_file(path).items()
    }


def recorded(run: Path) -> dict[str, object]:
    """What each file of recorded steps holds; what a verdict says in words has changed, verdicts must not."""
    return {path.name: contents(path) for path in sorted((run / "rollouts").iterdir())}


def contents(path: Path) -> object:
    """Tensors by digest and what is told of them, without the count of skipped updates, which is new; or a digest."""
    if path.suffix != ".safetensors":
        return hashlib.sha256(re.sub(rb', "reason": "(?:[^"\\\\]|\\\\.)*"', b"", path.read_bytes())).hexdigest()
    with safe_open(path, "np") as file:
        about = json.loads(file.metadata()["pmdkit"])["about"]
    for update in about["updates"]:
        assert not update.pop("skipped", 0)
    return about, {name: hashlib.sha256(tensor.tobytes()).hexdigest() for name, tensor in load_file(path).items()}


@pytest.mark.parametrize("tier", mostly_nightly(RUNS, "bandit"))
def test_an_older_run_goes_on_as_its_own_code_would(tier: str, earlier: Path, tmp_path: Path) -> None:
    """Weights, metrics and recordings after a resume are the same bits under the earlier code and under this one."""
    words, first, last = RUNS[tier]
    before, now = tmp_path / "before", tmp_path / "now"
    start = [*words.split(), "--set", "run.record=1"]
    pmdkit(earlier, *start, "--steps", str(first), "--out", str(before))
    shutil.copytree(before, now)
    resume = [*start, "--steps", str(last), "--resume", "--out"]
    pmdkit(earlier, *resume, str(before))
    pmdkit(ROOT, *resume, str(now))
    assert len(metrics(now)) == last
    for row, older in zip(metrics(now), metrics(before), strict=True):
        assert {key: row[key] for key in older} == older
        assert row.keys() - older.keys() <= NEW
        assert not row.get("skipped_updates"), "an update that is only rounding was made then, and would not be now"
    assert weights(now) == weights(before)
    assert recorded(now) == recorded(before)
    # what the earlier code recorded answers the same question the same way
    ask = ["--step", str(first), "--objective", "pmd-part", "--json"]
    assert json.loads(pmdkit(ROOT, "replay", str(before), *ask)) == json.loads(
        pmdkit(earlier, "replay", str(before), *ask)
    )
    subprocess.run(
        [sys.executable, "-c", "import sys; from pmdkit.training import Run; Run(sys.argv[1]).figure()", str(before)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"},
        check=True,
    )
