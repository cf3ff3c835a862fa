"""Judgments by words as JSON: a book of Quepid, its export for RRE, and the ratings of the OpenSearch Search Relevance Workbench.

| from | where the judgments are |
| Quepid book | `query_doc_pairs: [{query_text, doc_id, judgements: [{rating, user_email}]}]` |
| RRE (Rated Ranking Evaluator) | `query_groups: [{name, relevant_documents: {docid: {gain}}}]` |
| Search Relevance Workbench | `judgmentRatings: [{query, ratings: [{docId, rating}]}]` |

A query is named by its words. A pair without a rating names a query to be judged.

Source: quepid v8's exports; RRE's ratings files; docs.opensearch.org, judgments.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, identifier
from cems_workbench.formats.base.files import Sample, read_document
from cems_workbench.formats.base.format import Format
from cems_workbench.formats.base.judgments import judgment_by_words, parsed_by_words, query_words
from cems_workbench.formats.base.records import collect_judgments
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "quepid-json"
PAIRS, GROUPS, RATINGS = "query_doc_pairs", "query_groups", "judgmentRatings"
JUDGE = "human"
Row = dict[str, Any]


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it has none of the three lists."""
    document = read_document(path)
    errors: list[RowError] = []
    words: dict[str, str] = {}
    unrated: dict[str, int] = {}

    def rated() -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(_rows(path, document), start=1):
            if row["rating"] is None:
                try:
                    unrated.setdefault(query_words(row), number)
                except FieldError as error:
                    errors.append(RowError(str(path), number, error.reason, error.field))
            else:
                yield number, row

    def parse(row: Row) -> Judgment:
        judgment, query = judgment_by_words(row, "rating", row["rating"], identifier(row, "judge"))
        words[judgment.qid] = query
        return judgment

    collected = collect_judgments(str(path), rated(), parse, errors)
    notes = [f"{len(unrated)} queries have a pair without a rating"] if unrated else []
    return parsed_by_words(str(path), NAME, collected, words, errors, notes, unrated=unrated)


def _rows(path: Path, document: Any) -> Iterator[Row]:
    """Each rating as `query`, `docid`, `rating`, `judge`; what is no object is passed over as an empty row, which is reported."""
    found = [name for name in (PAIRS, GROUPS, RATINGS) if isinstance(document, dict) and name in document]
    if not found:
        raise InputError(f"{path}: must have one of {PAIRS}, {GROUPS}, {RATINGS}")
    for item in map(_object, _list(document[found[0]])):
        yield from {PAIRS: _of_pair, GROUPS: _of_group, RATINGS: _of_ratings}[found[0]](item)


def _of_pair(pair: Row) -> Iterator[Row]:
    row = {"query": pair.get("query_text"), "docid": pair.get("doc_id"), "rating": None, "judge": JUDGE}
    judged = [each for each in map(_object, _list(pair.get("judgements"))) if each.get("rating") is not None]
    for each in judged:
        judge = each.get("user_email") or each.get("user_name") or each.get("user_id") or JUDGE
        yield {**row, "rating": each["rating"], "judge": judge}
    if not judged:
        yield row


def _of_group(group: Row) -> Iterator[Row]:
    documents = group.get("relevant_documents")
    rows = documents.items() if isinstance(documents, dict) else []
    for docid, gain in rows:
        rating = gain.get("gain") if isinstance(gain, dict) else gain
        yield {"query": group.get("name"), "docid": docid, "rating": rating, "judge": JUDGE}
    if not rows:
        yield {"query": group.get("name"), "docid": None, "rating": None, "judge": JUDGE}


def _of_ratings(item: Row) -> Iterator[Row]:
    ratings = [*map(_object, _list(item.get("ratings")))]
    for each in ratings or [{}]:
        yield {"query": item.get("query"), "docid": each.get("docId"), "rating": each.get("rating"), "judge": JUDGE}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> Row:
    return value if isinstance(value, dict) else {}


def sniff(sample: Sample) -> bool:
    """A document with one of the three lists."""
    document = sample.document
    return isinstance(document, dict) and any(isinstance(document.get(name), list) for name in (PAIRS, GROUPS, RATINGS))


FORMAT = Format(
    NAME,
    "a Quepid book, RRE ratings or Search Relevance Workbench judgments as .json",
    order=3,
    sniff=sniff,
    read=read,
    suffixes=(".json",),
    place=19,
    shape="a document with query_doc_pairs, query_groups or judgmentRatings",
    needs=((PAIRS, GROUPS, RATINGS),),
)
