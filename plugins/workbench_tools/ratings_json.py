"""Judgments as one JSON document: Quepid's exports, RRE's ratings, the OpenSearch Search Relevance Workbench (SRW), and ranx.

| from | where the judgments are |
| Quepid book | `query_doc_pairs: [{query_text, doc_id, judgements: [{rating, user_email}]}]` |
| Quepid case, ratings alone | `queries: [{query, ratings: {docid: rating}}]` |
| Quepid case, whole | `queries: [{query_text, ratings: [{doc_id, rating, user_email}]}]` |
| Quepid case for RRE | `queries: [{placeholders: {$query}, relevant_documents: {docid: {gain}}}]` |
| RRE (Rated Ranking Evaluator) | `query_groups: [{name, relevant_documents: {docid: {gain}}}]`, also `{gain: [docid]}` and below `topics` |
| Search Relevance Workbench | `judgmentRatings: [{query, ratings: [{docId, rating}]}]`, also in the `hits` of a search of its index |
| the same, a query set | `querySetQueries: [{queryText, referenceAnswer?}]` |

All are read as `quepid-json`. A query is named by its words. One without ratings, or a pair without one, names a query to be judged.
`srw-json` is written as `PUT _plugins/_search_relevance/judgments` takes it: a rating is text, which the importer reads as a float.

Source: the views of quepid 8.5 (app/views/api/v1/export), and what imports a book there (app/services/book_importer.rb at f80322f,
August 2026); RRE's ratings files; docs.opensearch.org, judgments; RestPutJudgmentAction.java, ImportJudgmentsProcessor.java and
TextValidationUtil.java of opensearch-project/search-relevance at d8be5d1, June 2025.

`ranx-json` is `{qid: {docno: grade}}`, all grades whole numbers. A run of ranx has fractions and is none. Source: ranx 0.3.21, which wrote
and read such files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.fields import FieldError, identifier
from cems_workbench.formats.base.files import Sample, read_document, type_name
from cems_workbench.formats.base.format import JudgmentWriter, described
from cems_workbench.formats.base.judgments import ByWords, one_grade_each
from cems_workbench.formats.base.records import collect_judgments, graded, reported, whole_grade
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

TITLE = "Judgments of the CEMS Workbench"
"""Without quotes, backslashes and < >, which the importer of SRW refuses in a name."""
PAIRS, GROUPS, RATINGS, QUERIES, TOPICS = "query_doc_pairs", "query_groups", "judgmentRatings", "queries", "topics"
QUERY_SET, ANSWER = "querySetQueries", "referenceAnswer"
JUDGE = "human"
MAX_WORDS, MAX_ID = 2048, 500
"""Characters of query_text and doc_id in Quepid's tables."""
MAX_GRADE = 40
"""Of a scale in Quepid, whose numbers are a text of 255 characters."""
_ADDRESS = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
Row = dict[str, Any]


