"""`pmdkit tour`: one objective through the three tiers, then a picture and a few sentences."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pmdkit.errors import UsageError

if TYPE_CHECKING:
    from pmdkit.training import Run

# name, backend, environment, schedule
WAYS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("exactly", "bandit", "pass-rates", {"steps": 10, "update": "exact"}),
    ("full expectation", "bandit", "pass-rates", {"steps": 10, "update": "regression"}),
    ("from draws", "bandit", "pass-rates", {"steps": 300, "group": 16}),
    ("small transformer", "toy", "modular-sum", {"steps": 100}),
    ("language model", "llm", "starter", {"steps": 30}),
)


def tour(*, objective: str = "pmd-mean", tau: float = 0.05, out: Path | None = None, seed: int = 0) -> None:
    """Take one objective through three tiers: a table three ways, a small transformer, a language model. Two minutes.

    The table is made of real pass rates: 64 competition problems, each as hard as it was for a 1.5B model. The
    transformer learns to add two numbers modulo 10 from rewards alone. The language model is a tiny Qwen2 that is built
    and taught on the spot, then trained on sums told as stories with a real verifier.

    Args:
        objective: pmd-mean or pmd-part, whose exact solution is known.
        tau: temperature on rewards {0,1}; twice that on +-1.
        out: folder for the runs and the picture; by default the next number under runs/.
        seed: of the draws.
    """
    from pmdkit.figures import save
    from pmdkit.figures.tour import draw
    from pmdkit.observe import console, glossary, run_folder
    from pmdkit.training import plan, train

    if objective not in ("pmd-mean", "pmd-part"):
        raise UsageError(
            f"objective is '{objective}'; the tour takes pmd-mean or pmd-part: use pmdkit bandit for others"
        )
    from pmdkit.llm.recipe import check_requirements

    check_requirements()
    options = {"objective.tau": tau}
    for _, backend, env, _ in WAYS:
        plan(backend, env, {"objective.name": objective, **options, "run.seed": seed})
    screen = Console()
    folder = run_folder.new_folder(out, "tour")
    screen.print(f"[bold]{objective}[/bold], {glossary.format_tau(tau)}\n")
    runs: dict[str, Run] = {}
    for name, backend, env, how in WAYS:
        place = folder.path / name.replace(" ", "-")
        display = console.make_display()
        run = train(objective, backend, env, out=place, options=options, display=display, seed=seed, **how)
        runs[name] = run
        picture = save(run.figure(), run.folder.figures / "run")[0]
        rates = [*(row["pass_rate"] for row in run.metrics), run.summary["pass_rate_last"]]
        curve = f"{rates[0]:.3f} {console.sparkline(rates, 30)} {rates[-1]:.3f}"
        screen.print(f"[bold]{name}[/bold] ({backend} {env}): {len(run.metrics)} batches, pass rate {curve}")
        screen.print(f"  picture: {picture}", soft_wrap=True)
    drawing = draw(runs, objective, tau)
    picture = drawing.save(folder.path / "tour")[0]
    screen.print(f"\n[bold]picture: {picture}[/bold]\n{drawing.sentence}\n", soft_wrap=True)
    for sentence in summary(runs):
        screen.print(sentence, soft_wrap=True)
    screen.print(
        "\nNext: pmdkit bandit needle --tau 0.5   pmdkit toy parity   pmdkit llm starter   pmdkit theory --p 0.01   "
        "pmdkit figures   lesson 101: make notebooks",
        soft_wrap=True,
    )


def summary(runs: "dict[str, Run]") -> list[str]:
    """A few sentences in plain words; every number is read from the runs."""
    exact, fitted, drawn, taught, spoken = (runs[name] for name, *_ in WAYS)
    first = exact.metrics[0]["gauge"]
    hard, easy = first[0], first[-2]
    agree = max(
        abs(a[key] - b[key])
        for a, b in zip(first, fitted.metrics[0]["gauge"], strict=True)
        for key in ("log_ratio_neg", "log_ratio_pos")
    )
    enough = next((row["step"] for row in exact.metrics if row["pass_rate"] > 0.99), None)
    took = f"{enough - 1} updates" if enough else f"more than {len(exact.metrics)} updates"
    late = next((row["step"] for row in drawn.metrics if row["pass_rate"] > 0.9), None)
    slow = (
        f"0.9 after {late - 1} batches"
        if late
        else f"{drawn.summary['pass_rate_last']:.2f} after {len(drawn.metrics)} batches"
    )
    share = drawn.metrics[0]["log_ratio_pos"] / exact.metrics[0]["log_ratio_pos"]
    return [
        f"1. Exactly, {took} take the pass rate from {exact.summary['pass_rate_first']:.2f} above 0.99. A step is "
        f"gentle where problems are hard: wrong answers lose {-hard['log_ratio_neg']:.1f} nats at pass rate "
        f"{hard['pass_rate']:.2f}, {-easy['log_ratio_neg']:.1f} at {easy['pass_rate']:.2f}.",
        f"2. Minimising the loss itself over all answers gives the same step, to {agree:.0e} nats: the formula is what "
        "the regression solves.",
        f"3. From 16 draws per problem the pass rate reaches {slow}: one optimizer step goes {share:.0%} of the exact "
        "way, and a group without a right answer has nothing to learn from.",
        f"4. The same object teaches a transformer of {parameters(taught):,} weights to add modulo 10: pass rate "
        f"{taught.summary['pass_rate_first']:.2f} to {taught.summary['pass_rate_last']:.2f} in "
        f"{taught.summary['seconds']:.1f} seconds, from {taught.summary['tokens']:,} drawn tokens.",
        f"5. And a Qwen2 of {parameters(spoken):,} weights to reason in words: held-out pass rate "
        f"{spoken.summary['pass_rate_first']:.2f} to {spoken.summary['pass_rate_last']:.2f} in "
        f"{spoken.summary['seconds']:.0f} seconds, answers growing from {spoken.metrics[0]['response_length']:.0f} to "
        f"{spoken.metrics[-1]['response_length']:.0f} tokens. Read them: {spoken.folder.rollouts}",
    ]


def parameters(run: "Run") -> int:
    """Number of weights of a run's model."""
    return sum(weight.numel() for weight in run.policy.parameters())
