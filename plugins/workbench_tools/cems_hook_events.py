"""What the hook of CEMS logs on the client, `~/.claude/hooks/logs/hook_events.jsonl`: what was asked, and what came back.

    {"ts", "event": "MemoryRetrieval", "session_id", "query", "result_count", "avg_score", "top_score",
     "details": [{"id", "score", "category", "content"}, …]}

An id is cut to its first 8 characters, a score rounded to three decimals. The hook asks for 5 results, drops those below 0.45 and all but
one of a session, and logs nothing when none is left. `query` is what the user typed; what was searched is that without links, code,
paths and a filler at its beginning (`searched`).

An event RelevanceFeedback counts how many memories helped and does not say which. Only when all that were shown are noise is it a
judgment: of the retrieval before it in the same session, when that showed as many.

Source: CEMS 0.9.3 (MIT, github Chocksy/cems, commit dded756), `hooks/cems_user_prompts_submit.py`, `cems_stop.py`, `utils/hook_logger.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.files import Sample, read_objects, type_name
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.logs import parsed_log
from cems_workbench.formats.cems_feedback import JUDGE
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RecordedAnswer, RowError

NAME = "cems-hook-events"
RETRIEVAL, FEEDBACK, PROMPT = "MemoryRetrieval", "RelevanceFeedback", "UserPromptSubmit"
ID_LENGTH = 8
DETAILS = "details"
"""The field of what was returned."""
MIN_QUERY_CHARS = 10
"""Characters that must be left of what was typed; else all of it is searched."""
_NOISE = (
    (re.compile(r"https?://\S+"), ""),
    (re.compile(r"```[\s\S]*?```"), ""),
    (re.compile(r"`[^`]{10,}`"), ""),
    (re.compile(r"(?:^|\s)(?:/[\w./-]+|~[\w./-]+)"), " "),
    (
        re.compile(
            r"^(?:ok(?:ay)?|alright|so|now|also|and|but|well|right|cool|great|nice|perfect|awesome)"
            r"(?:\s+(?:all good|good|then|let'?s|,|\.))?\s*[.,;]?\s*",
            re.IGNORECASE,
        ),
        "",
    ),
)


def searched(typed: str) -> str:
    """What the hook searches for what a user typed."""
    cleaned = typed
    for noise, instead in _NOISE:
        cleaned = noise.sub(instead, cleaned)
    cleaned = " ".join(cleaned.split())
    return typed.strip() if len(cleaned) < MIN_QUERY_CHARS else cleaned


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the retrievals of a log; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    answers: list[RecordedAnswer] = []
    last: dict[str, RecordedAnswer] = {}
    noise: dict[int, RecordedAnswer] = {}
    others = open_feedback = 0
    for number, row in read_objects(path, errors, progress):
        event, session = row.get("event"), str(row.get("session_id"))
        if event == RETRIEVAL:
            try:
                answers.append(_answer(number, row, str(path), errors))
            except fields.FieldError as error:
                errors.append(RowError(str(path), number, error.reason, error.field))
            else:
                last[session] = answers[-1]
            continue
        others += 1
        if event == PROMPT:
            last.pop(session, None)
        elif event == FEEDBACK:
            shown = last.pop(session, None)
            if shown is not None and row.get("all_noise") is True and row.get("noise_count") == len(shown.returned):
                noise[number] = shown
            else:
                open_feedback += 1
    notes = [f"{others} events are no {RETRIEVAL} and have no query"] if others else []
    if open_feedback:
        notes.append(f"{open_feedback} events {FEEDBACK} do not say which memories helped; no judgment is made of them")
    parsed = parsed_log(path, NAME, answers, errors, notes, ID_LENGTH, DETAILS)
    qids = {answer.row: answer.qid for answer in parsed.answers}
    judged = [
        (number, Judgment(qids[shown.row], row.memory_id, 0, JUDGE, "model"))
        for number, shown in noise.items()
        for row in shown.returned
        if row.memory_id is not None
    ]
    rows = {**parsed.extra["rows"], "judgments": [number for number, _ in judged]}
    return replace(parsed, judgments=tuple(judgment for _, judgment in judged), extra={**parsed.extra, "rows": rows})


def _answer(number: int, row: Mapping[str, Any], source: str, errors: list[RowError]) -> RecordedAnswer:
    """One retrieval; raises FieldError for an event that has none, and reports results that cannot be used."""
    details = row.get(DETAILS)
    if not isinstance(details, list):
        raise fields.FieldError(DETAILS, f"must be a list of results, found {type_name(details)}")
    query = searched(fields.required_text(row, "query"))
    moment = fields.moment(row, "ts")
    returned = rows_of_answer(details, number, source, errors, DETAILS)
    return RecordedAnswer(number, "", query, None, returned, asked_at=moment)


def sniff(sample: Sample) -> bool:
    """Rows with the event, moment and session of the hook's log."""
    marks = {"ts", "event", "session_id"}
    return sum(marks <= row.keys() for row in sample.objects) * 2 > len(sample.objects)


FORMAT = Format(
    NAME,
    "what CEMS's hook logged: hook_events.jsonl with MemoryRetrieval events",
    order=2,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson"),
    place=0,
    answers=True,
    shape="objects with ts, event and session_id",
    needs=(("ts",), ("event",), ("session_id",)),
)
