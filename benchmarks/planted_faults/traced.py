"""Faults of a pipeline of the user's own, written without reading the code that diagnoses: each is a subclass with one method changed.

The pipeline is BM25 and vectors, reciprocal rank fusion, a cross-encoder, a minimum score and a limit over the sample, traced as
`examples/plain_python.py` is. Its results are known, so that the pairs to ask are those that it returns and the broken one does not.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planted_faults import Fault, Pair, Planted, Right

SAMPLE = Path(__file__).parents[2] / "sample_data"
ASKED = 3
"""Every third query of the sample is traced."""
Ranking = list[tuple[str, float]]


def sample_rows(name: str) -> list[dict[str, Any]]:
    """The rows of a file of the sample."""
    return [json.loads(line) for line in (SAMPLE / name).read_text("utf-8").splitlines()]


class Models:
    """Texts, vectors and scores that the faults share; what is slow is kept in a folder."""

    def __init__(self, folder: Path) -> None:
        from examples import sample

        self.folder, self.sample = folder, sample
        self.rows: dict[str, dict[str, Any]] = {row["id"]: row for row in sample_rows("memories.jsonl")}
        self.texts: dict[str, str] = {key: row["content"] for key, row in self.rows.items()}
        self.ids = list(self.texts)
        self.index = sample.Bm25(self.texts)
        self.vectors = self.kept("texts", lambda: sample.embed(list(self.texts.values())))
        path = folder / "cross-encoder.json"
        self.scores: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.exists() else {}
        self.embedded: dict[str, Any] = {}

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """An array that is computed once."""
        path = self.folder / f"{name}.npy"
        if not path.exists():
            np.save(path, np.asarray(make(), dtype=np.float32))
        return np.load(path)

    def cosines(self, query: str) -> Any:
        """Of all memories, in their order."""
        if query not in self.embedded:
            self.embedded[query] = np.asarray(self.sample.embed([query])[0])
        return self.vectors @ self.embedded[query]

    def relevance(self, query: str, texts: list[str]) -> list[float]:
        """Scores of the cross-encoder."""
        known = self.scores.setdefault(query, {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            known.update(zip(new, self.sample.relevance(query, new), strict=True))
        return [known[text] for text in texts]

    def save(self) -> None:
        """Keep the scores for the next fault."""
        (self.folder / "cross-encoder.json").write_text(json.dumps(self.scores))


def best(scores: Iterable[tuple[str, float]], count: int | None = None) -> Ranking:
    """The highest first."""
    return sorted(((key, float(score)) for key, score in scores), key=lambda pair: -pair[1])[:count]


class Pipeline:
    """The healthy pipeline."""

    depth, reranked, returned, floor = 20, 20, 10, -10.0
    fusion = "rrf"
    between: tuple[tuple[str, str, str], ...] = ()
    """Stages between fusion and reranker: name, kind and method."""

    def __init__(self, models: Models) -> None:
        self.models = models

    def searched(self, query: str) -> str:
        return query

    def bm25(self, query: str) -> Ranking:
        return self.models.index.search(query, self.depth)

    def vectors(self, query: str) -> Ranking:
        return best(zip(self.models.ids, self.models.cosines(query), strict=True), self.depth)

    def fuse(self, *lists: Ranking) -> Ranking:
        scores: dict[str, float] = defaultdict(float)
        for ranking in lists:
            for rank, (key, _) in enumerate(ranking, 1):
                scores[key] += 1 / (60 + rank)
        return best(scores.items())

    def text(self, key: str) -> str:
        return self.models.texts[key]

    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        scores = self.models.relevance(query, [text for _, _, text in documents])
        return best((key, score) for (key, _, _), score in zip(documents, scores, strict=True))

    def confident(self, candidates: Ranking) -> Ranking:
        return [(key, score) for key, score in candidates if score >= self.floor]

    def stored(self, key: str) -> str:
        """The id that the store has."""
        return key

    def retrieve(self, query: str) -> list[str]:
        from cems_workbench import trace

        def listed(name: str, search: Callable[[str], Ranking]) -> Ranking:
            try:
                return trace.stage(name, kind="list")(search)(self.searched(query))
            except TimeoutError:
                return []

        with trace.retrieval("retrieve", query=query) as answer:
            lists = [listed("bm25", self.bm25), listed("vectors", self.vectors)]
            found = trace.stage(self.fusion, kind="fusion")(self.fuse)(*lists)
            for name, kind, method in self.between:
                found = trace.stage(name, kind=kind)(getattr(self, method))(query, found)
            if self.reranked:
                documents = [(key, score, self.text(key)) for key, score in found[: self.reranked]]
                found = trace.stage("cross-encoder", kind="rerank")(self.rerank)(query, documents)
                found = trace.stage("minimum score", kind="filter")(self.confident)(found)
            answer.documents(found[: self.returned])
        return [self.stored(key) for key, _ in found[: self.returned]]


class Plain(Pipeline):
    """Healthy, without the cross-encoder."""

    reranked = 0


class Constant(Pipeline):
    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        return [(key, 0.5) for key, _, _ in documents]


class Ascending(Pipeline):
    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        return super().rerank(query, documents)[::-1]


class Negated(Pipeline):
    floor = -20.0

    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        return best((key, -score) for key, score in super().rerank(query, documents))


class Identity(Pipeline):
    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        return [(key, score) for key, score, _ in documents]


class Truncated(Pipeline):
    def text(self, key: str) -> str:
        return self.models.texts[key][:40]


class Coarse(Pipeline):
    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        scores = dict(super().rerank(query, documents))
        return best((key, 8.0 * round(scores[key] / 8)) for key, _, _ in documents)


class Previous(Pipeline):
    asked = "what is on the list for the next meeting"

    def rerank(self, query: str, documents: list[tuple[str, float, str]]) -> Ranking:
        from cems_workbench import trace

        before, self.asked = self.asked, query
        return trace.stage("model", kind="rerank")(super().rerank)(before, documents)


class Weighted(Plain):
    """Healthy, with a weighted sum of min-max scores instead of ranks."""

    fusion, shares = "mix", (0.2, 0.8)

    def fuse(self, *lists: Ranking) -> Ranking:
        scores: dict[str, float] = defaultdict(float)
        for share, ranking in zip(self.shares, lists, strict=True):
            values = [score for _, score in ranking] or [0.0]
            low, span = min(values), (max(values) - min(values)) or 1.0
            for key, score in ranking:
                scores[key] += share * (score - low) / span
        return best(scores.items())


class AlphaReversed(Weighted):
    shares = (0.95, 0.05)


class RawSum(Weighted):
    def fuse(self, *lists: Ranking) -> Ranking:
        scores: dict[str, float] = defaultdict(float)
        for share, ranking in zip(self.shares, lists, strict=True):
            for key, score in ranking:
                scores[key] += share * score
        return best(scores.items())


class AboveAll(Pipeline):
    between = (("fused minimum", "filter", "minimum"),)

    def minimum(self, query: str, candidates: Ranking) -> Ranking:
        return [(key, score) for key, score in candidates if score >= 0.3]


class FloorOfCosines(Pipeline):
    floor = 0.3


class SameForAll(Plain):
    def vectors(self, query: str) -> Ranking:
        return super().vectors("null")


class OwnIds(Plain):
    def named(self, ranking: Ranking, prefix: str) -> list[tuple[str, float, str]]:
        def name(key: str) -> str:
            return f"doc-{int(key[1:])}" if prefix == "doc" else str(uuid.uuid5(uuid.NAMESPACE_OID, key))

        return [(name(key), score, self.models.texts[key]) for key, score in ranking]

    def bm25(self, query: str) -> Any:
        return self.named(super().bm25(query), "doc")

    def vectors(self, query: str) -> Any:
        return self.named(super().vectors(query), "point")

    def fuse(self, *lists: Any) -> Ranking:
        return super().fuse(*[[(key, score) for key, score, _ in ranking] for ranking in lists])

    def stored(self, key: str) -> str:
        if key.startswith("doc-"):
            return f"m{int(key[4:]):03}"
        return next(own for own in self.models.ids if str(uuid.uuid5(uuid.NAMESPACE_OID, own)) == key)


class FilterFirst(Plain):
    """Healthy, for queries of one project alone: the lists search its memories."""

    depth, project = 5, "ostrow/tidemark"

    def belongs(self, key: str) -> bool:
        return bool(self.models.rows[key].get("project") == self.project)

    def bm25(self, query: str) -> Ranking:
        found = self.models.index.search(query, len(self.models.ids))
        return [pair for pair in found if self.belongs(pair[0])][: self.depth]

    def vectors(self, query: str) -> Ranking:
        found = best(zip(self.models.ids, self.models.cosines(query), strict=True))
        return [pair for pair in found if self.belongs(pair[0])][: self.depth]


class FilterLate(FilterFirst):
    between = (("project filter", "filter", "of_project"),)
    bm25, vectors = Pipeline.bm25, Pipeline.vectors

    def of_project(self, query: str, candidates: Ranking) -> Ranking:
        return [pair for pair in candidates if self.belongs(pair[0])]


class EarlyCut(Pipeline):
    between = (("first candidates", "filter", "cut"),)

    def cut(self, query: str, candidates: Ranking) -> Ranking:
        return candidates[:3]


class AllWords(Plain):
    def bm25(self, query: str) -> Ranking:
        words = [word.strip("?.,!").lower() for word in query.split()]
        found = super().bm25(query)
        return [(key, score) for key, score in found if all(word in self.models.texts[key].lower() for word in words)]


class StopWords(Plain):
    """Stop words are all words that two memories have in common."""

    def bm25(self, query: str) -> Ranking:
        counts = Counter(word for text in self.models.texts.values() for word in set(text.lower().split()))
        left = " ".join(word for word in query.lower().split() if counts[word.strip("?.,!")] < 2)
        return super().bm25(left) if left else []


class CutQuery(Pipeline):
    def searched(self, query: str) -> str:
        return query.lower()[:12]


class ByText(Pipeline):
    """Healthy, with equal texts left out."""

    between = (("dedup", "dedup", "once"),)

    def mark(self, key: str) -> str | None:
        return self.models.texts[key]

    def once(self, query: str, candidates: Ranking) -> Ranking:
        first: dict[str | None, tuple[str, float]] = {}
        for key, score in candidates:
            first.setdefault(self.mark(key), (key, score))
        return list(first.values())


class ByTitle(ByText):
    def mark(self, key: str) -> str | None:
        title: str | None = self.models.rows[key].get("title")
        return title


class TimesOut(Plain):
    def vectors(self, query: str) -> Ranking:
        if len(query) % 3:
            raise TimeoutError("the vector service did not answer within 50 ms")
        return super().vectors(query)


class ShiftedRows(Plain):
    """The index's rows are those of the ids one further."""

    def vectors(self, query: str) -> Ranking:
        ids = [*self.models.ids[1:], self.models.ids[0]]
        return best(zip(ids, self.models.cosines(query), strict=True), self.depth)


