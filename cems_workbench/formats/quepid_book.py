"""A Quepid book as CSV, `query,docid,<judge>…`: a row per pair, a column per judge, an empty cell where one has not judged.

A query is named by its words. Such a file has no kind of judge, no times and no notes: all judges are read as people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cems_workbench.formats import ratings_csv as by_words
from cems_workbench.formats.csv_table import columns_of, open_table, read_rows, written
from cems_workbench.formats.fields import FieldError, identifier
from cems_workbench.formats.ratings_csv import HEADER
from cems_workbench.formats.reader import Reader, Sample, register
from cems_workbench.formats.rows import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "quepid-book"
PAIR = ("query", "docid")
Cell = tuple[dict[str, str], str, str]
"""A row, the judge of one of its cells, and the cell."""


def write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as a book; `words` are those of each qid, judges stand in the order of their names."""
    table: dict[tuple[str, str], dict[str, int]] = {}
    for judgment in judgments:
        table.setdefault((words[judgment.qid], judgment.memory_id), {})[judgment.judge] = judgment.grade
    judges = sorted({judge for grades in table.values() for judge in grades})
    rows = [
        [query, document, *(grades.get(judge, "") for judge in judges)] for (query, document), grades in table.items()
    ]
    return written([[*PAIR, *judges], *rows])


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a book; raises InputError when its header does not name a query, a docid and a judge at least."""
    errors: list[RowError] = []
    words: dict[str, str] = {}
    table = open_table(path, PAIR)
    judges = [name for name in table.columns if name.lower() not in PAIR]

    def cells() -> Iterable[tuple[int, Cell]]:
        for line, row in read_rows(table, errors, progress):
            for judge in judges:
                if row[judge].strip():
                    yield line, (row, judge, row[judge])

    def parse(cell: Cell) -> Judgment:
        row, judge, grade = cell
        if not judge:
            raise FieldError("", "has a grade in a column without the name of a judge")
        named = {column.lower(): text for column, text in row.items() if column.lower() in PAIR}
        judge = identifier({"judge": judge}, "judge")
        judgment, query = by_words.graded(named, by_words.whole_rating(judge, grade), judge)
        words[judgment.qid] = query
        return judgment

    found = collect_judgments(str(path), cells(), parse, errors)
    return by_words.as_input(str(path), NAME, found, words, errors, grade_column="")


def sniff(sample: Sample) -> bool:
    """A header that begins with query and docid and goes on with anything but the one column `rating`."""
    if not sample.lines:
        return False
    columns = [name.lower() for name in columns_of(sample.lines[0], ",")]
    return columns[:2] == list(PAIR) and len(columns) > 2 and columns != list(HEADER)


register(Reader(NAME, "a Quepid book: query,docid and a column per judge", 3, sniff, read, (".csv",)))
