"""The systems whose explanations are read: how each looks, and what of it is which list, part and setting.

docs/use/explanations.md lists what of each is written down, and how it replays.

A document may name its query beside the answer (`query`). Each reader takes the rows that can be used; a row without a number that it
needs is reported, and a document that lacks the fields of every row is of another version, which the error names.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cems_workbench.errors import counted, one_line, short, some
from cems_workbench.formats.base.fields import FieldError, finite, identifier, storable
from cems_workbench.formats.base.names import ANSWER
from cems_workbench.formats.base.payload import ANY_NAMES, text_of
from cems_workbench.formats.base.records import TracedQuery, memory_id_of, reported
from cems_workbench.formats.responses import IDS, answers_in, flat
from cems_workbench.records import RowError
from workbench_explanations.explained import TOLERANCE, Explained, Row, contradictions
from workbench_tools.exports import PAGES, spans_of
from workbench_tools.exports import system_of as traced_by
from workbench_tools.spans import Span, objects, read_span
from workbench_tools.traced import queries_of

ENGINE_FIELDS = ("sddocname", "documentid", "id", "uri", "url")
"""Fields of a hit that are no text."""
QUERIES = ("query", "q", "query_text", "question")
"""Names under which a document says its query."""
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Reading:
    """One document while it is read: its rows that could be used, and where the others are reported."""

    number: int
    source: str
    errors: list[RowError]

    def each(self, rows: Any, where: str) -> Iterator[tuple[int, Document]]:
        """The objects of a list by their place, from 1; others are reported."""
        if not isinstance(rows, list):
            raise FieldError(where, f"must be a list, found {short(rows)}")
        for place, row in enumerate(rows, 1):
            with reported(self.errors, self.source, self.number, f"{where}[{place - 1}]"):
                if not isinstance(row, dict):
                    raise FieldError("", f"must be an object, found {short(row)}")
                yield place, row

    def identity(self, row: Document, where: str) -> tuple[str, str]:
        """The id and the text of a row; a text that is none is reported, and the row kept. Raises FieldError without an id."""
        fields = flat(dict(row))
        key = next((str(fields[name]) for name in IDS if isinstance(fields.get(name), str | int)), "")
        if not key:
            raise FieldError("id", "is missing")
        text = text_of(None, fields, ANY_NAMES) or _stored(row)
        field = ANY_NAMES.found(fields, "content")
        if not text and field is not None and not isinstance(fields.get(field, ""), str):
            self.errors.append(RowError(self.source, self.number, f"must be text, found {short(fields[field])}", f"{where}{field}"))
        return key, text


@dataclass(frozen=True, slots=True)
class System:
    """A system: whether a document may be one of its explanations, and the reader."""

    name: str
    fits: Callable[[Any], bool]
    read: Callable[[Any, Reading], Iterator[Explained]]


def number(row: Document, name: str, where: str = "") -> float:
    """A number that a row must have. Raises FieldError."""
    if row.get(name) is None:
        raise FieldError(f"{where}{name}", "is missing")
    found = finite(row[name])
    if found is None:
        raise FieldError(f"{where}{name}", f"must be a finite number, found {short(row[name])}")
    return found


def place_in(row: Document, name: str, where: str = "") -> int:
    """A rank that a row must have, from 1. Raises FieldError."""
    found = number(row, name, where)
    if found < 1 or not found.is_integer():
        raise FieldError(f"{where}{name}", f"must be at least 1, and whole, found {short(row[name])}")
    return int(found)


def _stored(row: Document) -> str:
    """The texts of a search engine's hit together, for an index that calls its text as it likes."""
    fields: Document = next((row[name] for name in ("_source", "fields") if isinstance(row.get(name), dict)), {})
    return ", ".join(text for name, text in fields.items() if isinstance(text, str) and name not in ENGINE_FIELDS)


def object_of(row: Document, name: str) -> Document:
    """An object that a row must have. Raises FieldError."""
    found = row.get(name)
    if not isinstance(found, dict):
        raise FieldError(name, "is missing" if found is None else f"must be an object, found {short(found)}")
    return found


def whole_answer(document: Document, name: str, inner: str) -> Any:
    """The rows of an answer, below two names. Raises FieldError, of a row alone with what to write down."""
    if name not in document:
        raise FieldError(name, f'is missing: write down the whole answer, {{"{name}": {{"{inner}": […]}}}}')
    return object_of(document, name).get(inner)


def ranked(rows: Sequence[Row], source: Mapping[str, str]) -> list[Row]:
    """Rows with a rank in each list, of its score among those shown, for systems that print scores alone: by part the list that it is."""
    lists: dict[str, dict[str, tuple[int, float | None]]] = {row.id: {} for row in rows}
    for part, name in source.items():
        held = sorted(((row.parts[part], row.id) for row in rows if part in row.parts), key=lambda pair: -pair[0])
        for rank, (score, key) in enumerate(held, 1):
            lists[key][name] = (rank, score)
    return [replace(row, lists=lists[row.id]) for row in rows]


def lacking(rows: Sequence[Document], names: Sequence[str], system: str, version: str) -> None:
    """Raise FieldError where no row has one of these fields: the explanation is of another version."""
    missing = [name for name in names if rows and all(name not in row for row in rows)]
    if missing:
        raise FieldError("", f"{system} of another version than {version}: lacks {some(missing, 4)}")


