"""Whether a response denies or takes back its answer: in the words before the marker, or in what it says afterwards.

A policy that may hedge behind its answer learns to. Explanations, checks and greetings afterwards change nothing.
"""

import re

from strict_answers.normalization import strip_decoration
from strict_answers.numerals import parse_number
from strict_answers.vocabulary import ANNOUNCING, DENYING

VALUE = r"(?:\$|\\[A-Za-z(\[]|[-−+]?[0-9])"
TAKEN_BACK = re.compile(
    r"\b(?:is|was|are|were|be|being|am|seems?|looks?|['’][sm]|that|this|it|above)(?: (?:just|all|also|clearly|still))? "
    r"(?:wrong(?! to)|incorrect|mistaken|false|invalid|erroneous|a (?:\w+ )?guess)\b"
    r"|(?:^|[.!?\n] *)(?:wrong|incorrect|false|no|nope|edit|update|erratum|revised)\b[:,.!]"
    r"|\b(?:not|isn['’]t|cannot be|can['’]t be|couldn['’]t be|wasn['’]t)(?: (?:quite|the|be|actually))* "
    r"(?:correct|right|true|valid|final|answer)\b"
    r"|(?<!without )(?<!no )\b(?:an?|my|the|some|one)(?: (?!common|typical)\w+)? "
    r"(?:mistake|error|slip|typo|miscalculation|miscount)\b"
    r"|\b(?:oops|whoops|apolog\w+|sorry|my bad|never ?mind|correction|on second thought|(?:scratch|strike) (?:that|it))"
    r"|\b(?:ignore|disregard|discard|forget|retract|withdraw|replace)"
    r" (?:(?:the|this|that|my|above|what|previous|last) ?)+(?:line|answer|result|value|above|number|\W|$)"
    r"|\btake (?:that|this|it|my answer) back\b|\b(?:un|not (?:so |really )?)(?:sure|certain)\b"
    r"|\bi(?: \w+)? (?:forgot|overlooked|missed|mis\w+|meant?|retract|withdraw|guess(?:ed)?)\b"
    r"|\blet me (?:redo|recompute|recalculate|reconsider|rethink|try again|start over|fix|correct)\b"
    rf"|\bshould (?:rather )?(?:be|have been|read)(?: the)? (?:{VALUE}|[a-z])(?!orrect|ight)"
    r"|\bor (?:maybe|perhaps|rather|possibly)\b"
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
READ = 20_000
"Characters that are read after an answer."


def denied(before: str) -> bool:
    """Whether the words that lead to the marker say that it is no answer: `No answer: 34`, `a wrong answer: 34`."""
    clause = re.split(r"[.;:!?,\n]", before.rstrip(" *_`#\t"))[-1]
    words = re.findall(r"[A-Za-z]+(?:['’][a-z]+)?", clause.lower())
    if any(word in DENYING or word.endswith(("n't", "n’t")) for word in words):
        return True
    attached = re.search(r"([A-Za-z]{2,})[)\]]?$", clause)
    return attached is not None and attached[1].lower() not in ANNOUNCING and "\\" not in clause


def taken_back(after: str, span: str) -> bool:
    """Whether what follows an answer says that it is wrong, offers another one, or states another value."""
    after, value = after[:READ], strip_decoration(span)
    if TAKEN_BACK.search(after) or re.search(rf"\bnot \$?{re.escape(value)}(?![0-9A-Za-z])", after):
        return True
    last = re.findall(r"-?[0-9]+(?:[.,/][0-9]+)*", after)[-1:] if DOUBT.search(after) else [value]
    return not last or any(not same(stated, value) for stated in (*last, *STATED.findall(after)))


def same(stated: str, value: str) -> bool:
    """Whether a value that is stated again is the same text or number, or begins with it, or is a choice."""
    stated = strip_decoration(stated)
    one, other = parse_number(stated.replace(",", "")), parse_number(value.replace(",", ""))
    if one is not None and other is not None:
        return one == other
    return stated.startswith(value) or re.fullmatch(r"\(?[A-H]\)?", stated) is not None
