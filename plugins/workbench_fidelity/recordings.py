"""What a system answered to a set of queries, in one file: the answers that the workbench is measured against.

    recording   {"config": {…}, "max_tokens", "answered_at", "answers": [{"qid", "query", "project", "results": [{"id", "score",
                "content"}, …], "lists"?}, …]}: whole answers, nothing cut; `config` are settings of CEMS in lower case, and with
                `engine` those of another system, which are not settings here (docs/use/recording.md has every field)
    responses   one search response, {"results": [{"memory_id", "content", "score"}, …]}, or the list itself, or what engines and memory
                libraries answer (`formats.responses`), also as JSON lines; or a JSON list (or JSON lines) of them, each with its `query`
    a run       the answers of several queries, by qid: `runs`
    a list      an id a line, or an id and its score behind a comma, a tab or blanks; a header line is passed over

The rows of one answer are read by `responses`, whatever the form. A row that cannot be used is reported with its answer's number and its
field; whether that matters is for the reader to say. What makes a whole file unusable is one InputError that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.csv_table import records
from cems_workbench.formats.base.fields import finite
from cems_workbench.formats.base.files import parse_json, read_whole, type_name
from cems_workbench.formats.logs import distinct, with_one_sign
from cems_workbench.formats.responses import IDS, LISTS, SEARCH, answers_in, items_of, oriented, rows_of_answer, unique
from cems_workbench.records import RankedIds, RecordedAnswer, Recording, Returned, RowError
from workbench_fidelity.runs import run_of

RECORDING, RESPONSE = "recording", "search response"
ENGINE_QUERIES: Mapping[str, str] = {"fts_query": "fts5", "lucene_query": "lucene", "tsquery": "ts_rank_cd"}
"""Fields that hold what an engine was given, and the list that the engine answers."""
SCORED_FIELDS = ("fused", "ranked")
"""Fields that hold the memories with their scores before the last cut."""
PART_LISTS: Mapping[str, str] = {"semantic_score": "semantic", "bm25_score": "keyword_unit", "entity_boost": "entity"}
"""The list that a part of an explained score comes from: that is what mem0 calls its parts."""
MAX_SYSTEM_CHARS = 160
NOT_SETTINGS = frozenset(
    {"engine", "embedder", "config", "answers", "answered_at", "max_tokens", "cems", "mode", "versions", "seconds"}
)
"""Fields of a recording that are no settings of its system."""
_HEADER = re.compile(r"(memory_?id|doc_?id|docno|id)([\s,;]+(score|relevance|similarity))?", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*\D)(\d+)")


def read_recording(path: Path) -> Recording:
    """Read a file of answers. Raises InputError as `parse_recording` does, and when the file cannot be read."""
    return parse_recording(read_whole(path), str(path))


def parse_recording(text: str, source: str = "answers") -> Recording:
    """Read recorded answers in any known form. Raises InputError when the file as a whole cannot be used."""
    plain = text.removeprefix("\ufeff").strip()
    if not plain:
        raise InputError(f"{source}: it is empty")
    if plain[0] not in "[{":
        plain = text.removeprefix("\ufeff").strip("\r\n ")  # a tab before a table stays
    text, document = plain, _document(plain)
    if isinstance(document, dict) and "answers" in document:
        return _recording(document, source)
    several = _several(text, document)
    if several:
        return _responses(several, source)
    errors: list[RowError] = []
    run = run_of(text, source, errors)
    query = project = None
    if run is not None:
        form, results, doubts = run.form, run.results, run.notes
    else:
        form, read, doubts = (_from_json if text[0] in "[{" else _from_lines)(text, source, errors)
        results = {str(n): rows for n, rows in enumerate(read, 1)}
        if not any(read):
            raise InputError(f"{source}: no row of it can be used{f': {errors[0]}' if errors else ''}")
        if isinstance(document, dict) and len(read) == 1:  # the queries of several are not named
            query, project = _asked(document)
    words, single = ({}, len(results) == 1) if run is None else (run.words, False)
    answers = tuple(
        RecordedAnswer(1 if single or not rows else rows[0].row, qid, words.get(qid, query), project, rows)
        for qid, rows in results.items()
    )
    errors.sort(key=lambda error: error.row)
    return Recording(source, form, answers, errors=tuple(errors), doubts=doubts)


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
    rows: list[tuple[int, Any]] = list(enumerate(document, 1)) if isinstance(document, list) else []
    if document is None and text.startswith("{"):
        with suppress(ValueError):
            rows = [(n, parse_json(line)) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    responses = [(n, row) for n, row in rows if isinstance(row, dict) and isinstance(row.get("results"), list)]
    return responses if len(responses) == len(rows) else []


def _responses(rows: Sequence[tuple[int, dict[str, Any]]], source: str) -> Recording:
    errors: list[RowError] = []
    named: dict[str, bool] = {}
    answers = []
    for n, row in rows:
        query, project = _asked(row)
        qid = row.get("qid")
        rows_of = rows_of_answer(row["results"], n, source, errors, named=named)
        answer = RecordedAnswer(n, str(qid) if qid is not None else str(n), query, project, rows_of)
        answers.append(replace(answer, lists=_lists_of_parts(rows_of)))
    turned, said = with_one_sign(answers, named)
    return Recording(source, "search responses", distinct(turned, source, errors), errors=tuple(errors), doubts=said)


def _from_json(
    text: str, source: str, errors: list[RowError]
) -> tuple[str, list[tuple[Returned, ...]], tuple[str, ...]]:
    """The form of a JSON document or JSON lines, its answers, and lines about how they were read."""
    try:
        found = answers_in(parse_json(text))
    except ValueError as error:
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for _, line in lines):
            raise InputError(f"{source}: {error}") from None
        items = []
        for number, line in lines:
            try:
                items.append((number, parse_json(line)))
            except ValueError as problem:
                errors.append(RowError(source, number, str(problem)))
        answers, form = [items], RESPONSE
    else:
        if found is None:
            raise InputError(f"{source}: has no list of results; looked for {', '.join(LISTS[:5])}")
        answers = [list(enumerate(rows, start=1)) for rows in found.rows]
        form = RESPONSE if found.system == SEARCH else f"answer of {found.system}"
    named: dict[str, bool] = {}
    read, said = oriented([unique(items_of(rows, source, errors, named), source, errors) for rows in answers], named)
    return form, read, said


def _from_lines(
    text: str, source: str, errors: list[RowError]
) -> tuple[str, list[tuple[Returned, ...]], tuple[str, ...]]:
    rows = []
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    for place, (number, line) in enumerate(lines):
        if place == 0 and _HEADER.fullmatch(line.replace('"', "")):
            continue
        _, read = next(records([line], 0, "\t" if "\t" in line else ","))
        if isinstance(read, str):
            errors.append(RowError(source, number, read))
            continue
        cells = [cell.strip() for cell in read]
        if len(cells) == 1:
            words = line.split()
            cells = [" ".join(words[:-1]), words[-1]] if len(words) > 1 and finite(words[-1]) is not None else [line]
        if len(cells) > 2 or not cells[0]:
            errors.append(RowError(source, number, f"must be an id, or an id and a score, found {ascii(line)[:60]}"))
            continue
        score = finite(cells[1]) if len(cells) == 2 and cells[1] else None
        if len(cells) == 2 and cells[1] and score is None:
            errors.append(RowError(source, number, f"must be a finite number, found {ascii(cells[1])[:60]}", "score"))
            continue
        rows.append(Returned(number, cells[0], score))
    return "list", [unique(rows, source, errors)], ()


def _asked(response: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The query and the project that a response says it is of."""
    said = response.get("query") or response.get("queries_used")
    first = said[0] if isinstance(said, list) and said else said
    project = response.get("project")
    return _text(first), _text(project)