def _mem0(document: Document, reading: Reading) -> Iterator[Explained]:
    """mem0 2.2.1: (semantic + keyword + entities) / the most that is possible, above a threshold on the semantic score."""
    given = [(place, row, object_of(row, "score_details")) for place, row in reading.each(document["results"], "results")]
    names = ("semantic_score", "bm25_score", "entity_boost", "max_possible_score", "threshold")
    lacking([details for _, _, details in given], names, "mem0", "2.2")
    found, parts = [], dict[str, float]()
    for place, row, details in given:
        with reported(reading.errors, reading.source, reading.number, f"results[{place - 1}]."):
            key, text = reading.identity(row, f"results[{place - 1}].")
            parts = {name: number(details, name, "score_details.") for name in names}
            shown = {name: value for name, value in parts.items() if value or name == "semantic_score"}
            found.append(Row(key, number(row, "score"), place, {}, shown, text))
    most = parts.get("max_possible_score", 1.0)
    words, entities = most in (2.0, 2.5), most in (1.5, 2.5)
    sources = {"semantic_score": "vector:0"} | ({"bm25_score": "sparse:0"} if words else {})
    rows = ranked(found, sources | ({"entity_boost": "entities"} if entities else {}))
    changes: dict[str, Any] = {"threshold.fixed": parts.get("threshold", 0.1)}
    changes |= {"lists.sparse.normalization": "none"} if words else {}
    active = {name for row in rows for name in row.lists}
    unseen = "its keyword hits are all outside what it shows, so that its scores are halved"
    preset = "mem0_entities" if entities else "mem0_keyword" if words else "mem0"
    taken = {part.rpartition("_")[0]: name for part, name in sources.items()}
    yield Explained("", rows, "mem0", preset, changes, taken=taken, doubts=(unseen,) if words and "sparse:0" not in active else ())


def _qmd(document: Document, reading: Reading) -> Iterator[Explained]:
    """QMD 2.8.3, `query --explain`: weighted RRF with a bonus by the best rank, then 1/rank blended with the reranker's score by bands."""
    given = [(place, row, object_of(row, "explain")) for place, row in reading.each(document["results"], "results")]
    lacking([explain for _, _, explain in given], ("rrf", "rerankScore", "blendedScore"), "QMD", "2.8")
    weights: dict[str, set[float]] = {}
    rows, plain, fused = [], True, []
    searched = [one for _, _, explain in given for one in _contributions(explain)]
    searched.sort(key=lambda one: (one.get("queryType") != "original", finite(one.get("listIndex")) or 0.0))
    texts = {text: i for i, text in enumerate(dict.fromkeys(str(one.get("query", "")) for one in searched))}
    for place, row, explain in given:
        with reported(reading.errors, reading.source, reading.number, f"results[{place - 1}]."):
            rrf = object_of(explain, "rrf")
            lists: dict[str, tuple[int, float | None]] = {}
            for i, one in reading.each(rrf.get("contributions"), f"results[{place - 1}].explain.rrf.contributions"):
                source = {"fts": "fts5", "vec": "vector"}.get(str(one.get("source")))
                if source is None:
                    raise FieldError(
                        "explain.rrf.contributions.source", f"is not fts or vec, found {short(one.get('source'))}"
                    )
                name = f"{source}:{texts[str(one.get('query', ''))]}"
                rank = place_in(one, "rank", f"explain.rrf.contributions[{i - 1}].")
                weights.setdefault(name, set()).add(number(one, "weight"))
                lists.setdefault(name, (rank, number(one, "backendScore")))
            parts = {"rerank": number(explain, "rerankScore"), "rrf": number(rrf, "totalScore")}
            plain = plain and number(rrf, "weight") == 1.0
            fused.append(place_in(rrf, "rank", "explain.rrf."))
            file, where = row.get("file"), f"results[{place - 1}]."
            said_text = str(row.get("body") or row.get("snippet") or "")
            key, text = (str(file), said_text) if file else reading.identity(row, where)
            rows.append(Row(key, number(explain, "blendedScore"), place, lists, parts, text, row.get("title")))
    said, doubts = _weights({name: max(values) for name, values in weights.items()}, len(texts))
    changes: dict[str, Any] = {"lists.lexical.enabled": False, "lists.fts5.normalization": "none", **said}
    changes |= {"rerank.backend": "none"} if plain else {"rerank.depth": 40}
    query, *more = texts or {"": 0}
    if not plain and fused and max(fused) > len(fused):
        unshown = f"not shown: {max(fused) - len(fused)} of its first {max(fused)} candidates"
        doubts = (*doubts, f"{unshown}, whose places count too: ask for all, -n 40")
    how: dict[str, Any] = {"reranked": "" if plain else "rerank", "texts": tuple(more), "doubts": doubts}
    yield Explained(query, rows, "QMD", "qmd_head", changes, taken={"fts": "fts5", "vec": "vector"}, **how)


