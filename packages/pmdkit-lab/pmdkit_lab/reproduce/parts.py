"""The list of parts of a reproduction, in order of value; a new study is added here.

One line adds a part. Seconds are for one core, measured on two virtual cores of an AMD EPYC (Zen 4) and increased by
half; runner.py scales the remaining estimates by the speed that it measures. A part whose pieces have the same names as
an earlier part's is the same thing at more effort, and replaces it in the report.
"""

from functools import partial

from pmdkit import objectives
from pmdkit_lab import ledger
from pmdkit_lab.explain import explain, report
from pmdkit_lab.figures import FIGURES, TABLES, draw, table
from pmdkit_lab.reproduce import training_parts
from pmdkit_lab.reproduce.part import ClaimCheck, Claims, Part, PartContext, Piece, Sheet, keep
from pmdkit_lab.studies.experiments import EXPERIMENTS

CHAPTERS = {  # in the order of the report
    "ledger": "The claims of the paper",
    "exact": "Exact figures",
    "simulated": "Simulated figures",
    "tables": "Tables of the paper",
    "objectives": "What each objective solves",
    "toy": "Training figures at toy scale",
    "starter": "Training at starter scale",
}
CHAPTER_OF = {"exact": "exact", "draws": "simulated", "toy": "toy", "starter": "starter", "paper": "tables"}
SCALE_OF = {"exact": "exact", "draws": "simulated", "toy": "stored", "starter": "starter-stored", "paper": "paper"}
ABOUT = {"draws": "100 groups a point, 1,000 resamples, seed 0", "toy": "5 seeds", "starter": "3 seeds"}
ABOUT_TABLE = {"tab2-speed": "toy rows: stored runs, 5 seeds"}


def paper_tables(context: PartContext) -> list[Piece]:
    """The paper's tables with quantities derived from their numbers."""
    found: list[Piece] = []
    for name, entry in TABLES.items():
        made = table(name)
        rows = [list(row) for row in made.rows]
        about = ABOUT_TABLE.get(name, "")
        found.append(Sheet(name, made.title, SCALE_OF[entry.source], about, list(made.columns), rows, made.sentence))
    return found


def ledger_claims(context: PartContext) -> list[Piece]:
    """Every claim with its verdict."""
    return [Claims("ledger", ledger.claims())]


def objectives_solved(context: PartContext) -> list[Piece]:
    """The problem that each objective solves, one line each, from its loss alone."""
    rows, checks = [], []
    for name in objectives.OBJECTIVES:
        context.log(f"asking {name}")
        found = explain(name)
        eta = [
            report.share(float(value)) if rests else "never rests"
            for value, rests in zip(found.steps.eta, found.steps.rests, strict=True)
        ]
        first = report.first(found).removeprefix("First step: ")
        rows.append([name, report.headline(found), eta[0], eta[-1], first])
        for problem, known in found.theory.items():
            checks.append(
                ClaimCheck(
                    f"{name}, {problem}",
                    f"What is recovered from the loss of {name} is theory.{known.solution}",
                    "log-ratios of the resting point, found by descent alone",
                    f"{known.error:.0e} nats apart",
                    "at most 1e-6 nats",
                    bool(known.error <= 1e-6),
                )
            )
    p = found.steps.p
    columns = ["objective", "what it solves", f"eta at p = {p[0]:g}", f"eta at p = {p[-1]:g}", "first step"]
    see = (
        "Rewards graded in [0, 1], default options, exact expectations over a table of responses. eta is the share of "
        "the gap to a pass rate of 1 that one exact step closes. `pmdkit explain NAME` says why."
    )
    return [Sheet("objectives", "What each objective solves", "exact", "", columns, rows, see), *checks]


def figure(name: str, seconds: float) -> Part:
    """A part for a figure of the paper, from exact numbers or stored runs."""
    entry = FIGURES[name]
    about = entry.about.rstrip("."), SCALE_OF[entry.source], ABOUT.get(entry.source, "")

    def make(context: PartContext) -> list[Piece]:
        return [keep(draw(name), context.folder, name, *about)]

    return Part(name, name, CHAPTER_OF[entry.source], entry.about, seconds, make)


def experiment(name: str, seconds: float, needs: tuple[str, ...] = ()) -> Part:
    """A part for an experiment. It needs the part with which it shares runs, so `seconds` is the time of its own
    runs."""
    make = partial(training_parts.experiment, name)
    return Part(name, name, "toy", EXPERIMENTS[name].about, seconds, make, needs, parallel=True)


def redrawn(figures: tuple[str, ...], sources: tuple[str, ...]) -> Part:
    """A part that draws training figures of the paper from the runs of this reproduction."""
    name, about = f"{'-'.join(figures)}-own", f"{' and '.join(figures)}, drawn from the runs of this report."
    return Part(name, name, "toy", about, 3.0, partial(training_parts.redrawn, figures, sources), sources)


PARTS: list[Part] = [
    figure("fig2", 3.0),
    figure("fig1-left", 1.0),
    figure("fig1-right", 1.0),
    Part("ledger", "The ledger", "ledger", "Every claim with its verdict.", 1.0, ledger_claims),
    figure("target-error", 1.5),
    figure("target-error-split", 1.5),
    Part("tables", "Tables", "tables", "The paper's tables with what follows from them.", 1.0, paper_tables),
    Part("objectives", "Objectives", "objectives", "pmdkit explain, one line each.", 9.0, objectives_solved),
    figure("fig4-toy", 1.5),
    figure("fig5-toy", 1.5),
    figure("fig7-toy", 1.5),
    figure("fig8-toy", 1.0),
    figure("fig7-starter", 1.0),
    experiment("training-curves", 220.0),
    experiment("tau", 250.0, ("training-curves",)),
    redrawn(("fig4-toy", "fig8-toy"), ("training-curves", "tau")),
    experiment("sequence", 360.0),
    redrawn(("fig5-toy",), ("tau", "sequence")),
    Part("starter", "starter", "starter", training_parts.STARTER_ABOUT, 1350.0, training_parts.starter, parallel=True),
    experiment("staleness", 185.0, ("training-curves",)),
    experiment("group-size", 185.0, ("training-curves",)),
]
