"""Whether a response denies or takes back its answer: in the words before the marker, or in what it says afterwards.

A policy that may hedge behind its answer learns to. Explanations, checks and greetings afterwards change nothing.
"""

import re
from fractions import Fraction
from string import ascii_lowercase

from strict_answers.normalization import strip_decoration, without_dollars
from strict_answers.numerals import parse_number
from strict_answers.vocabulary import (
    ANNOUNCING,
    CHANGES,
    DISOWNING,
    HEADS,
    NEGATING,
    REFERRING,
    SECOND_HAND,
    STATING,
    TWISTED,
)

READ = 20_000
"Characters that are read after an answer."
GROUPS = re.compile(r"(?<![0-9.])[1-9][0-9]{0,2}(?:(?:\{,\}|\\[,;: ]| )[0-9]{3})+(?![0-9])")
"1{,}000 and 1 000; commas alone are read with the number."
NUMBERED = re.compile(r"^ *[0-9]{1,2}[.)] (?=[a-z])", re.MULTILINE)
"The number of a step in a list."
VALUE = r"(?:\$|\\[a-z(\[]|[-−+]?[0-9])"
STATED = re.compile(
    r"(?:\b(?:answer|result|value|total|solution|sum|number|it|that|which)"
    r"(?: (?:is|was|equals|becomes|must be)|['’]s| ?[=:])(?: therefore| then| thus| in fact| actually| really)? ?:? ?"
    rf"(?={VALUE})|(?=\\(?:boxed|fbox) ?\{{))([^\n]*?)(?=\.(?:\s|$)|[,;]\s|[\n!]|$)"
)
"A value stated once more, to the end of its clause."
WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?")
SUSPECT = frozenset(word.encode() for word in NEGATING | DISOWNING | CHANGES | {"t"})
LETTERS = bytes(code if chr(code) in ascii_lowercase else ord(" ") for code in range(256))
"Leaves small letters and turns all else into blanks: isn't becomes `isn t`."
SENTENCE = re.compile(r"[.!?](?=\s|$)|[;\n]")
CLAUSE = re.compile(r"[.;:!?,]")
VALUED = re.compile(r"[0-9$\\]")
NUMBER = re.compile(r"\\[dt]?frac\{-?[0-9]+\}\{[0-9]+\}|(?<![0-9A-Za-z_.^{#])(?<!\{-)[-−]?[0-9]+(?:[.,/][0-9]+)*")
OTHERS = re.compile(
    r"\b(?:common|typical|frequent|usual|classic|easy|no|without|any|avoid\w*)(?: \w+)? (?:mistake|error|slip|doubt)"
    r"|\bno other\b"
    r"|\b(?:other|negative|extraneous) (?:root|solution|value|case)s?\b.* (?:rejected|discarded|impossible)\b"
    r"|(?:^|: )\W*(?:all |the )?(?:wrong|incorrect) (?!answer|value|result|line|number|sign|one)[a-z]"
)
"Mistakes that other people make, or that nobody makes here."
DENIED = re.compile(
    r"\b(?:this|that|it|i|answer|above|value|result|(?<!we )do)(?:['’]s)?(?: [a-z]+){0,3}?"
    r"(?:n['’]t| not| never| cannot| no longer)\b"
    r"(?! (?:be )?(?:a coincid|need|requir|depend|matter|affect|surpris|hard|difficult|necessary|only|just|possible"
    r"|simplif|reduc|improv|exceed))"
    r"|^\W*(?:no|nope|not|never)\b(?! [a-z]+ [a-z]+)|\bnot (?:sure|certain|confident|correct|right|true|valid)\b"
    r"|\bno idea\b|(?:\bnot|\bnever|n['’]t) (?:trust|believe|accept|count|grade|submit) (?:this|that|it)\b"
)
"A negation about the answer; not one about what a step needs, or how hard it is."
DOUBT = re.compile(r"\b(?:wait(?! for)|hmm+)\b")
"A check may still settle it: the last number must then be the answer."
DOUBTED = re.compile(
    r"\b(?:answer|value|result|line|number)(?: above)? (?:is|was|could|might|may|seems|looks)\b"
    r"(?! ?:| (?:(?:also|indeed|then|thus) )?(?:[-+*($\\0-9`\"“]|[a-z] ?="
    r"|(?:[a-h]|an|the|in|as|correct|right|exact|final|unique|valid|simplified|verified|confirmed)\b))"
)
"A remark about the answer other than praise."
CHANGED = re.compile(
    r"\b(?:my mind|take (?:that|this|it|my answer) back|on (?:second|further|reflection)|off by|oh no|hold on"
    r"|let me (?:re(?!check|verify)\w+|try|start|fix|correct)|should (?:\w+ )?(?:be|have been|read)(?! correct| right)"
    r"|(?:more|less|greater|larger|smaller|fewer) than (?:that|this|it)"
    r"|(?:other|two|several|second) (?:possible )?(?:answer|solution|value)s?|counted twice"
    r"|i (?:\w+ )?(?:forgot|overlooked|missed|mean|mis\w+)|(?:double|halve|square|negate|reverse|flip) (?:it|that))\b"
    r"|~~|^\W*(?:or|but|unless|(?:(?:now|then|finally),? )?(?:divide|multiply|subtract|add))\b"
    r"|\b(?:made (?:that|this|it) up|forget (?:it|that|this)|too (?:high|low|big|small) by)\b"
    r"|(?:only|just|merely) an? (?:\w+ )?(?:bound|estimate)\b"
    r"|\bconfidence\W+(?:is )?(?:very )?low\b|\b(?:only|just) [0-9]+ ?\\?% (?:sure|confident|certain)\b"
)
"Each alternative holds a word of `CHANGES`, one that begins with `mis`, or two tildes."
CHECKED = re.compile(r"\b(?:check|verif|confirm)[^=]*=|\bconfidence\b")
"Numbers of a check are not stated as answers."
ASIDE = re.compile(
    r"\b(?:when|where)\b.*|\b(?:since|because|if|given) [^,]*|\bbetween -?[0-9]+ and -?[0-9]+"
    r"|\bwe (?:add|multipl|divid|use|choose|chose|start|consider|sum)[^,]*|\bfor \$?[a-z] ?= ?-?[0-9]+"
    r"|\(-?[0-9]+(?:, ?-?[0-9]+)+\)"
    r"|(?:\$|\\[\[(])[^$]{0,99}?(?:[0-9)][a-z]|[a-z]\^)[^$]*(?:\$|\\[\])]|$)"
)
"Nor are numbers of a subordinate clause, a range, a point, a step that was taken, or a formula with unknowns."
FOLLOWING = re.compile(r"[)]? ?([a-z]+|\\?%)(?: (not|im|too))?")
AHEAD = re.compile(
    r"\b(?:the following|what follows|(?:comes?|say|state|write) next|(?:below|here) (?:is|comes)"
    r"|(?:next|following) (?:line|statement|sentence|answer|number|value)"
    r"|(?:line|statement|sentence|answer|number|value) below|(?:going|about) to (?:say|state|write|lie))\b"
)
"Words by which a sentence points at the answer after it, which it may disown."
DENYING = NEGATING | DISOWNING | SECOND_HAND
DISTRUST = re.compile(r"(?:\bnot|\bnever|n['’]t) (?!need|use)(?:\w+ )?(?:this|my (?:\w+ )?answer)\W*$")