def _write(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as a book that Quepid imports; `words` are those of each qid. Quepid knows a judge by the address
    that is its `user_email`; any other judge is nobody there. Its scale is whole numbers."""
    pairs: dict[tuple[str, str], list[Row]] = {}
    lowest = highest = 0
    for each in judgments:
        judge = {"user_email": each.judge} if _is_address(each.judge) else {}
        pairs.setdefault((words[each.qid], each.memory_id), []).append({"rating": float(each.grade), **judge})
        lowest, highest = min(lowest, each.grade), max(highest, each.grade)
    scale = [str(grade) for grade in range(lowest, highest + 1)]
    document = {
        "name": TITLE,
        "show_rank": False,
        "support_implicit_judgements": False,
        "scale": ",".join(scale),
        "scale_with_labels": {grade: grade for grade in scale},
        PAIRS: [{"query_text": query, "doc_id": docid, "judgements": rated} for (query, docid), rated in pairs.items()],
    }
    return f"{json.dumps(document, ensure_ascii=False, indent=1)}\n"


def _write_srw(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as SRW imports them; the judge is not written: there must be one grade per pair."""
    rated: dict[str, list[Row]] = {}
    for each in judgments:
        rated.setdefault(words[each.qid], []).append({"docId": each.memory_id, "rating": f"{each.grade}.0"})
    ratings = [{"query": query, "ratings": rows} for query, rows in rated.items()]
    document = {"name": TITLE, "description": TITLE, "type": "IMPORT_JUDGMENT", RATINGS: ratings}
    return f"{json.dumps(document, ensure_ascii=False, indent=1)}\n"


def _is_address(judge: str) -> bool:
    return _ADDRESS.fullmatch(judge) is not None


def _with_one_unnamed(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    """Those of judges with an address, and of the others one per pair on whose grade they agree."""
    named = [one for one in judgments if _is_address(one.judge)]
    return named + one_grade_each([one for one in judgments if not _is_address(one.judge)], left_out)


def _refused(judgment: Judgment, words: str) -> str:
    """Why Quepid's tables do not take a judgment; empty if they do."""
    if len(words) > MAX_WORDS or len(judgment.memory_id) > MAX_ID:
        return f"Quepid takes words of at most {MAX_WORDS:,} characters and ids of at most {MAX_ID}"
    if not -MAX_GRADE <= judgment.grade <= MAX_GRADE:
        return f"a grade beyond {MAX_GRADE}, the scale would be too long"
    return ""


def _read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it has none of these lists."""
    document = read_document(path)
    errors: list[RowError] = []
    by_words = ByWords()

    def rated() -> Iterator[tuple[int, Row]]:
        for number, row in enumerate(_rows(path, document), start=1):
            if row["rating"] is not None:
                yield number, row
                continue
            with reported(errors, str(path), number):
                by_words.unrate(number, row)

    def parse(row: Row) -> Judgment:
        return by_words.judgment(row, "rating", row["rating"], identifier(row, "judge"))

    collected = collect_judgments(str(path), rated(), parse, errors)
    notes = []
    if lacking := len({words for _, words, _ in by_words.unrated}):
        count = f"{lacking:,} quer{'y has' if lacking == 1 else 'ies have'}"
        notes.append(f"{count} nothing, or a pair without a rating; what is not judged is there to be judged")
    queries = [row for read_item, items in _found(document) if read_item is _of_query for row in map(_object, items)]
    if answered := sum(ANSWER in row for row in queries):
        of = f"{answered:,} quer{'y' if answered == 1 else 'ies'}"
        notes.append(f"{ANSWER} of {of} is left out: a query set has no answers")
    return by_words.parsed(str(path), "quepid-json", collected, errors, notes)


def _rows(path: Path, document: Any) -> Iterator[Row]:
    """Each rating as `query`, `docid`, `rating`, `judge`; what is no object is passed over as an empty row, which is reported."""
    found = _found(document)
    if not found:
        named = f"{PAIRS}, {GROUPS}, {RATINGS}, {QUERY_SET}"
        raise InputError(f"{path}: must have one of {named}, or {QUERIES} with ratings")
    for read_item, items in found:
        for item in map(_object, items):
            yield from read_item(item)


def _found(document: Any) -> list[tuple[Callable[[Row], Iterator[Row]], list[Any]]]:
    """The lists of a document with judgments, each with the reader of its items; none for any other document."""
    whole = _object(document)
    hits = [_object(hit).get("_source") for hit in _list(_object(whole.get("hits")).get("hits"))]
    found: list[tuple[Callable[[Row], Iterator[Row]], list[Any]]] = []
    for part in map(_object, [whole, *hits, *_list(whole.get(TOPICS))]):
        queries = _list(part.get(QUERIES))
        rated = [query for query in map(_object, queries) if {"ratings", "relevant_documents"} & query.keys()]
        named = (PAIRS, _of_pair), (GROUPS, _of_group), (RATINGS, _of_ratings), (QUERY_SET, _of_query)
        found += [(read_item, part[name]) for name, read_item in named if isinstance(part.get(name), list)]
        found += [(_of_query, queries)] if rated else []
    return found


def _of_pair(pair: Row) -> Iterator[Row]:
    row = {"query": pair.get("query_text"), "docid": pair.get("doc_id"), "rating": None, "judge": JUDGE}
    judged = [each for each in map(_object, _list(pair.get("judgements"))) if each.get("rating") is not None]
    for each in judged:
        judge = each.get("user_email") or each.get("user_name") or each.get("user_id") or JUDGE
        yield {**row, "rating": each["rating"], "judge": judge}
    if not judged:
        yield row


def _of_group(group: Row) -> Iterator[Row]:
    asked = [words for query in [group, *map(_object, _list(group.get("queries")))] if (words := _asked(query))]
    for words in dict.fromkeys(asked) or [group.get("name")]:
        yield from _relevant(words, _object(group.get("relevant_documents")))


def _relevant(words: Any, documents: Row) -> Iterator[Row]:
    for key, gain in documents.items():
        for docid, rating in ((docid, key) for docid in gain) if isinstance(gain, list) else [(key, gain)]:
            given = rating.get("gain") if isinstance(rating, dict) else rating
            yield {"query": words, "docid": docid, "rating": given, "judge": JUDGE}
    if not documents:
        yield {"query": words, "docid": None, "rating": None, "judge": JUDGE}


def _asked(query: Row) -> str | None:
    """The words in the placeholders of RRE: those of $query, or of the only one."""
    given = _object(query.get("placeholders"))
    words = given.get("$query", next(iter(given.values())) if len(given) == 1 else None)
    return words if isinstance(words, str) and words.strip() else None


def _of_query(query: Row) -> Iterator[Row]:
    if "relevant_documents" in query:
        yield from _of_group(query)
        return
    words, ratings = query.get("query_text", query.get("query", query.get("queryText"))), query.get("ratings")
    given = [{"doc_id": docid, "rating": rating} for docid, rating in _object(ratings).items()]
    for each in given or [*map(_object, _list(ratings))] or [{}]:
        judge = each.get("user_email") or JUDGE
        yield {"query": words, "docid": each.get("doc_id"), "rating": each.get("rating"), "judge": judge}


def _of_ratings(item: Row) -> Iterator[Row]:
    ratings = [*map(_object, _list(item.get("ratings")))]
    for each in ratings or [{}]:
        yield {"query": item.get("query"), "docid": each.get("docId"), "rating": each.get("rating"), "judge": JUDGE}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> Row:
    return value if isinstance(value, dict) else {}


QUEPID = described(
    __file__,
    "quepid-json",
    lambda sample: bool(_found(sample.document)),
    _read,
    judgments=JudgmentWriter(_write, by_words=True, fitting=_with_one_unnamed, refused=_refused, place=6),
    needs=((PAIRS, GROUPS, RATINGS, QUERY_SET),),
)
SRW = described(
    __file__,
    "srw-json",
    lambda sample: False,
    lambda path, progress: replace(_read(path, progress), format="srw-json"),
    judgments=JudgmentWriter(_write_srw, by_words=True, judges=False, place=5),
)


MOST_LOOKED_AT = 50


def _read_ranx(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it is no object of objects."""
    document = read_document(path)
    if not isinstance(document, dict):
        raise InputError(f"{path}: must be an object of queries, found {type_name(document)}")
    errors: list[RowError] = []
    rows = [
        (qid, docno, grade)
        for qid, grades in document.items()
        for docno, grade in (grades.items() if isinstance(grades, dict) else [(None, grades)])
    ]
    collected = collect_judgments(str(path), enumerate(rows, 1), _parse_ranx, errors)
    return collected.parsed(path, "ranx-json", "judgments", errors)


def _parse_ranx(row: tuple[str, Any, Any]) -> Judgment:
    qid, docno, grade = row
    if docno is None:
        raise FieldError(qid, f"must be an object of grades, found {type_name(grade)}")
    named = {"qid": qid, "docno": docno, "grade": grade}
    ids = identifier(named, "qid"), identifier(named, "docno")
    return graded("grade", grade, lambda whole: Judgment(*ids, whole))


def _write_ranx(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    """The judgments as ranx reads them; the judge is not written: there must be one grade per pair."""
    grades: dict[str, dict[str, int]] = {}
    for judgment in judgments:
        grades.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
    return f"{json.dumps(grades, ensure_ascii=False, indent=1)}\n"


def _numbers(sample: Sample) -> list[int | float]:
    """The numbers of an object of objects of numbers; none for any other document."""
    document = sample.document
    if not isinstance(document, dict) or not document:
        return []
    queries = list(document.values())[:MOST_LOOKED_AT]
    given = [value for query in queries if isinstance(query, dict) for value in list(query.values())[:MOST_LOOKED_AT]]
    numbers = [value for value in given if isinstance(value, int | float) and not isinstance(value, bool)]
    return numbers if len(numbers) == len(given) and all(isinstance(query, dict) for query in queries) else []


def _doubt(sample: Sample) -> str:
    """What numbers with fractions may be: grades by a stated mapping, or the scores of a run."""
    fraction = next((number for number in _numbers(sample) if whole_grade(number) is None), None)
    if fraction is None:
        return ""
    return (
        f"{{qid: {{docno: number}}}} with fractions such as {fraction} may be judgments whose grades you state, as in --grade 0..0.5=0 "
        "--grade 0.5..1=1, or a run: what a system returned, with its scores, which is no judgment and is not imported"
    )


RANX = described(
    __file__,
    "ranx-json",
    lambda sample: bool(numbers := _numbers(sample)) and None not in map(whole_grade, numbers),
    _read_ranx,
    judgments=JudgmentWriter(_write_ranx, judges=False, place=7),
    doubt=_doubt,
)
