"""Random evidence and random valid configs.

Configs are drawn from the field metadata, so a new parameter is covered by having been declared; a parameter of a kind this
module does not know fails loudly. A config changes a handful of parameters, so that most candidates get through.

Drawing takes longer than replaying, so strategies are made once, and fields with few values are drawn in one number.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from hypothesis import strategies as st

from cems_workbench.config import FieldSpec, PipelineConfig, field_specs, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.evidence import VARIANT_KINDS
from cems_workbench.pipeline.supersession import find_successors
from cems_workbench.records import Memory
from cems_workbench.store.filter import ANY
from cems_workbench.store.relations import SupersedingEdge

NOW = datetime(2026, 9, 1, tzinfo=UTC)
IDS = [f"m{i:02d}" for i in range(8)] + ["Z", "é/1"]
QUERIES = ["redis cache", "how many concerts", "restart elasticsearch", "recommend a tool", ""]
WORDS = ["red", "redis", "cache", "ache", "slow", "Night.", "night", "v2", "2026-01-01", "naïve", "—"]
TEXTS = [" ".join(random.Random(seed).choices(WORDS, k=seed % 15)) for seed in range(300)]
CONTENTS = st.sampled_from(sorted(TEXTS, key=len))

SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "threshold.applies_to": st.lists(st.sampled_from(["vector", "lexical", "relations"]), unique=True, max_size=3),
    "fusion.candidates_from": st.lists(st.sampled_from(["vector", "lexical", "recency"]), unique=True, max_size=3),
    "assembly.fill_from": st.lists(st.sampled_from(["vector", "lexical", "fts5"]), unique=True, max_size=3),
    "rerank.text_fields": st.lists(st.sampled_from(["title", "tags", "created_at"]), unique=True, max_size=3),
    "lists.logistic.bands": st.lists(
        st.fixed_dictionaries(
            {
                "max_words": st.none() | st.integers(1, 6),
                "midpoint": st.floats(-5, 20, allow_subnormal=False),
                "slope": st.floats(0, 3, allow_subnormal=False),
            }
        ),
        max_size=3,
    ),
    "adjust.time_decay.tiers": st.dictionaries(
        st.sampled_from(["session", "preferences", "general"]), st.floats(0.5, 400), max_size=3
    ),
    "rerank.bands": st.lists(
        st.fixed_dictionaries(
            {"max_rank": st.none() | st.integers(1, 20), "retrieval": st.floats(0, 1, allow_subnormal=False)}
        ),
        max_size=4,
    ),
    "judge.bands": st.tuples(*[st.floats(-15, 15)] * 3).map(lambda bands: sorted(bands, reverse=True)) | st.none(),
    "rerank.model": st.sampled_from([None, "oracle"]),
    "judge.model": st.sampled_from([None, "oracle"]),
}


@cache
def values_of(spec: FieldSpec) -> st.SearchStrategy[Any]:
    """Allowed values of one parameter: its default, its bounds, and what lies between (mostly within the slider)."""
    if spec.path in SPECIAL:
        return SPECIAL[spec.path]
    if spec.choices:
        inside: st.SearchStrategy[Any] = st.sampled_from(spec.choices)
    elif spec.type is bool:
        inside = st.booleans()
    elif spec.type is str:
        inside = st.text(st.characters(codec="utf-8"), max_size=12)
    elif spec.type in (int, float):
        assert spec.low is not None and spec.high is not None, f"{spec.path} has no range"
        low, high = spec.soft or (spec.low, spec.high)
        bounds = [value for value in (spec.low, spec.high) if not (spec.exclusive_low and value == spec.low)]
        numbers = (
            st.integers(int(low), int(high))
            if spec.type is int
            else st.floats(low, high, exclude_min=spec.exclusive_low, allow_subnormal=False)
        )
        inside = numbers | numbers | st.sampled_from([spec.type(value) for value in bounds])
    else:
        raise AssertionError(f"{spec.path}: no strategy for {spec.type}; add one to SPECIAL")
    return inside | st.none() if spec.optional else inside


REPLAYED = [spec for spec in field_specs() if spec.cost != "gather"]
OTHERS = [spec for spec in field_specs() if spec.cost == "gather"]


PATHS = st.lists(st.sampled_from(REPLAYED), max_size=14, unique_by=lambda spec: spec.path)
OTHER_PATHS = st.lists(st.sampled_from(OTHERS), max_size=3, unique_by=lambda spec: spec.path)
TOGETHER = st.sampled_from(
    [{}, {"rerank.backend": "cross_encoder"}, {"lists.recency.enabled": True, "lists.relations.enabled": True}]
)
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=4)


@st.composite
def configs(draw: st.DrawFn, **fixed: Any) -> PipelineConfig:
    """A valid config in which some parameters are drawn from their ranges; `fixed` (dots as __) are set."""
    changes = {spec.path: draw(values_of(spec)) for spec in [*draw(PATHS), *draw(OTHER_PATHS)]}
    changes |= draw(TOGETHER)
    changes["name"] = draw(NAMES)
    return with_values(PipelineConfig(), changes | {path.replace("__", "."): value for path, value in fixed.items()})


MOMENTS = st.none() | st.integers(-40, 900).map(lambda days: NOW - timedelta(days=days, hours=days % 24))
PROJECTS = [None, "org/repo", "org/repo2", "org"]
FEW_VALUES: dict[str, list[Any]] = {
    "category": [None, "session", "preferences", "general"],
    "project": PROJECTS,
    "session": [None, None, "s1", "s2", "s3"],
    "tags": [(), ("red", "blue")],
    "priority": [1.0, 1.0, 1.3, 2.0],
    "pinned": [False, True],
    "importance": ["normal", "high"],
    "access_count": list(range(6)),
    "relevant_count": list(range(5)),
    "noise_count": list(range(5)),
    "valid_until": [None, None, None, NOW - timedelta(days=9)],
}


def fields(number: int) -> dict[str, Any]:
    """A value of each field of `FEW_VALUES`; 0 is the first of each."""
    chosen = {}
    for name, values in FEW_VALUES.items():
        number, place = divmod(number, len(values))
        chosen[name] = values[place]
    return chosen


FIELDS = st.integers(0, math.prod(map(len, FEW_VALUES.values())) - 1).map(fields)


@cache
def memories(memory_id: str) -> st.SearchStrategy[Memory]:
    """A memory: dates missing, past or future, and every field that some stage reads."""
    return st.tuples(CONTENTS, MOMENTS, MOMENTS, FIELDS).map(
        lambda drawn: Memory(memory_id, drawn[0], created_at=drawn[1], last_accessed=drawn[2], **drawn[3])
    )


COSINES = st.sampled_from([-0.4, -0.1, 0.0, 0.2, 0.35, 0.5, 0.5, 0.6, 0.75, 0.9]) | st.floats(
    -1, 1, allow_subnormal=False
)
BM25 = st.sampled_from([0.5, 1.0, 1.0, 2.5, 5.67]) | st.floats(0.01, 40)
RAW_SCORES = {
    "vector": COSINES,
    "lexical": BM25,
    "recency": st.integers(1_700_000_000, 1_800_000_000).map(float),
    "access": st.integers(0, 5).map(float),
    "relations": st.sampled_from([0.1, 0.5, 0.5, 1.0]),
}
MODEL_SCORES = st.builds(
    ModelScore, st.sampled_from([0.0, 0.5, 0.5, 7.0, -8.5, 12.0]) | st.floats(-15, 15, allow_subnormal=False)
)
FAILED_SCORES = st.sampled_from(
    [ModelScore(None, error="timeout"), ModelScore(float("nan")), ModelScore(float("inf")), ModelScore(None)]
)

SOME_IDS = st.lists(st.sampled_from(IDS), unique=True, max_size=len(IDS))
MORE_VARIANTS = st.lists(st.sampled_from(VARIANT_KINDS), max_size=2)
LISTED = {
    count: st.permutations(
        [(f"{source}:{i}", source, i) for i in range(count) for source in ("vector", "lexical")]
        + [(source, source, None) for source in ("recency", "access", "relations")]
    )
    for count in (1, 2, 3)
}
ABSENT = st.integers(0, 5).map(lambda number: number == 0)
VECTORS = st.none() | st.sampled_from(
    [[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.1, 0.2, 0.3], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
)


@cache
def hits(ids: tuple[str, ...], source: str) -> st.SearchStrategy[tuple[Hit, ...]]:
    """Some of the memories with scores of this source, the best first."""
    return st.lists(st.tuples(st.sampled_from(ids), RAW_SCORES[source]), unique_by=lambda pair: pair[0]).map(
        lambda pairs: tuple(Hit(*pair) for pair in sorted(pairs, key=lambda pair: -pair[1]))
    )


@cache
def model_scores(ids: tuple[str, ...]) -> st.SearchStrategy[dict[str, ModelScore]]:
    return st.dictionaries(st.sampled_from(ids), MODEL_SCORES | MODEL_SCORES | FAILED_SCORES)


@st.composite
def successions(draw: st.DrawFn, ids: Sequence[str]) -> dict[str, Any]:
    """The notes of superseded candidates: edges that lead from a memory to a later one of a random order, all along their chains."""
    order = draw(st.permutations(ids))
    places = st.integers(0, max(0, len(ids) - 1))
    pairs = draw(st.lists(st.tuples(places, places), max_size=5)) if ids else []
    edges = [
        SupersedingEdge(order[min(pair)], order[max(pair)], "supersedes", None, draw(MOMENTS), None, "personal", True)
        for pair in pairs
        if pair[0] != pair[1]
    ]
    return find_successors(edges, NOW, ANY).noted_in({})


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Evidence with up to three variants, all five sources, empty lists, ties, and gaps in everything optional.

    Some candidates are superseded, also by memories of no list.
    """
    ids = draw(SOME_IDS)
    variants = tuple(Variant(f"query {i}", kind) for i, kind in enumerate(["original", *draw(MORE_VARIANTS)]))  # type: ignore[arg-type]
    lists = [
        RankedList(name, source, variant, draw(hits(tuple(ids), source)) if ids else ())  # type: ignore[arg-type]
        for name, source, variant in draw(LISTED[len(variants)])
        if not draw(ABSENT)  # absent, not empty
    ]
    scored = draw(model_scores(tuple(ids))) if ids else {}
    vectors = {key: draw(VECTORS) for key in ids}
    return Evidence(
        query=draw(st.sampled_from(QUERIES)),
        memories={key: draw(memories(key)) for key in ids},
        variants=variants,
        lists=tuple(lists),
        as_of=draw(st.sampled_from([NOW, NOW, NOW, None])),
        project=draw(st.sampled_from(PROJECTS)),
        model_scores={"oracle": scored, "cross_encoder": scored},
        judge_scores={"oracle": scored} if draw(st.booleans()) else {},
        embeddings={key: vector for key, vector in vectors.items() if vector is not None},
        notes=draw(successions(ids)) if draw(st.booleans()) else {},
    )
