"""What keeps a passage from supporting a claim although it has its words: a negation in one of the two, or what is only planned there.

    negated    a term that both have is negated ("not", "no", "never" within NEGATION_WORDS before it, "nothing" after it too) wherever
               the one has it and nowhere where the other has it, and no term is negated in both
    done       the claim says that something was done ("has signed", "was sold"), and the passage has the word in no such form
    planned    the claim has a word of plans ("wants", "will") and the passage has none; or the passage alone has one, and the claim says
               that something was done

The word lists are English; in a store of another language there are neither negations nor plans.

Source: our own; measured by benchmarks/bench_support.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from cems_workbench.analysis.supersession_signals import NEGATION_WORDS, Profile

BEHIND = frozenset({"nothing", "nobody", "none", "no"})
"""Negations that negate the word before them too: "they paid nothing"."""
DONE = frozenset({"has", "have", "had", "was", "were"})
_PLANNED = """
    want wants wanna hope hopes hoping plan plans planning gonna will won't i'll we'll he'll she'll they'll intend intends soon considering
    thinking dream goal try trying waits
"""
PLANNED = frozenset(_PLANNED.split())
_DUE = re.compile(r"\b(?:have|has|had) to\b|\bmust\b|\bshould\b")
_PARTICIPLE = re.compile(r"(?:ed|en|wn)$")


def refusals(claim: Profile, passage: Profile) -> tuple[str, ...]:
    """Why the passage does not say what the claim says, in words; empty if nothing is against it."""
    return (*_negated_apart(claim, passage), *_not_done(claim, passage))


def _negated_apart(claim: Profile, passage: Profile) -> Iterable[str]:
    ours, theirs = _negated(claim), _negated(passage)
    shared = sorted((ours.keys() & theirs.keys()) - _negated_by(claim), key=lambda term: claim.places[term])
    if any(True in ours[term] and True in theirs[term] for term in shared):
        return
    for term in shared:
        if not ours[term] & theirs[term]:
            yield f"“{claim.written[claim.places[term][0]]}” is negated in one of the two"
            return


def _negated(text: Profile) -> dict[str, set[bool]]:
    """Of each term whether it is negated where it is."""
    return {term: {_negates(text, place) for place in places} for term, places in text.places.items()}


def _negates(text: Profile, place: int) -> bool:
    """Whether a negation of the same field is near enough to a word."""
    return any(
        mark.span.field == text.spans[place].field
        and (0 < place - mark.place <= NEGATION_WORDS or (mark.place - place == 1 and mark.words in BEHIND))
        for mark in text.negations
    )


def _negated_by(text: Profile) -> set[str]:
    """Terms that are negations themselves."""
    marks = {mark.place for mark in text.negations}
    return {term for term, places in text.places.items() if marks & set(places)}


def _not_done(claim: Profile, passage: Profile) -> Iterable[str]:
    plans = PLANNED.intersection(claim.written)
    done = bool(DONE.intersection(claim.written)) and not _DUE.search(" ".join(claim.written))
    there = [word for word in passage.written if word in PLANNED]
    due = _DUE.search(" ".join(passage.written))
    if plans and not there:
        yield f"“{min(plans)}” is not there: planned or done"
    elif done and not plans and (due or there):
        yield f"only planned there: “{there[0] if there else due and due[0]}”"
    terms = {place: term for term, places in claim.places.items() for place in places}
    for place, word in enumerate(claim.written):
        if place not in terms or not _PARTICIPLE.search(word):
            continue
        forms = [passage.written[other] for other in passage.places.get(terms[place], ())]
        said = DONE.intersection(claim.written[max(0, place - 3) : place]) if not forms else word.endswith("ed") or done
        if said and not any(_PARTICIPLE.search(form) for form in forms):
            yield f"not said there as done: “{word}”"
            return