def queries_of(pipeline: type[Pipeline]) -> list[tuple[str, str]]:
    """Id and text of the queries to trace: of one project for the filters by it."""
    rows = sample_rows("queries.jsonl")
    project = getattr(pipeline, "project", None)
    chosen = [row for row in rows if row.get("project") == project] if project else rows[::ASKED]
    return [(row["qid"], row["query"]) for row in chosen]


def traced(healthy: Path, folder: Path, well: type[Pipeline], broken: type[Pipeline]) -> Planted:
    """Run the broken pipeline traced, import the trace into a copy of the store, and find what the healthy one returns."""
    from benchmarks.planted import command, judged_pairs
    from cems_workbench import trace

    models = Models(folder.parent)
    asked = queries_of(broken)
    one, other = well(models), broken(models)
    has = {query: one.retrieve(query)[:5] for _, query in asked}
    path, now = folder / "mine.jsonl", {}
    with trace.to(str(path)):
        for qid, query in asked:
            with trace.query_id(qid):
                now[query] = other.retrieve(query)
    models.save()
    pairs: list[Pair] = [
        (query, key) for query, key in judged_pairs(healthy) if key in has.get(query, ()) and key not in now[query]
    ]
    if broken is not well and not pairs:
        raise SystemExit(f"{broken.__name__} loses nothing")
    store = folder / "store"
    shutil.copytree(healthy, store)
    code, out, error = command(store, "import", str(path))
    if code:
        raise SystemExit(error)
    return Planted(store, evidence="mine", pairs=pairs, said=out + error, ask=(("evaluate", "mine", "--losses"),))


