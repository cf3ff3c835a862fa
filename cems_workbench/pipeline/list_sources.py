"""Lists: their sources, the scales of their scores, and who answered them.

Sources: one record per source (list_sources.json), read by the stages, the ablations and the pages. An added retriever
(`pipeline/retrievers`) is known here by its name alone: what replay needs of it is the same for all of them.

Normalisations make the raw scores of a list comparable with those of other lists:

    max             s / largest                                  as they are where the largest is not positive
    minmax          (s - least) / (largest - least)              `lists.equal_scores` where all are equal
    saturating      s / (1 + s)                                  0 for s <= 0
    logistic        1 / (1 + exp(-slope * (s - midpoint)))       0 for s <= 0; midpoint and slope by the number of the query's words
    exponential     0.5 ** (age / half_life_days)                of dates (recency); above 1 for a memory written after the query's moment
    smoothed_share  (n + 1) / (max(largest, 1) + 1)              of counts (access)

Each takes (Q, L, C) scores and the mask of the hits that it scales. A list is cut to its depth first, so extremes are those of its hits.

Scales of the vector score are what a system's engine makes of the cosine before thresholds and sums read it:

    cosine             c
    half_cosine        max((1 + c) / 2, 0)          Neo4j, Graphiti on FalkorDB, k-nearest-neighbour fields of Lucene
    inverse_l2         1 / (1 + squared L2) = 1 / (3 - 2c)   mem0 on Chroma and FAISS, of vectors of length 1
    negative_distance  c - 1                        stores that return minus the cosine distance
    squared_l2         squared L2 = 2 - 2c          mem0 before 2.0.5 on Chroma and FAISS: a distance taken for a similarity

The order of a list stays; a threshold and a sum read other numbers, which rise with the cosine but for squared_l2. Evidence keeps cosines,
but for live lists of sources whose vectors make none (`live_engine`): those stay on the source's own scale, which a note names.

A live list is answered by the running system; the note says which, and when, of the lists that it was asked for:

    notes["engine"] = {"source": "cems", "kind": "cems", "at": "2026-11-23T12:04:09+00:00", "lists": {"vector:0": {"asked": 600, …}}}

The note has the name of the database or collection, the kind of source, the time of the request and the rows it returned. It has neither
host, user nor folder: evidence leaves the machine in bundles.

Source: docs/internals/specification.md, "lists" and "fusion"; CEMS plan, phase 2 (max, which its documents call min-max); mem0 2.2.1
(logistic); engram, memory_recall (exponential, smoothed_share, 0.5 for equal scores); MEMORY_AGENT.md and PEERS.md of the recorded systems.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.fields import packaged
from cems_workbench.config.sections import ADDED_LISTS, ListsConfig
from cems_workbench.pipeline.table import Bools, CandidateTable, Floats, Ints, memoized

if TYPE_CHECKING:
    from cems_workbench.pipeline.live_engine import LiveList


Source = str
"""The name of a list source."""


@dataclass(frozen=True, slots=True)
class ListSource:
    """A source of ranked lists; its switch is `lists.<name>.enabled`.

    `per_variant`: one list per query variant, whose weight multiplies the list's, and whose scores may be blended into the fused one; the
    others make one list per query. `finds`: its lists add candidates; the others only rank those candidates. `most`: the largest score of
    a hit, which `fusion.divisor` counts the list with. `relevance`: its score measures relevance, so that combsum and combmax may use it.
    `ordered`: equal scores stay in the order of the source, not of ids. `nested`: replay makes its lists from other lists; none is
    gathered. `engine_fusion`: another system fused it, so it is neither by words nor by meaning; without a weight it is shown and takes no
    part.
    """

    name: Source
    description: str
    raw: str
    """What its raw score is."""
    per_variant: bool = False
    finds: bool = True
    relevance: bool = True
    ordered: bool = False
    nested: bool = False
    engine_fusion: bool = False
    most: float = 1.0


LIST_SOURCES: tuple[ListSource, ...] = (
    *(ListSource(**row) for row in packaged("pipeline/list_sources.json")),
    *(ListSource(name, "The list of an added retriever.", "Its own score.") for name in ADDED_LISTS),
)
"""Every source, in the order in which their lists are kept and shown."""

SOURCES: tuple[Source, ...] = tuple(source.name for source in LIST_SOURCES)

TIMED = ("query", *(one.name for one in LIST_SOURCES if one.finds and not one.nested), "candidates", "rerank", "judge")
"""What of a gathering is timed: understanding the query, each list that is searched, reading the candidates, and the model scores."""

INSIDE: tuple[Source, ...] = ("vector", "ts_rank")
"""The lists inside a hybrid list."""
NUMBERED = frozenset(source.name for source in LIST_SOURCES if not source.per_variant)
"""Sources for which the number in a list's name counts their lists; for the others it is that of a query variant."""


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, ..."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def list_index(name: str) -> int | None:
    """The number of a list among several of its source, such as 2 for `relations:2`; None if the number is a query variant's."""
    source, _, number = name.partition(":")
    return int(number) if source in NUMBERED and number.isdecimal() else None


