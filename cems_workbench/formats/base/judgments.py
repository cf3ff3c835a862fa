"""What formats of judgments share: one grade per pair, and queries that are named by their words and not by an id.

The reader of such a query gives it the id `q-` and a hash of its words, and says in `extra["queries_by_words"]` that it did; the
store then takes the query it has with these words (`store/query_matching.py`). Words may also be beside an id of the file's own, which are
the qids in `extra["own_ids"]`; where the file is a set of queries, `extra["is_set"]`, such an id is kept, and the set has queries of the
store too. `extra["listed"]` are the qids of queries that the file lists without a judgment, `extra["pairs"]` their pairs (qid, document),
which `import --queue` makes a labelling queue of.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.fields import identifier, required_text
from cems_workbench.formats.base.names import words_of
from cems_workbench.formats.base.records import Collected, derived_id, graded
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, Query, RowError

TRIMMED = frozenset(
    " \t\n\v\f\r\0\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
    + "".join(map(chr, range(0x2000, 0x200B)))
)
"""What tools in JavaScript and Ruby trim off a cell, or Python off words."""


def of_memories(judgments: Iterable[Judgment]) -> tuple[list[Judgment], list[Judgment]]:
    """The judgments of memories, and those of the whole store."""
    judgments = list(judgments)
    of_store = [judgment for judgment in judgments if judgment.memory_id == WHOLE_STORE]
    return [judgment for judgment in judgments if judgment.memory_id != WHOLE_STORE], of_store


def with_unique_words(
    judgments: Sequence[Judgment], queries: Mapping[str, Query], left_out: list[str]
) -> list[Judgment]:
    """The judgments whose query is the only one with its words; a line in `left_out` for each other query."""
    owners: dict[str, list[str]] = {}
    for qid, query in sorted(queries.items()):
        owners.setdefault(clean_words(query.query), []).append(qid)
    good = set()
    for qid in sorted({judgment.qid for judgment in judgments}):
        if qid not in queries:
            left_out.append(f"{qid}: the words of this query are not known")
        elif len(same := owners[clean_words(queries[qid].query)]) > 1:
            others = ", ".join(other for other in same if other != qid)
            left_out.append(f"{qid}: has the same words as {others}, and the format has nothing else")
        else:
            good.add(qid)
    return [judgment for judgment in judgments if judgment.qid in good]


def one_grade_each(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    """One judgment of every pair on whose grade all judges agree; a line in `left_out` for each of the others."""
    pairs: dict[tuple[str, str], list[Judgment]] = {}
    for judgment in judgments:
        pairs.setdefault((judgment.qid, judgment.memory_id), []).append(judgment)
    agreed = []
    for (qid, memory_id), labels in pairs.items():
        if len({label.grade for label in labels}) == 1:
            agreed.append(labels[0])
        else:
            grades = ", ".join(f"{label.judge} {label.grade}" for label in labels)
            left_out.append(
                f"{qid} {memory_id}: {grades}; the format has one grade per pair: adjudicate, or choose a judge"
            )
    return agreed


def query_words(row: Mapping[str, Any]) -> str:
    """The words of a row's `query`: without blanks around them, such as Quepid's guard before - = + and @, in NFC. Raises FieldError."""
    return clean_words(required_text(row, "query"))


def clean_words(text: str) -> str:
    """Words as they are compared: in NFC and without blanks around them."""
    return unicodedata.normalize("NFC", text).strip()


@dataclass
class WordsBeside:
    """The words of queries in rows that have them beside the query's id, or instead of it."""

    words: dict[str, str] = field(default_factory=dict)
    derived: set[str] = field(default_factory=set)

    def identified(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row with `qid`, which its words give if it has none; raises FieldError."""
        given = words_of(row)
        if not isinstance(given, str) or not given.strip():
            return row
        words = query_words({"query": given})
        if row.get("qid") is None:
            row = {**row, "qid": derived_id("q", words)}
            self.derived.add(row["qid"])
        self.words.setdefault(identifier(row, "qid"), words)
        return row

    def parsed(self, parsed: ParsedInput) -> ParsedInput:
        """The input with the queries whose words were given."""
        if not self.words:
            return parsed
        rows = parsed.extra["rows"]
        first: dict[str, int] = {}
        for judgment, row in zip(parsed.judgments, rows["judgments"], strict=True):
            if judgment.qid in self.words:
                first.setdefault(judgment.qid, row)
        return replace(
            parsed,
            queries=tuple(Query(qid, self.words[qid]) for qid in first),
            ungraded=tuple(replace(one, words=self.words.get(one.judgment.qid)) for one in parsed.ungraded),
            extra={
                **parsed.extra,
                "rows": {**rows, "queries": list(first.values())},
                "queries_by_words": True,
                "own_ids": self.words.keys() - self.derived,
            },
        )


def not_by_words(judgment: Judgment, words: str) -> str:
    """Why Quepid and the Search Relevance Workbench read another judgment than this, which trim each cell; empty if they read it."""
    if any(text[:1] in TRIMMED or text[-1:] in TRIMMED for text in (clean_words(words), judgment.memory_id)):
        return (
            "blanks around an id, or a mark before the words, which Quepid and the Search Relevance Workbench cut off"
        )
    if "\r" in words:
        return "a carriage return in the words, which Quepid reads as a line feed"
    return ""


@dataclass
class ByWords:
    """The queries of a file that names them by their words alone, and its rows without a judgment. Those are (number,
    words, document, empty where it has none): their queries are to be judged, and their pairs in a labelling queue, if
    one is wanted."""

    words: dict[str, str] = field(default_factory=dict)
    unrated: list[tuple[int, str, str]] = field(default_factory=list)

    def judgment(self, row: Mapping[str, Any], column: str, rating: Any, judge: str = "human") -> Judgment:
        """The judgment of a row with `query` and `docid`, whose rating is in a column; raises FieldError."""
        words, document = query_words(row), row.get("docid")
        named = {"docid": csv_table.restored(document, csv_table.BLANK) if isinstance(document, str) else document}
        qid, docid = derived_id("q", words), identifier(named, "docid")
        made = graded(column, rating, lambda grade: Judgment(qid, docid, grade, judge), words)
        self.words[qid] = words
        return made

    def unrate(self, number: int, row: Mapping[str, Any]) -> None:
        """Keep a row without a judgment; raises FieldError if it names no query."""
        self.unrated.append((number, query_words(row), str(row["docid"] or "")))

    def parsed(
        self,
        source: str,
        name: str,
        collected: Collected[Judgment],
        errors: Iterable[RowError],
        notes: Iterable[str] = (),
        grade_column: str = "rating",
    ) -> ParsedInput:
        """The judgments with the queries they name; an empty `grade_column` is named by the judge."""
        first: dict[str, int] = {}
        for judgment, row in zip(collected.records, collected.rows, strict=True):
            first.setdefault(judgment.qid, row)
        named = {qid: self.words[qid] for qid in first}
        listed: dict[str, int] = {}
        pairs: dict[tuple[str, str], None] = {}
        for row, text, docid in self.unrated:
            qid = derived_id("q", text)
            named[qid] = text
            listed.setdefault(qid, row)
            first.setdefault(qid, row)
            if docid.strip():
                pairs.setdefault((qid, docid))
        return ParsedInput(
            source,
            name,
            queries=tuple(Query(qid, named[qid]) for qid in first),
            judgments=tuple(collected.records),
            errors=tuple(errors),
            notes=(*collected.notes, *notes),
            extra={
                "rows": {"judgments": collected.rows, "queries": list(first.values())},
                "fields": {"qid": "query", "memory_id": "docid", "grade": grade_column},
                "queries_by_words": True,
                "listed": listed.keys(),
                "pairs": tuple(pairs),
            },
            ungraded=tuple(collected.ungraded),
        )
