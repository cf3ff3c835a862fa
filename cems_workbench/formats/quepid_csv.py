"""Ratings as CSV, `query,docid,rating` under a header: what Quepid exports, and what its other tools take.

A query is named by its words. Quepid leaves the rating of an unrated document empty; such rows are counted.

Source: https://quepid-docs.dev.o19s.com
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from cems_workbench.formats.base.csv_table import CsvTable, columns_of, open_table, read_rows, written
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.judgments import judgment_by_words, parsed_by_words, whole_rating
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "quepid-csv"
HEADER = ("query", "docid", "rating")


def write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as CSV; `words` are those of each qid. The judge is not written: there must be one grade per pair."""
    return written([HEADER, *((words[judgment.qid], judgment.memory_id, judgment.grade) for judgment in judgments)])


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read ratings under a header that names the three columns; raises InputError."""
    return read_ratings(open_table(path, HEADER), NAME, progress)


def read_ratings(table: CsvTable, name: str, progress: Progress) -> ParsedInput:
    """The ratings of a table with the three columns, as a format of this name."""
    errors: list[RowError] = []
    words: dict[str, str] = {}
    unrated = 0

    def parse(row: dict[str, str]) -> Judgment:
        row = {column.lower(): cell for column, cell in row.items()}
        judgment, query = judgment_by_words(row, whole_rating("rating", row["rating"]))
        words[judgment.qid] = query
        return judgment

    def rated(rows: Iterable[tuple[int, dict[str, str]]]) -> Iterator[tuple[int, dict[str, str]]]:
        nonlocal unrated
        for line, row in rows:
            if any(column.lower() == "rating" and not cell.strip() for column, cell in row.items()):
                unrated += 1
            else:
                yield line, row

    collected = collect_judgments(table.source, rated(read_rows(table, errors, progress)), parse, errors)
    notes = (f"{unrated} rows have no rating",) if unrated else ()
    return parsed_by_words(table.source, name, collected, words, errors, notes)


def sniff(sample: Sample) -> bool:
    """A header that names the three columns and nothing else."""
    if not sample.lines:
        return False
    return any({name.lower() for name in columns_of(sample.lines[0], mark)} == set(HEADER) for mark in ",;\t")


FORMAT = Format(
    NAME,
    "Quepid ratings: query,docid,rating under a header",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".csv",),
    judgments=JudgmentWriter(write, by_words=True, judges=False, place=4),
    place=15,
)
