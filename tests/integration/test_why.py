"""`why` and `blame` on the sample data; how deep a list would have to be, worked out by hand on a store of eight memories.

Redacted bundles of the sample queries: the numbers of every preset, and no word of a memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.bench_support import judged_pairs, pairs, precision
from cems_workbench.analysis.ranks import loss
from cems_workbench.analysis.why.counterfactual import Counterfactual
from cems_workbench.analysis.why.path import ListEntry
from cems_workbench.analysis.why.regather import depth_tries, gather_counterfactuals, gathered, list_ranks
from cems_workbench.analysis.why.report import Why, explain
from cems_workbench.analysis.why.trial import Trials
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.jobs.factory import open_resources, servers
from cems_workbench.jobs.memory_use import blame_answer
from cems_workbench.models.protocol import Float32, PairScore
from cems_workbench.pipeline import Evidence, read_bundle, replay, scoring
from cems_workbench.pipeline.gather import Request, gather, gather_lists, gather_scores
from cems_workbench.pipeline.redact import redacted
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Relation
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from tests.redaction import assert_same_numbers
from tests.sample import MOVING, STAYING
from tests.small_store import parsed
from tests.thoroughly import partly, some

if TYPE_CHECKING:
    from conftest import Command


ROOT = Path(__file__).resolve().parents[2]
FAILING = re.compile(r"^\| (q\d+) \|[^|]+\| (m\d+)", re.MULTILINE)
FIRST = 5
SECOND = 2
"""Every second failing query is explained, to save time."""
ENOUGH = 8
QUERY, AS_OF = "browser eats all the RAM if I leave it open until evening", "2026-08-30"


def failing_queries() -> list[tuple[str, str]]:
    """(qid, memory that should be first) of the table "Queries that preset cems gets wrong"."""
    text = (ROOT / "sample_data" / "README.md").read_text(encoding="utf-8")
    return FAILING.findall(text.split("## Queries that preset cems gets wrong")[1])


@dataclass(frozen=True)
class Answered:
    """One failing query with what `why` says."""

    qid: str
    request: Request
    evidence: Evidence
    why: Why


def answered(resources: Resources, config: PipelineConfig) -> list[Answered]:
    """`why` for each failing query: into the first five, or to the top where it is in the five, below a wrong one."""
    queries = {query.qid: query for query in resources.store.queries.read()}
    found = []
    for qid, memory_id in failing_queries()[::SECOND]:
        query = queries[qid]
        request = Request(query.query, query.project, query.as_of)
        evidence = gather_lists(request, config, resources)
        why = explain(memory_id, evidence, config, k=FIRST, request=request, resources=resources)
        if why.path.status == "in the top k":
            why = explain(memory_id, evidence, config, k=1, request=request, resources=resources)
        found.append(Answered(qid, request, evidence, why))
    return found


def applied(rescue: Counterfactual, one: Answered, config: PipelineConfig, resources: Resources) -> list[str]:
    """The results with the rescue applied, gathered anew where it says so."""
    evidence = gathered(rescue, config, one.request, resources) if rescue.gathers else one.evidence
    return [row.memory_id for row in replay(evidence, rescue.config(config)).results]


@pytest.mark.thorough
def test_failing_queries_have_a_cause_and_most_a_rescue(
    resources: Resources, capsys: pytest.CaptureFixture[str]
) -> None:
    config = preset("cems").config
    rows = answered(resources, config)
    assert len(failing_queries()) == 30
    rescued = []
    for one in rows:
        path = one.why.path
        assert path.lost_at is not None, one.qid
        assert path.lost_at in one.why.cause and path.memory_id in one.why.cause
        singles = [rescue for rescue in one.why.counterfactuals if rescue.parts == 1]
        best = one.why.counterfactuals[:3]
        for rescue in [*best, *(single for single in singles[:1] if single not in best)]:
            assert path.memory_id in applied(rescue, one, config, resources)[: path.k], (one.qid, rescue)
        if singles:
            rescued.append(one.qid)
    with capsys.disabled():
        print(f"\n{len(rescued)} of {len(rows)} failing queries have a single rescue that holds")
        for one in rows:
            print(f"{one.qid:5} {one.why.path.lost_at:9} {shown(one.why.counterfactuals)}")
    assert len(rescued) >= ENOUGH


def shown(rescues: Sequence[Counterfactual]) -> str:
    """The best rescue in a few words."""
    if not rescues:
        return "nothing"
    terms = "".join(f" + “{term}”" for term in rescues[0].terms)
    pair = "" if rescues[0].parts == 1 else "  (pair)"
    return " and ".join(f"{change.path} {change.was} → {change.now}" for change in rescues[0].changes) + terms + pair


WORKBENCH = {"judge.backend": "none", "assembly.limit": 5}


@pytest.mark.parametrize(
    ("query", "as_of", "memory_id", "changes", "fix"),
    [
        # getzep/graphiti#1642 (2026-07-09), mem0ai/mem0#6448 (2026-07-20): the reranker is given too few
        (
            "how do releases reach the cluster",
            "2026-01-01",
            "m024",
            {"rerank.depth": 5, "rerank.below_depth": "drop"},
            {"rerank.depth": 13},
        ),
        (
            "which came first: doctor visit or camping trip?",
            "2026-09-01",
            "m020",
            {"rerank.depth": 5},
            {"rerank.depth": 11},
        ),
        (
            "which came first: doctor visit or camping trip?",
            "2026-09-01",
            "m020",
            {"rerank.position": "returned"},
            {"rerank.position": "before_adjust"},
        ),
        # JKHeadley/instar PR#1680 (2026-07-27): all words of a question must occur in one memory
        (
            "why is the test database not on its usual port",
            "2026-09-01",
            "m004",
            {
                "lists.fts5.enabled": True,
                "lists.fts5.match": "all",
                "lists.lexical.enabled": False,
                "lists.vector.enabled": False,
                "query.mode": "hybrid",
                "rerank.backend": "none",
            },
            {"lists.fts5.match": "all_then_each"},
        ),
    ],
)
def test_parameter_that_the_cause_names_is_the_fix_and_holds_when_gathered(
    resources: Resources, query: str, as_of: str, memory_id: str, changes: dict[str, Any], fix: dict[str, Any]
) -> None:
    config = with_values(preset("workbench").config, WORKBENCH | changes)
    request = Request(query, as_of=datetime.fromisoformat(as_of).replace(tzinfo=UTC))
    evidence = gather(request, config, resources)
    found = explain(memory_id, evidence, config, request=request, resources=resources)
    assert found.fix is not None and found.fix.change is not None and found.fix.change.values == fix
    after = found.fix.change.config(config)
    results = replay(gather(request, after, resources), after).results
    assert results[(found.fix.change.rank or 0) - 1].memory_id == memory_id
    if "lists.fts5.match" in fix:
        assert "fts5:0: it returned nothing" in found.cause
        assert [place.words for place in found.path.places if place.list == "fts5:0"] == ["it returned nothing"]


def test_last_sentence_of_a_query_with_its_envelope_is_the_fix(resources: Resources) -> None:
    """CortexReach/memory-lancedb-pro PR#579 (2026-04-11): the query is the message with its envelope."""
    last = "how far back can we still look at single events"
    envelope = "Conversation info (untrusted metadata): {'channel': 'ops-mobile', 'sender': 'bridge-7', 'kind': 'inbound text'}"
    config = with_values(preset("workbench").config, {"rerank.backend": "none", "abstain.vector": None})
    relay = "Sender: bridge relay of the mobile operations channel, forwarded without changes to the assistant."
    request = Request(f"{envelope}\n{relay}\n{last}", as_of=datetime(2026, 9, 1, tzinfo=UTC))
    found = explain("m034", gather(request, config, resources), config, request=request, resources=resources, k=5)
    assert found.fix is not None and found.fix.change is not None
    assert found.fix.change.searched == last
    assert "for this query only: search its last sentence alone, “how far back" in found.fix.sentence
    again = replay(gather(found.fix.change.request(request), config, resources), config).results
    assert again[(found.fix.change.rank or 0) - 1].memory_id == "m034"


