"""Judgments: as JSON (`judgments-jsonl`), in which nothing is lost, and as a table (`judgments-csv`).

    {qid, memory_id, grade, judge?, kind?, judged_at?, note?}

qid, memory_id and grade may have the names of other tools (`base/names.py`): `query_id`, `doc_id`, `relevance` of ir_datasets,
`query-id`, `corpus-id`, `score` of MTEB, `qid,docno,label` of PyTerrier. A row may have the words of its query as `query`, beside the qid
or, in JSON, instead of it. An empty cell is absent; a row of a table without a grade is a pair to be judged.

A judgment of the whole store has `answerable`, true or false, instead of memory_id and grade: does anything in it answer the query?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.csv_table import headers, left_out, open_table, read_rows, written
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import JudgmentWriter, described, json_line
from cems_workbench.formats.base.judgments import WordsBeside
from cems_workbench.formats.base.names import (
    IGNORED,
    NAMES,
    WORDS,
    fields_of,
    names_judgments,
    names_words,
    renamed,
)
from cems_workbench.formats.base.records import TakenInPartError, collect_judgments, graded
from cems_workbench.progress import Progress
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, RowError

REQUIRED = ("qid", "memory_id", "grade")
KNOWN = (*REQUIRED, "judge", "kind", "judged_at", "note")
OF_STORE = "answerable"
KINDS = ("human", "model")


def parse_judgment(row: dict[str, Any]) -> Judgment:
    """One judgment; raises FieldError, TakenInPartError if its time cannot be read."""
    answerable = fields.said(row, OF_STORE)
    if answerable is not None and any(row.get(name) is not None for name in ("memory_id", "grade")):
        raise fields.FieldError(OF_STORE, "is of the whole store, and stands without memory_id and grade")
    judgment = Judgment(
        qid=fields.identifier(row, "qid"),
        memory_id=fields.identifier(row, "memory_id") if answerable is None else WHOLE_STORE,
        grade=int(answerable or 0),
        judge="human" if row.get("judge") is None else fields.identifier(row, "judge"),
        kind=fields.choice(row, "kind", KINDS, "human"),
        note=fields.text(row, "note"),
    )
    unread = None
    try:
        judgment = replace(judgment, judged_at=memory_fields.moment(row, "judged_at") if row.get("judged_at") else None)
    except fields.FieldError as error:
        unread = error
    if answerable is None:
        judgment = graded("grade", row.get("grade"), lambda grade: replace(judgment, grade=grade))
    if unread is not None:
        raise TakenInPartError(unread, judgment)
    return judgment


def as_row(judgment: Judgment) -> dict[str, Any]:
    """The fields of a judgment as JSON values; what is absent is left out."""
    row: dict[str, Any] = {name: getattr(judgment, name) for name in KNOWN}
    if judgment.memory_id == WHOLE_STORE:
        row |= {"memory_id": None, "grade": None, OF_STORE: judgment.grade > 0}
    row["judged_at"] = None if judgment.judged_at is None else judgment.judged_at.isoformat()
    return {name: value for name, value in row.items() if value is not None}


def _write_csv(judgments: Iterable[Judgment]) -> str:
    rows = (as_row(judgment) for judgment in judgments)
    return written([KNOWN, *([row.get(name, "") for name in KNOWN] for row in rows)])


def read_json(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    unknown = fields.UnknownFields((*KNOWN, OF_STORE, *WORDS))
    beside = WordsBeside()

    def parse(row: dict[str, Any]) -> Judgment:
        named = beside.identified(renamed(row))
        judgment = parse_judgment(named)
        unknown.see(named)
        return judgment

    collected = collect_judgments(str(path), read_records(path, errors, progress), parse, errors)
    return beside.parsed(collected.parsed(path, "judgments-jsonl", "judgments", errors, unknown.notes()))


def read_csv(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a table; raises InputError when its header lacks a required column."""
    errors: list[RowError] = []
    table = open_table(path, REQUIRED, columns=_columns)
    beside = WordsBeside()
    unrated: list[tuple[str, str]] = []

    def rated() -> Iterator[tuple[int, dict[str, str]]]:
        for number, row in read_rows(table, errors, progress):
            qid, document, grade = (row[name].strip() for name in REQUIRED)
            if grade or not (qid and document):
                yield number, row
            else:
                unrated.append((qid, document))

    def parse(row: dict[str, str]) -> Judgment:
        typed: dict[str, Any] = {column.strip().lower(): cell for column, cell in row.items() if cell.strip()}
        typed |= {"kind": typed["kind"].strip().lower()} if "kind" in typed else {}
        return parse_judgment(beside.identified(typed))

    collected = collect_judgments(str(path), rated(), parse, errors)
    places = {name: table.called[name] for name in REQUIRED}
    notes = left_out(table, (*KNOWN, *IGNORED, *WORDS))
    parsed = beside.parsed(collected.parsed(path, "judgments-csv", "judgments", errors, notes, fields=places))
    return replace(parsed, extra={**parsed.extra, "pairs": tuple(unrated)}) if unrated else parsed


def _columns(names: Sequence[str]) -> list[str]:
    parts = {name: field for field, name in fields_of(names).items()}
    return [parts.get(name, name) for name in names]


def _sniff(sample: Sample) -> bool:
    """Objects with a qid or the words of a query, a memory_id and a grade, or with a qid and a judgment of the whole store."""
    return sample.mostly(
        lambda row: names_judgments(row) or names_words(row) or {"qid", OF_STORE} == row.keys() - {*KNOWN[3:]}
    )


def sniff_csv(sample: Sample) -> bool:
    """A first line that names the three parts of a judgment, under any of their names."""
    return any(map(names_judgments, headers(sample.header)))


FORMAT = (
    described(
        __file__,
        "judgments-jsonl",
        _sniff,
        read_json,
        judgments=JudgmentWriter(
            lambda judgments, words: "".join(f"{json_line(as_row(each))}\n" for each in judgments),
            whole_store=True,
            place=1,
        ),
        needs=tuple(NAMES.values()),
    ),
    described(
        __file__,
        "judgments-csv",
        sniff_csv,
        read_csv,
        judgments=JudgmentWriter(lambda judgments, words: _write_csv(judgments), place=2),
        needs=tuple(NAMES.values()),
    ),
)