def list_label(name: str) -> str:
    """The name as pages and reports show it: `relations:2` is "relations (2nd)"; other names are unchanged."""
    index = list_index(name)
    return name if index is None else f"{name.partition(':')[0]} ({ordinal(index)})"


def equal_scores(count: int, value: float, of: str = "") -> str:
    """ "all 12 scores are 1: it tells nothing apart"."""
    return f"all {count} scores{of} are {value:.4g}: it tells nothing apart"


DAY = 86400.0
MOST_DOUBLINGS = 100.0
"""Half-lives into the future that count: a wrong date must not make a score infinite."""


def _largest(raw: Floats, mask: Bools) -> Floats:
    largest: Floats = np.where(mask, raw, -np.inf).max(axis=2, keepdims=True, initial=-np.inf)
    return largest


def _max(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    high = _largest(raw, mask)
    # Without a positive maximum, division would flip the order or fail: the raw scores stay.
    normalised: Floats = np.divide(raw, high, out=raw.copy(), where=np.isfinite(high) & (high > 0))
    return normalised


def _minmax(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    high = _largest(raw, mask)
    low = np.where(mask, raw, np.inf).min(axis=2, keepdims=True, initial=np.inf)
    # An empty list has low inf and high -inf; their difference must not become a spread.
    spread = np.where(high > low, high - low, 0.0)
    normalised: Floats = np.divide(
        raw - np.where(mask, low, 0.0), spread, out=np.full_like(raw, config.equal_scores), where=spread > 0
    )
    return normalised


def _saturating(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    safe = np.where(mask & (raw > 0), raw, 0.0)
    normalised: Floats = safe / (1 + safe)
    return normalised


def _logistic(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    midpoint, slope = (values[:, :, None] for values in logistic_of(table.lists.words, config))
    # exp overflows to inf far below the midpoint, which is the right 0.
    with np.errstate(over="ignore"):
        normalised: Floats = np.where(mask & (raw > 0), 1 / (1 + np.exp(-slope * (raw - midpoint))), 0.0)
    return normalised


def logistic_of(words: Ints, config: ListsConfig) -> tuple[Floats, Floats]:
    """Midpoint and slope for numbers of words, of any one shape: the first band that covers a number, else the last. 0
    without bands."""
    midpoint, slope = np.zeros(words.shape), np.zeros(words.shape)
    for i, band in reversed(list(enumerate(config.logistic.bands))):
        last = i == len(config.logistic.bands) - 1
        covers = np.ones(words.shape, dtype=bool) if last or band.max_words is None else words <= band.max_words
        midpoint, slope = np.where(covers, band.midpoint, midpoint), np.where(covers, band.slope, slope)
    return midpoint, slope


def _exponential(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    # Without a moment there is no age, and nothing is older than another.
    age = np.nan_to_num(table.as_of[:, None, None] - raw, nan=0.0) / DAY
    normalised: Floats = 0.5 ** np.maximum(age / config.recency.half_life_days, -MOST_DOUBLINGS)
    return normalised


def _smoothed_share(raw: Floats, mask: Bools, config: ListsConfig, table: CandidateTable) -> Floats:
    normalised: Floats = (raw + 1) / (np.maximum(_largest(raw, mask), 1.0) + 1)
    return normalised


NORMALISATIONS: Mapping[str, Callable[[Floats, Bools, ListsConfig, CandidateTable], Floats]] = {
    "max": _max,
    "minmax": _minmax,
    "saturating": _saturating,
    "logistic": _logistic,
    "exponential": _exponential,
    "smoothed_share": _smoothed_share,
}
"""Every normalisation but none, by the name that `lists.<source>.normalization` gives it."""


Scale = Literal["cosine", "product", "negated_distance"]
"""What the scores of a live vector list are."""
SCALE_WORDS: Mapping[str, str] = {"product": "inner products", "negated_distance": "negated distances"}


@dataclass(frozen=True, slots=True)
class VectorScale:
    """One scale: its formula in words, the score of cosines, and the cosine of a score (-inf below the scale)."""

    formula: str
    of_cosine: Callable[[Floats], Floats]
    cosine: Callable[[float], float]


def _half(cosine: Floats) -> Floats:
    half: Floats = np.maximum((1 + cosine) / 2, 0.0)
    return half


VECTOR_SCALES: Mapping[str, VectorScale] = {
    "cosine": VectorScale("cosine", lambda cosine: cosine, lambda score: score),
    # A score of 0 or less is below every vector's, so that a threshold there keeps all.
    "half_cosine": VectorScale("(1 + cosine) / 2", _half, lambda score: 2 * score - 1 if score > 0 else -np.inf),
    "inverse_l2": VectorScale(
        "1 / (3 − 2 · cosine)",
        lambda cosine: 1 / (3 - 2 * np.minimum(cosine, 1.0)),
        lambda score: (3 - 1 / score) / 2 if score > 0 else -np.inf,
    ),
    "negative_distance": VectorScale("cosine − 1", lambda cosine: cosine - 1, lambda score: score + 1),
    "squared_l2": VectorScale("2 − 2 · cosine", lambda cosine: 2 - 2 * np.minimum(cosine, 1.0), lambda score: 1 - score / 2),
}
"""Every scale by the name that `lists.vector.scale` gives it."""


def as_cosine(config: PipelineConfig, score: float, *, before_normalization: bool = False) -> str | None:
    """What a score of the vector list is as a cosine, in words; None where that is the score itself, or the list is normalised."""
    vector = config.lists.vector
    normalized = vector.normalization != "none" and not before_normalization
    if vector.scale == "cosine" or normalized or not vector.enabled:
        return None
    cosine = VECTOR_SCALES[vector.scale].cosine(score)
    # Half a unit in the last shown digit, so that rounding makes no limit of a limit.
    if cosine > 1 + 5e-7:
        return f"as a cosine: {cosine:.4g}, which no vector reaches"
    if cosine <= -1:
        return "as a cosine: below -1, so that every vector passes"
    return f"as a cosine: {cosine:.4g}"


def cosine_remarks(config: PipelineConfig) -> dict[str, str]:
    """By path of a threshold on the vector list's scores, what it is as a cosine; empty where the scores are cosines."""
    threshold, floor = config.threshold, config.assembly.min_vector_score
    read = {
        "none": {},
        "fixed": {"threshold.fixed": threshold.fixed},
        "adaptive": {
            "threshold.adaptive.max": threshold.adaptive.max,
            "threshold.adaptive.min": threshold.adaptive.min,
        },
    }[threshold.mode if "vector" in threshold.applies_to else "none"]
    remarks = {path: as_cosine(config, score) for path, score in read.items()}
    if floor is not None:
        remarks["assembly.min_vector_score"] = as_cosine(config, floor, before_normalization=True)
    return {path: said for path, said in remarks.items() if said is not None}


def scale_of(notes: Mapping[str, Any], name: str) -> str:
    """The scale of a list's scores by the notes of its evidence; "cosine" for every list of the workbench."""
    engine = notes.get("engine")
    lists = engine.get("lists", {}) if isinstance(engine, Mapping) else {}
    return str(lists.get(name, {}).get("scale", "cosine"))


def own_scale(table: CandidateTable) -> Bools:
    """(Q, L) the live lists whose scores are on the source's own scale, not cosines."""

    def found() -> Bools:
        own = np.zeros(table.lists.source.shape, dtype=bool)
        for q, notes in enumerate(table.notes):
            if "engine" in notes:
                for i, name in enumerate(table.lists.names[q]):
                    own[q, i] = scale_of(notes, name) != "cosine"
        return own

    return memoized(table.memo, "own scale", None, found)


OWN = "the workbench's own"
"""Who answered a list that is not live."""
_SEARCHED = frozenset(source.name for source in LIST_SOURCES if source.per_variant)


def engine_note(source: str, kind: str, at: datetime, lists: Mapping[str, LiveList]) -> dict[str, Any]:
    """The note of an engine: its name and kind, the time of the request, and by list the rows and seconds."""
    return {
        "source": source,
        "kind": kind,
        "at": at.astimezone(UTC).isoformat(),
        "lists": {
            name: {
                "asked": found.asked,
                "returned": found.returned,
                "unknown": len(found.unknown),
                "seconds": round(found.seconds, 4),
                **({} if found.scale == "cosine" else {"scale": found.scale}),
                **({"meaning": found.meaning} if found.meaning else {}),
            }
            for name, found in lists.items()
        },
    }


def without_source(note: Mapping[str, Any]) -> dict[str, Any]:
    """The note without the name of the source, for a redacted bundle."""
    return {name: note[name] for name in ("kind", "at", "lists") if name in note}


def score_meaning(notes: Mapping[str, Any], name: str) -> str:
    """What the engine's scores of a live list mean, in a line; empty for a list of the store, and for an engine that was never run."""
    engine = notes.get("engine") or {}
    noted = engine.get("lists", {}).get(name, {})
    if not noted.get("meaning"):
        return ""
    from cems_workbench.sources.score_meanings import MEANINGS

    row = next((row for row in MEANINGS if row.key == noted["meaning"]), None)
    if row is None:
        return ""
    by_cosine = row.group == "vector" and row.score != "cosine" and "scale" not in noted
    return f"{row.system}: {row.words}." + (" Shown here as a cosine." if by_cosine else "")


def provenance_of(notes: Mapping[str, Any], name: str) -> str:
    """The provenance of a live list: "as answered by cems at 2026-11-23 12:04 UTC"; empty for a list of the store. A
    hybrid list is fused from two others; it is live if one of them is."""
    engine = notes.get("engine")
    source, _, variant = name.partition(":")
    made_of = INSIDE if source == "hybrid" else (source,)
    if not engine or not any(f"{part}:{variant}" in engine["lists"] for part in made_of):
        return ""
    return provenance(notes)


def answered_by(notes: Mapping[str, Any], name: str) -> str:
    """Who answered a list, if the evidence has live ones: its provenance, or "the workbench's own"; empty for what nobody searches."""
    if not notes.get("engine") or name.partition(":")[0] not in _SEARCHED:
        return ""
    return provenance_of(notes, name) or OWN


def answered_lists(notes: Mapping[str, Any], names: Iterable[str]) -> str:
    """Who answered the lists `names`: "vector:0: as answered by cems at 2026-11-23 12:04 UTC; lexical:0: the
    workbench's own". Empty if no list of the evidence is live. Lists of metadata, which nobody searches, are not
    named."""
    by_provenance: dict[str, list[str]] = {}
    for name in names:
        if line := answered_by(notes, name):
            by_provenance.setdefault(line, []).append(name)
    own = by_provenance.pop(OWN, [])
    lines = [f"{', '.join(lists)}: {line}" for line, lists in by_provenance.items()]
    return "; ".join([*lines, *([f"{', '.join(own)}: {OWN}"] if own and lines else [])])


def provenance(*evidences: Mapping[str, Any]) -> str:
    """The provenance of all live lists: "as answered by cems at 2026-11-23 12:04 UTC"; empty if there are none. For
    several requests the times are the first and the last: "from … to …"."""
    from cems_workbench.sources.address import display_name

    engines = [engine for notes in evidences if (engine := notes.get("engine"))]
    if not engines:
        return ""
    names = dict.fromkeys(one.get("source") or display_name(one.get("kind", "")) or "the source" for one in engines)
    moments = asked_between(evidences)
    if moments is None:
        when = ""
    else:
        first, last = (f"{moment:%Y-%m-%d %H:%M}" for moment in moments)
        when = f" at {first} UTC" if first == last else f" from {first} to {last} UTC"
    return f"as answered by {' and '.join(names)}{when}"


def asked_between(evidences: Iterable[Mapping[str, Any]]) -> tuple[datetime, datetime] | None:
    """The times of the first and the last request to an engine; None if there was none, or its time was not recorded."""
    moments = [
        datetime.fromisoformat(note["at"]).astimezone(UTC)
        for notes in evidences
        if (note := notes.get("engine")) and "at" in note
    ]
    return (min(moments), max(moments)) if moments else None


def searched_lines(notes: Mapping[str, Any]) -> list[str]:
    """What was searched instead of the query, a line for each text; empty if the query itself was."""
    noted = notes.get("query")
    understood = noted if isinstance(noted, Mapping) else {}
    lines = []
    if understood.get("given"):
        lines.append(f"searched instead of the query, as given: {understood['given']}")
    elif understood.get("replaced"):
        lines.append(f"searched instead of the query, its expansion: {understood['searched']}")
    by_list = understood.get("engine_queries")
    if isinstance(by_list, Mapping):
        lines += [f"searched by {name}, as given: {text}" for name, text in by_list.items()]
    return lines