def denied(before: str) -> bool:
    """Whether what leads to the marker says that it is no answer: `No answer: 34`, `The next line is a lie.`"""
    # the sentence before the marker's own, which may stand on an earlier line; most mention nothing that comes
    start = max(map(before.rstrip(" \n:.").rfind, (". ", "! ", "? ", ": ", "; ", "\n")))
    last = before[start + 1 :].lower()
    negated = "not" in last or "never" in last or "n't" in last or "n’t" in last
    ahead = any(word in last for word in ("follow", "next", "below", "here", "to ")) and AHEAD.search(last)
    if ahead and (negated or not DISOWNING.isdisjoint(WORD.findall(last))):
        return True
    if negated and DISTRUST.search(last):
        return True
    # the words on the marker's own line
    line = before[before.rfind("\n") + 1 :].lower()
    if "guess" in line:
        return True
    clause = CLAUSE.split(re.sub(r"(?:answer)?[\s*_`#:-]*$", "", line))[-1] if line else ""
    if not clause:
        return False
    words = WORD.findall(clause)
    if any(word in DENYING or word.endswith(("n't", "n’t")) for word in words):
        return True
    if TWISTED & set(words[-3:]) - ANNOUNCING - HEADS or re.search(r"\b(?:of|than)(?: [a-z]+){0,2}$", clause):
        return True
    attached = re.search(r"([a-z'’]{2,})[)\]]?$", clause)
    return attached is not None and attached[1] not in ANNOUNCING and "\\" not in clause