def _contributions(explain: Document) -> list[Document]:
    rrf = explain.get("rrf")
    given = rrf.get("contributions") if isinstance(rrf, dict) else None
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def _weights(by_list: Mapping[str, float], texts: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The weights of lists as weights of the query and its further texts, else of sources; and a line where they are neither."""
    for what, path in (
        (lambda name: "original" if name.endswith(":0") else "expansion", "variants.{}_weight"),
        (lambda name: name.partition(":")[0], "lists.{}.weight"),
    ):
        found: dict[str, set[float]] = {}
        for name, weight in by_list.items():
            found.setdefault(what(name), set()).add(weight)
        if all(len(values) == 1 for values in found.values()):
            flat = {"variants.original_weight": 1.0, "variants.expansion_weight": 1.0}
            return flat | {path.format(key): min(values) for key, values in found.items()}, ()
    return {}, ("its lists have weights that no setting here has together",)


def _hindsight(document: Document, reading: Reading) -> Iterator[Explained]:
    """Hindsight (0.6 to 1.1), recall's `trace`: RRF, a cross-encoder's score × factors of time and proof around 1, then a budget of tokens.

    The reranker's own scores are read where the sigmoid or nothing made its unit scores of them, else those unit scores.
    """
    lacking([document], ("query", "retrieval_results", "rrf_merged", "reranked", "final_results"), "Hindsight", "1.1")
    about = object_of(document, "query")
    found: dict[str, list[tuple[float, str]]] = {}
    texts: dict[str, str] = {}
    undated = list[str]()
    for _, method in reading.each(document["retrieval_results"], "retrieval_results"):
        for _, hit in reading.each(method.get("results"), "retrieval_results.results"):
            found.setdefault(str(method.get("method_name")), []).append((number(hit, "score"), str(hit.get("node_id"))))
            texts[str(hit.get("node_id"))] = str(hit.get("text") or "")
            undated += [short(said)] if (said := hit.get("event_date")) is not None and _moment(said) is None else []
    scores = {(arm, key): score for arm, hits in found.items() for score, key in hits}
    # Up to 0.6 its ranks are missing: those of each arm over all kinds of fact, as it joins them.
    missing: dict[str, dict[str, int]] = {}
    for arm, hits in found.items():
        for rank, (_, key) in enumerate(sorted(hits, key=lambda pair: -pair[0]), 1):
            missing.setdefault(key, {}).setdefault(f"{arm}_rank", rank)
    moment = _moment(about.get("timestamp"))
    final = {str(row.get("id")) for _, row in reading.each(document["final_results"], "final_results")}
    components = {str(row.get("node_id")): row for _, row in reading.each(document["reranked"], "reranked")}
    order = {key: place for place, key in enumerate(components, 1)}
    parted = {key: row.get("score_components") or {} for key, row in components.items()}
    aged = any(one.get("recency", NEUTRAL) != NEUTRAL for one in parted.values())
    rows, read, unknown = [], set[float | None](), set()
    for place, row in reading.each(document["rrf_merged"], "rrf_merged"):
        with reported(reading.errors, reading.source, reading.number, f"rrf_merged[{place - 1}]."):
            key = str(row.get("node_id") or "")
            given = object_of(row, "source_ranks") or missing.get(key, {})
            ranks = {name.removesuffix("_rank"): place_in(given, name, "source_ranks.") for name in given}
            unknown |= ranks.keys() - HINDSIGHT_LISTS.keys()
            known = {ours: arm for arm, ours in HINDSIGHT_LISTS.items() if arm in ranks}
            lists = {ours: (ranks[arm], scores.get((arm, key))) for ours, arm in known.items()}
            parts = {name: value for name, value in parted.get(key, {}).items() if finite(value) is not None}
            read.add(parts.get("cross_encoder_score") if key in components else None)
            age = (1 - parts.get("recency", NEUTRAL)) * 365
            made = None if moment is None or not aged or "recency" not in parts else moment - timedelta(days=age)
            score = finite(components.get(key, {}).get("rerank_score"))
            text = texts.get(key, str(row.get("text") or ""))
            windowed = 1 + WINDOW * (parts.get("temporal", NEUTRAL) - NEUTRAL)
            rows.append(Row(key, score, order.get(key, 0), lists, parts, text, created_at=made, factor=windowed))
    scale, reranked = _hindsight_scale([row.parts for row in rows])
    changes: dict[str, Any] = {"assembly.max_tokens": None, "rerank.raw_scale": scale, "threshold.mode": "none"}
    changes |= {"lists.relations.weight": 1.0, "adjust.priority": True}
    doubts = [f"its list {name} is not used" for name in sorted(unknown)]
    if moment is None and about.get("timestamp") is not None:
        doubts.append(f"query.timestamp: {NO_DATE}, found {short(about['timestamp'])}: without it no age is known")
    if undated:
        doubts.append(f"event_date: {NO_DATE}, found {some(list(dict.fromkeys(undated)), 3)}; ages are those of its recency")
    if cut := len(order.keys() - final):
        budget = about.get("max_tokens")
        doubts.append(f"the order is that before its budget of {budget} tokens, which leaves out {cut} of {len(order)}")
    if len(rows) > 1 and len(read - {None}) == 1:
        doubts.append(
            "its reranker passes the fused order on: the scores it made of that stay, whatever is changed in the fusion"
        )
    taken = {arm: name for arm, name in HINDSIGHT_LISTS.items() if any(name in row.lists for row in rows)}
    more: dict[str, Any] = {"reranked": reranked, "as_of": moment, "doubts": tuple(doubts)}
    yield Explained(str(about.get("query_text") or ""), rows, "Hindsight", "hindsight", changes, taken=taken, **more)


def _hindsight_scale(parts: Sequence[Mapping[str, float]]) -> tuple[str, str]:
    """How the reranker's scores become unit scores, and which part is read; up to 0.6 they all passed the sigmoid."""
    pairs = [(one["cross_encoder_score"], one[HINDSIGHT_UNIT]) for one in parts if {"cross_encoder_score", HINDSIGHT_UNIT} <= one.keys()]
    for scale, outside in (("sigmoid_outside_unit", any(not 0 <= raw <= 1 for raw, _ in pairs)), ("sigmoid", True)):
        made = (1 / (1 + math.exp(-min(max(raw, -700), 700))) if outside else raw for raw, _ in pairs)
        if pairs and all(abs(unit - ours) <= TOLERANCE for (_, unit), ours in zip(pairs, made, strict=True)):
            return scale, "cross_encoder_score"
    return "identity", HINDSIGHT_UNIT


NEUTRAL, WINDOW = 0.5, 0.2
"""The recency of a memory without a date; where all have it, the explanation knows no ages. The weight of the part for windows of time."""
HINDSIGHT_UNIT = "cross_encoder_score_normalized"
HINDSIGHT_LISTS = {"semantic": "vector:0", "bm25": "ts_rank_cd:0", "graph": "relations", "temporal": "lucene:0"}
"""Which of its arms is which list here; it calls ts_rank_cd bm25."""


NO_DATE = "must be a date, such as 2026-09-01T00:00:00Z"


def _moment(said: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(said))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


FREE = ("lucene", "lexical", "fts5", "sparse", "ts_rank_cd")
"""Sources for lists that have no kind of ours."""


def _sources(names: Sequence[str]) -> dict[str, str]:
    """A source for each list of a system: by what its name says, else one that is free, the same for the same names."""
    found: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (_kind(name) is None, name)):
        start = zlib.crc32(name.encode()) % len(FREE)
        order = [_kind(name), *FREE[start:], *FREE[:start], "vector", "entities"]
        free = next((one for one in order if one and one not in found.values()), None)
        if free is None:
            raise FieldError("", f"has {counted(len(names), 'lists')}; {len(found)} at most are replayed")
        found[name] = free
    return found


