"""Runs: what a system returned for many queries, by qid, as tools of evaluation write them.

    TREC            qid Q0 docno rank score tag, with blanks, tabs or commas between (trec_eval, pyserini, anserini)
    MS MARCO        qid, docno and rank, with blanks or tabs between
    a table         CSV or TSV, JSON lines or a JSON list whose names say what is what, such as qid, docno, rank, score (PyTerrier,
                    ir_datasets); `query` has the words
    by query        {qid: {docno: score}} (ranx, BEIR, pytrec_eval)
    ranked ids      a row for each query, {query_id, retrieved_ids}, the names as in `base/names.py`
    SRW             experiments and evaluation results of the Search Relevance Workbench: {searchText, documentIds}, or pairs of snapshots

The order is that of the ranks; equal ranks, as BEIR's 0 everywhere, and rows without one are in the order of their scores. trec_eval and
its kin order by score alone: a note says where ranks and scores contradict each other, where ranks are equal, and where there are none.

A run is a result of searching and not part of a store, so it is not among the formats of `import`.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from cems_workbench.formats.base import csv_table
from cems_workbench.formats.base.csv_table import DELIMITERS, is_padded, names_of, records
from cems_workbench.formats.base.fields import finite
from cems_workbench.formats.base.files import parse_json
from cems_workbench.formats.base.judgments import clean_words
from cems_workbench.formats.base.names import ASKED, ITEM_IDS, NAMES, QIDS, RETURNED, WORDS, first_of, named, plain
from cems_workbench.formats.base.records import derived_id
from cems_workbench.records import Returned, RowError

TREC, TABLE, BY_QUERY, RANKED = "TREC run", "run as a table", "run by query", "ranked ids"
SRW, CONFIG = "experiment of the Search Relevance Workbench", "searchConfigurationId"
EXPERIMENTS = ("evaluationResultList", "results")
COLUMNS = "qid Q0 docno rank score tag"
QID, DOCNO = NAMES["qid"], NAMES["memory_id"]
RANK, SCORE = ("rank", "position"), ("score", "sim", "similarity", "relevance_score")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_RANKED = re.compile(r"(\S+)\s+(\S+)\s+(\d+)")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of each query in their order, the words of queries as far as they are there, and lines about the order."""

    form: str
    results: Mapping[str, tuple[Returned, ...]]
    words: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    qid: str
    docno: str
    rank: int | None
    score: float | None


def run_of(text: str, source: str, errors: list[RowError]) -> Run | None:
    """The run that a text is, rows that cannot be used reported; None if it is none."""
    if text[:1] in ("{", "[") and (run := _of_json(text, source, errors)) is not None:
        return run
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        return None
    found = _of_table(text, source, errors)
    if found is not None:
        return found
    if sum(_is_trec(_columns(line)) for _, line in lines) * 2 > len(lines):
        return _ordered(TREC, _of_trec(lines, source, errors), source, errors)
    ranked = [(number, match) for number, line in lines if (match := _RANKED.fullmatch(line))]
    if len(ranked) == len(lines) and _are_ranks(match for _, match in ranked):
        rows = (_Row(number, match[1], match[2], int(match[3]), None) for number, match in ranked)
        return _ordered("MS MARCO run", rows, source, errors)
    return None


def _columns(line: str) -> list[str]:
    cells = [cell.strip() for cell in line.split(",")]
    return cells if _is_trec(cells) else line.split()


def _is_trec(columns: Sequence[str]) -> bool:
    return len(columns) == 6 and bool(_WHOLE.fullmatch(columns[3]))


def _are_ranks(rows: Iterable[re.Match[str]]) -> bool:
    """Whether the third column counts from 1 within each query: else it may be a grade."""
    last: dict[str, int] = {}
    for row in rows:
        if int(row[3]) != last.get(row[1], 0) + 1:
            return False
        last[row[1]] = int(row[3])
    return True