def taken_back(after: str, span: str) -> bool:
    """Whether the text after the answer `span` says that it is wrong, offers another one, or states another value.

    READ characters are read, in upper or lower case.
    """
    after = re.sub(r"(?<![\w)])-\$(?=[0-9])", "$-", after[:READ].lower().replace("−", "-"))
    after = GROUPS.sub(lambda found: re.sub("[^0-9]", "", found.group()), after)
    sentences = SENTENCE.split(after) if suspicious(after) else []
    if any(map(disowns, sentences)):
        return True
    doubt = ("wait" in after or "hm" in after) and DOUBT.search(after)
    if not doubt and VALUED.search(after) is None:
        return False
    after = NUMBERED.sub("", after)
    value = span if span.isdigit() else strip_decoration(span).lower()
    known = {value, *NUMBER.findall(value)}
    valued = [sentence for sentence in SENTENCE.split(after) if VALUED.search(sentence)]
    if any(not same(stated, value) for sentence in valued for stated in STATED.findall(sentence)):
        return True
    if doubt and not any(same(number, value) for number in NUMBER.findall(after)[-1:]):
        return True
    return any(states_another(sentence, value, known) for sentence in valued)


def suspicious(text: str) -> bool:
    """Whether a text in small letters has a word that any denial or change of mind needs; cheap, and mostly False."""
    words = text.encode("ascii", "replace").translate(LETTERS).split()
    return not SUSPECT.isdisjoint(words) or "~~" in text or "mis" in text


def disowns(sentence: str) -> bool:
    """Whether a sentence calls something wrong, other than mistakes that others make."""
    if not suspicious(sentence):
        return False
    words = set(WORD.findall(sentence))
    negated = not words.isdisjoint(NEGATING) or "'t" in sentence or "’t" in sentence
    found = not words.isdisjoint(DISOWNING) or (negated and DENIED.search(sentence)) or CHANGED.search(sentence)
    found = found or DOUBTED.search(sentence)
    return bool(found) and not OTHERS.search(sentence)


def states_another(sentence: str, value: str, known: set[str]) -> bool:
    """Whether a sentence denies `value` or ends in another number that is neither known, a count nor a reference."""
    if "not" in sentence and f"not {value}" in sentence.replace("$", ""):
        return True
    if all(found.group() in known or refers(found) for found in NUMBER.finditer(sentence)):
        return False
    numbers = list(NUMBER.finditer(ASIDE.sub(" ", sentence)))
    if not numbers or same(numbers[-1].group(), value) or CHECKED.search(sentence) or OTHERS.search(sentence):
        return False
    return not all(found.group() in known or refers(found) for found in numbers)


def refers(found: re.Match[str]) -> bool:
    """Whether a number counts something or refers to a place: 12 rows, step 3, 95%."""
    following = FOLLOWING.match(found.string, found.end())
    if following is not None and (following[1] not in STATING or following[2] is not None):
        return True
    before = found.string[max(found.start() - 20, 0) : found.start()].removesuffix("(").removesuffix(" ")
    return before[len(before.rstrip(ascii_lowercase)) :] in REFERRING


def same(stated: str, value: str) -> bool:
    """Whether a value that is stated again is the same text or number, or begins with it, or is a choice."""
    one, other = parse_number(stated.replace(",", "")), parse_number(value.replace(",", ""))
    if one is None:
        stated = strip_decoration(without_dollars(stated))
        one = parse_number(stated.replace(",", ""))
    if one is not None and other is not None:
        return one == other
    share = parse_number(stated.rstrip("\\%"))
    if other is not None and share is not None and stated.endswith("%") and Fraction(share) == 100 * Fraction(other):
        return True
    return stated.startswith(value) or re.fullmatch(r"\(?[a-h]\)?", stated) is not None
