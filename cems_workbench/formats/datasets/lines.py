"""Forms with a row a line: memories and relations as JSON lines, memories as CSV, and BEIR's folder. Written as they come, so that a
store of any size goes through; each row is read as it will be read from the file before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from cems_workbench.errors import InputError
from cems_workbench.formats import beir, memories_csv, memories_jsonl, queries_jsonl, relations_jsonl
from cems_workbench.formats.csv_table import written
from cems_workbench.formats.datasets.dataset import DataSet, Exported, Losses, finished, judged
from cems_workbench.formats.fields import FieldError
from cems_workbench.formats.writing import one_grade_each
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, Query, Relation

Record = TypeVar("Record", Memory, Query, Judgment, Relation)
Line = Callable[[Record], tuple[str, Record]]
"""The line of a record, without its end, and the record it is read as; raises FieldError when it is none."""


def _name(record: Memory | Query | Judgment | Relation) -> str:
    if isinstance(record, Judgment):
        return judged(record)
    if isinstance(record, Relation):
        return f"{record.source_id} {record.target_id}"
    return record.id if isinstance(record, Memory) else record.qid


def _key(record: Memory | Query | Judgment | Relation) -> tuple[object, ...]:
    """What must come back as it was for a row to be the same row."""
    if isinstance(record, Judgment):
        return record.qid, record.memory_id, record.grade
    if isinstance(record, Relation):
        return record.source_id, record.target_id, record.kind
    return (record.id, record.content) if isinstance(record, Memory) else (record.qid, record.query)


def _put(records: Iterable[Record], line: Line[Record], losses: Losses, path: Path, header: str = "") -> int:
    """Write the records whose rows are read back as them, and count them; no file when there are none."""
    count = 0
    with path.open("wb") as file:
        file.write(header.encode())
        for record in records:
            try:
                text, back = line(record)
                raw = f"{text}\n".encode()
            except (FieldError, UnicodeEncodeError) as error:
                losses.leave_out(_name(record), str(error))
                continue
            if _key(back) != _key(record):
                losses.leave_out(_name(record), "would be read back under another id or with another text")
                continue
            losses.compare(_name(record), record, back)
            file.write(raw)
            count += 1
    if not count:
        path.unlink()
    return count


def _json(record_row: dict[str, Any]) -> str:
    return json.dumps(record_row, ensure_ascii=False)


def _memory(memory: Memory) -> tuple[str, Memory]:
    row = memories_jsonl.as_row(memory)
    return _json(row), memories_jsonl.parse_memory(row)


def _cells(memory: Memory) -> tuple[str, Memory]:
    cells = memories_csv.as_cells(memory)
    return written([cells]).removesuffix("\n"), memories_csv.parse_cells(cells)


def _relation(relation: Relation) -> tuple[str, Relation]:
    row = relations_jsonl.as_row(relation)
    return _json(row), relations_jsonl.parse_relation(row)


def _query(query: Query) -> tuple[str, Query]:
    row = queries_jsonl.as_row(query)
    return _json(row), queries_jsonl.parse_query(row)


def _document(memory: Memory) -> tuple[str, Memory]:
    row = beir.memory_row(memory)
    return _json(row), beir.parse_memory({**row, beir.OURS: row.get("metadata", {}).get(beir.OURS)})


def _question(query: Query) -> tuple[str, Query]:
    row = beir.query_row(query)
    return _json(row), beir.parse_query({**row, beir.OURS: row.get("metadata", {}).get(beir.OURS)})


def _grade(judgment: Judgment) -> tuple[str, Judgment]:
    line = beir.judgment_line(judgment)
    return line, beir.parse_judgment(line)


def write_memories(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """memories.jsonl; raises InputError when no memory can be written."""
    return _single(dataset.counted(progress, path.name), _memory, "memories", path)


def write_memories_csv(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """memories.csv; raises InputError when no memory can be written."""
    header = written([memories_jsonl.KNOWN])
    return _single(dataset.counted(progress, path.name), _cells, "memories", path, header)


def write_relations(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """relations.jsonl; raises InputError when there are none."""
    return _single(dataset.relations, _relation, "relations", path)


def write_queries(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """queries.jsonl; raises InputError when there are none."""
    return _single(dataset.queries, _query, "queries", path)


def _single(records: Iterable[Record], line: Line[Record], kind: str, path: Path, header: str = "") -> Exported:
    losses = Losses()
    with finished(path) as place:
        count = _put(records, line, losses, place, header)
        if not count:
            raise InputError(
                f"{path}: there are no {kind} to write" + (f", {_first(losses)}" if losses.left_out else "")
            )
    return Exported.of({kind: count}, losses)


def _first(losses: Losses) -> str:
    return f"e.g. {losses.left_out[0]}"


def write_beir(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """BEIR's folder: corpus.jsonl, queries.jsonl, qrels/test.tsv; raises InputError when no memory can be written."""
    losses = Losses()
    with finished(path, folder=True) as place:
        corpus = _put(dataset.counted(progress, path.name), _document, losses, place / "corpus.jsonl")
        if not corpus:
            raise InputError(
                f"{path}: there are no memories to write" + (f", {_first(losses)}" if losses.left_out else "")
            )
        queries = _put(dataset.queries, _question, losses, place / "queries.jsonl")
        (place / "qrels").mkdir()
        header = "\t".join(beir.HEADER) + "\n"
        labels = one_grade_each(dataset.judgments, losses.left_out)
        judgments = _put(labels, _grade, losses, place / "qrels" / "test.tsv", header)
        if not judgments:
            (place / "qrels").rmdir()
    return Exported.of({"memories": corpus, "queries": queries, "judgments": judgments}, losses)