def test_memory_may_be_named_by_a_piece_of_its_text(command: Command, store: Path) -> None:
    """`why Q "We did not give notice"` said "no such memory"."""
    for text in ("we did not give notice", "Flat after all: we did NOT give notice"):
        found = command("why", "when are we moving house", text, "--ids", "--store", store)
        assert found.code == 0 and found.out.startswith(f"“{text}”: m312, The move is off")
    several = command("why", "when are we moving house", "on call", "--store", store)
    assert several.code == 2 and several.err.startswith("error: several memories have “on call”: m036 (Backfill")


def test_the_command_prints_cause_path_and_rescues(command: Command, store: Path) -> None:
    arguments = ["why", QUERY, "m089", "--store", store, "--preset", "cems", "--as-of", AS_OF, "--cutoff", "5", "--ids"]
    finished = command(*arguments)
    assert finished.code == 0, finished.err
    # Nothing is gathered next to this store, so that the fix says what it does not know, and the next command.
    first, rest = finished.out.split("Lost at fusion: ")
    assert " ".join(first.split()).startswith("Fix: ")
    assert " ".join(first.split()).endswith("becomes 5th; not checked on other queries: not gathered yet.")
    assert rest.startswith("m089 was 7th after fusion")
    for part in (
        "lost here",
        "adjust",
        "vector:0",
        "would bring it into the first 5",
        "breakpoint",
        "After the fix: fewest side effects first",
        "Time decay counts ages to it",
    ):
        assert part in finished.out
    values = json.loads(command(*arguments, "--json").out)
    assert values["lost_at"] == "fusion" and values["k"] == 5
    assert [step["stage"] for step in values["path"]][:3] == ["lists", "threshold", "fusion"]
    assert {"changes", "rank", "side_effects", "labelled", "distance"} <= values["counterfactuals"][0].keys()
    assert values == json.loads(command(*arguments, "--json").out)


