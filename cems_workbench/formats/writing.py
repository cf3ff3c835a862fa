"""Writing judgments in the form another tool reads, with a line for each that the form cannot hold.

What is written is read again as it was: the formats that name a query by its words need them to be unique, those that have one
grade per pair need the judges to agree, and qrels need ids without blanks. What breaks such a rule is left out and named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats import cems_feedback, judgments_csv, judgments_jsonl, qrels, quepid_book, ratings_csv
from cems_workbench.records import Judgment, Query


@dataclass(frozen=True, slots=True)
class Written:
    """A file's text, how many judgments are in it, and what is not, with the reason."""

    text: str
    rows: int
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Form:
    """What a format can hold, and its writer."""

    write: Callable[[Sequence[Judgment], Mapping[str, str]], str]
    by_words: bool = False
    judges: bool = True
    kinds: bool = True
    blanks: bool = True


FORMS: dict[str, _Form] = {
    judgments_jsonl.NAME: _Form(lambda rows, _: judgments_jsonl.write(rows)),
    judgments_csv.NAME: _Form(lambda rows, _: judgments_csv.write(rows)),
    qrels.NAME: _Form(lambda rows, _: qrels.write(rows), judges=False, blanks=False),
    ratings_csv.QUEPID: _Form(ratings_csv.write, by_words=True, judges=False),
    ratings_csv.SRW: _Form(ratings_csv.write, by_words=True, judges=False),
    quepid_book.NAME: _Form(quepid_book.write, by_words=True, kinds=False),
    cems_feedback.NAME: _Form(lambda rows, _: cems_feedback.write(cems_feedback.feedback_of(rows))),
}
"""The formats judgments can be written in, by the name they are imported with."""


def write_judgments(format: str, judgments: Sequence[Judgment], queries: Mapping[str, Query]) -> Written:
    """The judgments in a format of FORMS; `queries` gives the words of each qid. Raises InputError for another format."""
    if format not in FORMS:
        near = nearest(format, FORMS)
        raise InputError(
            f"format: {format!r} is not one of {', '.join(FORMS)}" + (f"; did you mean {near}?" if near else "")
        )
    form = FORMS[format]
    left_out: list[str] = []
    kept = list(judgments)
    if form.by_words:
        kept = _with_words(kept, queries, left_out)
    if not form.blanks:
        kept = _without_blanks(kept, left_out)
    if not form.judges:
        kept = one_grade_each(kept, left_out)
    elif not form.kinds:
        kept = _nameable_judges(kept, left_out)
    words = {qid: query.query for qid, query in queries.items()}
    return Written(form.write(kept, words), len(kept), tuple(left_out))


def _with_words(judgments: Sequence[Judgment], queries: Mapping[str, Query], left_out: list[str]) -> list[Judgment]:
    owners: dict[str, list[str]] = {}
    for qid, query in sorted(queries.items()):
        owners.setdefault(query.query, []).append(qid)
    good = set()
    for qid in sorted({judgment.qid for judgment in judgments}):
        if qid not in queries:
            left_out.append(f"{qid}: the words of this query are not known")
        elif len(same := owners[queries[qid].query]) > 1:
            others = ", ".join(other for other in same if other != qid)
            left_out.append(f"{qid}: has the same words as {others}, and the format has nothing else")
        else:
            good.add(qid)
    return [judgment for judgment in judgments if judgment.qid in good]


def _without_blanks(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    kept = []
    for judgment in judgments:
        if qrels.writable(judgment.qid) and qrels.writable(judgment.memory_id):
            kept.append(judgment)
        else:
            left_out.append(f"{judgment.qid!r} {judgment.memory_id!r}: ids with blanks cannot stand in this format")
    return kept


def one_grade_each(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    """One judgment of every pair on whose grade all judges agree; a line in `left_out` for each of the others."""
    said: dict[tuple[str, str], list[Judgment]] = {}
    for judgment in judgments:
        said.setdefault((judgment.qid, judgment.memory_id), []).append(judgment)
    kept = []
    for (qid, memory_id), labels in said.items():
        if len({label.grade for label in labels}) == 1:
            kept.append(labels[0])
        else:
            grades = ", ".join(f"{label.judge} {label.grade}" for label in labels)
            left_out.append(
                f"{qid} {memory_id}: {grades}; the format has one grade per pair: adjudicate, or choose a judge"
            )
    return kept


def _nameable_judges(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    """Those whose judge can head a column: not called like the other two, no blanks at the ends, and of one kind."""
    kinds: dict[str, str] = {}
    kept = []
    for judgment in judgments:
        judge = judgment.judge
        if judge.strip() != judge or judge.lower() in quepid_book.PAIR:
            left_out.append(f"{judgment.qid} {judgment.memory_id}: a judge called {judge!r} cannot head a column")
        elif kinds.setdefault(judge, judgment.kind) != judgment.kind:
            left_out.append(f"{judgment.qid} {judgment.memory_id}: {judge!r} names both a person and a model")
        else:
            kept.append(judgment)
    return kept
