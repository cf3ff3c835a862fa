"""What a system answered to a set of queries, in one file: the answers that the workbench is measured against.

    recording   {"config": {…}, "max_tokens", "answered_at", "answers": [{"qid", "query", "project", "results": [{"id", "score",
                "content"}, …], "lists"?}, …]}: whole answers, nothing cut; `config` are settings of CEMS in lower case
    responses   one search response, or a JSON list (or JSON lines) of them, each with its `query`
    TREC run    the answers of several queries, by qid
    a list      ids of one answer, whose query is named elsewhere

The rows of one answer are read by `responses`, whatever the form. A row that cannot be used is reported with its answer's number and its
field; whether that matters is for the reader to say. What makes a whole file unusable is one InputError that names the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import open_file, parse_json, type_name
from cems_workbench.formats.base.logs import distinct
from cems_workbench.formats.responses import parse_response, rows_of_answer
from cems_workbench.records import RankedIds, RecordedAnswer, RowError

RECORDING = "recording"


@dataclass(frozen=True, slots=True)
class Recording:
    """The answers of one file or kept set, with what is known of the system that gave them.

    `settings` are those that differ from the system's defaults, as it calls them, in lower case, with their values as text. `whole`: an
    answer is all that the system found, else a limit that the file does not state may have cut it. `id_length`: ids are cut to so many
    characters. `rounded`: scores may have fewer digits than the system's. `log`: it is a file that is imported too.
    """

    name: str
    form: str
    answers: tuple[RecordedAnswer, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int | None = None
    answered_at: datetime | None = None
    system: str | None = None
    embedder: str | None = None
    mode: str | None = None
    whole: bool = False
    id_length: int | None = None
    rounded: bool = False
    log: bool = False
    errors: tuple[RowError, ...] = ()


def read_recording(path: Path) -> Recording:
    """Read a file of answers. Raises InputError as `parse_recording` does, and when the file cannot be read."""
    raw = open_file(path).read_bytes()
    try:
        return parse_recording(raw.decode("utf-8-sig"), str(path))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 (byte {raw[error.start]:#04x})") from None


def parse_recording(text: str, source: str = "answers") -> Recording:
    """Read recorded answers in any known form. Raises InputError when the file as a whole cannot be used."""
    text = text.removeprefix("\ufeff").strip()
    document = _document(text)
    if isinstance(document, dict) and "answers" in document:
        return _recording(document, source)
    several = _several(text, document)
    if several:
        return _responses(several, source)
    response = parse_response(text, source)
    if response.runs is not None:
        runs = tuple(
            RecordedAnswer(rows[0].row if rows else 1, qid, None, None, rows) for qid, rows in response.runs.items()
        )
        return Recording(source, response.form, runs, errors=response.errors)
    query, project = _asked(document) if isinstance(document, dict) else (None, None)
    answer = RecordedAnswer(1, "1", query, project, response.returned)
    return Recording(source, response.form, (answer,), errors=response.errors)


def _document(text: str) -> Any:
    """The text as one JSON document; None if it is not JSON; the readers of other forms report that."""
    if not text.startswith(("{", "[")):
        return None
    try:
        return parse_json(text)
    except ValueError:
        return None


def _several(text: str, document: Any) -> list[tuple[int, dict[str, Any]]]:
    """(row, response) of each of several responses, in a list or a line each; empty when it is something else."""
    rows: list[tuple[int, Any]]
    if isinstance(document, list):
        rows = list(enumerate(document, 1))
    elif document is None and text.startswith("{"):
        try:
            rows = [(n, parse_json(line)) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        except ValueError:
            return []
    else:
        return []
    responses = [(n, row) for n, row in rows if isinstance(row, dict) and isinstance(row.get("results"), list)]
    return responses if len(responses) == len(rows) else []


def _responses(rows: Sequence[tuple[int, dict[str, Any]]], source: str) -> Recording:
    errors: list[RowError] = []
    answers = []
    for n, row in rows:
        query, project = _asked(row)
        qid = row.get("qid")
        rows_of = rows_of_answer(row["results"], n, source, errors)
        answers.append(RecordedAnswer(n, str(qid) if qid is not None else str(n), query, project, rows_of))
    return Recording(source, "search responses", distinct(answers, source, errors), errors=tuple(errors))


def _asked(response: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The query and the project that a response says it is of."""
    said = response.get("query") or response.get("queries_used")
    first = said[0] if isinstance(said, list) and said else said
    project = response.get("project")
    return (
        first if isinstance(first, str) and first.strip() else None,
        project if isinstance(project, str) and project else None,
    )