def test_the_command_explains_a_bundle_without_the_store(command: Command, store: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.json"
    query = ["--preset", "cems", "--as-of", AS_OF, "--store", store]
    assert command("search", QUERY, *query, "--set", "judge.backend=none", "--bundle", bundle).code == 0
    finished = command("why", QUERY, "m089", "--evidence", bundle, "--preset", "cems", "--cutoff", "5", "--json")
    assert json.loads(finished.out)["lost_at"] == "fusion"
    other = command("why", "another query", "m089", "--evidence", bundle)
    assert other.code == 2 and "evidence of another query" in other.err


ASKED = Request("kiwi")
TEXTS = {f"m{i}": f"text number {i}" for i in range(1, 7)} | {"m7": "kiwi and kiwi", "m8": "one kiwi"}
PLAIN = {
    "filter.min_score": None,
    "gap.ratio": 0.0,
    "adjust.time_decay.mode": "none",
    "lists.relations.enabled": False,
    "lists.ts_rank.enabled": False,
}


class AngleEmbedder:
    """Unit vectors in a plane, the query at 0 and the i-th text at i tenths: so the i-th text is the i-th nearest."""

    model_id, dimension, line = "angles", 2, "angles"

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        places = {text: i for i, text in enumerate(TEXTS.values(), 1)}
        angles = np.array([places.get(text, 0) / 10 for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def encode_query(self, text: str) -> Float32:
        vector: Float32 = self.encode([text])[0]
        return vector


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Resources]:
    with Store.open(tmp_path / "small") as store:
        store.add(parsed([Memory(key, text) for key, text in TEXTS.items()]))
        yield Resources(store, AngleEmbedder(), servers(Settings()))


def config(**changes: Any) -> PipelineConfig:
    return with_values(
        preset("cems_head").config, PLAIN | {key.replace("__", "."): value for key, value in changes.items()}
    )


def places(small: Resources, chosen: PipelineConfig, memory_id: str) -> tuple[Evidence, dict[str, ListEntry]]:
    evidence = gather_lists(ASKED, chosen, small)
    found = list_ranks(memory_id, evidence, chosen, ASKED, small)
    return evidence, {place.list: place for place in found}


def deeper(small: Resources, chosen: PipelineConfig, memory_id: str, k: int) -> dict[tuple[str, ...], Counterfactual]:
    """The rescues by deeper lists that a new gathering confirms, by their parameters."""
    evidence, found = places(small, chosen, memory_id)
    trials = Trials(evidence, memory_id, k)
    tries = list(depth_tries(chosen, ASKED, tuple(found.values())))
    rescues, _ = gather_counterfactuals(trials, chosen, ASKED, small, tries)
    return {
        tuple(rescue.values): rescue for rescue in rescues if all(path.startswith("lists.") for path in rescue.values)
    }


class StandIn:
    """A reranker with a score for each text."""

    label, batch, scale = "stand-in", 8, None

    def __init__(self, scores: Mapping[str, float]) -> None:
        self.scores = scores

    def cache_model(self, query: str) -> str:
        return "stand-in"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        return [PairScore(next(score for key, score in self.scores.items() if TEXTS[key] in text)) for text in texts]


@pytest.mark.parametrize(
    ("scores", "edge", "changes"),
    [
        (
            {"m6": 0.2, "m4": -5.0, "m5": -5.0},
            None,
            {"rerank__raw_scale": "minmax", "rerank__combine": "position_bands"},
        ),
        ({"m6": 0.2, "m5": 0.95}, ("m6", "m5"), {"supersession__mode": "follow"}),
        ({"m6": 0.9, "m5": 0.95}, ("m5", "m6"), {"supersession__mode": "demote"}),
        ({"m6": 0.3, "m5": 0.95}, None, {"abstain__reranker": 0.5}),
    ],
    ids=["scale", "follow", "demote", "abstain"],
)
def test_a_memory_that_comes_in_by_scores_of_others_is_found(
    scores: dict[str, float],
    edge: tuple[str, str] | None,
    changes: dict[str, Any],
    small: Resources,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stand_in = StandIn(dict.fromkeys(TEXTS, 0.1 if "abstain__reranker" in changes else 0.5) | scores)
    monkeypatch.setattr(scoring, "score_with", lambda backend, request, ask: (stand_in, "", ask(stand_in)))
    if edge:
        small.store.add(parsed(relations=[Relation(*edge, "supersedes")]))
    of_lists = {"lists__hybrid__enabled": False, "lists__vector__enabled": True, "lists__vector__depth": 3}
    reranked = {"rerank__backend": "cross_encoder", "rerank__raw_scale": "identity", "rerank__combine": "replace"}
    chosen = config(**(of_lists | reranked | {"rerank__depth": 40} | changes))
    evidence = gather(ASKED, chosen, small)
    found = explain("m6", evidence, chosen, k=3, request=ASKED, resources=small)
    assert "m6" not in {result.memory_id for result in replay(evidence, chosen).results}
    assert [*found.counterfactuals[0].values] == ["lists.vector.depth"]


@pytest.mark.parametrize(("memory_id", "rank"), [("m7", 1), ("m8", 2), ("m1", 3), ("m4", 6), ("m6", 8)])
def test_the_hybrid_list_of_the_whole_store(small: Resources, memory_id: str, rank: int) -> None:
    _, found = places(small, config(lists__hybrid__depth=3), memory_id)
    place = found["hybrid:0"]
    assert (place.rank, place.depth, place.chunks, place.returned) == (rank, 3, 6, rank <= 3)
    assert ("past the depth of 3" in place.words) == (rank > 3)


def test_a_hybrid_list_that_is_too_short_is_made_deeper(small: Resources) -> None:
    """m4 is the sixth of the hybrid list, whose lists inside hold all of the store."""
    chosen = config(lists__hybrid__depth=3)
    assert places(small, chosen, "m4")[1]["hybrid:0"].deeper == ({"lists.hybrid.depth": 6},)
    rescue = deeper(small, chosen, "m4", k=6)["lists.hybrid.depth",]
    change = rescue.changes[0]
    assert (change.was, change.now, rescue.gathers, rescue.rank) == (3, 6, True, 6)
    assert change.breakpoint is not None and (change.breakpoint.fails, change.breakpoint.succeeds) == (5, 6)


def test_lists_inside_that_are_too_short_are_made_deeper(small: Resources) -> None:
    """By meaning alone, and half as deep inside as the list of five: of m1 to m8 three are ranked, m7 and m8 follow with nothing.

    A list of seven ranks four of them, and so does a list of five that is as deep inside.
    """
    chosen = config(lists__hybrid__depth=5, lists__hybrid__inner_factor=0.5, lists__hybrid__vector_weight=1.0)
    found = places(small, chosen, "m4")[1]
    assert found["hybrid:0"].deeper == ({"lists.hybrid.depth": 8}, {"lists.hybrid.inner_factor": 1.0})
    assert found["vector:0"].chunks == 3 and not found["vector:0"].returned
    assert "4th of the chunks, past the first 3, of which hybrid:0 is made" in found["vector:0"].words
    rescues = deeper(small, chosen, "m4", k=5)
    depth, factor = rescues["lists.hybrid.depth",].changes[0], rescues["lists.hybrid.inner_factor",].changes[0]
    assert depth.now == 7 and factor.breakpoint is not None
    assert factor.breakpoint.succeeds == pytest.approx(0.6, abs=1e-6)  # ceil(0.6 * 5) is 3, anything more is 4
    for rescue in (rescues["lists.hybrid.depth",], rescues["lists.hybrid.inner_factor",]):
        evidence = gather_lists(ASKED, rescue.config(chosen), small)
        assert "m4" in [row.memory_id for row in replay(evidence, rescue.config(chosen)).results[:5]]


def test_a_ts_rank_list_is_made_deeper_in_memories_and_chunks(small: Resources) -> None:
    only = {"lists__hybrid__enabled": False, "lists__ts_rank__enabled": True}
    shallow = config(lists__ts_rank__depth=1, **only)
    assert places(small, shallow, "m8")[1]["ts_rank:0"].deeper == ({"lists.ts_rank.depth": 2},)
    assert deeper(small, shallow, "m8", k=2)["lists.ts_rank.depth",].values == {"lists.ts_rank.depth": 2}
    both = config(lists__ts_rank__depth=1, lists__ts_rank__chunk_depth=1, **only)
    names = "lists.ts_rank.depth", "lists.ts_rank.chunk_depth"
    assert deeper(small, both, "m8", k=2)[names].values == dict.fromkeys(names, 2)
    assert places(small, both, "m1")[1]["ts_rank:0"].deeper == ()  # it has no word of the query


WRONG = "You are moving in November."
BLAMED_AT = datetime(2026, 9, 1, tzinfo=UTC)
BLAMED_BY = preset("workbench").config


def test_what_became_of_the_memory_is_what_why_says(resources: Resources) -> None:
    request = Request(MOVING, None, BLAMED_AT)
    trace = replay(gather(request, BLAMED_BY, resources), BLAMED_BY)
    found = blame_answer(WRONG, resources, BLAMED_BY, request, trace=trace)
    first = found.claims[0].memories[0]
    assert first.id == "m249" == trace.results[0].memory_id
    assert first.standing is not None and first.standing.rank == 1
    assert first.stale is not None and first.stale.startswith(f"superseded by {STAYING} (157 days later)")
    assert first.irrelevant
    (other,) = first.otherwise
    lost = loss(trace, STAYING)
    assert lost is not None and other.standing is not None
    assert (other.memory.id, other.source, other.newer) == (STAYING, "edge", True)
    assert (other.standing.rank, other.standing.lost_at, other.standing.reason) == (None, lost.stage, lost.reason)
    assert first.next is not None
    assert first.next.command() == f"why 'when are we moving house' {STAYING} --as-of=2026-09-01T00:00:00+00:00"


def test_before_the_successor_was_written_the_memory_is_not_stale(resources: Resources) -> None:
    request = Request(MOVING, None, datetime(2026, 3, 1, tzinfo=UTC))
    first = blame_answer(WRONG, resources, BLAMED_BY, request).claims[0].memories[0]
    assert first.id == "m249" and first.stale is None
    assert all(other.source == "near" for other in first.otherwise)


def test_without_an_edge_near_memories_that_differ_say_otherwise(
    resources: Resources, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources.store.relations, "superseding", lambda ids: [])
    found = blame_answer("Each tenant may send 600 requests per minute.", resources, BLAMED_BY)
    first = found.claims[0].memories[0]
    assert first.id == "m023" and first.stale is None
    other = next(one for one in first.otherwise if one.memory.id == "m074")
    assert other.source == "near" and other.newer and "600 → 1200" in other.words
    assert other.memory.title is not None
    assert "1200" in [other.memory.title[start:end] for start, end in other.title_spans]


def test_a_note_with_the_same_words_does_not_support_a_claim(resources: Resources) -> None:
    """Issue 66, 2026-11-29: an on-call note with "noticing" and "July" was said to support it too."""
    (claim,) = blame_answer("Notice for ours must be out by the end of July.", resources, BLAMED_BY).claims
    verdicts = {one.id: one.support.verdict for one in claim.memories}
    assert verdicts.pop("m249") == "supports" and "supports" not in verdicts.values()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "Each tenant may send 800 requests per minute.",
            "No memory supports this: “Each tenant may send 800 requests per minute.”; "
            "the closest is m023: not in the passage: 800; there it is 600 requests",
        ),
        (
            "You may force-push to main.",
            "Cannot tell whether a memory supports this: “You may force-push to main.”; "
            "the closest is m250: “force-push” is negated in one of the two",
        ),
        ("You play the cello in an orchestra.", "No memory supports this: “You play the cello in an orchestra.”"),
    ],
)
def test_a_near_miss_is_named_with_what_differs(resources: Resources, text: str, sentence: str) -> None:
    found = blame_answer(text, resources, BLAMED_BY)
    assert found.sentence == sentence and found.claims[0].supporting is None


