"""What the parts of a judgment are called in files of other tools: TREC, ir_datasets, PyTerrier, BEIR, MTEB, ranx and their kin.

Names are compared without case, and with blanks and hyphens as underscores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

NAMES: Mapping[str, tuple[str, ...]] = {
    "qid": ("qid", "query_id", "queryid", "q_id", "topic", "topic_id", "topicid"),
    "memory_id": (
        "memory_id",
        "docno",
        "doc_id",
        "docid",
        "document_id",
        "documentid",
        "corpus_id",
        "corpusid",
        "passage_id",
        "pid",
    ),
    "grade": ("grade", "relevance", "rel", "label", "rating", "score", "judgment", "judgement", "gain"),
}
"""Names by field of a judgment, likelier ones first."""
WORDS = ("query", "query_text", "querytext")
"""Names of the words of a query, which a judgment may have beside its id, or instead of it."""
IGNORED = ("iteration", "iter", "q0", "0", "rank")
"""Columns of judgments and runs that say nothing of a judgment."""
RUN = ("rank", "run_id", "runid", "run")
"""Columns that only results of a system have, whose score is no grade."""


def plain(name: str) -> str:
    """A name as names are compared."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def fields_of(names: Iterable[str]) -> dict[str, str]:
    """The name in the file of each field of a judgment that is there."""
    there: dict[str, str] = {}
    for name in names:
        there.setdefault(plain(name), name)
    return {field: there[name] for field, known in NAMES.items() for name in reversed(known) if name in there}


def names_judgments(names: Iterable[str]) -> bool:
    """Whether these are the names of a judgment whose query is named by its id: all three parts, and nothing of a run."""
    names = [*names]
    return fields_of(names).keys() == NAMES.keys() and not {plain(name) for name in names} & {*RUN}


def names_words(names: Iterable[str]) -> bool:
    """Whether these are the names of a judgment whose query is named by its words alone; a score may be that of a run."""
    there = {plain(name) for name in names}
    found = fields_of(there)
    return (
        {"memory_id", "grade"} == found.keys()
        and found["grade"] != "score"
        and bool(there & {*WORDS})
        and not there & {*RUN}
    )


def words_of(row: Mapping[str, Any]) -> Any:
    """The value of a row's words of the query; None if it has none."""
    return next((row[name] for name in row if plain(name) in WORDS), None)


def renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the names of our fields; other names stay, but for columns that say nothing."""
    fields = fields_of(row)
    taken = {name: field for field, name in fields.items()}
    rest = {name: value for name, value in row.items() if name not in taken and plain(name) not in IGNORED}
    return {**rest, **{field: row[name] for name, field in taken.items()}}
