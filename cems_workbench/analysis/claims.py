"""Claims: what an agent said, split into statements that a memory can support one by one.

By rules: a claim ends at a line break, a sentence end (not after an abbreviation or an initial), a semicolon, or a comma before
"and", "but", "so", "while" or "whereas" if both sides have at least CLAUSE_WORDS words. Bullets, numbers and quotes around it are no
part of it. Questions, and pieces with fewer than MIN_TERMS search terms ("Sure!", "Here you are:"), state nothing and are left out.

With a language model, the claims are those that it writes, one statement each, with what a pronoun stands for. One whose terms are mostly
not in the text is dropped. If the model fails, the rules apply, and the notes say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError
from cems_workbench.models import prompts
from cems_workbench.records import ENGLISH
from cems_workbench.store.search.lexical.tokenizer import Language, tokenize

if TYPE_CHECKING:
    from cems_workbench.pipeline.understanding import Asker

MAX_CLAIMS = 20
"""Claims that are checked; the notes say how many more there are."""
MAX_CLAIM_CHARS = 1_000
MAX_MODEL_CHARS = 8_000
"""A longer text is split by rules: a model's reply would be cut off."""
MIN_TERMS = 2
CLAUSE_WORDS = 4
MIN_SHARED = 0.5
"""The share of a model's claim that must be in the text, in search terms."""

_ABBREVIATION = re.compile(
    r"(?:\b(?:dr|mr|mrs|ms|prof|st|no|nr|vs|approx|e\.g|i\.e|etc|cf|p|pp|fig|jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec)|\b[A-Z]|\b\d{1,2})\.$",
    re.IGNORECASE,
)
_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s|$)|[。！？]+|;(?=\s)|\n+")
_CLAUSE = re.compile(r",\s+(?:and|but|so|while|whereas)\s+")
_EDGE = re.compile(r"^(?:[\s\"'“”‘’*_>#|]|[-–•‣]\s|\(?\d{1,3}[.)]\s)+|[\s\"'“”‘’*_|;]+$")


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement; text[start:end] of what was pasted is this text, or both are None if a language model wrote it."""

    text: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims in order, how the text was split ("rules", or the model's label), and notes on what was left out."""

    claims: tuple[Claim, ...]
    split_by: str
    notes: tuple[str, ...] = ()


def split_claims(text: str, language: Language = ENGLISH, llm: Asker | None = None) -> Claims:
    """The claims of a text, at most MAX_CLAIMS. Raises InputError if it is empty, one word, or only a question."""
    if not text.strip():
        raise InputError("the text is empty: paste what the agent said, one sentence or more")
    if len(text.split()) == 1 and len(tokenize(text, language)) < MIN_TERMS:
        raise InputError(f"{text.strip()[:60]!r} is one word: paste what the agent said, one sentence or more")
    notes: list[str] = []
    by_model = _by_model(text, language, llm, notes) if llm is not None else None
    if by_model is not None and llm is not None:
        claims, split_by = by_model, llm.chat.label
    else:
        claims, split_by = _by_rules(text, language, notes), "rules"
    if not claims:
        raise InputError("the text states nothing: paste the answer, not only a question or a greeting")
    if len(claims) > MAX_CLAIMS:
        notes.append(f"the first {MAX_CLAIMS} of {len(claims):,} claims are checked; paste the rest separately")
    cut = [_shortened(claim) for claim in claims[:MAX_CLAIMS]]
    if any(len(claim.text) > MAX_CLAIM_CHARS for claim in claims[:MAX_CLAIMS]):
        notes.append(f"of a claim the first {MAX_CLAIM_CHARS:,} characters are read")
    return Claims(tuple(cut), split_by, tuple(notes))


def _by_rules(text: str, language: Language, notes: list[str]) -> list[Claim]:
    pieces = [claim for claim in _pieces(text) if claim.text]
    claims = [claim for claim in pieces if _states(claim.text, language)]
    if not claims and len(pieces) == 1 and not pieces[0].text.endswith("?"):
        claims = pieces  # a single short statement, such as "It is blue.", is what was meant
    left_out = len(pieces) - len(claims)
    if left_out and claims:
        notes.append(f"left out, as they state nothing (a question, a greeting): {left_out} of {len(pieces)} pieces")
    return claims


def _states(text: str, language: Language) -> bool:
    return not text.rstrip(")").endswith(("?", ":")) and len(tokenize(text, language)) >= MIN_TERMS


def _pieces(text: str) -> Iterable[Claim]:
    """The sentences and clauses of a text, without their edges; some may be empty."""
    start = 0
    for match in _END.finditer(text):
        if match[0] == "." and _ABBREVIATION.search(text, max(start, match.start() - 8), match.end()):
            continue
        yield from _clauses(text, start, match.end())
        start = match.end()
    yield from _clauses(text, start, len(text))


def _clauses(text: str, start: int, end: int) -> Iterable[Claim]:
    for match in _CLAUSE.finditer(text, start, end):
        if min(len(text[start : match.start()].split()), len(text[match.end() : end].split())) >= CLAUSE_WORDS:
            yield _trimmed(text, start, match.start())
            start = match.end()
    yield _trimmed(text, start, end)


def _trimmed(text: str, start: int, end: int) -> Claim:
    inside = text[start:end]
    if (edge := _EDGE.match(inside)) and edge.start() == 0:
        start, inside = start + edge.end(), inside[edge.end() :]
    inside = _EDGE.sub("", inside)
    return Claim(inside, start, start + len(inside))


def _shortened(claim: Claim) -> Claim:
    if len(claim.text) <= MAX_CLAIM_CHARS:
        return claim
    return Claim(
        claim.text[:MAX_CLAIM_CHARS], claim.start, None if claim.start is None else claim.start + MAX_CLAIM_CHARS
    )


def _by_model(text: str, language: Language, llm: Asker, notes: list[str]) -> list[Claim] | None:
    """The model's claims that the text holds; None, with a note, if it failed or invented them."""
    instead = "split by rules instead"
    if len(text) > MAX_MODEL_CHARS:
        notes.append(f"the text is longer than {MAX_MODEL_CHARS:,} characters, so it is {instead}")
        return None
    written = llm.or_none(prompts.claims(text, MAX_CLAIMS), instead, notes.append)
    if written is None:
        return None
    there = set(tokenize(text, language))
    claims = [line for line in written if _share(tokenize(line, language), there) >= MIN_SHARED]
    if len(claims) < len(written):
        notes.append(f"{llm.chat.label} wrote {len(written) - len(claims)} claims that are not in the text; left out")
    if not claims:
        notes.append(f"{llm.chat.label} named no claim of the text; {instead}")
        return None
    return [_placed(line, text) for line in claims]


def _share(terms: list[str], there: set[str]) -> float:
    return sum(term in there for term in terms) / len(terms) if terms else 0.0


def _placed(line: str, text: str) -> Claim:
    start = text.find(line)
    return Claim(line, start, start + len(line)) if start >= 0 else Claim(line)