def _recording(document: Mapping[str, Any], source: str) -> Recording:
    rows = document["answers"]
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{source}: answers: must be a list of answers, found {_found(rows)}")
    settings, own, doubts = _settings(document, source)
    most = document.get("max_tokens")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise InputError(f"{source}: max_tokens: must be a whole number from 1, found {_found(most)}")
    errors: list[RowError] = []
    named: dict[str, bool] = {}
    read = [answer for n, row in enumerate(rows, 1) if (answer := _answer(n, row, source, errors, named)) is not None]
    answers, said = with_one_sign(read, named)
    return Recording(
        name=source,
        form=RECORDING,
        answers=distinct(answers, source, errors),
        settings=settings,
        max_tokens=most,
        answered_at=_moment(document.get("answered_at"), source),
        system=f"CEMS {cems}" if (cems := _name(document.get("cems"))) else _name(document.get("engine")),
        embedder=_name(document.get("embedder")),
        mode=_name(document.get("mode")),
        whole=True,
        errors=tuple(errors),
        own_settings=own,
        doubts=(*doubts, *said),
    )


def _settings(document: Mapping[str, Any], source: str) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
    """Settings of CEMS, settings of another system, and a line for each value of CEMS's that is no setting. The file is
    another system's if it has an `engine` and no `cems`: its settings have no meaning as variables of CEMS."""
    said = {} if document.get("config") is None else document["config"]
    if not isinstance(said, dict):
        raise InputError(f"{source}: config: must be an object of settings, found {_found(said)}")
    if document.get("engine") and not document.get("cems"):
        return {}, _own_settings(document, said), ()
    settings, doubts = {}, []
    for name, value in said.items():
        if isinstance(value, str | int | float):
            settings[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
        elif value is not None:  # null is the system's default
            doubts.append(f"config: {name}: left out: must be a text, a number or true or false, found {_found(value)}")
    return settings, {}, tuple(doubts)


def _own_settings(document: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, str]:
    """What a file says of another system's settings: in `config`, and in short fields beside it, with those of objects."""
    beside = {name: value for name, value in document.items() if name not in NOT_SETTINGS}
    found: dict[str, str] = {}
    for name, value in (beside | dict(said)).items():
        for key, inner in value.items() if isinstance(value, dict) else [(name, value)]:
            if isinstance(inner, str | int | float):
                found[str(key)] = str(inner)[:MAX_SYSTEM_CHARS]
    return found


def _name(value: Any) -> str | None:
    """The name of a system, also where it is an object of several texts: the first of them."""
    if isinstance(value, dict):
        value = next((each for each in value.values() if isinstance(each, str) and each.strip()), None)
    return value.strip()[:MAX_SYSTEM_CHARS] if isinstance(value, str) and value.strip() else None


def _moment(value: Any, source: str) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{source}: answered_at: must be an ISO 8601 time, found {_found(value)}") from None


def _answer(n: int, row: Any, source: str, errors: list[RowError], named: dict[str, bool]) -> RecordedAnswer | None:
    """One answer of a recording; None, with the reason in `errors`, when it is none."""
    if not isinstance(row, dict):
        errors.append(RowError(source, n, f"must be an answer, found {_found(row)}"))
        return None
    qid, query, project, results = (row.get(name) for name in ("qid", "query", "project", "results"))
    for name, value in (("qid", qid), ("query", query), ("project", project)):
        usable = isinstance(value, str | int) and not isinstance(value, bool) and bool(str(value).strip())
        if not usable and (value is not None or name == "qid"):
            errors.append(RowError(source, n, f"must be a text, found {_found(value)}", name))
            return None
    if not isinstance(results, list):
        errors.append(RowError(source, n, f"must be a list of results, found {_found(results)}", "results"))
        return None
    returned = rows_of_answer(results, n, source, errors, named=named)
    if results and not returned:
        return None  # without a row that can be used it is no empty answer either
    said = None if query is None else str(query)
    lists = _lists(row.get("lists"), n, source, errors)
    answer = RecordedAnswer(n, str(qid), said, None if project is None else str(project), returned, lists)
    return _with_query(answer, row, source, errors)


def _with_query(answer: RecordedAnswer, row: Mapping[str, Any], source: str, errors: list[RowError]) -> RecordedAnswer:
    """The answer with what the system made of its query, and what it scored; what cannot be used is reported and left out."""
    understood = row.get("understood")
    said: Mapping[str, Any] = understood if isinstance(understood, dict) else {}
    searched = row.get("searched", said.get("searched"))
    wordings = row.get("queries")
    asked = wordings if isinstance(wordings, list) else []
    path, chat = row.get("path"), said.get("conversational")
    for name, value, kinds in (
        ("understood", understood, dict),
        ("searched", searched, str),
        ("queries", wordings, list),
        ("engine_queries", row.get("engine_queries"), dict),
    ):
        if value is not None and not isinstance(value, kinds):
            errors.append(RowError(source, answer.row, f"left out: must not be {_found(value)}", name))
    try:
        moment = _moment(row.get("as_of", row.get("asked_at")), source)
    except InputError:
        moment = None
        errors.append(RowError(source, answer.row, "left out: must be an ISO 8601 time", "as_of"))
    scored: list[Any] = next((row[name] for name in SCORED_FIELDS if isinstance(row.get(name), list)), [])
    return replace(
        answer,
        asked_at=moment,
        searched=_text(searched),
        engine_queries=_engine_queries(row, len(asked)),
        wordings=tuple(text for value in asked if (text := _text(value)) is not None),
        by_vector_alone=path == "dense" or chat is True if isinstance(path, str) or isinstance(chat, bool) else None,
        corrected=_text(row.get("reranked_by")) or _text(said.get("corrected")),
        lists=answer.lists or _lists_of_parts(answer.returned),
        scored=_ranked(scored, answer.row, source, [], "scored"),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _engine_queries(row: Mapping[str, Any], wordings: int) -> dict[str, str]:
    """What each engine was given; none where there were several wordings, of which a single text is one."""
    if wordings > 1:
        return {}
    given = row.get("engine_queries")
    named = dict(given) if isinstance(given, dict) else {}
    named |= {name: row[field_] for field_, name in ENGINE_QUERIES.items() if row.get(field_) is not None}
    return {str(name): value for name, value in named.items() if isinstance(value, str)}


def _lists_of_parts(returned: Sequence[Returned]) -> dict[str, tuple[RankedIds, ...]]:
    """The lists that explained scores come from, as far as they were returned: best first, equal ones in the order of the answer."""
    found: dict[str, tuple[RankedIds, ...]] = {}
    for part, name in PART_LISTS.items():
        rows = [(row.memory_id, row.parts[part]) for row in returned if row.memory_id and part in row.parts]
        # A part of 0 is that of a memory which the list does not have; a cosine may be 0.
        hits = [(key, score) for key, score in rows if score or part == "semantic_score"]
        if rows:
            found[name] = (tuple(sorted(hits, key=lambda hit: -hit[1])),)
    return found


def _lists(value: Any, n: int, source: str, errors: list[RowError]) -> dict[str, tuple[RankedIds, ...]]:
    """The system's own lists by name, one a query variant; rows that cannot be read are left out, and said. A list is
    rows, or a list of lists, one a variant; `name1`, `name2` are those of the variants too, where both are there."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        errors.append(RowError(source, n, f"must be lists by the name of their source, found {_found(value)}", "lists"))
        return {}
    found: dict[str, tuple[RankedIds, ...]] = {}
    for name, given in value.items():
        if given is None:
            continue
        if isinstance(given, dict) and "error" in given:
            given = []  # a search that failed, which the system goes on without
        if not isinstance(given, list):
            errors.append(RowError(source, n, f"must be a list of rows, found {_found(given)}", f"lists.{name}"))
            continue
        variants = given if given and all(_is_list(one) for one in given) else [given]
        found[str(name)] = tuple(_ranked(one, n, source, errors, f"lists.{name}") for one in variants)
    return _numbered(found)


def _is_list(value: Any) -> bool:
    """Is it a list of rows, not a row [id, score]?"""
    return isinstance(value, list) and (not value or isinstance(value[0], list | dict))


def _numbered(lists: Mapping[str, tuple[RankedIds, ...]]) -> dict[str, tuple[RankedIds, ...]]:
    """`vector1`, `vector2`, … as the variants of `vector`, in the order of their numbers, which run from 1: `bm25` is no variant."""
    numbered: dict[str, dict[int, str]] = {}
    for name in lists:
        if match := _NUMBERED.fullmatch(name):
            numbered.setdefault(match[1], {})[int(match[2])] = name
    heads = {
        name: head
        for head, names in numbered.items()
        if sorted(names) == list(range(1, len(names) + 1)) and head not in lists
        for name in names.values()
    }
    found: dict[str, tuple[RankedIds, ...]] = {}
    for name in sorted(lists, key=lambda name: int(name[len(heads[name]) :]) if name in heads else 0):
        head = heads.get(name, name)
        found[head] = found.get(head, ()) + lists[name]
    return found


def _ranked(rows: Iterable[Any], n: int, source: str, errors: list[RowError], field_: str) -> RankedIds:
    """The rows of a list in their order: {id, score}, [id, score], or an id alone, whose score falls with its place."""
    given = list(rows)
    found: dict[str, float] = {}
    bad = []
    for place, row in enumerate(given):
        try:
            key, score = _row(row, len(given) - place)
        except (TypeError, ValueError):
            bad.append(place)
        else:
            found.setdefault(key, score)
    if bad:
        more = f", and {len(bad) - 1} more rows of it" if len(bad) > 1 else ""
        reason = f"left out: must be [id, score], {{id, score}} or an id, found {_found(given[bad[0]])}{more}"
        errors.append(RowError(source, n, reason, f"{field_}[{bad[0]}]"))
    return tuple(found.items())


def _row(row: Any, otherwise: float) -> tuple[str, float]:
    """Id and score of one row. Raises ValueError or TypeError."""
    if isinstance(row, dict):
        row = [next((row[name] for name in IDS if row.get(name) is not None), None), row.get("score")]
    if isinstance(row, str | int) and not isinstance(row, bool):
        row = [row, None]
    key, given = row
    score = float(otherwise) if given is None else finite(given)
    if not isinstance(row, list) or isinstance(key, bool) or not isinstance(key, str | int) or score is None:
        raise ValueError
    return str(key), score


def _found(value: Any) -> str:
    return type_name(value) if isinstance(value, list | dict) or value is None else ascii(value)[:60]
