"""Evaluation sets with a row for each query and the ids that should come to it, `{query, expected_ids, id?}`: the commonest small set.

    the ids     `expected_ids`, `relevant_ids`, `gold_ids`, `expected_memory_ids`, `expected_files`, … (`base/names.py`): a list,
                one text, or `{id: grade}`; an item may be an object with id and grade. Without a grade it is 1
    not these   `noise_ids`, `negatives`, …: grade 0
    the query   `query`, `question`, …, and `id`, `qid` or `query_id`; either is enough, an id alone is that of a query of the store
    beside      `type` or `category`, `project`, `as_of`, `answerable`

JSON lines, a JSON list, an object that has the list (QMD's bench files, cashew's needles) or the rows by qid, the `queries` and
`relevant_docs` of LlamaIndex and sentence-transformers, and CSV, where a cell has several ids as JSON or between ; | or ,. Items of several
words that are no files are texts of memories, unless their name says that they are ids.

Source: src/bench of tobi/qmd, eval of rajkripal/cashew, 2026; EmbeddingQAFinetuneDataset of llama-index-core 0.14.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import names as known
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.fields import FieldError, UnknownFields, identifier, required_text
from cems_workbench.formats.base.files import Sample, is_document, read_document, read_objects
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.judgments import clean_words
from cems_workbench.formats.base.records import collect_judgments, derived_id, graded, judgment_of, reported
from cems_workbench.formats.queries import parse_query
from cems_workbench.progress import Progress
from cems_workbench.records import JUDGED_TEXTS, Judgment, ParsedInput, Query, RowError
from workbench_tools.rag_samples import is_sample

NAME = "expected-ids"
CSV = (".csv", ".tsv")
GRADE = 1
MAX_DEPTH = 3
"""Of objects around the list of rows."""
TYPES = ("type", "category", "query_type")
_FILE = re.compile(r"[^\n]*\.[A-Za-z]\w{0,4}")
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Expected:
    """What a row says: its query, if it has the words, and (field, id, grade as given) or (field, text, grade) of each memory."""

    qid: str
    query: Query | None
    ids: tuple[tuple[str, Any, Any], ...]
    texts: tuple[tuple[str, str, Any], ...]
    own_id: bool


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read queries and judgments; raises InputError when the file cannot be read or has no such rows."""
    errors: list[RowError] = []
    asked: dict[str, tuple[int, Query]] = {}
    own: set[str] = set()
    rated: list[tuple[int, tuple[str, str, Any, Any]]] = []
    texts: list[tuple[int, str, Judgment, str]] = []
    unknown, empty, ranked = UnknownFields(()), dict[str, None](), list[str]()
    for number, row in _rows(path, errors, progress):
        with reported(errors, str(path), number):
            one = _parse(row)
            if one.query is not None:
                first = asked.setdefault(one.qid, (number, one.query))
                if first[1].query != one.query.query:
                    reason = f"{one.qid!r} stands already in row {first[0]} with other words"
                    raise FieldError(known.first_of(row, known.QIDS)[0], reason)
                own |= {one.qid} if one.own_id else set()
            texts += [
                (number, field, graded(field, grade, lambda whole, qid=one.qid: Judgment(qid, "", whole)), text)  # type: ignore[misc]
                for field, text, grade in one.texts
            ]
            rated += [(number, (one.qid, field, memory_id, grade)) for field, memory_id, grade in one.ids]
            if not one.ids and not one.texts and (one.query is None or one.query.answerable is None):
                empty[one.qid] = None
            ranked += known.named(row, known.RETURNED)[: 1 - len(ranked)]
            unknown.see(row, [name for name in row if not _is_read(name)])
    collected = collect_judgments(str(path), rated, lambda given: judgment_of(*given), errors)
    return ParsedInput(
        str(path),
        NAME,
        queries=tuple(query for _, query in asked.values()),
        judgments=tuple(collected.records),
        errors=tuple(sorted(errors, key=lambda error: error.row)),
        notes=(*collected.notes, *unknown.notes(), *_notes(path, empty, ranked)),
        ungraded=tuple(collected.ungraded),
        extra={
            "rows": {"judgments": collected.rows, "queries": [number for number, _ in asked.values()]},
            "fields": {"memory_id": "expected"},
            "queries_by_words": bool(asked),
            "own_ids": own,
            "listed": asked.keys(),
            "is_set": True,
            JUDGED_TEXTS: texts,
        },
    )


def _notes(path: Path, empty: Mapping[str, None], ranked: list[str]) -> Iterator[str]:
    if empty:
        such = f"{len(empty):,} quer{'y expects' if len(empty) == 1 else 'ies expect'} nothing, such as {next(iter(empty))}"
        yield f'{such}, and has no judgment; "answerable": false says that the store has no answer'
    if ranked:
        yield f"{ranked[0]} is what a system returned: fidelity {path.name} compares it, import needs the words of the queries for it"


def _is_read(name: str) -> bool:
    listed = known.plain(name) in (*known.QIDS, *known.ASKED, *TYPES, "project", "as_of", "answerable", "note")
    return listed or any(role.fullmatch(known.plain(name)) for role in (known.WANTED, known.UNWANTED, known.RETURNED))