def _kind(name: str) -> str | None:
    plain = name.casefold()
    if any(part in plain for part in ("sparse", "splade")):
        return "sparse"
    if any(part in plain for part in LEXICAL_PARTS):
        return "lexical"
    return "vector" if any(part in plain for part in VECTOR_PARTS) else None


LEXICAL_PARTS = ("bm25", "lexical", "keyword", "fts", "full_text", "fulltext")
VECTOR_PARTS = ("dense", "vec", "embed", "semantic", "cosine", "knn", "closeness", "nearest")


def _qdrant(document: Document, reading: Reading) -> Iterator[Explained]:
    """Qdrant 1.20: the answer of each prefetch, asked alone, and the fused one; `request` says how they are fused."""
    request = document.get("request") if isinstance(document.get("request"), dict) else {}
    asked = request.get("prefetch") if isinstance(request, dict) else None
    given = [answers_in(one) for one in document["prefetches"]]
    names = []
    for place in range(len(given)):
        one = asked[place] if isinstance(asked, list) and place < len(asked) and isinstance(asked[place], dict) else {}
        if one.get("prefetch"):
            raise FieldError(f"request.prefetch[{place}]", "is nested: only one level of prefetch is replayed")
        names.append(str(one.get("using") or f"prefetch {place + 1}"))
    sources = _sources(list(dict.fromkeys(names)))
    lists: dict[str, dict[str, tuple[int, float | None]]] = {}
    texts: dict[str, str] = {}

    def rows_of(answer: Any, where: str) -> Iterator[tuple[int, str, float]]:
        for place, row in reading.each([] if answer is None else list(answer.rows[0]), where):
            with reported(reading.errors, reading.source, reading.number, f"{where}[{place - 1}]."):
                key, text = reading.identity(row, f"{where}[{place - 1}].")
                texts.setdefault(key, text)
                yield place, key, number(row, "score")

    for i, (name, answer) in enumerate(zip(names, given, strict=True)):
        for rank, key, score in rows_of(answer, f"prefetches[{i}]"):
            lists.setdefault(key, {})[f"{sources[name]}:0"] = (rank, score)
    fused = {key: (rank, score) for rank, key, score in rows_of(answers_in({"result": document["result"]}), "result")}
    keys = [*fused, *(key for key in lists if key not in fused)]
    rows = [
        Row(key, fused.get(key, (0, None))[1], fused.get(key, (0, None))[0], lists.get(key, {}), {}, texts[key])
        for key in keys
    ]
    known: dict[str, dict[str, Any]] = {
        "rrf": {"fusion.method": "rank_divided_rrf", "fusion.k": 2},
        "dbsf": {"fusion.method": "dbsf"},
    }
    said: Any = request.get("query") if isinstance(request, dict) else None
    rrf = said.get("rrf") if isinstance(said, dict) else None
    fusion = "rrf" if isinstance(rrf, dict) else said.get("fusion") if isinstance(said, dict) else None
    ways = [dict(known[str(fusion)])] if fusion in known else [dict(one) for one in known.values()]
    doubts = []
    if isinstance(rrf, dict):
        k, weights = rrf.get("k"), rrf.get("weights")
        if _within(k, 1, 10_000):
            ways[0] |= {"fusion.k": k}
        elif k is not None:
            doubts.append(f"request.query.rrf.k: must be a number from 1 to 10,000, found {short(k)}: it is not used")
        if isinstance(weights, list) and len(weights) == len(names) and all(_within(one, 0, 100) for one in weights):
            ways[0] |= {f"lists.{sources[name]}.weight": weight for name, weight in zip(names, weights, strict=True)}
        elif weights is not None:
            allowed = f"must be a list of {counted(len(names), 'numbers')} from 0 to 100, one for each prefetch"
            doubts.append(f"request.query.rrf.weights: {allowed}, found {short(weights)}: they are not used")
    taken = {name: f"{source}:0" for name, source in sources.items()}
    yield Explained("", rows, "Qdrant", "", ways[0], others=tuple(ways[1:]), taken=taken, doubts=tuple(doubts))