def test_memories_that_are_said_to_support_a_claim_do(resources: Resources) -> None:
    """Pairs that set no threshold; precision by benchmarks/bench_support.py."""
    right, said = precision(judged_pairs([pair for pair in pairs(True) if pair.part == "held out"], resources))
    assert said >= 20 and right / said >= 0.95


def test_the_command_prints_the_sentence_and_the_next_command(command: Command, store: Path) -> None:
    asked = ["blame", WRONG, "--query", MOVING, "--preset", "workbench", "--as-of", "2026-09-01", "--store", store]
    said = command(*asked)
    assert said.code == 0
    assert " ".join(said.out.split()).startswith(
        f"m249 supports “{WRONG}”: 1st of 10 results; superseded by {STAYING} (157 days later)"
    )
    assert f"why 'when are we moving house' {STAYING} --as-of=2026-09-01T00:00:00+00:00 --preset workbench" in said.out
    as_json = json.loads(command(*asked, "--json").out)
    memory = as_json["claims"][0]["memories"][0]
    assert memory["memory_id"] == "m249" and memory["rank"] == 1
    assert [memory["content"][start:end] for start, end in memory["content_spans"]] == ["move:", "November"]


DIVERSE = {"assembly.strategy": "mmr", "dedup.enabled": True, "dedup.similarity": 0.6}


