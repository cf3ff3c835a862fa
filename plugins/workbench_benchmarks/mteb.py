"""MTEB: a folder that `mteb` and `datasets` load: corpus.jsonl, queries.jsonl, qrels/test.jsonl, and a card that says which is which.

    {"_id", "title", "text"}                  a memory
    {"_id", "text"}                           a query
    {"query-id", "corpus-id", "score"}        a judgment; score is a whole number
    README.md                                 `configs` of the data set: default (the qrels), corpus and queries

It is BEIR's folder with judgments as JSON, and is read as `beir`. The loader makes a column of each field, of one type in every row: what
only the workbench knows is JSON text in `metadata`, in every row. A column whose texts are all dates is read as moments there: a note
says so of ids.

Source: mteb 2.26.24 (abstasks/retrieval_dataset_loaders.py), which was run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.formats import beir, judgments_jsonl
from cems_workbench.formats.base.dataset import DataSet, Exported, Losses, json_line, nothing_to_write, put_rows
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import DatasetWriter, Format
from cems_workbench.formats.base.judgment_names import renamed
from cems_workbench.formats.base.judgments import one_grade_each
from cems_workbench.platform.atomic_write import output_path, write_text
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, ParsedInput, Query

NAME = "mteb"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?Z?)?")
CONFIGS = {
    "default": ("test", "qrels/test.jsonl"),
    "corpus": ("corpus", "corpus.jsonl"),
    "queries": ("queries", "queries.jsonl"),
}
"""The split and the file of each config."""


def card(configs: Iterable[str]) -> str:
    """The card of a data set with these configs."""
    named = [
        f"- config_name: {name}\n  data_files:\n  - split: {split}\n    path: {path}\n"
        for name, (split, path) in CONFIGS.items()
        if name in configs
    ]
    return f"---\nconfigs:\n{''.join(named)}---\n"


class _Ids:
    """Whether all ids of a column look like dates."""

    def __init__(self) -> None:
        self._first: str | None = None
        self._all = True

    def see(self, name: str) -> None:
        """One id more."""
        self._first = name if self._first is None else self._first
        self._all = self._all and _DATE.fullmatch(name) is not None

    def note(self, kind: str) -> list[str]:
        """A line if they do."""
        if self._first is None or not self._all:
            return []
        return [f"every id of the {kind} is a date, such as {self._first}: mteb reads it as a moment, with its time"]


def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write the folder; raises InputError when no memory can be written."""
    losses = Losses()
    memory_ids, query_ids = _Ids(), _Ids()

    def document(memory: Memory) -> tuple[str, Memory]:
        memory_ids.see(memory.id)
        return _document(memory)

    def question(query: Query) -> tuple[str, Query]:
        query_ids.see(query.qid)
        return _question(query)

    with output_path(path, directory=True) as place:
        corpus = put_rows(dataset.counted(progress, path.name), document, losses, place / "corpus.jsonl")
        if not corpus:
            raise nothing_to_write(path, "memories", losses)
        queries = put_rows(dataset.queries, question, losses, place / "queries.jsonl")
        (place / "qrels").mkdir()
        labels = one_grade_each(dataset.judgments, losses.left_out)
        judgments = put_rows(labels, _grade, losses, place / "qrels" / "test.jsonl")
        if not judgments:
            (place / "qrels").rmdir()
        counts = {"default": judgments, "corpus": corpus, "queries": queries}
        write_text(place / "README.md", card(name for name, count in counts.items() if count))
    done = Exported.of({"memories": corpus, "queries": queries, "judgments": judgments}, losses)
    return replace(done, notes=(*done.notes, *memory_ids.note("memories"), *query_ids.note("queries")))


def _document(memory: Memory) -> tuple[str, Memory]:
    row = beir.memory_row(memory)
    return _line(row), beir.parse_memory({**row, beir.OURS: row.get("metadata", {}).get(beir.OURS)})


def _question(query: Query) -> tuple[str, Query]:
    row = beir.query_row(query)
    return _line(row), beir.parse_query({**row, beir.OURS: row.get("metadata", {}).get(beir.OURS)})


def _line(row: dict[str, Any]) -> str:
    more = row.get("metadata")
    return json_line({**row, "metadata": json.dumps(more, ensure_ascii=False) if more else ""})


def _grade(judgment: Judgment) -> tuple[str, Judgment]:
    row = {"query-id": judgment.qid, "corpus-id": judgment.memory_id, "score": judgment.grade}
    return json_line(row), judgments_jsonl.parse_judgment(renamed(row))


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a folder or one file of it; raises InputError as `beir.read` does."""
    return replace(beir.read(path, progress), format=NAME)


def sniff(sample: Sample) -> bool:
    """Never: `beir` recognises its folder and its files."""
    return False


FORMAT = Format(
    NAME,
    "a folder that mteb loads: BEIR's with qrels/test.jsonl and a card (read as beir)",
    order=0,
    sniff=sniff,
    read=read,
    dataset=DatasetWriter(write, ("memories", "queries", "judgments"), place=6),
    place=26,
    shape="a folder with corpus.jsonl, queries.jsonl and qrels/test.jsonl",
)