def _within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


_FIELD = re.compile(r"weight\((?:Synonym\()?([\w.@-]+):|\[field=([\w.@-]+)\]|Term\(field=(\d+)")
_BOOST = re.compile(r"Boost x([\d.]+) of")
_HYBRID = re.compile(r"(\w+)(?:, weights \[([^\]]*)\])? combination of")
_CONSTANT = re.compile(r"rrf, rank_constant \[(\d+)\] normalization of")


def _of_field(node: Any, depth: int = 0) -> set[str]:
    """The fields, and `knn`, that a part of an explanation is made of."""
    if not isinstance(node, dict) or depth > MAX_DEPTH:
        return set()
    said = f"{node.get('description', '')} {node.get('context', '')}"
    found = {name or other or f"field {place}" for name, other, place in _FIELD.findall(said)}
    if "within top" in said or "vector similarity" in said:
        found.add("knn")
    for inner in node.get("details") or ():
        found |= _of_field(inner, depth + 1)
    return found


MAX_DEPTH = 40


def _tree(document: Document, reading: Reading) -> Iterator[Explained]:
    """The tree that Lucene, Elasticsearch, OpenSearch and tantivy explain a score by: a sum or the largest of parts by field, or what
    Elasticsearch's retrievers fused. OpenSearch's hybrid query has the normalised score of each of its queries that found the hit, or for
    RRF 1 / (constant + rank)."""
    if "profile" in document and "_explanation" not in _first(document, "hits", "hits"):
        raise FieldError("profile", "has the times of a search and no scores: `profile` alone explains no ranking, `explain: true` does")
    held = whole_answer(document, "hits", "hits")
    if any(_retrieved(row.get("_explanation")) for _, row in objects(held)):
        yield _retrievers(held, reading)
        return
    found, weights, combined = [], dict[str, float](), set[str]()
    queries, technique, constant = list[str](), ("", ""), 0
    for place, row in reading.each(held, "hits.hits"):
        with reported(reading.errors, reading.source, reading.number, f"hits.hits[{place - 1}]."):
            key, text = reading.identity(row, f"hits.hits[{place - 1}].")
            top = object_of(row, "_explanation")
            hybrid = _HYBRID.match(str(top.get("description", "")))
            children = [one for one in top.get("details") or () if isinstance(one, dict)]
            values = [finite(one.get("value")) or 0.0 for one in children]
            if len(values) > 1:  # what tantivy calls a sum may be the largest
                value = number(top, "value", "_explanation.")
                combined.add("max" if abs(value - max(values)) < abs(value - sum(values)) else "sum")
            parts: dict[str, float] = {}
            apart = bool(children) and (hybrid is not None or all(map(_of_field, children)))
            for i, child in enumerate(children if apart else [top]):
                said = str(child.get("description", ""))
                name = " ".join(sorted(_of_field(child))) or f"clause {i + 1}"
                boost, rrf = _BOOST.match(said), _CONSTANT.match(said)
                constant = int(rrf[1]) if rrf else constant
                weights[name] = float(boost[1]) if boost else 1.0
                parts[name] = parts.get(name, 0.0) + number(child, "value", "_explanation.") / weights[name]
            if hybrid:
                queries, technique = max(queries, list(parts), key=len), (hybrid[1], hybrid[2] or "")
            found.append(Row(key, number(row, "_score"), place, {}, parts, text))
    sources = _sources(list(weights))
    taken = {name: f"{source}:0" for name, source in sources.items()}
    rows = ranked(found, taken)
    if technique[0] == "arithmetic_mean":  # of all its queries, also of those that did not find a hit
        given = [finite(one) or 0.0 for one in technique[1].split(",")] if technique[1] else [1.0] * len(queries)
        weights = {name: one / (sum(given) or 1.0) for name, one in zip(queries, given, strict=False)}
    changes: dict[str, Any] = {"fusion.method": "combmax" if combined == {"max"} and not technique[0] else "combsum"}
    if constant:
        changes = {"fusion.method": "rrf", "fusion.k": constant}
        ranks = [{taken[name]: (round(1 / max(one, 1e-6)) - constant, None) for name, one in row.parts.items()} for row in found]
        rows = [replace(row, lists=own, parts={}) for row, own in zip(found, ranks, strict=True)]
    changes |= {f"lists.{sources[name]}.weight": weight for name, weight in weights.items()}
    yield Explained("", rows, "a search engine", "", changes, taken=taken, doubts=_profiled(document))


