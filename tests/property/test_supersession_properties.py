"""Supersession: what is below what, and proposals of pairs."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.analysis.proposed_edges import ranks_of
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.pipeline.stages import ASSEMBLY, SUPERSESSION
from cems_workbench.progress import Progress, silent
from cems_workbench.records import SUPERSEDES, Memory, ParsedInput, Relation
from cems_workbench.store import Store
from tests.thoroughly import THOROUGH
from workbench_supersession import proposals as module
from workbench_supersession.proposals import SupersessionReport, excluded_pairs, proposed_edges

MODES = st.sampled_from(["demote", "drop", "follow"])


def under(config: PipelineConfig, mode: str, expired: str = "keep") -> PipelineConfig:
    return with_values(config, {"supersession.mode": mode, "supersession.expired": expired})


def order(evidence: Evidence, config: PipelineConfig) -> list[str]:
    return [row.memory_id for row in replay(evidence, config).stage(SUPERSESSION).rows if row.kept]


@given(evidences(), configs(), MODES)
def test_superseded_is_below_a_successor_if_one_is_there(evidence: Evidence, config: PipelineConfig, mode: str) -> None:
    kept = order(evidence, under(config, mode))
    for older, successors in evidence.superseded.items():
        there = [kept.index(one.memory_id) for one in successors if one.memory_id in kept]
        if older in kept and there:
            assert mode == "demote" or (mode == "follow" and all_expired(evidence, older))
            assert mode != "demote" or kept.index(older) > min(there)


@given(
    evidences(), configs(), st.sampled_from(["greedy", "mmr"]), st.sampled_from(["guide", "cems", "plain", "one_pass"])
)
def test_assembly_keeps_the_demoted_below_or_warns_of_it(evidence, config, strategy, procedure):
    chosen = {"assembly.strategy": strategy, "assembly.mmr_procedure": procedure, "supersession.mode": "demote"}
    trace = replay(evidence, with_values(config, chosen))
    before = [row.memory_id for row in trace.stage(ASSEMBLY).rows if row.rank_in is not None]
    before.sort(key=lambda key: trace.stage(ASSEMBLY).by_id[key].rank_in or 0)
    results = [row.memory_id for row in trace.results]
    without = trace.stage(ASSEMBLY).warnings
    for older, successors in evidence.superseded.items():
        newer = [one.memory_id for one in successors]
        there = [results.index(key) for key in newer if key in results]
        if older in results:
            assert not there or results.index(older) > min(there)
            ahead = any(before.index(key) < before.index(older) for key in newer if key in before)
            assert (ahead and not there) == any(line.startswith(f"{older} is chosen without ") for line in without)


def all_expired(evidence: Evidence, older: str) -> bool:
    moment = evidence.as_of
    return moment is not None and all(
        evidence.memories[one.memory_id].expired(moment) for one in evidence.superseded[older]
    )


@given(evidences(), configs(), MODES)
def test_others_keep_their_order_and_off_keeps_everything(evidence, config, mode):
    off = order(evidence, under(config, "off"))
    assert off == order(replace(evidence, notes={}), under(config, "off"))
    touched = {*evidence.superseded, *(one.memory_id for own in evidence.superseded.values() for one in own)}
    found = order(evidence, under(config, mode))
    assert [key for key in found if key not in touched] == [key for key in off if key not in touched]
    if mode == "demote":
        assert sorted(found) == sorted(off)
    elif mode == "drop":
        assert found == [key for key in off if key in found]
        assert {key for key in off if key not in evidence.superseded} <= set(found)
    else:
        assert len(found) <= len(off)
        assert {*found} - {*off} <= touched


@given(evidences(), configs(), st.sampled_from(["off", "demote", "drop", "follow"]))
def test_nothing_expired_is_ranked_if_it_is_to_be_dropped(evidence, config, mode):
    kept = order(evidence, under(config, mode, "drop"))
    if evidence.as_of is not None:
        assert not [key for key in kept if evidence.memories[key].expired(evidence.as_of)]


START = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS = "limit upload plan move flat tenant 20 50 Monday Friday now no longer Airflow Dagster"
WORDS = _WORDS.split()


class WordEmbedder:
    """The direction of the sum of a vector per word: texts that share words are near."""

    model_id, dimension, line = "words-12", 12, "words"

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in text.lower().split():
                seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
                row += np.random.default_rng(seed).normal(size=self.dimension).astype(np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)


memories = st.lists(
    st.builds(
        lambda words, day, session, project: (" ".join(words), day, session, project),
        st.lists(st.sampled_from(WORDS), min_size=2, max_size=8),
        st.none() | st.integers(0, 5),
        st.none() | st.sampled_from(["s", "t"]),
        st.none() | st.sampled_from(["p", "q"]),
    ),
    min_size=3,
    max_size=12,
).map(
    lambda rows: [
        Memory(
            f"m{i}", text, project=project, session=session, created_at=None if day is None else START + timedelta(day)
        )
        for i, (text, day, session, project) in enumerate(rows)
    ]
)


def proposals(
    folder: str, name: str, rows: Sequence[Memory], edges: Sequence[Relation], decided
) -> SupersessionReport | None:
    embedder = WordEmbedder()
    store = Store.open(Path(folder) / name)
    with closing(Resources(store, embedder, Servers("", "", "", None, None, None))) as resources:
        store.add(ParsedInput("m.jsonl", "t", memories=tuple(rows), relations=tuple(edges)))
        for newer, older, verdict in decided:
            store.supersessions.decide(newer, older, verdict, "Ann")
        if sum(memory.created_at is not None for memory in rows) < 2:
            return None
        found = proposed_edges(resources, minimum=0.0)
        excluded = excluded_pairs(resources)
        assert not any(frozenset((edge.newer, edge.older)) in excluded for edge in found.edges)
        return found


@settings(max_examples=60 if THOROUGH else 5, deadline=None)
@given(rows=memories, data=st.data())
def test_a_pair_is_proposed_once_later_first_and_never_if_stored_or_decided(rows, data):
    ids = [memory.id for memory in rows]
    pairs = st.lists(
        st.tuples(st.sampled_from(ids), st.sampled_from(ids)).filter(lambda pair: pair[0] != pair[1]), max_size=3
    )
    edges = [Relation(a, b, SUPERSEDES) for a, b in dict.fromkeys(data.draw(pairs))]
    decided = [(a, b, data.draw(st.sampled_from(["accepted", "rejected"]))) for a, b in data.draw(pairs)]
    with tempfile.TemporaryDirectory() as folder:
        found = proposals(folder, "one", rows, edges, decided)
        shuffled = proposals(folder, "other", data.draw(st.permutations(rows)), edges, decided)
    if found is None:
        return
    assert [edge.to_json() for edge in found.edges] == [edge.to_json() for edge in shuffled.edges]
    seen = [frozenset((edge.newer, edge.older)) for edge in found.edges]
    assert len(set(seen)) == len(seen)
    by_id = {memory.id: memory for memory in rows}
    known = {frozenset((edge.source_id, edge.target_id)) for edge in edges} | {frozenset(row[:2]) for row in decided}
    assert known.isdisjoint(seen)
    for edge in found.edges:
        newer, older = by_id[edge.newer], by_id[edge.older]
        assert older.created_at < newer.created_at and edge.days > 0
        assert newer.project is None or older.project in (None, newer.project)
        assert newer.session is None or older.session != newer.session
        for memory, spans in ((newer, edge.signals.newer_spans), (older, edge.signals.older_spans)):
            assert all(0 <= span.start < span.end <= len(memory.content) for span in spans)
    assert [edge.score for edge in found.edges] == sorted((edge.score for edge in found.edges), reverse=True)


@settings(max_examples=60 if THOROUGH else 3, deadline=None)
@given(rows=memories, most=st.integers(1, 4))
def test_the_first_few_are_those_of_all(rows, most):
    with tempfile.TemporaryDirectory() as folder:
        every = proposals(folder, "s", rows, (), ())
        if every is None:
            return
        store = Store.open(Path(folder) / "s")
        with closing(Resources(store, WordEmbedder(), Servers("", "", "", None, None, None))) as resources:
            few = proposed_edges(resources, most=most, minimum=0.0)
    assert few.edges == every.edges[:most] and few.total == every.total == len(every.edges)
    assert len(rows) <= module.NEIGHBOURS, "every memory is a neighbour of every other here"


class Contradicting:
    """A model that finds one text contradicted."""

    label = "a model"

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [float(older.startswith("plan")) for older, _ in pairs]


def test_equal_texts_are_equally_near():
    assert ranks_of([("a", 0.9), ("b", 0.9 - 1e-8), ("c", 0.5)]) == {"a": 1, "b": 1, "c": 2}


def test_a_contradiction_moves_a_pair_up_and_is_said():
    texts = ["limit upload 20", "limit upload 50 now", "plan tenant flat", "plan tenant move"]
    rows = [Memory(f"m{i}", text, created_at=START + timedelta(i)) for i, text in enumerate(texts)]
    with tempfile.TemporaryDirectory() as folder:
        without = proposals(folder, "s", rows, (), ())
        store = Store.open(Path(folder) / "s")
        with closing(Resources(store, WordEmbedder(), Servers("", "", "", None, None, None))) as resources:
            found = proposed_edges(resources, minimum=0.0, model=Contradicting())
    assert without is not None
    first, then = without.edges[0], found.edges[0]
    assert (first.newer, first.older, first.contradiction) == ("m1", "m0", None)
    assert (then.newer, then.older, then.contradiction) == ("m3", "m2", 1.0) and "contradiction 1.00" in then.why
    assert any("no contradiction model" in note for note in without.notes)
    assert any("a model read the best" in note for note in found.notes)
