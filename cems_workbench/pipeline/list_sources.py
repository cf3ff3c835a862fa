"""Sources of ranked lists: one record per source, read by the stages, the ablations and the pages.

An added retriever (`pipeline/retrievers`) is known here by its name alone: what replay needs of it is the same for all of them.

Source: docs/internals/specification.md, "lists" and "fusion".

Wording shared by stages, reports and pages: ordinals and names of lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from cems_workbench.config.sections.gathering import ADDED_LISTS

Source = str
"""The name of a list source."""


@dataclass(frozen=True, slots=True)
class ListSource:
    """A source of ranked lists; its switch is `lists.<name>.enabled`.

    `per_variant`: one list per query variant, whose weight multiplies the list's, and whose scores may be blended into the fused
    one; the others make one list per query. `finds`: its lists add candidates; the others only rank those
    candidates. `most`: the largest score of a hit, which
    `fusion.divisor` counts the list with. `relevance`: its score measures relevance, so that combsum and combmax may use it. `ordered`:
    equal scores stay in the order of the source, not of ids. `nested`: replay makes its lists from other lists; none is gathered.
    `engine_fusion`: another system fused it, so it is neither by words nor by meaning; without a weight it is shown and takes no part.
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


_found = partial(ListSource, per_variant=True)
_found_in_order = partial(ListSource, per_variant=True, ordered=True)
_ranks_candidates = partial(ListSource, finds=False, relevance=False)
LIST_SOURCES: tuple[ListSource, ...] = (
    _found("vector", "Nearest by meaning: cosine of the embeddings.", "Cosine of query and memory."),
    _found("lexical", "Nearest by words: BM25.", "BM25 score."),
    _found(
        "hybrid",
        "CEMS's “vector” list: chunks by meaning and by ts_rank, fused before anything else.",
        "Share / (k + rank by meaning) + rest / (k + rank by ts_rank), of its best chunk.",
        nested=True,
    ),
    _found_in_order("ts_rank", "Chunks by PostgreSQL's ts_rank of any of the words.", "ts_rank of its best chunk."),
    _found_in_order("fts5", "Nearest by words: SQLite's FTS5.", "−bm25() of SQLite's FTS5."),
    _found_in_order(
        "sparse", "Nearest by words: sparse BM25 vectors.", "Dot product of the sparse vectors of query and memory."
    ),
    _found_in_order("lucene", "Nearest by words: Lucene's BM25.", "Lucene's BM25 score, summed over fields."),
    _found_in_order("ts_rank_cd", "Texts by PostgreSQL's ts_rank_cd, cover density.", "ts_rank_cd of its best chunk."),
    _found_in_order(
        "source_hybrid",
        "The running system's own fused answer, beside ours.",
        "The running system's own fused score.",
        engine_fusion=True,
    ),
    _ranks_candidates(
        "recency", "The candidates, newest first.", "When the memory was created, in seconds since 1970."
    ),
    _ranks_candidates("access", "The candidates, most often accessed first.", "How often it was accessed."),
    ListSource(
        "relations", "Neighbours of the first hits in the relation graph.", "Strength of the relation that led to it."
    ),
    ListSource(
        "entities",
        "Memories linked to entities of the query.",
        "Half the similarity of the entity, less the more memories it is linked to.",
        most=0.5,
    ),
    *(ListSource(name, "The list of an added retriever.", "Its own score.") for name in ADDED_LISTS),
)
"""Every source, in the order in which their lists are kept and shown."""

SOURCES: tuple[Source, ...] = tuple(source.name for source in LIST_SOURCES)


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
