"""Texts as memories have them: "Nadia: I moved to Porto last spring", and questions that name who spoke.

Reviews and posts are first-person statements already, and their questions say "the reviewer" or "this person"; naming the
speaker in both makes a memory of them. Replies that only react or ask back are negatives: a conversation is full of them.
"""

from __future__ import annotations

import random
import re

_NAMES = (
    "Ada Adam Aisha Alan Alejandra Alex Alice Amir Amy Ana Andre Andrea Angela Anita Anna Anton Ari Arjun Asha Ben Bianca "
    "Bill Bo Brenda Brian Bruno Camila Carl Carla Carlos Carmen Cathy Chen Chloe Chris Clara Cole Cora Dan Dana Daniel "
    "Daria David Dean Deb Diana Diego Dina Dmitri Dora Doug Ed Elena Eli Elif Elise Ella Emil Emma Eric Erin Esther Eva "
    "Evan Farah Fatima Felix Fiona Frank Gabe Gina Grace Greg Gus Hana Hank Hannah Harold Hassan Heidi Helen Henry Hugo "
    "Ian Ida Ines Ingrid Ivan Jack Jade Jake James Jan Jane Jaya Jen Jesse Jill Jim Joan Joel Jonas Jorge Josh Joy Juan "
    "Julia June Kai Karen Karl Kate Keith Ken Kim Kira Kurt Lara Laura Lea Lena Leo Liam Lily Lin Lisa Liv Lola Lou Lucas "
    "Lucy Luis Luke Luna Mae Maggie Malik Marco Maria Mark Marta Martin Mary Matt Max Maya Mei Mia Mike Mila Milo Mina "
    "Mona Nadia Naomi Nate Neil Nell Nick Nina Noah Nora Olga Olive Omar Oscar Otto Pablo Paige Pat Paul Pedro Penny "
    "Peter Petra Phil Priya Quinn Rachel Rafael Raj Ravi Rita Rob Rosa Ross Ruth Ryan Sadie Sam Sana Sara Scott Sean "
    "Selma Seth Shane Sofia Sonia Stan Stella Steve Sue Susan Tara Ted Tess Theo Tim Tina Toby Tom Tony Uma Vera Victor "
    "Viola Wade Wendy Will Xena Yara Yuki Yusuf Zack Zoe"
)
NAMES = tuple(_NAMES.split())

_PERSON = re.compile(
    r"\b(?:the|this|that)\s+(?:original\s+)?(?:reviewer|writer|author|poster|person|speaker|narrator|customer|user|buyer|"
    r"op|redditor|individual|consumer|purchaser|owner|man|woman|guy|lady|shopper|commenter)\b",
    re.IGNORECASE,
)
_OPENERS = (
    "Thanks, {other}!",
    "Yeah,",
    "Hey {other}!",
    "Yep!",
    "Well,",
    "Oh,",
    "Definitely, {other}.",
    "Thanks!",
    "Honestly,",
    "Hi {other},",
    "Sure!",
    "Haha, yes.",
    "Right.",
    "No worries.",
    "Guess what, {other}?",
    "So,",
    "You know,",
    "Wow.",
    "Appreciate it, {other}.",
    "Absolutely!",
)
_ASKING = (
    "That's great, {name}!",
    "Wow, {name}.",
    "Hey {name},",
    "Oh nice!",
    "Interesting.",
    "Sounds good, {name}!",
    "Cool!",
    "I see.",
    "By the way,",
    "Hmm,",
    "Glad to hear it, {name}.",
    "Hi {name}! Long time no see.",
    "Oh really?",
    "",
)
_REACTIONS = (
    "That sounds amazing, {name}! I love {word}.",
    "Good luck with the {word}, {name}!",
    "Wow, {word}! Tell me more.",
    "I'm so happy for you, {name}. The {word} must mean a lot.",
    "Thanks, {name}! I appreciate that.",
    "That's awesome!",
    "Nice, {name}. How is the {word} going?",
    "I totally agree about the {word}.",
    "Congrats, {name}! You earned it.",
    "Yeah, {word} can be like that. Keep it up, {name}!",
    "That must have been hard, {name}. I'm here for you.",
    "Great to hear from you, {name}! What's new with the {word}?",
    "Sounds fun! Have you tried other {word}?",
    "I've been thinking about {word} too, {name}.",
    "Same here. {word} is always on my mind.",
    "See you soon, {name}!",
    "Any plans for the {word} this weekend?",
    "Glad it worked out with the {word}.",
    "You're right, {name}.",
)
_SMALL_WORDS = (
    "what when where which who whom whose why how does did do is are was were the a an of in on to for with and or that this "
    "many much long kind type name named called person someone thing things from about have has had been would could should "
    "their they his her he she it its at by as be"
)
_SMALL = frozenset(_SMALL_WORDS.split())
_TO_YOU = (
    (r"\b{name}'s\b", "your"),
    (r"\bdoes {name}\b", "do you"),
    (r"\bis {name}\b", "are you"),
    (r"\bwas {name}\b", "were you"),
    (r"\bhas {name}\b", "have you"),
    (r"\b{name}\b", "you"),
    (r"\b(?:his|her|their)\b", "your"),
    (r"\b(?:he|she|they)\b", "you"),
)

