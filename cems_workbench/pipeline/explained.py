"""Explanations of live systems: answers that say how they were made, read as evidence that replays without store, model or access.

The evidence is that of a bundle; its note `explained` says what it is of, and which config replays it:

    {"system": "mem0", "preset": "mem0_keyword", "values": {"assembly.limit": 20}, "formula": "", "assumed": "", "shown": 20,
     "same_order": true, "order": ["m1", …], "scores": [0.9, …], "taken": {"semantic": "vector:0"}, "lines": ["…"]}

What an explanation does not hold is a bound: a memory below its cut is in none of its lists, and no setting brings it (`not_shown`). Which
systems are read is for a reader to know, an entry point of the group `cems_workbench.explanations`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, TextIO

from cems_workbench import extensions
from cems_workbench.config import PipelineConfig, difference, preset, preset_names, with_values
from cems_workbench.errors import InputError, counted, one_line, short
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.records import Memory, RankedIds, RecordedAnswer, Returned, RowError

EXPLAINED = "explained"
"""The note."""
UNSHOWN = "not shown: "
"""How the id of a memory begins that a list has and the explanation does not show."""


@dataclass(frozen=True, slots=True)
class ExplanationReader:
    """Reads explanations, one after the other: from a text, called by a name in messages. What cannot be used goes to the errors, and the
    query is that of an explanation which does not say it. Raises InputError where the text as a whole is none."""

    name: str
    fits: Callable[[Any], bool]
    """Whether a JSON document may be one."""
    read: Callable[[TextIO, str, list[RowError], str], Iterator[Evidence]]


READERS = extensions.Registry(extensions.EXPLANATIONS, ExplanationReader)
"""Every reader by name."""


def read_explanations(text: TextIO, source: str, errors: list[RowError], query: str = "") -> Iterator[Evidence]:
    """The explanations in a text, each read when it is asked for. Raises InputError as the reader does, or without one."""
    reader = next(iter(READERS.values()), None)
    if reader is None:
        raise InputError(f"{source}: nothing here reads explanations")
    return reader.read(text, source, errors, "" if is_number(query) else query)


def may_explain(document: Any) -> bool:
    """Whether a JSON document may be an explanation that is read here."""
    return any(reader.fits(document) for reader in READERS.values())


def explained(evidence: Evidence) -> Mapping[str, Any] | None:
    """The note of evidence that is an explanation; None for other evidence."""
    note = evidence.notes.get(EXPLAINED)
    return note if isinstance(note, Mapping) else None


def explained_config(evidence: Evidence) -> PipelineConfig | None:
    """The config that replays an explanation; None for other evidence. Raises InputError for a note of another version."""
    note = explained(evidence)
    if note is None:
        return None
    name, values = note.get("preset"), note.get("values")
    if name not in preset_names() or not isinstance(values, Mapping):
        raise InputError(f"notes.{EXPLAINED}: no config of this version: preset {one_line(str(name), 60)}")
    return with_values(preset(name).config, dict(values), source=f"notes.{EXPLAINED}")


def with_own_times(memories: dict[str, Memory], notes: Mapping[str, Any]) -> dict[str, Memory]:
    """The memories of an explanation with the times that its system took for this query, of which a file keeps one for all queries."""
    note = notes.get(EXPLAINED)
    times = note.get("created") if isinstance(note, Mapping) else None
    own = dict[str, Memory]()
    for key, said in times.items() if isinstance(times, Mapping) else ():
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            own[key] = replace(memories[key], created_at=datetime.fromisoformat(said).astimezone(UTC))
    return memories | own


def qid_of(evidence: Evidence) -> str:
    """The id that an explanation says of its query; empty for one that says none, and for other evidence."""
    return str((explained(evidence) or {}).get("qid", ""))


def is_number(query: str) -> bool:
    """Whether a query is named by the number of its explanation in a file: "#2"."""
    return re.fullmatch(r"#[1-9]\d*", query) is not None


def is_of(evidence: Evidence, number: int, query: str) -> bool:
    """Whether an explanation, the `number`-th that can be used of a file, is that of a query: its words, its id or "#number"."""
    return query in (evidence.query, qid_of(evidence), f"#{number}")


def no_explanation(source: str, query: str, found: Sequence[Evidence], count: int) -> InputError:
    """The error that none of the explanations is of a query, with the first of those that there are."""
    names = ", ".join(f"{short(one.query)}{f' ({qid})' if (qid := qid_of(one)) else ''}" for one in found[:3])
    return InputError(
        f"{source}: no explanation of {short(query)}, of {count}: {names}{', …' if count > 3 else ''}; #1 names the first"
    )


def answer_of(row: int, qid: str, evidence: Evidence) -> RecordedAnswer | None:
    """What a system returned, and its lists by source, of evidence that was recorded. None where that is not known."""
    stages, note = evidence.recorded, explained(evidence)
    if stages is not None:
        return stages.answer(row, qid, evidence.query, evidence.as_of)
    if note is None:
        return None
    lists: dict[str, tuple[RankedIds, ...]] = {}
    values, texts = note.get("values", {}), {key: one.content for key, one in evidence.memories.items()}
    as_given = {one.source for one in evidence.lists if values.get(f"lists.{one.source}.normalization") == "none"}
    for ranked in evidence.lists:
        # Scores that the system made comparable itself; of several such lists each has the name of its source.
        name = "keyword_unit" if as_given == {ranked.source} else ranked.source
        shown = tuple((hit.memory_id, hit.score) for hit in ranked.hits if not hit.memory_id.startswith(UNSHOWN))
        lists[name] = (*lists.get(name, ()), shown)
    results = enumerate(zip_longest(note.get("order", ()), note.get("scores", ())), 1)
    returned = tuple(Returned(rank, key, score, texts.get(key)) for rank, (key, score) in results)
    return RecordedAnswer(row, qid, evidence.query, None, returned, lists, evidence.as_of)


def not_shown(evidence: Evidence, named: str) -> str:
    """Why a memory that an explanation does not hold cannot be brought: "m312 is not among the 40 …"; empty for other evidence."""
    note = explained(evidence)
    if note is None:
        return ""
    shown = int(note.get("shown", 0))
    least = f"the depth must be at least {shown + 1}, if the system has it"
    return f"{one_line(named, 60)} is not among the {shown} it shows: no slider can bring it; {least}"


def said_of(evidence: Evidence, config: PipelineConfig | None = None) -> tuple[str, ...]:
    """What a reader should know of an explanation, a line each; none for other evidence. Under another `config` than its own the formula is
    that of the answer, not of the replay."""
    note = explained(evidence)
    if note is None:
        return ()
    named = ", ".join(f"{theirs} as {ours}" for theirs, ours in note.get("taken", {}).items())
    how = note.get("formula") or f"preset {note['preset']}"
    kept = "replays its order" if note.get("same_order") else "does not replay its order"
    if note.get("assumed") and len(note.get("taken", ())) == 1:
        how, kept = "one list,", "in its order" if note.get("same_order") else "and another order than its scores"
    elif note.get("assumed"):
        gives = "gives its order, not its scores" if note.get("same_order") else "does not give its order"
        how, kept = f"how it fuses its lists is not known: {note['assumed']} is assumed,", f"which {gives}: a guess"
    if config is not None and not _is_own(evidence, config):
        how, kept = f"as answered: {how.removesuffix(',')}", ""
    lists = f"; its lists: {named}" if named else ""
    shown = counted(int(note["shown"]), "memories")
    first = f"explained by {note['system'] or 'a system'}: {shown}; {f'{how} {kept}'.rstrip()}{lists}"
    return (first, *map(str, note.get("lines", ())))


def _is_own(evidence: Evidence, config: PipelineConfig) -> bool:
    """Whether a config is the one that an explanation says, whatever its name."""
    with suppress(InputError):
        own = explained_config(evidence)
        return own is not None and all(path == "name" for path, *_ in difference(own, config))
    return False
