"""What `pmdkit replay --row` shows a person: one response from its reward to the gradient on its tokens."""

from typing import Any

from rich.console import Console

from pmdkit.cli.replay_tables import count, grid, number, plain, told
from pmdkit.printable import printable
from pmdkit.recording.format import Recording
from pmdkit.recording.points import MEANING
from pmdkit.recording.question import Question


def show_row(story: dict[str, Any], recording: Recording, question: Question) -> None:
    """The story of a row."""
    console = Console(highlight=False)

    def line(head: str, text: str) -> None:
        console.print(f"[bold]{head:12s}[/bold]", end="")
        console.print(printable(text), markup=False, soft_wrap=True)

    step, group = recording.about["step"], story["group"]
    console.print(
        f"[bold]row {story['row']}[/bold] of step {step}: response {story['response']} to prompt {story['prompt']}, "
        f"under {told(question.table)}",
        soft_wrap=True,
    )
    line("prompt", " ".join(story["prompt_text"].split()))
    line("response", " ".join(story["response_text"].split()))
    if story["text_note"]:
        line("", story["text_note"])
    if story["formula"]:
        line("formula", story["formula"])
    if story["reward"] is None:
        line("reward", "none: no verdict. The row has mass 0, and nothing follows from it.")
        return
    verdict = {True: ", right", False: ", wrong", None: ""}[story["right"]]
    rate = "" if group["pass_rate"] is None else f", pass rate {group['pass_rate']:.3f}"
    line("reward", f"{number(story['reward'])}{verdict}; its group: mean reward {number(group['mean_reward'])}{rate}")
    if story["baseline"] is None:
        line("baseline", "the group's mean; the difference is divided by the group's standard deviation")
    else:
        line("baseline", f"{number(story['baseline'])}, what the reward is compared with")
    line("advantage", f"A = {number(story['advantage'])}")
    at = story["path"][story["at"]]
    if "missing" in at:
        line("then", at["missing"])
        return
    show_target(line, story, at)
    show_path(console, story)
    kind = f"{number(story['mass'])} of its group, length rule {story['norm']}, {count(story['length'], 'token')}"
    line("weight", f"{number(story['weight'])}: {kind}; update {story['update']} of {story['updates']}")
    direction = "raises" if at["gradient_sum"] < 0 else "lowers" if at["gradient_sum"] > 0 else "leaves"
    each = "" if at["gradient"] is None else f"{number(at['gradient'])} on each token, the same; "
    line("gradient", f"{each}descent {direction} the response; {at['share']:.2%} of the step's pull")
    show_tokens(console, story)


def show_target(line: Any, story: dict[str, Any], at: dict[str, Any]) -> None:
    """Where the row is pulled to."""
    if at["target"] is not None:
        tau = f"(tau {number(story['tau'])})"
        line("target", f"A / tau = {number(at['target'])} nats from {at['anchor']} {tau}: there the row is at rest")
    elif at["rest"] is not None:
        line("target", f"log-ratio {number(at['rest'])} nats: there the pull ends (the loss is no square)")
    elif story["advantage"] == 0:
        line("target", "none: the row has no advantage")
    elif at["per_token"]:
        line("target", "none for the response: the loss is one per token, each pushed by its own ratio")
    else:
        line("target", "none: no log-ratio of the response within 30 nats ends the pull")


def show_path(console: Console, story: dict[str, Any]) -> None:
    """Log-ratio, residual and gradient at each policy."""
    table = grid("the policy", "log-ratio", "residual", "loss", "coefficient")
    for name, at in story["path"].items():
        if "missing" in at:
            table.add_row(MEANING[name], at["missing"].split(":")[0], "", "", "")
            continue
        weight = story["weight"]
        coefficient = None if at["gradient"] is None or weight == 0 else at["gradient"] / weight
        table.add_row(
            MEANING[name],
            plain(at["log_ratio"], 4),
            plain(at["residual"], 4),
            number(at["loss"]),
            plain(coefficient, 4),
        )
    console.print(table)
    console.print(
        "log-ratio s = log pi/pi_old of the response, nats; residual A - tau s, reward units; coefficient "
        "d loss / d log pi(y), before the weight",
        soft_wrap=True,
    )


def show_tokens(console: Console, story: dict[str, Any], most: int = 40) -> None:
    """The gradient on each token."""
    table = grid("token", "id", "logp_old", "logp", "gradient")
    for token in story["tokens"][:most]:
        table.add_row(
            repr(token["text"]), str(token["token"]), f"{token['logp_old']:.4f}", plain(token["logp"], 4),
            number(token["gradient"]),
        )  # fmt: skip
    console.print(table)
    if len(story["tokens"]) > most:
        console.print(f"and {len(story['tokens']) - most} more tokens; --json has all")
    if any(token["logp"] is None for token in story["tokens"]):
        console.print("logp: not recorded by token, the update saw the sum of the response only", soft_wrap=True)
