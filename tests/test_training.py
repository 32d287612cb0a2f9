"""The front door: what train accepts, what a Run holds, and what its folder says."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from pmdkit import Run, train
from pmdkit.errors import UsageError
from pmdkit.objectives import DRO, PassRate, PMDMean
from pmdkit.observe.metrics import KEYS
from pmdkit.resolve import resolve


def test_an_objective_a_name_and_a_table_are_the_same_run(tmp_path):
    one = train(PMDMean(tau=0.1), env="two-hills", group=8, steps=5, out=tmp_path / "a")
    other = train("pmd-mean", env="two-hills", group=8, steps=5, out=tmp_path / "b", options={"objective.tau": 0.1})
    np.testing.assert_array_equal(one.policy, other.policy)
    assert one.spec.model_dump() == other.spec.model_dump()


@pytest.mark.parametrize("key", ["tau", "nrm", "name"])
def test_an_option_of_the_objective_is_refused_beside_an_object(tmp_path, key):
    with pytest.raises(UsageError, match=rf"objective\.{key}"):
        train(PMDMean(), steps=1, out=tmp_path / "run", options={f"objective.{key}": "grpo"})
    assert not (tmp_path / "run").exists()


def test_a_run_read_from_disk_is_the_run(tmp_path):
    run = train(env="pass-rates", steps=2, out=tmp_path / "run")
    again = Run(tmp_path / "run")
    np.testing.assert_array_equal(again.policy, run.policy)
    assert again.summary == run.summary
    assert again.metrics == run.metrics


def test_every_line_has_every_key_and_the_summary_its_own(tmp_path):
    run = train(env="graded", steps=2, group=4, out=tmp_path / "run")
    for row in run.metrics:
        assert set(row) == set(KEYS)
        assert row["pass_rate"] is None
    wanted = (
        "tier env objective tau steps seed pass_rate_first pass_rate_last reward_first reward_last tokens seconds out"
    )
    assert set(wanted.split()) <= set(run.summary)
    assert run.summary["tokens"] == sum(row["tokens"] for row in run.metrics) > 0


def test_the_folder_says_what_ran(tmp_path):
    train(PMDMean(tau=PassRate(scale=0.2)), env="pass-rates", steps=1, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["objective"]["tau"] == {"rule": "pass-rate", "scale": 0.2, "floor": 0.1, "rewards": [0.0, 1.0]} | {
        "estimate": "jeffreys"
    }
    assert config["schedule"]["update"] == "exact"
    assert json.loads((tmp_path / "run" / "env.json").read_text())["versions"]["torch"] == torch.__version__


def test_a_rule_for_tau_by_name_and_an_option_of_it():
    spec, objective = resolve("bandit", "needle", {"objective.tau": "pass-rate", "objective.tau.scale": 0.5})
    assert objective.tau == PassRate(scale=0.5)
    again, _ = resolve("bandit", "needle", {"objective.tau": spec.objective["tau"], "objective.tau.floor": 0.2})
    assert (again.objective["tau"]["scale"], again.objective["tau"]["floor"]) == (0.5, 0.2)


def test_another_objective_keeps_the_temperature_of_the_environment_if_it_has_one(tmp_path):
    kept = train("pmd-part", env="graded", steps=1, out=tmp_path / "a")
    assert kept.spec.objective["tau"] == 0.001
    assert "tau" not in train("grpo", env="graded", steps=1, out=tmp_path / "b").spec.objective


def test_runs_without_a_name_are_numbered_by_name(tmp_path):
    train(env="two-hills", steps=1)
    first, second = (train(env="needle", steps=1) for _ in range(2))
    assert [run.path.name for run in (first, second)] == ["needle-pmd-mean-001", "needle-pmd-mean-002"]


def test_a_users_own_class_in_memory_runs(tmp_path):
    run = train(DRO(tau=0.1, value=lambda groups: torch.zeros(len(groups.reward))), steps=1, out=tmp_path / "run")
    assert run.summary["objective"] == "dro"


def test_tb_stops_at_the_tilted_initial_policy(tmp_path):
    """Anchored at the initial policy, the exact update of every step is the same one: pi_0 e^{r/tau} / Z."""
    run = train("tb", env="needle", steps=3, out=tmp_path / "run", options={"objective.tau": 0.5})
    tilted = np.exp(np.eye(100)[0] / 0.5) / 100
    np.testing.assert_allclose(np.sort(run.policy[0])[::-1], np.sort(tilted / tilted.sum())[::-1], rtol=1e-9)
    assert run.metrics[1]["log_ratio_max"] == pytest.approx(0, abs=1e-12)


# The front door is light: help, import and an exact solve load no torch. The shelf is found in a wheel and a checkout.

HELP = """
import contextlib, io, pmdkit.cli
with contextlib.redirect_stdout(io.StringIO()):
    pmdkit.cli.make_app()({}, exit_on_error=False, result_action="return_value")
