"""Ratings as CSV for the OpenSearch Search Relevance Workbench: `query,docid,rating`, exactly three columns, the header optional.

A query is named by its words.

Source: https://docs.opensearch.org/latest/search-plugins/search-relevance/judgments, and what reads the file there,
public/components/judgment/utils/judgment_file_processor.ts of dashboards-search-relevance at 15bc179, August 2026.
"""

from __future__ import annotations

from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats.base import cells
from cems_workbench.formats.base.csv_table import CsvTable, columns_of, read_csv_lines, records
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.format import Format, JudgmentWriter
from cems_workbench.formats.base.judgment_names import NAMES, plain
from cems_workbench.formats.base.judgments import not_by_words
from cems_workbench.platform.parsing import decimal_number
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput
from workbench_tools.quepid_csv import HEADER, read_ratings, write

NAME = "srw-csv"
RESERVED = frozenset(
    (
        *(
            "constructor",
            "hasOwnProperty",
            "isPrototypeOf",
            "propertyIsEnumerable",
            "toLocaleString",
            "toString",
            "valueOf",
        ),
        *("__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
    )
)
"""Names that each object of JavaScript has."""


def refused(judgment: Judgment, words: str) -> str:
    """Why the Workbench cannot read the row of a judgment: it splits lines before cells, and keeps queries as the names of an object;
    empty if it can."""
    if "\n" in words:
        return "a line break in the words, at which the Search Relevance Workbench ends the row"
    if words.strip() in RESERVED:
        return f"the words {words.strip()}, at which the Search Relevance Workbench refuses the whole file"
    return not_by_words(judgment, words)


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read ratings of exactly three columns, with or without a header; raises InputError."""
    lines = read_csv_lines(path)
    start = next((n for n, line in enumerate(lines) if line.strip()), None)
    if start is None:
        raise InputError(f"{path} is empty")
    first = [name.lower() for name in columns_of(lines[start], ",")]
    below = start + 1 if first == list(HEADER) else start
    return read_ratings(CsvTable(str(path), lines, below, ",", HEADER), NAME, progress)


def sniff(sample: Sample) -> bool:
    """Three cells that begin with words and end in a number, in most of the first lines, and no header of another format."""
    return _has_shape(sample) and not doubt(sample)


def _rows(sample: Sample) -> list[list[str] | str]:
    return [row for _, row in records([f"{line}\n" for line in sample.lines], 0, ",")]


def _has_shape(sample: Sample) -> bool:
    if sample.lines and _names_others(columns_of(sample.lines[0], ",")):
        return False
    rows = _rows(sample)
    return sum(isinstance(row, list) and len(row) == 3 and _is_rating(row[2]) for row in rows) * 2 > max(len(rows), 1)


def doubt(sample: Sample) -> str:
    """What else three columns without a header may be, if no first cell has two words or a question mark."""
    if not _has_shape(sample) or [name.lower() for name in columns_of(sample.lines[0], ",")] == list(HEADER):
        return ""
    first = [row[0].strip() for row in _rows(sample) if isinstance(row, list) and row]
    if any(len(cell.split()) > 1 or cell.endswith("?") for cell in first):
        return ""
    return (
        f"three columns without a header: {ascii(first[0])[:40]} may be the words of a query or its id. A first line query,docid,rating "
        "makes it words, qid,memory_id,grade an id"
    )


def _names_others(names: list[str]) -> bool:
    """Whether a first line names columns, and not those of ratings."""
    known = {name for each in NAMES.values() for name in each}
    return len({plain(name) for name in names} & known) > 1 and [name.lower() for name in names] != list(HEADER)


def _is_rating(cell: str) -> bool:
    return decimal_number(cells.restored(cell)) is not None


FORMAT = Format(
    NAME,
    "OpenSearch judgments: query,docid,rating, header optional",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".csv",),
    breadth=3,
    judgments=JudgmentWriter(write, by_words=True, judges=False, refused=refused, place=5),
    place=16,
    doubt=doubt,
    shape="three columns without a header: words of the query, docid, number",
)
