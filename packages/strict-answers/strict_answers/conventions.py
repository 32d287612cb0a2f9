r"""What counts as the same answer, row by row: `TABLE` decides, the other modules of this folder implement it.

These are choices, not mathematics: other checkers choose differently. The tests execute every row.
"""

from typing import NamedTuple

from strict_answers.verdict import Path


class Convention(NamedTuple):
    """One decision: how this answer is judged for this gold, and why."""

    what: str
    gold: str
    answer: str
    correct: bool
    path: Path
    why: str


TABLE = (
    Convention("plain integer", "34", "34", True, "integer", "the usual case"),
    Convention("other integer", "34", "35", False, "integer", ""),
    Convention("leading zeros", "34", "034", True, "integer", "AIME writes three digits"),
    Convention("plus sign", "34", "+34", True, "integer", ""),
    Convention("unicode minus", "-34", "−34", True, "integer", "models write it; the value is plain"),
    Convention("minus matters", "34", "-34", False, "integer", ""),
    Convention("thousands comma", "1234", "1,234", True, "integer", "groups of three only"),
    Convention("LaTeX thousands", "1234", "1{,}234", True, "integer", ""),
    Convention("thousands space", "1234", "1 234", True, "integer", "groups of three only"),
    Convention("list with a space", "32349", "32, 349", False, "rejected", "a comma and a space separate two answers"),
    Convention("zero decimals", "34", "34.00", True, "integer", "34.00 dollars are 34 dollars"),
    Convention("another decimal", "34", "34.5", False, "integer", "no rounding to the gold"),
    Convention("exact ratio", "34", "68/2", True, "integer", "equal in value; integers divide exactly"),
    Convention("LaTeX ratio", "34", r"\frac{68}{2}", True, "integer", "as above"),
    Convention("dollar signs", "34", "$34$", True, "integer", "mathematics mode says nothing"),
    Convention("full stop", "34", "34.", True, "integer", "the end of a sentence"),
    Convention("box", "34", r"$\boxed{34}$", True, "integer", "a box on the answer line says nothing"),
    Convention("text command", "34", r"\text{34}", True, "integer", ""),
    Convention("markdown", "34", "**34**", True, "integer", ""),
    Convention("quotes", "34", '"34"', True, "integer", ""),
    Convention("currency", "34", r"\$34", True, "integer", "the question names the currency"),
    Convention("mixed number", r"\frac{3}{2}", "1 1/2", True, "integer", "one number, with a proper fraction"),
    Convention(
        "unit", "34", "34 cm", True, "integer", "units are not checked: golds carry none, and labelled data agree"
    ),
    Convention("unit in LaTeX", "34", r"34 \text{ cm}^2", True, "integer", "as above"),
    Convention("degree", "34", r"34^\circ", True, "integer", "as above; some golds carry it, some do not"),
    Convention("unit of the gold", r"10\text{ units}", "10", True, "integer", "as above, the other way round"),
    Convention("variable, no unit", "34", "34x", False, "rejected", "one glued letter is a variable, and 34 has none"),
    Convention("ordinal", "6", "6th", True, "integer", "one number, one commitment"),
    Convention("percent", "34", "34%", False, "rejected", "34% is 0.34; which is meant is not guessed"),
    Convention("percent of hundreds", "34", r"3400\%", False, "rejected", "as above"),
    Convention("percent word", "34", "34 percent", False, "rejected", "as above"),
    Convention("percent of the gold", r"28\%", "28%", True, "integer", "both say so"),
    Convention("percent left out", r"28\%", "28", True, "integer", "the question says percent; 0.28 is not 28"),
    Convention("scaling word", "34", "34 million", False, "rejected", "the word changes the number"),
    Convention("hedge", "34", "about 34", False, "rejected", "no commitment to 34"),
    Convention("negation", "34", "not 34", False, "rejected", "says the contrary"),
    Convention("bound", "34", "at least 34", False, "rejected", "a range holds many numbers"),
    Convention("name = value", "34", "x = 34", True, "integer", "a name is not a second value"),
    Convention("names = value", "34", "m + n = 34", True, "integer", "no digit on the left: nothing else is offered"),
    Convention("computation = value", "34", "30 + 4 = 34", True, "symbolic", "one commitment: the members agree"),
    Convention("chain", "34", "1 = 2 = 34", False, "integer", "members that contradict the last: values to pick from"),
    Convention("chain of names", "34", "a = b = 34", True, "integer", "names contradict nothing"),
    Convention("chain that goes on", "34", "34 = 35", False, "integer", "the last member is the answer"),
    Convention("equation", "34", "2x = 34", False, "rejected", "an equation in x, and its solution is 17"),
    Convention(
        "approximation",
        "34",
        r"34.2 \approx 34",
        False,
        "rejected",
        "a link that is not an equality: the members differ",
    ),
    Convention("sentence", "34", "The answer is 34", True, "integer", "exactly one number among words"),
    Convention("sentence with currency", "9500", "It costs $9,500 per year.", True, "integer", "as above"),
    Convention("counted noun", "34", "34 blue marbles", True, "integer", "a plural names what was asked; not checked"),
    Convention("fraction word", "34", "34 hundredths", False, "rejected", "the word changes the number"),
    Convention("function word", "34", "square root of 34", False, "rejected", "not known before a value, so not 34"),
    Convention("comparison word", "34", "one more than 34", False, "rejected", "as above"),
    Convention("base word", "34", "34 in binary", False, "rejected", "not known behind a value, so not 34"),
    Convention("unknown word", "34", "lambda: 34", False, "rejected", "only what is known may stand around a number"),
    Convention("two numbers in words", "34", "34 pens and 3 cups", False, "rejected", "several numbers offered"),
    Convention("or", "34", "34 or 35", False, "rejected", "several answers for one"),
    Convention("list", "34", "34, 35", False, "rejected", "as above"),
    Convention("plus or minus", "34", r"\pm 34", False, "rejected", "two values"),
    Convention("digits apart", "34", "3 4", False, "rejected", "a blank joins groups of three only"),
    Convention("group of zero", "34", "0,034", False, "rejected", "no group begins with 0, and no comma is a point"),
    Convention("zero apart", "34", "0 34", False, "rejected", "two numbers side by side"),
    Convention("number in another base", "34", "34_8", False, "rejected", "34 in base 8 is 28"),
    Convention("base", "42_5", "42_{5}", True, "symbolic", "the same digits in the same base"),
    Convention("base in words", "42_5", "42 base 5", True, "symbolic", "as above"),
    Convention("other base", "42_5", "42_6", False, "symbolic", "another number"),
    Convention("base left out", "42_5", "42", False, "rejected", "another number; and 22 is not what was asked"),
    Convention("base ten", "34", "34_{10}", True, "integer", "says what is meant anyway"),
    Convention("two numbers", "34", r"34\textbf{5}", False, "rejected", "two numbers side by side"),
    Convention("ratio or time", "25", "25:1", False, "rejected", "two numbers"),
    Convention("list for a list", "(1,2)", "(1, 2)", True, "symbolic", "the gold has several values too"),
    Convention("set in another order", r"\{1,2\}", r"\{2,1\}", True, "symbolic", "a set has no order"),
    Convention("tuple in another order", "(1,2)", "(2,1)", False, "symbolic", "a tuple has one"),
    Convention("interval as inequality", r"(-\infty,2)", "x<2", True, "symbolic", "the same set"),
    Convention("other end", r"(-\infty,2)", r"x \leq 2", False, "rejected", "2 is in one of them"),
    Convention("pair by name", "(1,2)", "x=1, y=2", True, "symbolic", "in the order of the names"),
    Convention("roots by name", r"\{1,2\}", "x=2 or x=1", True, "symbolic", "one name, two values"),
    Convention("empty set", r"\emptyset", "no solution", True, "symbolic", "in all its spellings"),
    Convention("zero, not empty", r"\emptyset", "0", False, "rejected", "a set that is not empty"),
    Convention("degrees", r"\frac{1}{2}", r"\sin 30^\circ", True, "symbolic", "the sign says degrees"),
    Convention("radians", r"\frac{1}{2}", r"\sin 30", False, "symbolic", "no sign: radians"),
    Convention("imaginary", "34", "34i", False, "rejected", "the gold has no imaginary unit"),
    Convention("expression", "34", "2^5+2", True, "symbolic", "equal in value"),
    Convention("other expression", "34", r"16\sqrt{3}", False, "symbolic", ""),
    Convention("fraction for a decimal", "0.5", r"\frac{1}{2}", True, "integer", "equal in value"),
    Convention("rounded fraction", r"\frac{1}{3}", "0.33", False, "integer", "a rounded value is another value"),
    Convention("many places", r"\frac{1}{3}", "0.3333333", False, "integer", "as above, however many there are"),
    Convention("decimal for a surd", r"\sqrt{2}", "1.4142135623730950488", False, "symbolic", "as above"),
    Convention("repeating decimal", r"\frac{1}{3}", r"0.\overline{3}", True, "integer", "exact"),
    Convention("period in brackets", r"\frac{7}{12}", "0.58(3)", True, "integer", "exact"),
    Convention("period with dots", r"\frac{1}{3}", "0.333...", True, "integer", "the period is written out"),
    Convention("period of nines", "34", r"33.\overline{9}", False, "rejected", "dresses up a rounded number"),
    Convention("dots", "34", "34.0...", False, "rejected", "the value goes on, nobody knows how"),
    Convention("tilde", "34", "~34", False, "rejected", "says about, or strikes out"),
    Convention("e notation", "34", "3.4e1", False, "symbolic", "e is Euler's number in mathematics"),
    Convention("an unknown", r"\frac{1}{2}", r"\frac{x}{2x}", False, "rejected", "the gold has none; never parsed"),
    Convention("hidden number", "34", r"\phantom{34}", False, "rejected", "what no reader sees is not an answer"),
    Convention("infinite", "34", r"\cosh{\infty}", False, "symbolic", "no number is infinite"),
    Convention("matrix", "34", r"\det\begin{pmatrix}34&0\\0&1\end{pmatrix}", False, "rejected", "a task, not a value"),
    Convention("set for a pair", "(1,2)", r"\{1,2\}", False, "rejected", "a set has no order"),
    Convention(
        "formula among words", r"\frac{1}{2}", r"The answer is $\frac{1}{2}$.", True, "symbolic", "the same text"
    ),
    Convention("words", r"\text{Evelyn}", "Evelyn", True, "symbolic", "the same text, blanks apart"),
    Convention("exclamation mark", "34", "34!", False, "symbolic", "is read as a factorial"),
    Convention(
        "full-width digits",
        "34",
        "\uff13\uff14",
        False,
        "rejected",
        "ASCII digits only, on both sides of the comparison",
    ),
    Convention(
        "tower of powers", "34", "9^{9^{9}}", False, "rejected", "limits: nobody asks for it, and it is never parsed"
    ),
    Convention("huge factorial", "34", "99999999!", False, "rejected", "limits"),
    Convention("one to a huge power", "1", "1^{99999}", False, "rejected", "limits: true, and still not computed"),
    Convention(
        "unfinished sum", "34", r"\sum_{i=1}^{4} i", False, "rejected", "limits: an answer is a value, not a task"
    ),
)