"""
HEAVY = {"torch", "transformers", "vllm", "accelerate", "matplotlib", "pyarrow", "datasets"}


def modules_after(code: str) -> set[str]:
    """Names of the modules that a fresh interpreter holds after `code`."""
    script = f"import sys\n{code}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


LIGHT = [
    HELP.format("['bandit', '--help']"),
    "import numpy as n; from pmdkit import theory; theory.pmd_mean(n.ones(4) / 4, n.eye(4)[0], 0.1)",
    "import pmdkit.envs as e; e.make({'kind': 'pass-rates'}); e.make_tokens({'kind': 'maze'})",
    "from pmdkit.envs.math import make_math; make_math({'kind': 'aime24'})",
]
SMALL = """
from pmdkit import train
train(steps=1, env='pass-rates', group=8)
train('pmd-mean', 'toy', 'modular-sum', steps=1)
"""


@pytest.mark.slow
def test_no_heavy_import():
    """One after the other, in one interpreter."""
    assert not modules_after("\n".join(LIGHT)) & HEAVY


DRY_RUN = """
import contextlib, io, pmdkit.cli
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    pmdkit.cli.main(['llm', 'starter', '--dry-run'])
"""


@pytest.mark.slow
def test_a_dry_run_of_a_starter_imports_a_tokenizer_and_no_model():
    """Model classes of transformers, and the compiler that they import, take longer to import than torch."""
    loaded = modules_after(DRY_RUN)
    assert "pmdkit.llm.dry_run" in loaded
    models = {"transformers.modeling_utils", "transformers.generation", "torch._dynamo", "sympy", "pandas"}
    assert not loaded & (HEAVY - {"torch", "transformers"} | models | {"pmdkit.llm.backend", "pmdkit.llm.learner"})


@pytest.mark.slow
def test_help_imports_neither_numpy_nor_the_exercises():
    assert not modules_after(HELP.format("['--help']")) & (HEAVY | {"numpy", "pmdkit_course.exercises"})


@pytest.mark.slow
def test_a_run_of_a_small_tier_needs_no_model_library_and_no_compiler():
    """torch._dynamo takes as long to import as torch itself."""
    assert not modules_after(SMALL) & (HEAVY - {"torch", "matplotlib"} | {"torch._dynamo"})


# A Run says what it is, also where something is wrong; slips in the first arguments are sentences.


def test_metrics_as_tables_and_a_panel_on_an_axis_of_ones_own(tmp_path):
    from matplotlib.figure import Figure

    run = train(env="pass-rates", steps=3, group=4, out=tmp_path / "run")
    assert list(run.to_pandas()["pass_rate"]) == [row["pass_rate"] for row in run.metrics]
    figure = Figure()
    left, right = figure.subplots(1, 2)
    assert run.figure(ax=left) is run.figure("by-pass-rate", ax=right) is figure
    assert len(left.lines[0].get_xdata()) == 3
    with pytest.raises(UsageError):
        run.figure("mismatch")


def test_evaluate_is_the_verb(call, tmp_path, capsys):
    run = train("pmd-mean", "toy", "modular-sum", steps=1, out=tmp_path / "run")
    assert call("eval", run.path, "--k", 4, "--json") == 0
    assert json.loads(capsys.readouterr().out) == run.evaluate(4)
    bandit = train(env="needle", steps=1, out=tmp_path / "bandit")
    for name, value in {"data": "aime24", "out": tmp_path, "resume": True}.items():
        with pytest.raises(UsageError, match=f"{name} is for language models"):
            bandit.evaluate(**{name: value})


@pytest.mark.nightly
def test_a_notebook_shows_the_steps_and_one_without_a_person_none(tmp_path):
    """nbconvert and nbclient execute cells without input; a front end offers it."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(extra_arguments=["--HistoryManager.enabled=False"], cwd=tmp_path)
    try:
        for person in (True, False):
            output = []
            code = f"from pmdkit import train; train(env='needle', steps=2, out='{person}')"
            client.execute_interactive(code, allow_stdin=person, timeout=90, output_hook=output.append)
            shown = "".join(m["content"]["text"] for m in output if m["msg_type"] == "stream")
            assert ("step 2/2" in shown) == person
            assert "pmd-mean, 2 steps" in str([m["content"] for m in output if m["msg_type"] == "execute_result"])
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
