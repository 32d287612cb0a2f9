"""The paper's experiments in miniature compare like with like."""

from pmdkit_lab.studies.experiments import EXPERIMENTS, METHODS, TAUS


def test_experiments_compare_at_the_same_updates_and_draws():
    """320 updates of 32 prompts with 16 draws, 16 on a rollout; 120 of 16, 4 on one, in parity. RLOO rolls out anew."""
    for name, experiment in EXPERIMENTS.items():
        updates, batch, stale = (120, 16, 4) if name == "sequence" else (320, 32, 16)
        for label, options in experiment.settings.items():
            steps, prompts, ministeps, group = (
                options[f"schedule.{key}"] for key in ("steps", "prompts", "ministeps", "group")
            )
            assert (name, label, steps * ministeps) == (name, label, updates)
            assert prompts * group == 16 * batch * ministeps, "draws of an update"
            assert ministeps == (1 if label == "rloo" else int(label.split()[1]) if name == "staleness" else stale)
            assert group == (int(label.split()[1]) if name == "group-size" else 16)
    assert set(EXPERIMENTS["training-curves"].settings) == {*METHODS, "rloo"}
    for method in ("pmd-mean", "pmd-part"):
        swept = {f"{method} tau={tau}": tau for tau in TAUS}
        assert {label: EXPERIMENTS["tau"].settings[label]["objective.tau"] for label in swept} == swept