def _profiled(document: Document) -> tuple[str, ...]:
    """What Elasticsearch's `profile` says beside the scores: how long each query took, and how many documents it scored."""
    shards = objects(object_of(document, "profile").get("shards")) if "profile" in document else ()
    searches = [search for _, shard in shards for _, search in objects(shard.get("searches"))]
    found = []
    for _, query in [one for search in searches for one in objects(search.get("query"))]:
        counts = query.get("breakdown")
        scored = finite(counts.get("score_count")) if isinstance(counts, dict) else None
        took = (finite(query.get("time_in_nanos")) or 0.0) / 1e6
        found.append(f"{one_line(str(query.get('type')), 40)} scored {scored or 0:,.0f} documents in {took:.3g} ms")
    return (f"profile: {some(found, 4)}",) if found else ()


def _remnic(document: Document, reading: Reading) -> Iterator[Explained]:
    """remnic's `xray --format json`, schema 1: the terms of each score, and what its filters and its cap left out."""
    found = document.get("snapshot", document)
    if "recalledMemoryIds" in found:
        expected, lost = found.get("expectation"), ""
        if isinstance(expected, dict) and not expected.get("recalled"):
            said = f"{expected.get('memoryId')} was lost at {expected.get('stage')}"
            lost = f"; it says that {one_line(said, 120)}"
        raise FieldError("", f"remnic's `why` has no scores: write down `xray` of the same query{lost}")
    if found.get("schemaVersion") != "1":
        raise FieldError("schemaVersion", f"remnic of another version than schema 1: {short(found.get('schemaVersion'))}")
    applied = [one.get("memoryId") for _, one in reading.each(found.get("appliedResults") or [], "appliedResults")]
    rows, rejected = list[Row](), []
    for place, row in reading.each(found.get("results"), "results"):
        with reported(reading.errors, reading.source, reading.number, f"results[{place - 1}]."):
            key, _ = reading.identity({"id": row.get("memoryId")}, "")
            if row.get("rejectedBy"):
                rejected.append(f"{one_line(key, 40)} by {one_line(str(row['rejectedBy']), 40)}")
                continue
            terms = object_of(row, "scoreDecomposition")
            final = number(terms, "final", "scoreDecomposition.")
            parts = {name: number(terms, name, "scoreDecomposition.") for name in terms if name != "final"}
            rank = applied.index(key) + 1 if key in applied else 0 if applied else len(rows) + 1
            span = row.get("sourceSpan")
            text = str(span.get("quote") or "") if isinstance(span, dict) else ""
            rows.append(Row(key, final, rank, {}, parts | {"final": final}, text, row.get("path")))
    known = {"vector": "vector:0", "bm25": "lexical:0"}
    taken = {name: ours for name, ours in known.items() if any(name in row.parts for row in rows)} or {"final": "vector:0"}
    doubts = (f"its filters left out {some(rejected, 3)}",) if rejected else ()
    asked, changes = str(found.get("query") or ""), {"fusion.method": "combsum"}
    yield Explained(asked, ranked(rows, taken), "remnic", "", changes, taken=taken, doubts=doubts)


_RRF = re.compile(r"rankConstant: \[(\d{1,6})\]")
_OF_QUERY = re.compile(r"in query (?:at index )?\[?(\d+)\]?(?: ?\[([^\]]+)\])?")
_NUMBER = r"(-?\d+(?:\.\d+)?(?:E-?\d+)?)"
_RANK = re.compile(rf"rrf score: \[{_NUMBER}\], for rank \[(\d{{1,6}})\]", re.I)
_SHARE = re.compile(rf"computed as \[{_NUMBER} \* {_NUMBER}\]", re.I)


def _retrieved(top: Any) -> Document | None:
    """The node of a tree by which a retriever of Elasticsearch says what it fused; None without one."""
    nodes = [top, *(top.get("details") or ())] if isinstance(top, dict) else []
    marks = ("computed for initial ranks", "weighted linear combination score")
    said = (one for _, one in objects(nodes) if any(mark in str(one.get("description")) for mark in marks))
    return next(said, None)


