"""Write the generated pages of the site: executed lessons, the claims of the paper, static pictures.

Run it before `mkdocs build`. Everything that it writes is ignored by git, see docs/.gitignore. With --short, as in
`make test`, lessons that say they run for more than SHORT seconds are shown without their outputs.
"""

import argparse
import inspect
import json
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from generate import kimi, on_a_gpu
from generate.adaptive_tau import save_svg, write_adaptive_tau
from generate.biography import write_biography
from generate.claims_page import write_claims
from generate.decks import write_decks
from generate.explore_figures import write_explore_figures
from generate.gallery import write_gallery
from generate.gauges import write_autopsy, write_gauges
from generate.lessons import write_lessons
from generate.one_step import write_one_step
from generate.proofs import write_proofs
from generate.race import write_race
from generate.smollm2 import write_smollm2
from generate.sources import write_sources
from generate.terminal import write_terminal
from generate.verbs import write_verbs

from pmdkit import theory
from pmdkit.objectives import OBJECTIVES
from pmdkit_course.kit import syllabus
from pmdkit_lab import ledger
from pmdkit_lab.figures.entropy_frontier import draw_entropy_frontier

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SHORT = 10.0  # of 18 lessons six say that they run longer; a change waits for the others, the night runs all


def main() -> None:
    """Write all generated pages. Lessons run in processes of their own; what needs none of them is made meanwhile."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_const", const=SHORT, default=float("inf"))
    most = parser.parse_args().short
    start = time.perf_counter()
    import_module("IPython")  # whole before the lessons' thread imports it, since a figure looks at what is there of it
    places = (ROOT / "tutorials", DOCS / ".cache", ROOT / "pmdkit")
    with ThreadPoolExecutor(1) as aside:
        lessons = aside.submit(write_lessons, places[0], DOCS / "learn" / "lessons", *places[1:], most)
        functions = [item for name in theory.__all__ if inspect.isfunction(item := getattr(theory, name))]
        print(f"sources: {write_sources(DOCS / 'paper' / 'index.md', OBJECTIVES, functions)} rows")
        figures = write_gallery(DOCS / "paper" / "figures")
        rows = write_claims(DOCS / "paper" / "index.md", ledger.claims(), figures)
        print(f"ledger: {rows} claims, {len(figures)} with a figure or a table")
        print(f"proofs: {write_proofs(DOCS / 'paper' / 'proofs.md', ledger.claims())} rows beside their code")
        study = write_adaptive_tau(DOCS / "use" / "adaptive-tau.md", ROOT / "benchmarks" / "results")
        print(f"adaptive tau: {study} cells")
        print(f"race: {write_race(DOCS / 'use' / 'race.md', ROOT / 'benchmarks' / 'results')} rows")
        print(f"SmolLM2: {write_smollm2(DOCS / 'use' / 'smollm2.md', ROOT / 'benchmarks' / 'results')} runs")
        print(f"a run: {write_gauges(DOCS / 'use' / 'gauges')} pictures")
        ends = kimi.draw(json.loads(kimi.RECORD.read_text(encoding="utf-8")))
        for page, drawing in ((kimi.PAGE, ends), (DOCS / "use" / "explain.md", draw_entropy_frontier())):
            page.with_name(f".{page.name}").write_text(save_svg(drawing, page), encoding="utf-8")
        for way, name in (("", ".on-a-gpu.md"), ("../", "use/.on-a-gpu.md")):
            (DOCS / name).write_text(on_a_gpu.on_a_gpu(ROOT / "benchmarks" / "results", way) + "\n", encoding="utf-8")
        print(f"an autopsy: {write_autopsy(DOCS / 'use' / 'autopsy')} pictures")
        print(f"one step, three tiers: {write_one_step(DOCS / 'learn' / 'one-step.md')} calls")
        print(f"command line: {write_verbs(DOCS / 'use' / '.verbs.md')} verbs")
        print(f"README: {write_terminal(ROOT).splitlines()[1]}")
        print(f"a biography: {write_biography()}")
        print(f"explorables: {write_explore_figures(DOCS / 'explore')} static pictures")
        print("\n".join(lessons.result()))
    (DOCS / "teach" / ".syllabus.md").write_text(syllabus("[{0}](../learn/lessons/{0}.md)"), encoding="utf-8")
    teach = DOCS / "teach"
    print(f"decks: {write_decks(teach / 'decks', DOCS / 'learn' / 'lessons', teach / 'slides')} slides")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