def _of_trec(lines: Iterable[tuple[int, str]], source: str, errors: list[RowError]) -> Iterator[_Row]:
    for number, line in lines:
        columns = _columns(line)
        if len(columns) != 6:
            errors.append(RowError(source, number, f"must have the 6 columns {COLUMNS}, found {len(columns)}"))
            continue
        qid, _, docno, rank, said, _ = columns
        if not _WHOLE.fullmatch(rank):
            errors.append(RowError(source, number, f"must be a whole number, found {ascii(rank)[:60]}", "rank"))
            continue
        score = finite(said)
        if score is None:
            errors.append(RowError(source, number, f"must be a finite number, found {ascii(said)[:60]}", "score"))
        else:
            yield _Row(number, qid, docno, int(rank), score)


def _of_table(text: str, source: str, errors: list[RowError]) -> Run | None:
    # Not stripped: a table of pandas may begin with a tab, below which its index is.
    lines = io.StringIO(text, newline="").readlines()
    start = next(number for number, line in enumerate(lines) if line.strip())
    for delimiter in DELIMITERS:
        names = names_of(lines[start], delimiter)
        if _names_run(names):
            break
    else:
        return None

    def rows() -> Iterator[tuple[int, dict[str, str]]]:
        for number, row in records(lines, start + 1, delimiter, is_padded(lines[start], delimiter)):
            if isinstance(row, str):
                errors.append(RowError(source, number, row))
            elif any(cell.strip() for cell in row):
                yield number, dict(zip(names, map(csv_table.restored, row), strict=False))

    return _of_rows(rows(), source, errors)


def _of_json(text: str, source: str, errors: list[RowError]) -> Run | None:
    try:
        document = parse_json(text)
    except ValueError:
        try:
            document = [parse_json(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            return None
    if isinstance(document, list):
        objects = [(n, row) for n, row in enumerate(document, 1) if isinstance(row, dict)]
        if not objects or len(objects) < len(document):
            return None
        if _names_run(objects[0][1]):
            return _of_rows(objects, source, errors)
        ids = named(objects[0][1], RETURNED)
        return _of_lists(RANKED, [(n, row, row.get(ids[0])) for n, row in objects], source, errors) if ids else None
    if isinstance(document, dict) and (results := _of_experiment(document)):
        return _of_lists(SRW, results, source, errors)
    if not isinstance(document, dict) or not document or not all(map(_is_ranking, document.values())):
        return None
    queries = enumerate(document.items(), 1)
    scored = ((n, qid, docno, score) for n, (qid, ranking) in queries for docno, score in ranking.items())
    rows = (_Row(n, qid, docno, None, finite(score)) for n, qid, docno, score in scored)
    return _ordered(BY_QUERY, rows, source, errors)


def _of_experiment(document: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any], Any]]:
    """(number, row, ids) of each result of an experiment of the Search Relevance Workbench; none for any other document."""
    hits = document.get("hits")
    inner = hits.get("hits") if isinstance(hits, dict) else None
    sources = inner if isinstance(inner, list) else []
    found: list[Any] = [each.get("_source") for each in sources if isinstance(each, dict)]
    for results in (document.get(name) for name in EXPERIMENTS):
        found += results if isinstance(results, list) else []
    rows: list[tuple[int, Mapping[str, Any], Any]] = []
    for number, each in enumerate(found, 1):
        for shot in (each.get("snapshots") or [each]) if isinstance(each, dict) else ():
            if isinstance(shot, dict):
                rows.append((number, {**each, **shot}, shot.get("documentIds", shot.get("docIds"))))
    return [row for row in rows if isinstance(row[2], list) and (row[1].get("searchText") or row[1].get("queryText"))]