def _recording(document: Mapping[str, Any], source: str) -> Recording:
    rows = document["answers"]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}: answers: must be a list of answers, found {_found(rows)}")
    settings = document.get("config")
    if settings is not None and not isinstance(settings, dict):
        raise InputError(f"{source}: config: must be an object of settings, found {_found(settings)}")
    errors: list[RowError] = []
    answers = [answer for n, row in enumerate(rows, 1) if (answer := _answer(n, row, source, errors)) is not None]
    return Recording(
        name=source,
        form=RECORDING,
        answers=distinct(answers, source, errors),
        settings={name: _setting(name, value, source) for name, value in (settings or {}).items()},
        max_tokens=_max_tokens(document.get("max_tokens"), source),
        answered_at=_moment(document.get("answered_at"), source),
        system=_name("CEMS", document.get("cems")),
        embedder=_name("", document.get("embedder")),
        mode=_name("", document.get("mode")),
        whole=True,
        errors=tuple(errors),
    )


def _name(head: str, value: Any) -> str | None:
    return f"{head} {value}".strip() if isinstance(value, str) and value else None


def _setting(name: str, value: Any, source: str) -> str:
    if not isinstance(value, str | int | float):
        raise InputError(f"{source}: config: {name}: must be a text, a number or true or false, found {_found(value)}")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _max_tokens(value: Any, source: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{source}: max_tokens: must be a whole number from 1, found {_found(value)}")
    return value


def _moment(value: Any, source: str) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{source}: answered_at: must be an ISO 8601 time, found {_found(value)}") from None


def _answer(n: int, row: Any, source: str, errors: list[RowError]) -> RecordedAnswer | None:
    """One answer of a recording; None, with the reason in `errors`, when it is none."""
    if not isinstance(row, dict):
        errors.append(RowError(source, n, f"must be an answer, found {_found(row)}"))
        return None
    qid, query, project, results = (row.get(name) for name in ("qid", "query", "project", "results"))
    for name, value in (("qid", qid), ("query", query), ("project", project)):
        named = isinstance(value, str | int) and not isinstance(value, bool) and bool(str(value).strip())
        if not named and (value is not None or name == "qid"):
            errors.append(RowError(source, n, f"must be a text, found {_found(value)}", name))
            return None
    if not isinstance(results, list):
        errors.append(RowError(source, n, f"must be a list of results, found {_found(results)}", "results"))
        return None
    returned = rows_of_answer(results, n, source, errors)
    said = None if query is None else str(query)
    lists = _lists(row.get("lists"), n, source, errors)
    return RecordedAnswer(n, str(qid), said, None if project is None else str(project), returned, lists)


def _lists(value: Any, n: int, source: str, errors: list[RowError]) -> dict[str, tuple[RankedIds, ...]]:
    """The system's own lists; those that cannot be read are left out, and said."""
    found: dict[str, tuple[RankedIds, ...]] = {}
    if value is None:
        return found
    try:
        for name, lists in value.items():
            found[str(name)] = tuple(tuple((str(key), _finite(score)) for key, score in ranked) for ranked in lists)
    except (AttributeError, TypeError, ValueError):
        errors.append(RowError(source, n, "must be lists of [id, score] by the name of their source", "lists"))
        return {}
    return found


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError
    return number


def _found(value: Any) -> str:
    return type_name(value) if isinstance(value, list | dict) or value is None else ascii(value)[:60]
