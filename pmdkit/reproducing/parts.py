"""The parts of a reproduction in order of value: the table of contents, and where a new study plugs in.

A part is added by one line. Seconds are of one core, measured on two virtual cores of an AMD EPYC (Zen 4) and taken
half as large again; running.py scales what is left by the speed that it meets. A part whose pieces have the names of
an earlier part's is the same thing at more effort, and takes its place in the report.
"""

from collections.abc import Callable

from pmdkit.figures import FIGURES
from pmdkit.reproducing import adaptive, checks, exact, small_runs, starter, trained
from pmdkit.reproducing.part import Bench, Part
from pmdkit.reproducing.pieces import Piece
from pmdkit.sweeps.experiments import EXPERIMENTS

CHAPTERS = {  # in the order of the report
    "ledger": "The claims of the paper",
    "exact": "Exact figures",
    "simulated": "Simulated figures",
    "tables": "Tables of the paper",
    "objectives": "What each objective solves",
    "checks": "Statements tried here",
    "runs": "Short runs",
    "toy": "Training figures at toy scale",
    "starter": "Training at starter scale",
    "adaptive": "The open question: a temperature per prompt",
}
CHAPTER_OF = {"exact": "exact", "draws": "simulated", "toy": "toy", "starter": "starter", "paper": "tables"}


def figure(name: str, seconds: float) -> Part:
    """A figure of the paper from what is computed or stored."""
    entry = FIGURES[name]
    return Part(name, name, CHAPTER_OF[entry.source], entry.about, seconds, exact.figure(name))


def experiment(name: str, seeds: int, seconds: float, needs: tuple[str, ...] = ()) -> Part:
    """An experiment with so many seeds; with more than those of an earlier part it needs that part."""
    make = trained.experiment(name, seeds)
    return apart(f"{name}-{seeds}", f"{name}, {seeds} seeds", EXPERIMENTS[name].about, seconds, make, needs)


def apart(
    name: str,
    title: str,
    about: str,
    seconds: float,
    make: Callable[[Bench], list[Piece]],
    needs: tuple[str, ...] = (),
    chapter: str = "toy",
) -> Part:
    """A part whose runs are processes of their own."""
    return Part(name, title, chapter, about, seconds, make, needs, apart=True)


def study(tier: str, seconds: float) -> Part:
    """A tier of the study of adaptive temperatures."""
    about = "Rules that give each prompt its tau, against a tuned fixed one."
    make = adaptive.adaptive(tier)
    return apart(f"adaptive-{tier}", f"Adaptive tau, {tier}", about, seconds, make, chapter="adaptive")


def redrawn(seeds: int) -> list[Part]:
    """The paper's training figures from the runs of this reproduction, as its experiments come in."""
    curves, tau, sequence = (f"{name}-{seeds}" for name in ("training-curves", "tau", "sequence"))
    return [
        Part(
            f"fig4-fig8-{seeds}",
            f"fig4-toy and fig8-toy from these runs, {seeds} seeds",
            "toy",
            "Figures main_result and results-30B, drawn from the runs above.",
            3.0,
            trained.redrawn(("fig4-toy", "fig8-toy"), ("tau", "training-curves")),
            (curves, tau),
        ),
        Part(
            f"fig5-{seeds}",
            f"fig5-toy from these runs, {seeds} seeds",
            "toy",
            "Figure min_ratio, drawn from the runs above.",
            2.0,
            trained.redrawn(("fig5-toy",), ("tau", "sequence")),
            (tau, sequence),
        ),
        Part(
            f"tab-beside-{seeds}",
            f"Differences between methods, {seeds} seeds",
            "tables",
            "The paper's differences between methods beside those of the runs above.",
            1.0,
            trained.table,
            (curves, sequence),
        ),
        Part(
            f"fig7-{seeds}",
            f"fig7-toy from these runs, {seeds} seeds",
            "toy",
            "Figure results-7B, drawn from the runs above, with avg@32, pass@32 and maj@32 of each.",
            8.0 * seeds,
            trained.redrawn(("fig7-toy",), ("sequence",), votes=True),
            (sequence,),
        ),
    ]


PARTS: list[Part] = [
    figure("fig2", 3.0),
    figure("fig1-left", 1.0),
    figure("fig1-right", 1.0),
    Part("ledger", "The ledger", "ledger", "Every claim with its verdict.", 1.0, exact.ledger),
    Part("checks", "Statements tried", "checks", "Statements of the paper on random problems.", 3.0, checks.checks),
    figure("target-error", 1.5),
    figure("target-error-split", 1.5),
    Part("tables", "Tables", "tables", "The paper's tables with what follows from them.", 1.0, exact.tables),
    figure("scores", 1.0),
    Part("objectives", "Objectives", "objectives", "pmdkit explain, one line each.", 9.0, exact.objectives),
    figure("fig4-toy", 1.5),
    figure("fig5-toy", 1.5),
    figure("fig7-toy", 1.5),
    figure("fig8-toy", 1.0),
    figure("fig7-starter", 1.0),
    Part(
        "toy", "A small transformer", "runs", "PMD-mean learns modular sums, read against theory.", 11.0, small_runs.toy
    ),
    Part("bandit", "A bandit", "runs", "Every objective from draws, three seeds.", 27.0, small_runs.bandit),
    experiment("training-curves", 3, 130.0),
    experiment("tau", 3, 150.0),
    redrawn(3)[0],
    experiment("sequence", 3, 215.0),
    *redrawn(3)[1:],
    apart(
        "starter-3",
        "The starter, 3 seeds",
        starter.ABOUT,
        1350.0,
        starter.starter(3),
        chapter="starter",
    ),
    experiment("clamp", 3, 25.0, ("tau-3",)),
    experiment("staleness", 3, 110.0, ("training-curves-3",)),
    experiment("group-size", 3, 110.0, ("training-curves-3",)),
    experiment("half", 3, 25.0, ("training-curves-3",)),
    experiment("baseline", 3, 25.0, ("training-curves-3",)),
    experiment("training-curves", 5, 90.0, ("training-curves-3",)),
    experiment("tau", 5, 100.0, ("tau-3", "training-curves-5")),
    redrawn(5)[0],
    experiment("sequence", 5, 145.0, ("sequence-3",)),
    *redrawn(5)[1:],
    experiment("clamp", 5, 20.0, ("clamp-3", "tau-5")),
    experiment("staleness", 5, 75.0, ("staleness-3", "training-curves-5")),
    experiment("group-size", 5, 75.0, ("group-size-3", "training-curves-5")),
    experiment("half", 5, 20.0, ("half-3", "training-curves-5")),
    experiment("baseline", 5, 20.0, ("baseline-3", "training-curves-5")),
    study("bandit", 2200.0),
    Part("speed-5", "speed, 5 seeds", "toy", "What a token costs by staleness.", 100.0, trained.alone("speed", 5)),
    Part("regimes-5", "regimes, 5 seeds", "toy", "Passes over one frozen batch.", 200.0, trained.alone("regimes", 5)),
    study("starter", 1800.0),
    study("toy", 2100.0),
]
