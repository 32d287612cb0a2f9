"""Text that is meant to hang, break or fool a verifier: every string has a decided outcome, fast, and none raises."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.envs.math_answers import Item
from pmdkit.envs.math_answers.decide import Pending, decide

NEVER_PARSED = [
    "9^{9^{9}}",
    "10^{10^{10}}",
    "9^9^9",
    "9**9**9",
    "{9^9}^9",
    "2^{2^{2^{2}}}",
    "10^{10^9}",
    "10^{999999999}",
    "2^{-99999}",
    "99999999!",
    "9!!",
    "9!!!!!!!!!!",
    "(3!)!",
    "(9!)!",
    "x!",
    "5!6!7!8!9!",
    r"\binom{10^9}{5\cdot10^8}",
    r"\binom{100000}{50000}/7",
    r"\sum_{n=1}^{10^9} n",
    r"\prod_{n=1}^{10^9} n",
    r"\int x^{10^9} dx",
    r"\lim_{x\to0} x",
    "(a+b+c+d+e+f+g+h)^{200}",
    "(x+1)^{999}",
    r"\frac{1}{(x+1)^{500}}",
    "{" * 50 + "1" + "}" * 50,
    "(" * 5000 + ")" * 5000,
    r"\sqrt{" * 2000 + "2" + "}" * 2000,
    r"\sqrt{" * 20 + "2" + "}" * 20,
    r"\frac{1}{" * 100 + "2" + "}" * 100,
    "9" * 1_000_000,
    "9." + "9" * 200_000,
    "1" * 5000 + "+1",
    "+".join("x" * 500),
    "*".join(["x^9"] * 60),
    r"\boxed{" * 50_000 + "34",
    "1e999999",
    "9" * 100 + "+1",
    "x" + "^2" * 40,
    "2^{9}" * 9,
    "((" * 30,
    "{" * 300,
    "x+" * 90,
    "=".join("34" * 40),
    "34 or 35",
    "34, 35",
    r"\pm34",
    "34=34=34",
    "0=34",
    r"33.9\approx34",
    "34%",
    r"3400\%",
    "not 34",
    "34 and 35",
    r"34 \text{ or } 35",
    "34; 35",
    "34 million",
    "34 → 34",
    "34\x00+1",
    "34\x1b[31m+1",
    "x\u200b+1",
    "x\u202e+1",
    "x\ud800+1",
    "x\udfff",
    r"\sum 34",
    "gamma(34)",
    "factorial(34)",
    r"34 \implies 35",
]
NOT_THE_ANSWER = [
    "__import__('os').system('true')",
    "exec('34')",
    "\u0663\u0664",
    "\uff13\uff14",
    "³⁴",
    "34!",
    "3\u200b4x",
    "³4",
    "0x22",
    "34j",
    "True",
    "None",
    "nan",
    "inf",
    r"\infty",
    "'; DROP TABLE",
    "${34}/{0}$",
    "34/0",
    "0/0",
    "{34",
    "34}}",
    r"\frac{34}",
    r"\frac{34}{0}",
    r"\left(34",
    r"\begin{matrix}34\\34\end{matrix}",
    "<script>34</script>",
    "%s%n",
    "34" + "0" * 400,
]


@pytest.mark.parametrize("attack", range(len(NEVER_PARSED)))
def test_never_parsed(attack):
    verdict = decide("Answer: " + NEVER_PARSED[attack], "34")
    assert not isinstance(verdict, Pending), verdict
    assert verdict.correct is False
    assert len(verdict.extracted or "") < 1100


def test_hostile_items_change_no_other_verdict(grader):
    """Every second item is hostile; the good ones are all right, the hostile ones never right."""
    hostile = NEVER_PARSED + NOT_THE_ANSWER
    items = [item for text in hostile for item in (Item("Answer: " + text, "34"), Item("Answer: 2^5+2", "34"))]
    verdicts = grader.grade(items)
    assert all(verdict.correct is True for verdict in verdicts[1::2])
    assert not [text[:40] for text, verdict in zip(hostile, verdicts[::2], strict=True) if verdict.correct]


def test_the_guard_holds_for_no_rule_that_the_gold_breaks(grader):
    assert grader.grade([Item(r"Answer: 2^{2024}", "2^{2024}")])[0].correct is True
    assert isinstance(decide(r"Answer: 4^{1012}", "2^{2024}"), Pending)
    assert isinstance(decide(r"Answer: \sum_{k=0}^n k^2", r"\sum_{k=1}^n k^2"), Pending)


def surface_forms(value: int) -> list[str]:
    sign, digits = ("-" if value < 0 else ""), str(abs(value))
    grouped = f"{abs(value):,}"
    return [
        f"{sign}{digits}",
        f"{sign}{grouped}",
        f"{sign}{grouped.replace(',', '{,}')}",
        f"{sign}{grouped.replace(',', ' ')}",
        f"{sign}000{digits}",
        f"${sign}{digits}$",
        rf"\({sign}{digits}\)",
        rf"\boxed{{{sign}{digits}}}",
        rf"$\boxed{{{sign}{digits}}}$.",
        f"**{sign}{digits}**",
        f"{sign}{digits}.",
        f"{sign}{digits},",
        f"{sign}{digits}.0",
        f"{sign}{digits}.00",
        f"x = {sign}{digits}",
        f"\u2212{digits}" if sign else f"+{digits}",
        f"{sign}{digits} cm",
        rf"{sign}{digits}^\circ",
        rf"{sign}{digits}\text{{ units}}",
        f"`{sign}{digits}`",
        f'"{sign}{digits}"',
        rf"\text{{{sign}{digits}}}",
        f"{sign}${digits}",
        f"${sign}{grouped}$",
        f"{2 * value}/2",
        rf"\frac{{{3 * value}}}{{3}}",
        f"The answer is {sign}{digits}.",
    ]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(-(10**30), 10**30))
def test_integers_round_trip_in_every_form(value):
    for form in surface_forms(value):
        right, wrong = decide(f"Answer: {form}", str(value)), decide(f"Answer: {form}", str(value + 1))
        assert not isinstance(right, Pending), form
        assert right.correct is True, (form, right)
        assert not isinstance(wrong, Pending)
        assert wrong.correct is False, form


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        " ",
        "(",
        "{",
        "}",
        "^",
        "^{",
        "a_",
        "a.",
        "$",
        "-",
        ", ",
        "1,",
        "1 ",
        "a'",
        "\\",
        "\\text{",
        "=",
        "a b",
        "*",
        "a(",
        "|",
    ],
)
def test_no_repetition_is_slow_to_scan(unit):
    """A pattern that backtracks takes minutes here, one that does not takes milliseconds."""
    start = time.process_time()
    for tail in ("", "1", "!", "é", "=34", "34é"):
        for gold in ("34", r"\sqrt{2}", "(1,2)"):
            decide("Answer: " + (unit * 1000)[:990] + tail, gold)
            decide("Answer: 34 " + (unit * 1000)[:980] + tail, gold)
    assert time.process_time() - start < 10


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(), st.text(), st.booleans(), st.booleans())
def test_no_text_raises(text, gold, boxed, truncated):
    for response in (text, f"Answer: {text}", rf"\boxed{{{text}}}"):
        decide(response, gold, boxed=boxed, truncated=truncated)


LATEX = st.lists(
    st.sampled_from(
        [
            "1",
            "34",
            "x",
            "+",
            "-",
            "=",
            "^",
            "_",
            "{",
            "}",
            "(",
            ")",
            ",",
            "!",
            "%",
            " ",
            "\\frac",
            "\\sqrt",
            "\\text{",
            "\\boxed{",
            "\\pi",
            "\\cdot",
            "or",
            "cm",
            "/",
            ".",
            "$",
            "\\\\",
            "\\",
        ]
    ),
    max_size=14,
).map("".join)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(spans=st.lists(LATEX, min_size=20, max_size=20))
def test_no_mathematics_raises_or_stalls(grader, spans):
    """Junk close to mathematics reaches the worker; whatever it does there, a plain answer beside it is right."""
    verdicts = grader.grade([Item(f"Answer: {span}", gold) for span in spans for gold in ("34", r"\sqrt{2}")])
    assert all(verdict.correct in (True, False, None) for verdict in verdicts)
    assert grader.grade([Item("Answer: 2^5+2", "34")])[0].correct is True
