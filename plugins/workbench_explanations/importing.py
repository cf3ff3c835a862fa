"""Explanations as a query set (`explanations`): each is a query with the lists and the answer that its system recorded.

`import` keeps the evidence of each (`jobs/traces.py`): which memory a row is, the store says, and what it lacks is added with the text that
the explanation has. Read here they are queries with recorded answers and lists, as a recording for `fidelity` is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import Sample, open_file
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.records import (
    NameOf,
    Trace,
    TracedDocument,
    TracedQuery,
    Traces,
    derived_id,
    memory_id_of,
)
from cems_workbench.formats.logs import parsed_log
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RecordedStages, RowError

if TYPE_CHECKING:  # the pipeline takes a second to import, and formats are listed without it
    from workbench_explanations.explained import Explained, Formulas, Row

NAME = "explanations"
PORTION = 64
"""Explanations that are held at a time."""


def read_answers(path: Path, progress: Progress) -> ParsedInput:
    """Read every explanation of a file into memory; raises InputError when none can be used. `import` reads a file of any size."""
    from cems_workbench.pipeline.explained import answer_of, qid_of
    from workbench_explanations.reading import read

    errors: list[RowError] = []
    with open_file(path).open(encoding="utf-8-sig", errors="replace") as text:
        found = list(read(text, str(path), errors))
    answers = [answer for row, one in enumerate(found, 1) if (answer := answer_of(row, qid_of(one), one)) is not None]
    memories = {key: memory for one in found for key, memory in one.memories.items() if memory.content}
    return replace(parsed_log(path, NAME, answers, errors), memories=tuple(memories.values()))


def read_traces(path: Path, source: str, file: IO[bytes], errors: list[RowError], progress: Progress) -> Traces:
    """The explanations of a file of any size, a portion at a time. Raises InputError when the file cannot be read."""
    with open_file(path).open("rb") as lines:
        count = sum(1 for _ in lines)
    return Traces(count, _portions(path, source, errors))


def _portions(path: Path, source: str, errors: list[RowError]) -> Iterator[Sequence[Trace]]:
    from workbench_explanations.explained import Formulas
    from workbench_explanations.reading import AHEAD, explained_in_text

    formulas, asked = Formulas(), Counter[str]()
    with open_file(path).open(encoding="utf-8-sig", errors="replace") as text:
        found = _asked(explained_in_text(text, source, errors), source, errors, asked)
        while portion := list(islice(found, PORTION)):
            yield [
                Trace(
                    [_document(row) for row in one.rows],
                    partial(_queries, one, portion[place + 1 : place + AHEAD], formulas, source, errors),
                )
                for place, one in enumerate(portion)
            ]


def _asked(
    found: Iterator[Explained], source: str, errors: list[RowError], asked: Counter[str]
) -> Iterator[Explained]:
    """Those that say their query, each with an id: one of its words, and how often they were asked before."""
    for one in found:
        if not one.query:
            errors.append(RowError(source, one.number, 'is missing; write it beside the answer: {"query": "…", "response": …}', "query"))
            continue
        asked[one.query] += 1
        yield one if one.qid else replace(one, qid=derived_id("explained", one.query, str(asked[one.query])))


def _document(row: Row) -> TracedDocument:
    return TracedDocument(row.id, row.final, row.text or None, row.title)


def _queries(
    one: Explained,
    following: Sequence[Explained],
    formulas: Formulas,
    source: str,
    errors: list[RowError],
    name_of: NameOf,
) -> Iterator[TracedQuery]:
    from workbench_explanations.explained import evidence_of, nothing_found

    names: dict[str, str] = {}
    for row in one.rows:
        name = name_of(_document(row))
        names[row.id] = memory_id_of(_document(row)) if name in names.values() else name  # of two that are one memory the first
    named = replace(one, rows=[replace(row, id=names[row.id]) for row in one.rows])
    try:
        evidence = evidence_of(named, formulas, following) if one.rows else nothing_found(one)
    except InputError as error:
        errors.append(RowError(source, one.number, str(error)))
        return
    contents = {row.id: _document(row) for row in named.rows if row.text}
    recorded = RecordedStages((), ())
    yield TracedQuery(one.number, one.qid, one.query, one.as_of, recorded, {}, contents, evidence=evidence)


def _sniff(sample: Sample) -> bool:
    from workbench_explanations.systems import RUNS, beside_query, of_rows, system_of

    def explains(document: Any) -> bool:  # runs that stand beside no query have formats of their own
        return (system := system_of(document)) is not None and (system is not RUNS or beside_query(document))

    return explains(sample.document) if of_rows(next(iter(sample.rows), {})) else sample.mostly(explains)


FORMAT = described(__file__, NAME, _sniff, read_answers, traces=read_traces)
