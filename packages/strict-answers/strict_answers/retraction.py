"""Whether a response denies or takes back its answer: in the words before the marker, or in what it says afterwards.

A policy that may hedge behind its answer learns to. Explanations, checks and greetings afterwards change nothing.
"""

import re

from strict_answers.normalization import strip_decoration
from strict_answers.numerals import parse_number
from strict_answers.vocabulary import ANNOUNCING, DENYING

VALUE = r"(?:\$|\\[A-Za-z(\[]|[-−+]?[0-9])"
TAKEN_BACK = re.compile(
    r"\b(?:is|was|are|were|be|being|am|seems?|looks?|['’][sm]|that|this|it|above)(?: \w+)? "
    r"(?:wrong(?! to)|incorrect|mistaken|false|invalid|erroneous)\b|\bguess(?:ed|ing)?\b|\bdoubt\b|\bchanged my mind\b"
    r"|(?:^|[.!?\n(] *)(?:wrong|incorrect|false|no|nope|reject(?:ed)?|edit|update|erratum|revised)\b[:,.!)]"
    r"|(?:\bnot|n['’]t|\bno longer|\bcannot be)(?: (?:quite|the|be|actually|really|so))* "
    r"(?:correct|right|true|valid|final|answer|sure|certain|think|believe|trust|use|hold|really)\b|\b(?:uncertain|unsure)\b"
    r"|(?<!without )(?<!no )\b(?:an?|my|the|some|one)(?: (?!common|typical)\w+)? "
    r"(?:mistake|error|slip|typo|miscalculation|miscount)\b"
    r"|\b(?:oops|whoops|apolog\w+|sorry|my bad|never ?mind|correction|(?:up)?on (?:second|further|reflection)|oh no)\b"
    r"|\b(?:ignore|disregard|discard|forget|retract|withdraw|replace|scratch|strike)"
    r" (?:(?:the|this|that|it|my|above|what|previous|last) ?)+(?:line|answer|result|value|above|number|\W|$)"
    r"|\btake (?:that|this|it|my answer) back\b|\b(?:recomput|recalculat)\w*|\bactually,? (?:no|that|this|it|i)\b"
    r"|\bi(?: \w+)? (?:forgot|overlooked|missed|mis\w+|meant?|retract|withdraw)\b"
    r"|\blet me (?:redo|reconsider|rethink|try again|start over|fix|correct)\b"
    rf"|\bshould (?:rather )?(?:be|have been|read)(?: the)? (?:{VALUE}|[a-z])(?!orrect|ight)"
    rf"|\bor (?:maybe|perhaps|rather|possibly)\b|\bc(?:ould|an) (?:also )?be {VALUE}"
    rf"|\b(?:alternatively|instead|rather|actually|make (?:it|that))[,:]? {VALUE}",
    re.IGNORECASE,
)
DOUBT = re.compile(r"\b(?:wait|hmm+|hold on)\b", re.IGNORECASE)
"A check may still settle it: the last number must then be the answer."
STATED = re.compile(
    r"(?:\b(?:answer|result|value|total|solution|sum|number|it|that|which)"
    r"(?: (?:is|was|equals|becomes|must be)|['’]s| ?[=:])(?: therefore| then| thus| in fact| actually| really)? ?:? ?"
    rf"(?={VALUE})|(?=\\(?:boxed|fbox) ?\{{))([^\n]*?)(?=\.(?:\s|$)|[,;]\s|[\n!]|$)",
    re.IGNORECASE,
)
"A value stated once more, to the end of its clause."
ALONE = re.compile(
    r"(?:^|\n|[.!?] )[*$( ]*(?:(?:so|thus|hence|therefore|or|and|but|then|now|final(?:ly)?|better|result|answer|exactly"
    rf"|to be precise)[,:]? )*(?:[A-Za-z]? ?= ?)?(?=\S*[0-9])({VALUE}\S*?)[*$).!]*"
    r"(?: is (?:the )?(?:correct|right)[^\n]*)?(?=\n|$)",
    re.IGNORECASE,
)
"A line that holds nothing but a value."
READ = 20_000
"Characters that are read after an answer."


def denied(before: str) -> bool:
    """Whether the words that lead to the marker say that it is no answer: `No answer: 34`, `a wrong answer: 34`."""
    clause = re.split(r"[.;:!?,\n]", before.rstrip(" *_`#\t-"))[-1]
    words = re.findall(r"[A-Za-z]+(?:['’][a-z]+)?", clause.lower())
    if any(word in DENYING or word.endswith(("n't", "n’t")) for word in words):
        return True
    attached = re.search(r"([A-Za-z'’]{2,})[)\]]?$", clause)
    return attached is not None and attached[1].lower() not in ANNOUNCING and "\\" not in clause


def taken_back(after: str, span: str) -> bool:
    """Whether what follows an answer says that it is wrong, offers another one, or states another value."""
    after, value = after[:READ], strip_decoration(span)
    if TAKEN_BACK.search(after) or re.search(rf"(?i:\bnot|n['’]t) \$?{re.escape(value)}(?![0-9A-Za-z])", after):
        return True
    last = re.findall(r"-?[0-9]+(?:[.,/][0-9]+)*", after)[-1:] if DOUBT.search(after) else [value]
    return not last or any(not same(stated, value) for stated in (*last, *STATED.findall(after), *ALONE.findall(after)))


def same(stated: str, value: str) -> bool:
    """Whether a value that is stated again is the same text or number, or begins with it, or is a choice."""
    stated = strip_decoration(stated.strip("$ "))
    one, other = parse_number(stated.replace(",", "")), parse_number(value.replace(",", ""))
    if one is not None and other is not None:
        return one == other
    return stated.startswith(value) or re.fullmatch(r"\(?[A-H]\)?", stated) is not None