def fault(name: str, broken: type[Pipeline], what: str, stages: str, *words: str) -> Fault:
    """A fault that `broken` has and its parent has not; the stages are separated by `|`, and "" is one."""
    return Fault(
        name,
        what,
        Right(frozenset(stages.split("|")), words="|".join(words)),
        lambda store, folder: traced(store, folder, broken.__mro__[1], broken),
    )


EMPTY = r"bm25[^\n\"]{0,60}(is empty|empty|nothing|no results|no candidates|returned none)|(empty|nothing|no results)[^\n\"]{0,40}bm25"

FAULTS = [
    fault(
        "traced-rerank-constant",
        Constant,
        "the cross-encoder gives every candidate the same score",
        "cross-encoder|rrf",
        r"same score|scores? (is|are) (all )?(0\.5|the same|equal|identical)|tells? nothing apart|constant",
        r"identical scores",
    ),
    fault(
        "traced-rerank-ascending",
        Ascending,
        "the cross-encoder's results are sorted by score, the worst first",
        "cross-encoder|minimum score",
        r"revers|ascend|(lowest|worst|smallest)[^.]{0,20}first|scores rise|opposite|upside|invert",
    ),
    fault(
        "traced-rerank-negated",
        Negated,
        "the cross-encoder's scores have the wrong sign",
        "cross-encoder",
        r"revers|opposite|negat|invert|wrong sign|worse than (chance|before|its input|without)|against the",
    ),
    fault(
        "traced-rerank-identity",
        Identity,
        "the cross-encoder returns what it read",
        "cross-encoder|rrf",
        r"cross-encoder[^{}]{0,120}(unchanged|same order|its input as|returns? (its|the) input|as it (came|was)|does nothing)",
        r"chang\w+ nothing|no effect|keeps? (the|its) order",
    ),
    fault(
        "traced-rerank-truncated",
        Truncated,
        "the cross-encoder reads 40 characters of each text",
        "cross-encoder",
        r"truncat|shorten|first 40|only the (beginning|start)|cut (off|short)|beginning of|characters",
        r"part of (its|the) text|tokens of",
    ),
    fault(
        "traced-rerank-coarse",
        Coarse,
        "the cross-encoder's scores are cut to a few levels",
        "cross-encoder|rrf",
        r"(few|only \d+|\d+) (different|distinct) (scores|values)|same score|\bties?\b|\btied\b",
        r"equal scores?|levels|rounded|quanti[sz]|not tell these apart",
    ),
    fault(
        "traced-rerank-other-query",
        Previous,
        "the cross-encoder reads the query before this one",
        "cross-encoder|model",
        r"(another|other|different|previous|wrong) query|not the query|instead of the query",
        r"reads? '[^\n]{0,80}(instead|not)",
    ),
    fault(
        "traced-alpha-reversed",
        AlphaReversed,
        "the weighted sum has the weights of its two lists swapped",
        "mix",
        r"% of the score|\bweigh(s|t|ts|ted)\b[^\n]{0,40}(bm25|vectors|0\.)|\balpha\b|follows|favou?rs|prefers|dominat|drown",
    ),
    fault(
        "traced-raw-sum",
        RawSum,
        "the weighted sum adds BM25 scores to cosines without a common scale",
        "mix",
        r"scales?\b|range|dominat|drown|normali[sz]|follows|outweigh|same order as bm25|favou?rs",
    ),
    fault(
        "traced-floor-above-all",
        AboveAll,
        "a minimum of 0.3 cuts scores of rank fusion, which end at 0.033",
        "fused minimum",
        r"fused minimum[^{}]{0,90}((drops?|removes?) (all|every)|leaves nothing|all \d+|every)|scale|(best|highest)[^\n]{0,30}0\.03",
    ),
    fault(
        "traced-floor-of-cosines",
        FloorOfCosines,
        "a minimum for cosines cuts the logits of the cross-encoder",
        "minimum score",
        r"below (the )?(lowest|least|minimum|0\.3)|lowest[^{}]{0,20}kept|\bscale\b|threshold|keeps (only )?(scores|those) (of|from|above)",
    ),
    fault(
        "traced-same-for-all",
        SameForAll,
        "the vector list returns the same memories whatever the query",
        "|lists|vectors|rrf",
        r"(same|equal|identical)[^\n]{0,60}(every|each|all|whatever|any|\d+) (of \d+ )?(quer|\w+ quer)|whatever the query",
        r"(every|all \d+|each) quer\w+[^\n]{0,60}same|constant",
    ),
    fault(
        "traced-own-ids",
        OwnIds,
        "each list has its own ids for the same texts, so that the fusion joins nothing",
        "|lists|rrf",
        r"(different|other|own|another|two|several) ids?\b|joins? (nothing|none|no )|same text|nothing in common",
    ),
    fault(
        "traced-filter-late",
        FilterLate,
        "the lists take the nearest of all projects, and those of others are filtered afterwards",
        "|lists|bm25|vectors|rrf|project filter",
        r"filter\w* (only )?(after|before)|before the (search|lists)|after the nearest",
        r"project filter[^{}]{0,40}(drops|removes|leaves|keeps) [^{}]{0,20}\d",
    ),
    fault(
        "traced-early-cut",
        EarlyCut,
        "three candidates reach the cross-encoder",
        "first candidates|rrf",
        r"first 3\b|top 3\b|limit of 3|only 3|keeps? 3|kept 3|cut [^\n]{0,20}\b3\b|the 3 (best|first)",
        r"\b3 (candidates|memories|of)|past[^\n]{0,30}\b3\b",
    ),
    fault(
        "traced-all-words",
        AllWords,
        "BM25 returns only memories that have every word of the query",
        "|lists|bm25|rrf",
        EMPTY + r"|all (the )?(\d+ )?words|every word",
    ),
    fault(
        "traced-stop-words",
        StopWords,
        "nearly every word of the query counts as a stop word",
        "|lists|bm25|rrf",
        EMPTY + r"|too many stopwords|all stopwords",
    ),
    fault(
        "traced-query-cut",
        CutQuery,
        "the lists search the first twelve letters of the query",
        "|lists|bm25|vectors|rrf",
        r"search\w*[^\n]{0,60}(instead|another|other|not the query|only)|shorten|truncat",
        r"cut (off|short|to)|first 12|another (text|query)|(part|beginning|start) of the query",
    ),
    fault(
        "traced-dedup-title",
        ByTitle,
        "memories without a title count as duplicates of one another",
        "dedup",
        r"title|\bnot[^\n]{0,30}(duplicate|alike|similar)|differ|(drop|remov)\w* (\w+ )?\d+ of|cosine",
        r"unlike|leaves \d",
    ),
    fault(
        "traced-list-fails",
        TimesOut,
        "the vector list fails in two of three queries",
        "|lists|vectors|rrf",
        r"error|failed|fails|timed? ?out|exception|did not answer",
    ),
    fault(
        "traced-shifted-rows",
        ShiftedRows,
        "the vector list names the memory after the one that it found",
        "|lists|vectors|rrf",
        r"vectors[^\n]{0,80}(chance|no relevant|none of|unrelated|random|other than|wrong|not those|shift)",
        r"shift|off by one|cosines?[^\n]{0,60}(not|differ|other)",
    ),
]