def _retrievers(hits: Any, reading: Reading) -> Explained:
    """Elasticsearch's retrievers: `rrf` says the rank in each query, `linear` a weight and the normalised score. From its source (9.1)."""
    found: list[tuple[Row, dict[str, tuple[int, float]]]] = []
    weights, k = dict[str, float](), 0
    for place, row in reading.each(hits, "hits.hits"):
        with reported(reading.errors, reading.source, reading.number, f"hits.hits[{place - 1}]."):
            key, text = reading.identity(row, f"hits.hits[{place - 1}].")
            top = _retrieved(object_of(row, "_explanation"))
            if top is None:
                raise FieldError("_explanation", "says nothing of the retrievers that the other hits are explained by")
            constant = _RRF.search(str(top.get("description")))
            k = int(constant[1]) if constant else k
            lists: dict[str, tuple[int, float]] = {}
            for _, child in objects(top.get("details")):
                said = str(child.get("description"))
                query, rank, share = _OF_QUERY.search(said), _RANK.search(said), _SHARE.search(said)
                if query is None or (rank is None and share is None):
                    continue  # the query did not find the hit
                name = query[2] or " ".join(sorted(_of_field(child))) or f"query {query[1]}"
                inner = next((finite(one.get("value")) for _, one in objects(child.get("details"))), None)
                if rank is not None:
                    weights[name] = round(float(rank[1]) * (k + int(rank[2])), 4)
                    lists[name] = (int(rank[2]), inner or 0.0)
                elif share is not None:
                    weights[name] = float(share[1])
                    lists[name] = (0, float(share[2]))
            found.append((Row(key, number(row, "_score"), place, {}, {}, text), lists))
    sources = _sources(list(weights))
    taken = {name: f"{source}:0" for name, source in sources.items()}
    changes: dict[str, Any] = {"fusion.method": "rrf", "fusion.k": k} if k else {"fusion.method": "combsum"}
    changes |= {f"lists.{sources[name]}.weight": weight for name, weight in weights.items()}
    if k:
        rows = [replace(row, lists={taken[name]: one for name, one in lists.items()}) for row, lists in found]
    else:
        parts = [{name: score for name, (_, score) in lists.items()} for _, lists in found]
        rows = ranked([replace(row, parts=own) for (row, _), own in zip(found, parts, strict=True)], taken)
    return Explained("", rows, "Elasticsearch's retrievers", "", changes, taken=taken)


def _vespa(document: Document, reading: Reading) -> Iterator[Explained]:
    """Vespa: `matchfeatures` beside the relevance, of which a formula is solved. A distance is less for what is nearer: it is taken as the
    closeness that Vespa makes of it. Features of the query are the same for every hit, and no list."""
    found, of_query = [], dict[str, float]()
    for place, row in reading.each(whole_answer(document, "root", "children"), "root.children"):
        with reported(reading.errors, reading.source, reading.number, f"root.children[{place - 1}]."):
            key, text = reading.identity(row, f"root.children[{place - 1}].")
            features = dict[str, float]()
            given = object_of(object_of(row, "fields"), "matchfeatures")
            for name, value in ((name, value) for name, said in given.items() if (value := finite(said)) is not None):
                if name.startswith("query("):
                    of_query[name] = value
                elif not name.startswith("distance("):
                    features[name] = value
                elif (closeness := name.replace("distance", "closeness", 1)) not in given:
                    features[closeness] = 1 / (1 + max(value, 0.0))
            found.append(Row(key, number(row, "relevance"), place, {}, features, text))
    sources = _sources(list(dict.fromkeys(name for row in found for name in row.parts)))
    taken = {name: f"{source}:0" for name, source in sources.items()}
    said = ", ".join(f"{name} = {value:g}" for name, value in of_query.items())
    doubts = (f"of the query, no list: {said}",) if said else ()
    ways = [{"fusion.method": method} for method in ("combsum", "combmax")]
    yield Explained("", ranked(found, taken), "Vespa", "", ways[0], (ways[1],), taken=taken, doubts=doubts)


def _runs(document: Document, reading: Reading) -> Iterator[Explained]:
    """Runs of LangSmith and observations of Langfuse, of one trace or several: retrievers below one that joins them, or alone."""
    traces: dict[str, list[Span]] = {}
    for place, row in reading.each(document.get("results", [document]), "runs"):
        for where, values in spans_of(row):
            with reported(reading.errors, reading.source, reading.number, f"runs[{place - 1}].{where}"):
                span = read_span(place, values)
                traces.setdefault(span.trace_id, []).append(span)
    for spans in traces.values():
        yield from map(_joined, queries_of(spans)) if len(spans) > 1 else filter(None, map(_alone, spans))


def _joined(query: TracedQuery) -> Explained:
    sources = _sources([one.name for one in query.recorded.lists])
    held: dict[str, dict[str, tuple[int, float | None]]] = {}
    for one in query.recorded.lists:
        for rank, (key, score) in enumerate(one.hits, 1):
            held.setdefault(key, {})[f"{sources[one.name]}:0"] = (rank, score)
    final = {key: (rank, score) for rank, (key, score) in enumerate(query.recorded.results, 1)}
    rows = []
    for key in dict.fromkeys((*final, *held)):
        rank, score = final.get(key, (0, None))
        text = query.contents[key].content if key in query.contents else None
        rows.append(Row(key, score, rank, held.get(key, {}), {}, text or ""))
    taken = {name: f"{source}:0" for name, source in sources.items()}
    doubts = tuple(line for lines in query.warnings.values() for line in lines)
    if len(sources) > 1 and all(row.final is None for row in rows):
        doubts = (*doubts, "it has no fused scores: other weights or another k may give this order too")
    method = "fusion.method"
    ways = ({method: "rrf", "fusion.k": 60}, {method: "rank_divided_rrf", "fusion.k": 2}, {method: "combsum"})
    how: dict[str, Any] = {"as_of": query.asked_at, "qid": query.qid, "doubts": doubts}
    return Explained(query.query, rows, "a traced pipeline", "", ways[0], ways[1:], taken=taken, **how)


def _alone(span: Span) -> Explained | None:
    if span.query is None or not span.output:
        return None
    rows = [
        Row(memory_id_of(one), one.score, rank, {"vector:0": (rank, one.score)}, {}, one.content or "", one.title)
        for rank, one in enumerate(span.output, 1)
    ]
    return Explained(span.query, rows, "a traced retriever", "", {}, taken={span.name: "vector:0"}, qid=span.span_id)


