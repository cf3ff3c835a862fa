"""LongMemEval: questions, each with its haystack of chat sessions (Wu et al., ICLR 2025), as a list or one a line.

A row is `{question_id, question_type, question, question_date, haystack_session_ids, haystack_dates, haystack_sessions,
answer_session_ids}`; a session is a list of turns `{role, content, has_answer?}`. Each turn is a memory of the project
`longmemeval/QUESTION_ID`, which the query names too, because a question searches only its own haystack. Times have no zone: UTC.

A turn with has_answer is judged 1. Of a session in answer_session_ids whose turns do not say it, as adapters write them, every turn is:
the benchmark counts a session as found with any of its turns. A session that denies has_answer of all its turns is no evidence in the
benchmark, and is none here, unless the question had no other. Questions whose id ends in _abs have no answer; the benchmark leaves
their labels out, and so are they here (xiaowu0162/LongMemEval, src/retrieval/run_retrieval.py).

LongMemEval-V2 is named and not read: its questions name no trajectory that answers them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, identifier, required_text, text
from cems_workbench.formats.base.files import Sample, take_sample, type_name
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.memory_fields import is_false, is_true
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Query, RowError
from workbench_benchmarks import conversations

NAME = "longmemeval"
ABSTENTION = "abstention"
WRAPPERS = ("data", "samples", "questions")
V2_FILES = conversations.FORMS[NAME]["v2_files"]
"""What the files and folders of LongMemEval-V2 are (xiaowu0162/LongMemEval-V2, data/public_data.py)."""
V2 = "LongMemEval-V2, which names no memory that answers a question and is not read"


@dataclass
class _Session:
    """A session of a haystack: its name in the file and here, and its turns' ids by what has_answer says of them."""

    given: str | None
    name: str
    turns: list[str] = field(default_factory=list)
    answering: list[str] = field(default_factory=list)
    denied: bool = False


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a file of questions; raises InputError when it holds none."""
    if path.is_dir() and (names := folder(path)):
        told = "; ".join(f"{name} is {V2_FILES[name]}" for name in sorted(names))
        raise InputError(f"{path}: {V2}: {told}")
    errors: list[RowError] = []
    return _parse(conversations.rows_of(path, _rows, errors, progress), path, errors)


def _rows(document: Any) -> list[Any]:
    if isinstance(document, dict) and not _is_question(document):
        document = next((document[name] for name in WRAPPERS if isinstance(document.get(name), list)), document)
    return document if isinstance(document, list) else [document]


def _parse(rows: conversations.Rows, path: Path, errors: list[RowError]) -> ParsedInput:
    reading = conversations.Reading(NAME, str(path), errors=errors)
    seen: dict[str, int] = {}
    some, v2 = False, None
    for number, row in rows:
        some, v2 = some or _is_question(row), v2 or _v2_file(path, row)
        with reading.reporting(number, ""):
            if not isinstance(row, dict):
                raise FieldError("", f"must be an object, found {type_name(row)}")
            qid = identifier(row, "question_id")
            if seen.setdefault(qid, number) != number:
                raise FieldError("question_id", f"{qid!r} stands already in row {seen[qid]}")
            _read_question(reading, number, qid, row)
    if not some:
        raise InputError(f"{path}: {v2 or 'no question with a haystack in it'}")
    return reading.parsed()


def _read_question(reading: conversations.Reading, number: int, qid: str, row: dict[str, Any]) -> None:
    """Add one question with its haystack; raises FieldError when there is no question."""
    question, project = required_text(row, "question"), reading.project(qid)
    kind = None
    with reading.reporting(number, ""):
        kind = text(row, "question_type")
    abstains = qid.endswith("_abs") or kind == ABSTENTION
    reading.unknown["questions"].see(row)
    asked = row.get("question_date")
    as_of = conversations.said_at(asked)
    if as_of is None and conversations.is_said(asked):
        reading.report(
            number, "question_date", f"must be a time such as {conversations.TIME_FORMS}, found {_shown(asked)}"
        )
    kind, answerable = (ABSTENTION, False) if abstains else (kind, None)
    query = Query(qid, question, project, as_of, kind, answerable)
    sessions = list(_read_sessions(reading, number, qid, row))
    answers = [session for session in sessions if session.answering]
    if abstains:
        reading.add_query(query, (), row=row)
        reading.counted["not judged"] += chain.from_iterable(session.answering for session in answers)
        return
    gold = _named_sessions(reading, number, row, sessions)
    whole = [session for session in gold if not session.answering and not session.denied]
    if not answers and not whole:
        whole = [session for session in gold if session.turns]
    judged = [
        *chain.from_iterable(session.answering for session in answers),
        *chain.from_iterable(one.turns for one in whole),
    ]
    reading.add_query(query, judged, "unanswered", row)
    reading.counted["by session"] += [qid] * bool(whole)


def _read_sessions(reading: conversations.Reading, number: int, qid: str, row: dict[str, Any]) -> Iterator[_Session]:
    """The sessions of a question's haystack, whose turns are added as memories."""
    listed = row.get("haystack_sessions")
    if not isinstance(listed, list):
        reading.report(number, "haystack_sessions", f"must be a list of sessions, found {type_name(listed)}")
        return
    names, dates = _list(row, "haystack_session_ids"), _list(row, "haystack_dates")
    used: set[str] = set()
    unread: list[Any] = []
    for place, item in enumerate(listed):
        inner = item if isinstance(item, dict) else {}  # adapters keep a session's name and time beside its turns
        turns = conversations.turns_of(item) if inner else item
        given = _given(
            names[place] if place < len(names) else inner.get(conversations.first_of(inner, ("session_id", "id")))
        )
        session = _Session(given, _unused(given or f"session_{place + 1}", used))
        date = dates[place] if place < len(dates) else inner.get(conversations.first_of(inner, conversations.TIMES))
        started = conversations.said_at(date)
        if started is None:
            unread += [date] * conversations.is_said(date)
            reading.counted["undated"] += [session.name] * (not conversations.is_said(date))
        if not isinstance(turns, list) or (inner and not turns):
            reading.report(number, f"haystack_sessions[{place + 1}]", "must be a list of turns")
            continue
        for position, turn in enumerate(turns, start=1):
            when = None if started is None else started + timedelta(seconds=position)
            with reading.reporting(number, f"haystack_sessions[{place + 1}][{position}]"):
                _read_turn(reading, conversations.an_object(turn), (qid, session, position), when)
        yield session
    if unread:
        told = ", ".join(map(_shown, islice(unread, conversations.SHOWN))) + (
            ", …" if len(unread) > conversations.SHOWN else ""
        )
        reason = f"{len(unread)} of {len(listed)} are no times such as {conversations.TIME_FORMS}: {told}; their turns have no date"
        reading.report(number, "haystack_dates", reason)