_TO_ME = (
    (r"PERSON's", "my"),
    (r"\bdoes PERSON", "do I"),
    (r"\bis PERSON", "am I"),
    (r"\bhas PERSON", "have I"),
    (r"PERSON", "I"),
)


def names_a_person(question: str) -> bool:
    """Whether the question speaks of "the reviewer", "this person" and the like."""
    return _PERSON.search(question) is not None


def naming(question: str, name: str) -> str:
    """The question with "the reviewer" and the like replaced by the name."""
    return _PERSON.sub(name, question)


def renamed(text: str, names: dict[str, str]) -> str:
    """The text with each whole name replaced by its other one, longer names first; nothing is replaced twice."""
    if not names:
        return text
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"\b(?:{known})(?!\w)", lambda match: names[match[0]], text)


def in_first_person(question: str) -> str:
    """The question with "the reviewer" and the like as "I": "what did I buy?"."""
    for pattern, instead in _TO_ME:
        question = re.sub(pattern.replace("PERSON", _PERSON.pattern), instead, question, flags=re.IGNORECASE)
    return question


def said(text: str, name: str, other: str, chance: random.Random) -> str:
    """The text as `name` says it to `other`, now and then with an opening word or an image that shows some of it."""
    opener = chance.choice(_OPENERS).format(other=other) + " " if chance.random() < 0.25 else ""
    words = text.split()
    at = chance.randrange(len(words)) if words else 0
    shared = (
        f" [shared image: a photo of {' '.join(words[at : at + 5]).strip('.,!?').lower()}]"
        if chance.random() < 0.1
        else ""
    )
    return f"{name}: {opener}{text}{shared}"


def asked_back(question: str, name: str, other: str, chance: random.Random) -> str:
    """The other person asking the question itself: full of its words, and no answer."""
    for pattern, instead in _TO_YOU:
        question = re.sub(pattern.format(name=name), instead, question, flags=re.IGNORECASE)
    opener = chance.choice(_ASKING).format(name=name)
    return f"{other}: {opener} {question[:1].upper()}{question[1:]}".replace("  ", " ")


def reaction(question: str, name: str, other: str, chance: random.Random) -> str:
    """The other person reacting with a word of the question: no answer either."""
    words = [
        word for word in re.findall(r"[a-z][a-z-]{2,}", question.lower()) if word not in _SMALL and word != name.lower()
    ]
    word = chance.choice(words) if words else "it"
    return f"{other}: " + chance.choice(_REACTIONS).format(name=name, word=word)


_PAST = {
    "went": "go",
    "bought": "buy",
    "got": "get",
    "made": "make",
    "took": "take",
    "saw": "see",
    "found": "find",
    "gave": "give",
    "had": "have",
    "started": "start",
    "began": "begin",
    "ran": "run",
    "wrote": "write",
    "read": "read",
    "met": "meet",
    "lost": "lose",
    "won": "win",
    "left": "leave",
    "built": "build",
    "sold": "sell",
    "sent": "send",
    "told": "tell",
    "heard": "hear",
    "felt": "feel",
    "broke": "break",
    "drove": "drive",
    "flew": "fly",
    "ate": "eat",
    "spent": "spend",
    "paid": "pay",
    "tried": "try",
    "moved": "move",
    "decided": "decide",
    "used": "use",
    "received": "receive",
    "ordered": "order",
    "purchased": "purchase",
    "watched": "watch",
    "played": "play",
    "finished": "finish",
    "visited": "visit",
    "returned": "return",
    "replaced": "replace",
    "installed": "install",
    "asked": "ask",
    "called": "call",
    "joined": "join",
    "learned": "learn",
    "noticed": "notice",
    "needed": "need",
    "wanted": "want",
    "loved": "love",
    "picked": "pick",
    "tested": "test",
    "opened": "open",
    "put": "put",
    "washed": "wash",
    "cleaned": "clean",
    "cooked": "cook",
    "worked": "work",
    "lived": "live",
    "stayed": "stay",
}
_STATEMENT = re.compile(r"\bI (?:just |recently |finally |also |actually |then )?(\w+) ((?:[\w'-]+ ?){1,7})", re.ASCII)
_TIME_TAIL = re.compile(
    r"\b(?:about|over|almost|around|last|yesterday|today|this (?:week|month|year|morning)|a (?:few|couple)|\w+ (?:days?|weeks?|"
    r"months?|years?) ago|in (?:january|february|march|april|may|june|july|august|september|october|november|december|"
    r"\d{4})|when|because|so|and|but|which|that)\b.*",
    re.IGNORECASE,
)


def question_from(statement: str, name: str, chance: random.Random) -> str | None:
    """A question that a first-person statement answers ("When did Nadia move to Porto?"); None where none can be made."""
    match = _STATEMENT.search(statement)
    if match is None or match[1].lower() not in _PAST:
        return None
    rest = re.sub(r"\bmy\b", "their", _TIME_TAIL.sub("", match[2]).strip())
    rest = re.sub(r"\b(?:me|myself)\b", "them", rest)
    if len(rest.split()) < 2:
        return None
    verb = _PAST[match[1].lower()]
    return chance.choice(
        (
            f"When did {name} {verb} {rest}?",
            f"When did {name} {verb} {rest}?",
            f"Why did {name} {verb} {rest}?",
            f"How did {name} feel after they {match[1]} {rest}?",
            f"Did {name} {verb} {rest}?",
        )
    )
