"""`pmdkit replay`: another objective on a recorded step, or the story of one response. Offline, without a model."""

import json as to_json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pmdkit.cli.options import Number, Whole


def replay(
    run: Path,
    *,
    step: Whole | None = None,
    objective: str | None = None,
    tau: Number | None = None,
    ministeps: Whole | None = None,
    order: str = "recorded",
    row: Whole | None = None,
    set: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Ask a recorded step what another objective would have done with it; without options, what its own did.

    Args:
        run: folder of a run that was made with --record.
        step: which; by default the newest recorded one.
        objective: a name (see pmdkit objectives) or my.py:MyLoss; by default the recorded one.
        tau: temperature in reward units; by default the recorded one.
        ministeps: updates that the step is cut into.
        order: of the prompts: recorded, reversed, or a seed such as 7 that shuffles them.
        row: tell the story of this response, counted from 0.
        set: other options of the objective: --set norm=none clip_high=0.3.
        json: print one JSON value.
    """
    from pmdkit.cli.replay_story import show_row
    from pmdkit.cli.replay_tables import show_step
    from pmdkit.recording.biography import biography
    from pmdkit.recording.question import ask
    from pmdkit.recording.replay import replay as ask_step
    from pmdkit.recording.shelf import open_step
    from pmdkit.recording.words import Words

    recording = open_step(run, step)
    options = ({} if tau is None else {"tau": tau}) | objective_options(set or [])
    question = ask(recording, objective, options, ministeps, order)
    words = Words(recording, run)
    if row is not None:
        story = biography(recording, question, row, words)
        if json:
            print(to_json.dumps(story))
        else:
            show_row(story, recording, question)
        return
    found = {"run": str(run), **ask_step(recording, question)}
    for driver in found["drivers"]:
        driver["text"] = words.prompt(driver["prompt"])
    if json:
        print(to_json.dumps(found))
    else:
        show_step(found)


def objective_options(pairs: list[str]) -> dict[str, object]:
    """`norm=none` or `objective.norm=none`; nothing else of a run can be asked again."""
    from pmdkit.cli.options import assignments
    from pmdkit.errors import UsageError

    options = {}
    for key, value in assignments(pairs).items():
        section, dot, name = key.partition(".")
        if dot and section != "objective":
            raise UsageError(
                f"--set got '{key}'; a replay changes options of the objective only, such as objective.norm=none: "
                "the rollouts are recorded (--ministeps and --order cut them anew)"
            )
        options[name if dot else section] = value
    return options
