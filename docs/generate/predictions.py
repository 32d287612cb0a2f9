"""Questions of a lesson's "Predict" that the site asks before it shows the answer; the notebooks stay plain.

A question is written in a comment at the end of that section: a minus before each wrong answer, a plus before the right
one, and an equals sign before the sentence that says why.

    <!-- predict: Where does the path of PMD-mean end?
      - in the corner of the best action
      + on an edge
      = Two actions earn more than the mean. -->

A question may also be answered by drawing. Each line with a colon is a value that the page's script needs. Readers drag
the end of PMD-mean's path in the triangle (`predict-path`), or draw the share of the gap that it closes over the pass
rate (`predict-curve`). explore/predict/main.js computes the answer.

    <!-- predict-curve: Draw the line for tau = 0.02.
      : tau 0.02
      = Only p / tau counts. -->

javascripts/predict.js dims what follows until each question is answered or skipped. Without it, everything is shown.
"""

import html
import re
from dataclasses import dataclass

PREDICT = re.compile(r"\n?<!-- predict(?:-([a-z]+))?: ((?:(?!-->).)*?)\s-->", re.DOTALL)
DRAWN = {"path": {"pi", "reward"}, "curve": {"tau"}}
EXPLORE = re.compile(r"\n?<!-- explore: ([a-z]+) -->")
CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Prediction:
    """A question that is answered by a choice or by drawing.

    Attributes:
        question: its text.
        answers: to choose from; none for a drawn answer.
        right: index of the right answer; -1 for a drawn one.
        why: a sentence with the reason.
        drawn: what is drawn, a key of DRAWN; "" for a choice.
        values: (name, value) pairs that the script needs for a drawn answer.
    """

    question: str
    answers: tuple[str, ...]
    right: int
    why: str
    drawn: str = ""
    values: tuple[tuple[str, str], ...] = ()


def predictions_of(source: str) -> list[Prediction]:
    """The questions of a Markdown cell. ValueError unless each has two or more answers, one right, and a reason."""
    if len(PREDICT.findall(source)) != source.count("<!-- predict"):
        raise ValueError(f"a question does not end with -->:\n{source}")
    found = []
    for drawn, text in PREDICT.findall(source):
        parts = [" ".join(part.split()) for part in re.split(r"\n\s+(?=[-+=:] )", text)]
        answers = [part for part in parts[1:] if part[0] in "-+"]
        why = [part[2:] for part in parts if part.startswith("= ")]
        if drawn:
            values = tuple((part[2:] + " ").split(" ", 1) for part in parts[1:] if part[0] == ":")
            if {name for name, _ in values} != DRAWN.get(drawn) or len(why) != 1 or answers:
                raise ValueError(
                    f"a drawn question is one of {DRAWN} with these values and a reason after =; got:\n{text}"
                )
            found.append(
                Prediction(parts[0], (), -1, why[0], drawn, tuple((name, row.strip()) for name, row in values))
            )
            continue
        right = [i for i, answer in enumerate(answers) if answer[0] == "+"]
        if len(answers) < 2 or len(right) != 1 or len(why) != 1:
            raise ValueError(f"a question has two answers or more, one with a plus, and a reason after =; got:\n{text}")
        found.append(Prediction(parts[0], tuple(answer[2:] for answer in answers), right[0], why[0]))
    return found


def form_of(prediction: Prediction, name: str) -> str:
    """A question as a form. The right answer is in the page: this is a prediction, not an exam."""
    if prediction.drawn:
        values = "".join(f' data-{key}="{html.escape(row)}"' for key, row in prediction.values)
        return (
            f'<form class="predict" data-predict="{name}" data-draw="{prediction.drawn}"{values}>\n'
            f"<fieldset>\n<legend>{inline(prediction.question)}</legend>\n"
            '<div class="explore predict-stage"></div>\n'
            '<button type="submit" class="predict-done">This is my guess</button>\n</fieldset>\n'
            f'<p class="predict-why" role="status">{inline(prediction.why)}</p>\n</form>'
        )
    options = "\n".join(
        f'<label><input type="radio" name="{name}" value="{i}"> <span>{inline(answer)}</span></label>'
        for i, answer in enumerate(prediction.answers)
    )
    return (
        f'<form class="predict" data-predict="{name}" data-right="{prediction.right}">\n<fieldset>\n'
        f"<legend>{inline(prediction.question)}</legend>\n{options}\n</fieldset>\n"
        f'<p class="predict-why" role="status">{inline(prediction.why)}</p>\n</form>'
    )


def inline(text: str) -> str:
    """Plain text for a page; `code` in backticks is set as code."""
    return CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))


def plain(source: str) -> str:
    """A Markdown cell without questions and markers of explorables."""
    return EXPLORE.sub("", PREDICT.sub("", source))


def on_the_site(source: str, lesson: str) -> str:
    """A Markdown cell with its questions as forms, before the section that follows Predict, and its explorables."""
    asked = predictions_of(source)
    forms = [form_of(one, f"{lesson}-{n}") for n, one in enumerate(asked, 1)]
    text = EXPLORE.sub(lambda place: f"\n\n{embedded(place[1])}\n", PREDICT.sub("", source))
    if not forms:
        return text
    block = '<div class="predictions">\n' + "\n".join(forms) + "\n</div>"
    if any(one.drawn for one in asked):
        block += '\n<script type="module" src="../../../explore/predict/main.js"></script>'
    before, heading, after = text.partition("\n## Run")
    return f"{before.rstrip()}\n\n{block}\n{heading}{after}"


def embedded(name: str) -> str:
    """An explorable in a lesson; its page has more to try. Paths are relative to learn/lessons/NUMBER/."""
    place = f"../../../explore/{name}"
    return (
        f'<link rel="stylesheet" href="{place}/style.css">\n'
        f'<div class="explore lesson-explore" data-explore="{name}">\n'
        f'--8<-- "docs/explore/.static/lesson-{name}.html"\n</div>\n'
        f'<script type="module" src="{place}/main.js"></script>\n\n'
        f"[This explorable on a page of its own, with more to try](../../explore/{name}/index.md)."
    )