def _parse(row: Row) -> _Expected:
    field, words = known.first_of(row, known.ASKED)
    id_field, given = known.first_of(row, known.QIDS)
    query, qid = None, "" if given is None else identifier({id_field: given}, id_field)
    if field:
        text = clean_words(required_text({field: words}, field))
        of_query = {name: row.get(name) for name in ("project", "as_of", "answerable")}
        kind = known.first_of(row, TYPES)[1]
        qid = qid or derived_id("q", text)
        query = parse_query({"qid": qid, "query": text, **of_query, "type": None if kind is None else str(kind)})
    elif not qid:
        raise FieldError(known.ASKED[0], "is missing")
    items = [
        (name, *item)
        for role, grade in ((known.WANTED, GRADE), (known.UNWANTED, 0))
        for name in known.named(row, role)
        for item in known.items_of(name, row[name], grade)
    ]
    sure = any(known.only_ids(name) for name, *_ in items)
    texts = () if sure else tuple(item for item in items if _is_text(item[1]))
    ids = tuple(item for item in items if sure or not _is_text(item[1]))
    return _Expected(qid, query, ids, texts, given is not None)


def _is_text(item: Any) -> bool:
    return isinstance(item, str) and len(item.split()) > 1 and not _FILE.fullmatch(item.strip())


def _rows(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.suffix.lower() in CSV:
        yield from read_rows(open_table(path, (), _columns(path), unique=False), errors, progress)
    elif is_document(path):
        for number, row in enumerate(_in_document(read_document(path)) or [], start=1):
            if isinstance(row, dict):
                yield number, row
            else:
                errors.append(RowError(str(path), number, "must be an object"))
    else:
        yield from read_objects(path, errors, progress)


def _columns(path: Path) -> list[str]:
    """The names by which the separator of a table is chosen."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = next((line for line in file if line.strip()), "")
    return [name.lower() for mark in DELIMITERS for name in columns_of(header, mark) if _is_read(name)]


def _in_document(document: Any, depth: int = 0) -> list[Any] | None:
    """The rows of a document: the first list in it that has such rows, or an object of them by qid; None if there are none."""
    if isinstance(document, list):
        rows = [row for row in document if isinstance(row, dict)]
        return document if rows and sum(map(expects, rows)) * 2 >= len(rows) else None
    if not isinstance(document, dict) or depth > MAX_DEPTH:
        return None
    if expects(document):
        return [document]
    by_qid = [{"qid": qid, **row} for qid, row in document.items() if isinstance(row, dict)]
    if by_qid and len(by_qid) == len(document) and all(map(expects, by_qid)):
        return list(by_qid)
    words, wanted = (
        document.get("queries"),
        next((document[name] for name in known.named(document, known.WANTED)), None),
    )
    if isinstance(words, dict) and isinstance(wanted, dict):
        return [{"qid": qid, "query": text, "relevant_ids": wanted.get(qid)} for qid, text in words.items()]
    inner = (_in_document(value, depth + 1) for value in document.values() if isinstance(value, list | dict))
    return next((rows for rows in inner if rows), None)


def expects(row: Row) -> bool:
    """Whether a row names a query, by its words or an id, and memories that should come to it, by what may be ids."""
    keys = {known.plain(known.first_of(row, names)[0]) for names in (known.ASKED, known.QIDS)} - {""}
    if not keys or is_sample({known.plain(name) for name in row}):
        return False
    sure, names = bool(keys - known.ANY_ROW), [] if "content" in row else known.named(row, known.WANTED)
    return any((sure or known.SURE.fullmatch(known.plain(name))) and _may_be_ids(name, row[name]) for name in names)


def _may_be_ids(name: str, value: Any) -> bool:
    """Whether a value may be ids: under a name that does not say so a list or an object."""
    if isinstance(value, list):
        return all(isinstance(item, str | int | dict) for item in value)
    return isinstance(value, dict) or (
        isinstance(value, str | int) and not isinstance(value, bool) and known.only_ids(name)
    )


def sniff(sample: Sample) -> bool:
    """Rows, in lines, a list, an object or a table, that name a query and what should come; feedback of CEMS has noise beside a qid."""
    if sample.document is not None:
        rows = _in_document(sample.document) or []
    elif sample.rows:
        rows = list(sample.rows)
    else:
        rows = _first_cells(sample)
    rows = [row for row in rows if isinstance(row, dict)]
    feedback = any("noise_ids" in row for row in rows) and not any(known.first_of(row, known.ASKED)[0] for row in rows)
    return bool(rows) and not feedback and sum(map(expects, rows)) * 2 >= len(rows)


def _first_cells(sample: Sample) -> list[dict[str, Any]]:
    """The first rows of a table; none if its header has a separate document, beside which `relevant` is a grade."""
    for mark in DELIMITERS:
        names = columns_of(sample.header, mark)
        if known.named(names, known.WANTED) and not {known.plain(name) for name in names} & {*known.NAMES["memory_id"]}:
            lines = sample.lines[sample.lines.index(sample.header) + 1 :]
            rows = [dict(zip(names, columns_of(line, mark), strict=False)) for line in lines]
            return [{name: _cell(name, row[name]) for name in names} for row in rows if len(row) == len(names)]
    return []


def _cell(name: str, cell: str) -> Any:
    """A cell; where it may be ids under a name that does not say so, those ids."""
    if known.only_ids(name) or not known.named([name], known.WANTED):
        return cell
    try:
        items = [item for item, _ in known.items_of(name, cell, GRADE)]
    except FieldError:
        return cell
    return cell if any(map(_is_text, items)) else items


FORMAT = described(__file__, NAME, sniff, read)
