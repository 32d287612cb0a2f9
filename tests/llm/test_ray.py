"""llm/cluster/on_ray.py on a real Ray: two raylets on this machine stand for two machines of a cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[2]
TINY = str(Path(__file__).with_name("tiny.toml"))
PATHS = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.fixture(scope="module")
def cluster():
    """The address of a Ray with two nodes of one core."""
    from ray.cluster_utils import Cluster  # here, since it takes seconds to import

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(num_cpus=1)
    yield made.address
    made.shutdown()


def start(cluster, *arguments, machines=2):
    """Exit code, stdout and stderr of the launch file."""
    command = [sys.executable, str(ROOT / "llm" / "cluster" / "on_ray.py"), "--machines", str(machines), "--gpus", "0"]
    environment = {**os.environ, "RAY_ADDRESS": cluster, "PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True, timeout=180)
    return done.returncode, done.stdout, done.stderr


def test_two_machines_of_ray_learn_together_and_a_mistake_ends_it(cluster, tmp_path):
    out = tmp_path / "run"
    options = [TINY, "--steps", "2", "--resume", "--out", str(out), "--set", "model.device=cpu", "evaluation.every=0"]
    code, _, told = start(cluster, "--max-restarts", "1", *options)
    assert code == 0, told
    assert json.loads((out / "config.json").read_text())["parallel"]["processes"] == 2
    assert (out / "checkpoints" / "step-2").is_dir()
    code, _, told = start(cluster, "--max-restarts", "0", TINY, "--steps", "2", "--out", str(out))
    assert code == 1, told  # the folder holds a run: torchrun ends with 1 whatever happened


def test_more_machines_than_there_are_are_named(cluster):
    code, _, told = start(cluster, "--wait", "2", TINY, machines=3)
    assert code == 3
    assert "Ray found no 3 machines with 0 free accelerators each in 2 s" in told