def _of_lists(
    form: str, lists: Sequence[tuple[int, Mapping[str, Any], Any]], source: str, errors: list[RowError]
) -> Run | None:
    """The run of rows that have the ids of a query as a list, of several configurations the first; None if no row can be used."""
    words: dict[str, str] = {}
    configs = list(dict.fromkeys(str(row.get(CONFIG)) for _, row, _ in lists))
    rows: dict[str, list[_Row]] = {}
    for number, row, ids in lists:
        if str(row.get(CONFIG)) != configs[0]:
            continue
        asked = first_of(row, (*ASKED, "searchtext"))[1]
        qid = first_of(row, QIDS)[1] if form == RANKED else derived_id("q", clean_words(str(asked)))
        if not isinstance(ids, list) or qid is None:
            errors.append(RowError(source, number, "must have the id of a query and a list of ids"))
            continue
        if isinstance(asked, str):
            words[str(qid)] = asked
        given = [first_of(each, ITEM_IDS)[1] if isinstance(each, dict) else each for each in ids]
        made = [_Row(number, str(qid), str(docno), place, None) for place, docno in enumerate(given, 1)]
        rows.setdefault(str(qid), []).extend(made)
    run = _ordered(form, [row for made in rows.values() for row in made], source, errors)
    note = f"answers of {len(configs)} search configurations: those of {configs[0]} were read"
    notes = (*run.notes, *([note] if configs[1:] else []))
    return Run(form, {qid: run.results.get(qid, ()) for qid in rows}, words, notes) if rows else None


def _is_ranking(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(score, int | float) for score in value.values())


def _names_run(names: Iterable[str]) -> bool:
    there = {plain(name) for name in names}
    return all(there & {*known} for known in (QID, DOCNO, (*RANK, *SCORE)))


def _of_rows(rows: Iterable[tuple[int, Mapping[str, Any]]], source: str, errors: list[RowError]) -> Run:
    words: dict[str, str] = {}

    def read() -> Iterator[_Row]:
        for number, row in rows:
            there = {plain(str(name)): value for name, value in row.items() if value not in (None, "")}
            qid, docno, rank, score, query = (
                next((there[name] for name in known if name in there), None)
                for known in (QID, DOCNO, RANK, SCORE, WORDS)
            )
            if qid is None or docno is None:
                missing = "qid" if qid is None else "docno"
                errors.append(RowError(source, number, "is missing", missing))
                continue
            place, value = finite(rank), finite(score)
            if score is not None and value is None:
                reason = f"must be a finite number, found {ascii(score)[:60]}"
                errors.append(RowError(source, number, reason, "score"))
                continue
            if isinstance(query, str) and query.strip():
                words.setdefault(str(qid), query)
            yield _Row(number, str(qid), str(docno), None if place is None else int(place), value)

    run = _ordered(TABLE, read(), source, errors)
    return Run(run.form, run.results, words, run.notes)


def _ordered(form: str, rows: Iterable[_Row], source: str, errors: list[RowError]) -> Run:
    """Each document of a query once, in order, and how that came about."""
    found: dict[str, dict[str, _Row]] = {}
    for row in rows:
        first = found.setdefault(row.qid, {}).setdefault(row.docno, row)
        if first is not row:
            reason = f"{ascii(row.docno)[:60]} stands already in row {first.line} of query {ascii(row.qid)[:60]}"
            errors.append(RowError(source, row.line, reason))
    results = {}
    wrong = []
    ranked = tied = False
    for qid, documents in found.items():
        own = list(documents.values())
        ranks = [row.rank for row in own]
        has_ranks = None not in ranks
        ranked |= has_ranks
        tied |= has_ranks and len(set(ranks)) < len(ranks)
        order = sorted(own, key=lambda row: (row.rank or 0 if has_ranks else 0, -(row.score or 0.0)))
        results[qid] = tuple(Returned(row.line, row.docno, row.score) for row in order)
        scored = [row for row in order if row.score is not None]
        wrong += [(qid, one, other) for one, other in pairwise(scored) if (one.score or 0.0) < (other.score or 0.0)][:1]
    return Run(form, results, notes=tuple(_notes(ranked, tied, wrong, len(found))))


def _notes(ranked: bool, tied: bool, wrong: Sequence[tuple[str, _Row, _Row]], queries: int) -> Iterator[str]:
    if not ranked:
        yield "the run is ordered by its scores; it has no ranks"
    elif tied:
        yield "the run is ordered by its ranks; equal ranks by their scores"
    if wrong:
        qid, one, other = wrong[0]
        yield (
            f"the run is ordered by its ranks, which its scores contradict in {len(wrong):,} of {queries:,} queries, such as {qid}: "
            f"{one.docno} ({one.score:g}) is before {other.docno} ({other.score:g}); trec_eval orders by score"
        )
