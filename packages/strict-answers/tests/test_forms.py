"""No gold is out of reach: every way in which models write an integer, or frame any answer, is accepted."""

import json
import random
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from strict_answers.rules import Pending, grade_by_rules

SUITES = Path(__file__).with_name("suites.jsonl")


def integer_forms(value):
    """Forty spellings of an integer and what may stand around it."""
    sign, digits, grouped = "-" * (value < 0), str(value), f"{value:,}"
    return [
        *(digits, f"{digits}.", f"{digits},", f"{digits}.0", f"{digits}.00", f" {digits} ", f"\n{digits}"),
        *(f"${digits}$", f"${digits}$.", rf"\({digits}\)", rf"\[{digits}\]", f"$${digits}$$", rf"\boxed{{{digits}}}"),
        *(f"**{digits}**", f"`{digits}`", f'"{digits}"', rf"\text{{{digits}}}", rf"\mathbf{{{digits}}}"),
        *(f"{sign}000{abs(value)}", grouped, grouped.replace(",", "{,}"), grouped.replace(",", " "), f"${grouped}$"),
        *(f"x = {digits}", f"{digits} cm", rf"{digits}^\circ", rf"{digits}\text{{ units}}", f"{sign}${abs(value)}"),
        *(f"\u2212{abs(value)}" if sign else f"+{digits}", rf"\frac{{{2 * value}}}{{2}}", f"{3 * value}/3"),
        *(f"The answer is {digits}.", f"The answer is **{digits}**.", f"The answer is ${digits}$."),
        *(f"$$\n\\boxed{{{digits}}}\n$$", f"{digits}\nThis is because it fits."),
    ]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(-(10**30), 10**30))
def test_integers_round_trip_in_every_form(value):
    for form in integer_forms(value):
        right, wrong = grade_by_rules(f"Answer: {form}", str(value)), grade_by_rules(f"Answer: {form}", str(value + 1))
        assert not isinstance(right, Pending), form
        assert right.correct is True, (form, right)
        assert not isinstance(wrong, Pending)
        assert wrong.correct is False, form


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(-(10**30), 10**30))
def test_an_answer_may_be_said_once_more_in_every_form(value):
    stated = [form for form in integer_forms(value) if "answer" not in form and "\n" not in form]
    for form in stated:
        for lead in ("So the answer is {}.", "Thus the total equals {}", "The result: {}"):
            after = lead.format(form.strip(" .,"))
            assert grade_by_rules(f"Answer: {value}\n{after}", str(value)).correct is True, after
            assert grade_by_rules(f"Answer: {value + 1}\n{after}", str(value + 1)).correct is False, after


def frames(gold):
    """Twenty ways to frame any answer."""
    spaced = gold.replace("+", " + ").replace("=", " = ")
    return [
        *(gold, f"{gold}.", f" {gold} ", f"${gold}$", f"${gold}$.", f"$ {gold} $", rf"\({gold}\)", rf"\( {gold} \)"),
        *(f"$${gold}$$", rf"\[{gold}\]", f"$$\n{gold}\n$$", f"\\[\n{gold}\n\\]", rf"\boxed{{{gold}}}"),
        *(rf"$\boxed{{{gold}}}$", rf"$\boxed{{{gold}}}$.", f"**${gold}$**", f"\n{gold}", f"\n\n${gold}$", spaced),
        *(
            f"{gold}\nThis is because it fits.",
            f"The answer is ${gold}$.",
            rf"The answer is \({gold}\)",
            f"$${gold}$$.",
        ),
    ]


def test_golds_of_every_kind_are_accepted_in_twenty_frames(judge):
    """A gold that its own text does not reach would be a problem that nobody can solve.

    The golds are those of other suites, without whole solutions and broken ones that stand where a gold should.
    """
    rows = [json.loads(line) for line in SUITES.read_text("utf-8").splitlines()]
    golds = {row["gold"].strip("$") for row in rows if row.get("gold")}
    golds = sorted(gold for gold in golds if 0 < len(gold) < 80 and not any(mark in gold for mark in ("box", "$")))
    random.Random(0).shuffle(golds)
    golds = [gold for gold in golds if not gold.endswith("\\")][:120]
    assert len(golds) >= 100
    missed = [(form, gold) for gold in golds for form in frames(gold) if judge(f"Answer: {form}", gold)[0] is not True]
    assert not missed, f"{len(missed)}: {missed[:20]}"
