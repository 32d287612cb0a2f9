"""Code as a user writes it, for mypy and pyright: they must refuse every line marked `wrong`, and no other."""

from pmdkit import Run, theory, train
from pmdkit.objectives import PMDMean, load_objective

run: Run = train(PMDMean(tau=0.1), backend="bandit", env="needle", steps=3, group=4, tau=None, seed=1)
rate: float = run.summary["pass_rate_last"]
rows: list[dict[str, float]] = run.metrics
figure = run.figure("progress")
figure.savefig("run.png")
train("pmd-part", stepps=3)  # wrong
train("pmd-part", steps="3")  # wrong
train("pmd-part", update="newton")  # wrong
train(PMDMean(tua=0.1))  # wrong
steps = run.sumary  # wrong
words: str = run.metrics  # wrong
train(load_objective("grpo"), options={"env.arms": 20}, report_to=["tensorboard"])
shares = theory.pmd_mean([0.5, 0.5], [0.0, 1.0], tau=0.1).probs