@pytest.mark.thorough
@partly
def test_sample_queries_replay_with_the_same_numbers_under_the_presets(store: Path) -> None:
    resources = open_resources(Settings(store=store))
    try:
        queries = some(resources.store.queries.read(), 32)
        scored = preset("qmd").config
        found = [gather_lists(Request(query.query, query.project, query.as_of), scored, resources) for query in queries]
        evidences = [gather_scores(evidence, scored, resources, only="rerank") for evidence in found]
    finally:
        resources.close()
    assert len(evidences) >= 4
    for i, evidence in enumerate(evidences):
        after = redacted(evidence)
        for name in preset_names()[i % 4 :: 4]:
            assert_same_numbers(evidence, after, preset(name).config)
        assert_same_numbers(evidence, after, with_values(scored, DIVERSE))


def test_the_command_line_writes_a_redacted_bundle_that_replays_the_same(
    command: Command, store: Path, tmp_path: Path
) -> None:
    """The search prints the trace of what it gathered; the redacted bundle gives its numbers."""
    query, bundle = "how many different doctors did I visit?", tmp_path / "out.json"
    wanted = ["--bundle", bundle, "--redact", "--as-of", "2026-09-01", "--json"]
    searched = command("search", query, *wanted, "--store", store)
    assert searched.code == 0, searched.err
    replayed = command("replay", bundle, "--json")
    assert replayed.code == 0, replayed.err
    one, other = json.loads(searched.out), json.loads(replayed.out)
    assert [row["score"] for row in one["results"]] == pytest.approx(
        [row["score"] for row in other["results"]], abs=1e-9
    )
    assert one["tokens_used"] == other["tokens_used"]
    assert "doctor" not in bundle.read_text()
    assert read_bundle(bundle).query.startswith("how many different ")
    refused = command("search", query, "--redact", "--store", store)
    assert refused.code == 2
    assert "--redact needs a --bundle" in refused.err