def _read_turn(
    reading: conversations.Reading, turn: dict[str, Any], place: tuple[str, _Session, int], when: datetime | None
) -> None:
    qid, session, position = place
    role, content = text(turn, "role") or "user", required_text(turn, "content")
    name = f"{qid}/{session.name}/{position}"
    reading.unknown["turns"].see(turn)
    reading.add_turn(name, role, content, when, conversation=qid, session=f"{qid}/{session.name}")
    session.turns.append(name)
    mark = turn.get("has_answer")
    if mark is not None and is_true(mark):
        session.answering.append(name)
    elif mark is not None:
        session.denied = session.denied or is_false(mark)


def _named_sessions(
    reading: conversations.Reading, number: int, row: dict[str, Any], sessions: list[_Session]
) -> list[_Session]:
    """The sessions that answer_session_ids names; what names none is reported."""
    given = row.get("answer_session_ids")
    names = [_given(name) for name in (given if isinstance(given, list) else [] if given is None else [given])]
    found = [session for session in sessions if session.given is not None and session.given in names]
    there = {session.given for session in sessions}
    for name in dict.fromkeys(names):
        if name is None or name not in there:
            reading.report(number, "answer_session_ids", f"no session {_shown(name)} in the haystack")
    return found


def _given(name: Any) -> str | None:
    """The name of a session as the file gives it, a number as its digits; None if it is none."""
    if isinstance(name, int) and not isinstance(name, bool):
        return str(name)
    return name if isinstance(name, str) and name.isprintable() and name.strip() else None


def _shown(value: Any) -> str:
    return ascii(value)[:60]


def _unused(name: str, used: set[str]) -> str:
    """The name of a session, with a number if the same session occurs again in the haystack."""
    free, times = name, 1
    while free in used:
        times += 1
        free = f"{name}.{times}"
    used.add(free)
    return free


def _list(row: dict[str, Any], field: str) -> list[Any]:
    value = row.get(field)
    return value if isinstance(value, list) else []


def _is_question(row: Any) -> bool:
    return isinstance(row, dict) and "question" in row and isinstance(row.get("haystack_sessions"), list)


def _v2_file(path: Path, row: Any) -> str | None:
    """What a file of LongMemEval-V2 is, by one of its rows; None for any other file."""
    if not isinstance(row, dict):
        return None
    if "eval_function" in row and "question_type" in row and "question" in row:
        return f"{V2}: {V2_FILES['questions.jsonl']}"
    if isinstance(row.get("states"), list) and "goal" in row:
        return f"{V2}: {V2_FILES['trajectories.jsonl']}"
    if path.name.startswith("lme_v2_") and row and all(isinstance(value, list) for value in row.values()):
        return f"{V2}: {V2_FILES['haystacks']}"
    return None


def folder(directory: Path) -> frozenset[str]:
    """What a directory has of LongMemEval-V2, none if it is not such a directory."""
    try:
        rows = take_sample(directory / "questions.jsonl").objects
        v2 = bool(rows) and _v2_file(directory / "questions.jsonl", rows[0]) is not None
        return frozenset(name for name in V2_FILES if v2 and (directory / name).exists())
    except (OSError, InputError):
        return frozenset()


def sniff(sample: Sample) -> bool:
    """Questions with haystacks; or a file of LongMemEval-V2, which reading names."""
    rows = sample.objects or _rows(sample.document)
    return bool(rows) and (_is_question(rows[0]) or _v2_file(sample.path, rows[0]) is not None)


FORMAT = described(__file__, NAME, sniff, read, folder=folder)
