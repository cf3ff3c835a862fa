"""Queries that begin or end alike: an envelope around each of them, such as the JSON of the message that it came in.

What half of the queries share is no part of what was asked, and takes part in every search. Half of the queries of the sample, LoCoMo or
ClapNQ share at most 5 characters; of single questions two share up to 91.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SHORTEST, SHORTEST_OF_FEW, FEW = 60, 100, 4
"""Characters from which on a shared beginning or end is reported, and of fewer than FEW queries."""
MAX_SHOWN = 40
_NUMBERED = re.compile(r"\w*\d\w*")


def envelope_notes(texts: Iterable[str]) -> list[str]:
    """A line each for the beginning and the end that at least half of the different queries, and two of them, share.

    Where they differ in words with a digit alone, as the ids of messages do, these count as one character.
    """
    exact = list(dict.fromkeys(texts))
    masked = [_NUMBERED.sub("0", text) for text in exact]
    notes = []
    for where in ("begin", "end"):
        for forms, but in ((exact, ""), (masked, " but for numbers")):
            shortest = SHORTEST if len(exact) >= FEW else SHORTEST_OF_FEW
            shared = _shared([form[::-1] if where == "end" else form for form in forms], shortest)
            if not shared:
                continue
            part = shared[::-1] if where == "end" else shared
            alike = sum(form.endswith(part) if where == "end" else form.startswith(part) for form in forms)
            shown = f"…{part[-MAX_SHOWN:]}" if where == "end" else f"{part[:MAX_SHOWN]}…"
            notes.append(
                f"{alike:,} queries {where} with the same {len(part):,} characters{but}, {shown!r}: if that is the envelope of a message, "
                'take it off, or give what is to be searched as "searched"'
            )
            break
    return notes


def _shared(forms: Sequence[str], shortest: int) -> str:
    """The beginning that the most texts have, at least half of them and two, if it is long enough; else empty."""
    forms, low, most = sorted(forms), max(2, -(-len(forms) // 2)), len(forms)
    found = _longest(forms, low)
    while len(found) >= shortest and low < most:  # of more texts it is no longer
        size = (low + most + 1) // 2
        wider = _longest(forms, size)
        if len(wider) >= shortest:
            found, low = wider, size
        else:
            most = size - 1
    return found if len(found) >= shortest else ""


def _longest(forms: Sequence[str], size: int) -> str:
    """The longest beginning of so many of the sorted texts: they are neighbours, and it is that of the first and the last."""
    ends = zip(forms, forms[size - 1 :], strict=False)
    return max((first[: _alike(first, last)] for first, last in ends), key=len, default="")


def _alike(one: str, other: str) -> int:
    """How many characters two texts have in common from their beginning on."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (mine, its) in enumerate(pairs) if mine != its), min(len(one), len(other)))
