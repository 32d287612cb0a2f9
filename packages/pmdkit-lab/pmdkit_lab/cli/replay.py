"""`pmdkit replay`: try another objective on a recorded step; offline, without a model."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pmdkit.cli.options import Flag, Texts, Whole, assignments
from pmdkit.cli.output import print_json, shown, simple_table
from pmdkit.errors import UsageError, printable

RESPONSES = 16  # shown of a group


def replay(
    run: Path,
    folder: Path | None = None,
    *,
    step: Whole | None = None,
    objective: str | None = None,
    tau: float | None = None,
    set: Texts = None,
    columns: str | None = None,
    trust: Texts = None,
    web: Flag = False,
    json: Flag = False,
) -> None:
    """Ask a recorded step what another objective would have done with it; without options, what its own did.

    Args:
        run: folder of a run that was made with --record, or a dump of another trainer that holds rewards and the
            log-probabilities of engine and trainer.
        folder: with --web, where biography.json is written.
        step: which step; by default the newest recorded one.
        objective: a name (see pmdkit objectives) or my.py:MyLoss; by default the recorded one, of a dump
            PMD-mean, PMD-part and GRPO.
        tau: temperature in reward units; by default the recorded one, of a dump 0.05.
        set: other options of the objective: --set norm=none clip_high=0.3.
        columns: for a dump in other JSONL or Parquet, our names and theirs: reward=score,logp_engine=old,logp=new.
        trust: files such as my.py that the recording names and whose code may run.
        web: write all recorded steps to FOLDER/biography.json, which the page "Biography of a prompt" opens.
        json: print one JSON value.
    """
    from pmdkit_lab.dumps.as_recording import open_dump
    from pmdkit_lab.dumps.readers import column_names
    from pmdkit_lab.dumps.recorded import RecordingText, holds_run, open_step
    from pmdkit_lab.replay import replay

    if web or folder is not None:
        others = {"--step": step, "--objective": objective, "--tau": tau, "--set": set, "--columns": columns}
        write_for_browser(run, folder, web, [name for name, value in others.items() if value is not None], json)
        return
    left_out: dict[str, tuple[int, str]] = {}
    if columns is None and holds_run(run):
        recorded = open_step(run, step)
    else:
        recorded, source = open_dump(run, step, column_names(columns))
        left_out = source.left_out
    options = ({} if tau is None else {"tau": tau}) | objective_options(set or [])
    result = {
        "run": str(run),
        **replay.replay(recorded, *replay.make_requests(recorded, objective, options, trust or ())),
    }
    result["left_out"] = [{"what": why, "count": n, "first": at} for why, (n, at) in left_out.items()]
    words = RecordingText(recorded, run)
    for driver in result["drivers"]:
        driver["text"] = words.prompt(driver["prompt"])
    for response in result["responses"]:
        response["text"] = words.response(response["row"])
    if json:
        print_json(result)
    else:
        show_step(result)


def write_for_browser(run: Path, folder: Path | None, web: bool, others: list[str], as_json: bool) -> None:
    """Write the file of `--web RUN FOLDER`."""
    from pmdkit_lab.replay.web import write_web

    if folder is None or not web:
        raise UsageError(
            f"got {'--web without a second folder' if web else f'a second folder, {folder}, without --web'}; "
            "write pmdkit replay --web RUN FOLDER"
        )
    if others:
        raise UsageError(
            f"--web got {', '.join(others)} too; it writes all recorded steps, and the page chooses the step and the "
            "objective: leave these options out"
        )
    path, data = write_web(run, folder)
    kept, steps = data["prompts"], {group["step"] for prompt in data["prompts"] for group in prompt["groups"]}
    size = path.stat().st_size
    result = {"path": str(path), "bytes": size, "prompts": len(kept), "steps": len(steps)}
    if as_json:
        print_json(result | {"prompts_in_run": data["prompts_in_run"]})
        return
    rest = data["prompts_in_run"] - len(kept)
    Console(highlight=False).print(
        f"{shown(str(path))}: {count(len(kept), 'prompt')} in {count(len(steps), 'step')}, {size:,} bytes"
        + (f"; {rest:,} others, asked less often, were left out" if rest else "")
        + ". Open it on the page Explore, Biography of a prompt.",
        soft_wrap=True,
    )


def objective_options(pairs: list[str]) -> dict[str, object]:
    """Parse `norm=none` or `objective.norm=none`; a replay cannot change anything else of a run."""
    options = {}
    for key, value in assignments(pairs).items():
        section, dot, name = key.partition(".")
        if dot and section != "objective":
            raise UsageError(
                f"--set got '{key}'; a replay changes options of the objective only, such as objective.norm=none: "
                "the rollouts are recorded"
            )
        options[name if dot else section] = value
    return options


def show_step(result: dict[str, Any]) -> None:
    """Print the tables of a replayed step."""
    from pmdkit_lab.replay.gradient import MEANING

    console = Console(highlight=False)
    asked = [{name: result[name] for name in ("objective", "points", "entropy")}, *result["beside"]]
    console.print(
        f"[bold]{shown(result['run'])}[/bold], step {result['step']}: {shown(result['tier'])} {shown(result['env'])}, "
        f"{count(result['prompts'], 'prompt')} of {result['group']} "
        + ("responses" if result["sampled"] else "arms or responses, the full support")
        + ("" if result["pass_rate"] is None else f", pass rate {result['pass_rate']:.3f}"),
        soft_wrap=True,
    )
    if result["recorded"] is None:
        console.print("recorded  by another trainer: no objective, and one update is assumed", soft_wrap=True)
    else:
        updates = count(result["recorded"]["ministeps"], "update")
        console.print(f"recorded  {objective_words(result['recorded']['objective'])}, {updates}", soft_wrap=True)
    for each in asked:
        anchor = "" if result["anchor"] == "pi_old" else f", anchor: {result['anchor']}"
        console.print(f"asked     {objective_words(each['objective'])}{anchor}", soft_wrap=True)
    if result["recorded"] is not None:  # whether the recording reproduces the losses that the run reported
        losses, replayed = result["recorded"]["losses"], result["recorded"]["replayed"]
        if replayed is None:
            check = f"the recorded losses cannot be computed again: {shown(result['recorded']['why'])}"
        else:
            worst, mean = max(abs(a - b) for a, b in zip(losses, replayed, strict=True)), sum(losses) / len(losses)
            check = f"the run reported a loss of {number(mean)}; the recording reproduces it to {worst:.1e}"
        console.print(f"check     {check}", soft_wrap=True)

    # loss and gradient at each recorded policy
    table = grid("the policy", "loss", "|grad|", "up", "silent", "rows", "cosine", "size")
    for name, words in MEANING.items():
        there = [each for each in asked if "missing" not in each["points"][name]]
        if len(asked) > 1 and there:
            table.add_row(words)
        for each in there:
            at = each["points"][name]
            cells = [number(at["loss"]), number(at["norm"]), number(at["up"], ".1%"), number(at["silent"], ".1%")]
            rows = str(at["rows"]) + (f" of {at['rows'] + at['rows_missing']}" if at["rows_missing"] else "")
            size = "-" if at["scale"] is None else f"x {at['scale']:.3g}"
            label = words if len(asked) == 1 else shown(f"- {each['objective']['name']}")
            table.add_row(label, *cells, rows, number(at["cosine"], "z.3f"), size)
    console.print(table)
    console.print(
        "Gradients are with respect to the log-probabilities of the tokens"
        + ("" if result["sampled"] else ", or the free logits of arms")
        + ". up: share of the pull that raises responses; silent: tokens that have an advantage but no gradient "
        f"(clipped, or at rest); cosine and size: compared with {shown(result['compared_with'])} at the same policy.",
        soft_wrap=True,
    )
    for each in asked:
        if (moves := each["entropy"]) is not None:
            certain = abs(moves["change"]) > 2 * moves["error"]
            sign = ("rises" if moves["change"] > 0 else "falls") if certain else "may go either way"
            name = f"{shown(each['objective']['name'])}: " if len(asked) > 1 else ""
            console.print(
                f"{name}the entropy {sign} by a first step on these draws, were responses a table: "
                f"{moves['change']:.2g} ± {moves['error']:.1g} nats per unit of step",
                soft_wrap=True,
            )
    for name, words in MEANING.items():
        why: dict[str, list[str]] = {}
        for each in asked:
            if "missing" in each["points"][name]:
                why.setdefault(each["points"][name]["missing"], []).append(str(each["objective"]["name"]))
        for missing, those in why.items():
            which = f", {', '.join(those)}" if len(those) < len(asked) else ""
            console.print(f"the policy {words}{shown(which)}: {missing}", soft_wrap=True)
    for each in result["left_out"]:
        console.print(f"left out: {each['count']} {shown(each['what'])}, first {shown(each['first'])}", soft_wrap=True)

    # the prompts with the largest share of the gradient
    if not result["drivers"]:
        console.print("no prompt pulls: every gradient is 0")
        return
    table = grid("share", "pass rate", "rows")
    table.add_column("prompts that drive the step", no_wrap=True, overflow="ellipsis", max_width=44)
    for driver in result["drivers"]:
        first, last = driver["rows"]
        text = Text(printable(" ".join(driver["text"].split())))  # from the data: no markup, no terminal commands
        table.add_row(f"{driver['share']:.1%}", number(driver["pass_rate"], ".3f"), f"{first} to {last}", text)
    console.print(table)
    show_responses(console, result, [str(each["objective"]["name"]) for each in asked])


def show_responses(console: Console, result: dict[str, Any], names: list[str]) -> None:
    """Print the story of the responses to the first of the prompts that drive the step, the hardest pushed first."""
    from pmdkit_lab.replay.gradient import MEANING

    at = "old" if "missing" in result["points"]["seen"] else "seen"
    rows = [each for each in result["responses"] if each["prompt"] == result["drivers"][0]["prompt"]]
    pull = {name: sum(abs(each["push"][name][at] or 0.0) for each in rows) or 1.0 for name in names}
    rows.sort(key=lambda each: -abs(each["push"][names[0]][at] or 0.0))
    policies = [name for name in ("seen", "after") if any(name in each["log_ratio"] for each in rows)]
    solved = [name for name in names if any(each["exact"][name] is not None for each in rows)]
    titles = [title for name in names for title in (name, *(["exact"] if name in solved else []))]
    table = grid("reward", "tokens", *("log-ratio" if name == "seen" else name for name in policies), *titles, least=6)
    table.add_column("response", no_wrap=True, overflow="ellipsis", max_width=44)
    for each in rows[:RESPONSES]:
        cells = [
            number(each["reward"]),
            str(each["tokens"]),
            *(number(each["log_ratio"].get(k), "+z.3f") for k in policies),
        ]
        for name in names:
            push = each["push"][name][at]
            cells.append(number(None if push is None else push / pull[name], "+z.1%"))
            if name in solved:
                cells.append(number(each["exact"][name], "+z.1f"))
        table.add_row(*cells, Text(printable(" ".join(each["text"].split()))))
    console.print(f"responses to the first, {shown(result['drivers'][0]['text'][:60])}")
    console.print(table)
    console.print(
        f"Under an objective: its push on the response at the policy {MEANING[at]}, as a share of the group's pushes. "
        "log-ratio: how far the response has moved from pi_old, nats"
        + (", before its update, and after the step" if len(policies) == 2 else "")
        + ("; exact: where the exact update of this group would move it." if solved else ".")
        + (f" {len(rows) - RESPONSES:,} responses with smaller pushes are in --json." if len(rows) > RESPONSES else ""),
        soft_wrap=True,
    )


def grid(first: str, *titles: str, least: int = 4) -> Table:
    """A table whose first column is text."""
    table = simple_table(first, *(f">{title}" for title in titles), no_wrap=True, padding=(0, 1, 0, 0))
    table.columns[0].max_width = 30
    for column, title in zip(table.columns, (first, *titles), strict=True):
        column.min_width = max(len(title), least)
    return table


def objective_words(objective: dict[str, Any]) -> str:
    """`pmd-mean, tau 0.05, norm length`."""
    options = [f"{key} {value}" for key, value in objective.items() if key != "name"]
    return shown(", ".join([str(objective["name"]), *options]))


def count(n: int, noun: str) -> str:
    """`1 prompt`, `2 prompts`."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def number(value: float | None, form: str = ".3g") -> str:
    """A number as text, a dash for None; by default three significant digits, and 0 for what is rounding."""
    return "-" if value is None else "0" if form == ".3g" and abs(value) < 1e-12 else f"{value:{form}}"
