"""Explanations in a text, one after the other: a JSON document, a list of them, or JSON lines; pasted, piped or in a file of any size.

Only a few explanations are held at a time (`documents`, AHEAD), so that ten thousand cost what each costs. A document that cannot be read
is reported by its number, and the next line goes on.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, TextIO

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.explained import ExplanationReader
from cems_workbench.records import RowError
from workbench_explanations.explained import Explained, Formulas, evidence_of
from workbench_explanations.systems import explained_in, of_rows, system_of
from workbench_recorder.calls import Calls

PART = 1 << 16
"""Characters that are read at a time."""
MOST = 64 << 20
"""Characters of one explanation."""
AHEAD = 4
"""Explanations that are read at a time: a formula is confirmed by those that follow."""
LONGEST_WORD = 64
"""Characters of a number or a word of JSON that may be cut off."""
_DECODER = json.JSONDecoder()
_BETWEEN = " \t\r\n,\ufeff"


def documents(text: TextIO) -> Iterator[tuple[int, Any]]:
    """(number, JSON document) of a text, from 1: of a list each, unless it is a list of the rows of one answer; in the place of what is no
    JSON a ValueError, after which the next line is read."""
    rest, number, inside, size, ended = "", 0, False, PART, False
    while True:
        rest = rest.lstrip(_BETWEEN)
        if inside and rest[:1] == "]":
            rest, inside = rest[1:].lstrip(_BETWEEN), False
        opened = rest[:1] == "[" and not inside
        try:
            value, end = _DECODER.raw_decode(rest, 1 + len(rest[1:]) - len(rest[1:].lstrip()) if opened else 0)
            if opened and (isinstance(value, list) or (isinstance(value, dict) and not of_rows(value))):
                rest, inside = rest[1:], True
                continue
            if opened:
                value, end = _DECODER.raw_decode(rest)
        except (json.JSONDecodeError, RecursionError) as error:
            # A fault that is not at the end of what was read is one, whatever follows; no text of JSON goes over a line's end.
            fault = error if isinstance(error, json.JSONDecodeError) else None
            cut = fault is not None and (fault.msg.startswith("Unterminated") or fault.pos >= len(rest) - LONGEST_WORD)
            if cut and not ended and len(rest) < MOST:
                more = text.read(size)
                ended, rest, size = not more, rest + more, size * 2
                continue
            if not rest:
                return
            number += 1
            why = "is nested too deeply" if fault is None else f"is not JSON: {fault.msg.removesuffix(' at')}"
            # A text of JSON has no line's end in it.
            in_text = fault is not None and fault.msg.startswith("Invalid control") and rest[fault.pos] in "\r\n"
            yield number, ValueError("is cut off" if cut or in_text else why)
            rest, size = _next(rest, text), PART
            continue
        number, rest, size = number + 1, rest[end:], PART
        yield number, value


def _next(rest: str, text: TextIO) -> str:
    """What follows from the next line that begins a document."""
    while rest:
        starts = [at + 1 for at in (rest.find("\n{"), rest.find("\n[")) if at >= 0]
        if starts:
            return rest[min(starts) :]
        rest = rest[-1:] + more if (more := text.read(PART)) else ""
    return ""


def read(text: TextIO, source: str, errors: list[RowError], query: str = "") -> Iterator[Evidence]:
    """The evidence of each explanation. `query` is that of those which do not say it; without one they are numbered. What cannot be used
    is reported with the number of its document. Raises InputError where no document is an explanation."""
    formulas, ahead = Formulas(), deque[Explained]()
    found = explained_in_text(text, source, errors)
    count = 0
    while True:
        ahead.extend(islice(found, AHEAD - len(ahead)))
        if not ahead:
            break
        one = ahead.popleft()
        one = one if one.query else replace(one, query=query or f"explanation {one.qid or one.number}")
        try:
            evidence = evidence_of(one, formulas, ahead)
        except InputError as error:
            errors.append(RowError(source, one.number, str(error)))
            continue
        count += 1
        yield evidence
    if not count and not errors:
        raise InputError(f"{source}: it is empty")


def explained_in_text(text: TextIO, source: str, errors: list[RowError]) -> Iterator[Explained]:
    """The explanations of a text, each with its query where it says it; what cannot be used is reported with the number of its document."""
    calls = Calls()
    for number, document in documents(text):
        if isinstance(document, ValueError):
            errors.append(RowError(source, number, str(document)))
            continue
        try:
            if (said := calls.explained(document)) is not None:  # else a recorded call that searches nothing
                yield from explained_in(said, number, source, errors)
        except FieldError as error:
            errors.append(RowError(source, number, error.reason, error.field))


def _fits(document: Any) -> bool:
    return system_of(document) is not None


READER = ExplanationReader("explanations", _fits, read)
