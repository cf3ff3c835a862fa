"""Judgments as text for learning to rank: `grade qid:N # docno words of the query`, as Quepid exports them; features are not read.

A query is named by its words; without words the row is left out, as N is the number of the query within the export.

Source: quepid v8's export for LTR, in which a tab or a blank stands between docno and words.
"""

from __future__ import annotations

import re
from pathlib import Path

from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_lines
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.judgments import judgment_by_words, parsed_by_words
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "ltr-text"
_LINE = re.compile(r"\s*(\S+)\s+qid:(\S+)[^#]*#\s*([^\t ]+)[\t ]*(.*)")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    words: dict[str, str] = {}

    def parse(line: str) -> Judgment:
        found = _LINE.fullmatch(line)
        if found is None:
            raise FieldError("", "must be of the form: grade qid:N # docno words of the query")
        grade, _, docno, query = found.groups()
        judgment, said = judgment_by_words({"query": query, "docid": docno}, "grade", grade)
        words[judgment.qid] = said
        return judgment

    lines = (line for line in read_lines(path, errors, progress) if not line[1].lstrip().startswith("#"))
    collected = collect_judgments(str(path), lines, parse, errors)
    return parsed_by_words(str(path), NAME, collected, words, errors, grade_column="grade")


def sniff(sample: Sample) -> bool:
    """Lines most of which have a grade, a qid and a comment."""
    return sum(_LINE.fullmatch(line) is not None for line in sample.lines) * 2 > len(sample.lines)


FORMAT = Format(
    NAME,
    "judgments for learning to rank: grade qid:N # docno words",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".txt", ".ltr"),
    place=20,
    shape='lines "grade qid:N # docno words of the query"',
)