def _first(document: Any, *path: str) -> Document:
    """The first row of the list below these names, or of a list; empty without one."""
    rows = document
    for name in path if isinstance(document, dict) else ():
        rows = rows.get(name) if isinstance(rows, dict) else None
    first = rows[0] if isinstance(rows, list) and rows else None
    return first if isinstance(first, dict) else {}


def _are_runs(document: Any) -> bool:
    firsts = (_first(document, *path) for path in ((), ("results",), *((name,) for name in PAGES)))
    return any(traced_by(first) in ("LangSmith", "Langfuse") for first in firsts)


def _of_rows_with(name: str) -> Callable[[Any], bool]:
    """Whether the first row of `results`, or of a list, has an object of that name."""
    return lambda document: isinstance(_first(document, "results").get(name), dict)


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda document: isinstance(document, dict) and document.keys() >= {*names}


def _of_engine(document: Any) -> bool:
    profiled = isinstance(document, dict) and isinstance(document.get("hits"), dict) and "profile" in document
    return profiled or "_explanation" in _first(document, "hits", "hits")


def _of_remnic(document: Any) -> bool:
    found = document.get("snapshot", document) if isinstance(document, dict) else None
    return isinstance(found, dict) and bool({"appliedResultLimit", "tierExplain", "recalledMemoryIds"} & found.keys())


def _of_vespa(document: Any) -> bool:
    fields = _first(document, "root", "children").get("fields")
    return isinstance(fields, dict) and "matchfeatures" in fields


RUNS = System("LangSmith or Langfuse", _are_runs, _runs)
SYSTEMS: tuple[System, ...] = (
    System("mem0", _of_rows_with("score_details"), _mem0),
    System("QMD", _of_rows_with("explain"), _qmd),
    System("Hindsight", _has("retrieval_results", "rrf_merged"), _hindsight),
    System("Qdrant", _has("prefetches", "result"), _qdrant),
    System("Elasticsearch, OpenSearch, Lucene or tantivy", _of_engine, _tree),
    System("remnic", _of_remnic, _remnic),
    System("Vespa", _of_vespa, _vespa),
    RUNS,
)


def of_rows(row: Document) -> bool:
    """Whether an object is a row of an answer, not an answer."""
    return system_of(row) is None and system_of([row]) is not None


def system_of(document: Any) -> System | None:
    """The system that a document is of; None for none."""
    return next((system for system in SYSTEMS if system.fits(_answer(document))), None)


def explained_in(document: Any, number: int, source: str, errors: list[RowError]) -> Iterator[Explained]:
    """The explanations in a document, each with its query and id, where they are said. Raises FieldError for a document of no system that
    is read, or of another version of one."""
    system, answer = system_of(document), _answer(document)
    if system is None and isinstance(document, dict) and of_rows(document):
        system, document = system_of([document]), [document]
    if system is None:
        if isinstance(answer, dict) and not isinstance(results := answer.get("results", []), list):
            raise FieldError("results", f"must be a list, found {short(results)}")
        if isinstance(document, dict) and any(document.get(name) == [] for name in ANSWER["lists"]):
            said, qid = _asked(document)
            storable("query", said)
            yield Explained(said, (), qid=qid, number=number)
            return
        raise FieldError("", f"is no explanation of {', '.join(one.name for one in SYSTEMS)}")
    said, qid = _asked(document)
    answer = _answer(document)
    answer = {"results": answer} if isinstance(answer, list) else answer
    before = len(errors)
    for one in system.read(answer, Reading(number, source, errors)):
        rows: dict[str, Row] = {}
        for row in one.rows:
            with reported(errors, source, number, f"{short(row.id)}: "):
                if identifier({"id": row.id}, "id") in rows:
                    raise FieldError("id", "stands already above: the row is left out")
                unranked = next((name for name, (rank, _) in row.lists.items() if rank < 1), None)
                if unranked is not None:
                    raise FieldError(f"{unranked}.rank", f"must be at least 1, found {row.lists[unranked][0]}")
                rows[row.id] = replace(row, text="")  # where its text is none
                storable("content", row.text)
                rows[row.id] = row
        own, qid = qid or one.qid, ""  # of several retrievals in a document its id is that of the first
        one = replace(one, rows=[*rows.values()], query=one.query or said, qid=own, number=number)
        if not one.returned and len(errors) > before:
            continue  # each of its rows is reported
        storable("query", one.query)
        yield replace(one, doubts=(*one.doubts, *contradictions(one.rows)))


def _answer(document: Any) -> Any:
    """The answer that a document is, or that it has beside its query."""
    if not isinstance(document, dict):
        return document
    within = next(
        (document[name] for name in ("response", "answer", "explanation", "trace") if name in document), document
    )
    return within if isinstance(within, dict | list) else document


def beside_query(document: Any) -> bool:
    """Whether a document is a query with an answer beside it."""
    return _answer(document) is not document and bool(_asked(document)[0])


def _asked(document: Any) -> tuple[str, str]:
    """The query and its id that a document says."""
    if not isinstance(document, dict):
        return "", ""
    said = (document.get(name) for name in QUERIES)
    query = next((text.strip() for text in said if isinstance(text, str) and text.strip()), "")
    return query, identifier(document, "qid") if document.get("qid") is not None else ""
