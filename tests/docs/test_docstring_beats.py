"""The beats of a docstring are found wherever style puts them: on a line of their own, or after a sentence."""

from generate.docstring_beats import paragraphs, split_beats

TEXT = """One sentence.

Source: arXiv:2602.05933, Theorem 1. Differs: the length,
which Theorem 1 has not.

Args:
    tau: temperature.

Good values: tau = 0.05.
Watch: the source: it may lie; Watch: this stays inside.
"""


def test_beats_end_at_the_next_beat_or_blank_line():
    assert split_beats(TEXT) == {
        "Source": "arXiv:2602.05933, Theorem 1.",
        "Differs": "the length, which Theorem 1 has not.",
        "Good values": "tau = 0.05.",
        "Watch": "this stays inside.",
    }


def test_a_word_inside_a_sentence_is_no_beat():
    assert split_beats("Read the Source: it is short.") == {}


def test_paragraphs_keep_every_word():
    assert paragraphs(TEXT).replace("**", "").split() == TEXT.split()


def test_each_beat_becomes_a_paragraph():
    assert "\n\n**Source:** arXiv" in paragraphs(TEXT)
    assert "\n\n**Watch:** the source" in paragraphs(TEXT)
