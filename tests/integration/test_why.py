"""`why` on the sample data: the failing queries of its README get a cause, and most of them a rescue that holds."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cems_workbench.analysis.why import Counterfactual, Why, explain, gathered
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.gather import Request, gather, gather_lists
from cems_workbench.pipeline.resources import Resources

if TYPE_CHECKING:
    from conftest import Command

pytestmark = [pytest.mark.models]

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


def test_a_memory_past_the_depth_is_found_by_a_deeper_list(resources: Resources) -> None:
    """With a vector list 5 deep and no lexical one, the memory at rank 6 is in no list; the exact rank says how deep."""
    config = with_values(
        preset("cems").config,
        {"lists.vector.depth": 5, "query.mode": "vector", "adjust.time_decay.mode": "none", "adjust.priority": False},
    )
    request = Request("which package manager does the frontend use")
    nearest = resources.indexes.vectors.search(resources.embedder.encode_query(request.query), 6)
    memory_id = nearest[5][0]
    evidence = gather_lists(request, config, resources)
    why = explain(memory_id, evidence, config, k=6, request=request, resources=resources)
    assert why.path.status == "in no list"
    assert "it would be 6th" in why.cause and "past the depth of 5" in why.cause
    deeper = next(rescue for rescue in why.counterfactuals if "lists.vector.depth" in rescue.values)
    assert deeper.values == {"lists.vector.depth": 6} and deeper.gathers
    after = replay(gathered(deeper, config, request, resources), deeper.config(config))
    assert memory_id in [row.memory_id for row in after.results[:6]]


def test_a_memory_of_another_project_is_found_when_every_project_is_searched(resources: Resources) -> None:
    config = preset("cems").config
    request = Request("postgres upgrade", project="harbor/dashboard", only_project=True)
    evidence = gather_lists(request, config, resources)
    why = explain("m322", evidence, config, request=request, resources=resources)
    assert why.path.status == "in no list"
    assert "and only harbor/dashboard is searched" in why.cause
    assert any(rescue.everywhere for rescue in why.counterfactuals)


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
            {"lists.fts5.match": "any"},
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


def test_typo_of_a_word_that_the_memory_has_is_named(resources: Resources) -> None:
    config = with_values(preset("workbench").config, {"rerank.backend": "none", "lists.vector.enabled": False})
    request = Request("terrafrom is stuk", as_of=datetime(2026, 9, 1, tzinfo=UTC))
    evidence = gather(request, config, resources)
    holder = next(one.id for one in resources.store.memories.iterate() if "terraform" in one.content.lower())
    lines = [
        mistake.line for mistake in explain(holder, evidence, config, request=request, resources=resources).mistakes
    ]
    assert any(f"no memory has “terrafrom” ({holder}: “terraform”)" in line for line in lines)


def test_memory_may_be_named_by_a_piece_of_its_text(command: Command, store: Path) -> None:
    """`why Q "We did not give notice"` said "no such memory"."""
    for text in ("we did not give notice", "Flat after all: we did NOT give notice"):
        found = command("why", "when are we moving house", text, "--store", store)
        assert found.code == 0 and found.out.startswith(f"“{text}”: m312, The move is off")
    several = command("why", "when are we moving house", "on call", "--store", store)
    assert several.code == 2 and several.err.startswith("error: several memories have “on call”: m036 (Backfill")


def test_the_command_prints_cause_path_and_rescues(command: Command, store: Path) -> None:
    arguments = ["why", QUERY, "m089", "--store", store, "--preset", "cems", "--as-of", AS_OF, "--cutoff", "5"]
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


def test_further_lists_of_relations_are_called_as_the_page_calls_them(command: Command, store: Path) -> None:
    asked = [
        "ERR_PNPM_OUTDATED_LOCKFILE on the bot's branch",
        "--store",
        store,
        "--preset",
        "cems_head",
        "--as-of",
        AS_OF,
    ]
    finished = command("why", asked[0], "m314", *asked[1:])
    said = " ".join(finished.out.split())
    assert finished.code == 0 and "in relations (2nd)" in said and "relations:" not in said
    assert "hybrid:0" in said and "whole store" in said
    stages = json.loads(command("search", *asked, "--json").out)["stages"]
    (row,) = [
        row
        for row in next(stage for stage in stages if stage["name"] == "fusion")["rows"]
        if row["memory_id"] == "m314"
    ]
    assert "relations:2" in [term["list"] for term in row["contributions"]]  # a key stays a key


@pytest.mark.thorough
def test_the_command_measures_on_the_judged_queries(command: Command, store: Path) -> None:
    found = command(
        "why",
        "why did the hits get worse again in August",
        "m332",
        "--store",
        store,
        "--preset",
        "cems",
        "--as-of",
        AS_OF,
        "--cutoff",
        "5",
        "--labelled",
        "--json",
    )
    rescues = json.loads(found.out)["counterfactuals"]
    effects = [rescue["labelled"] for rescue in rescues[1:] if rescue["labelled"]]
    assert effects and all(effect["queries"] == 121 for effect in effects)
    net = [len(effect["lost"]) - len(effect["gained"]) for effect in effects]
    assert net == sorted(net)


def test_the_command_explains_a_bundle_without_the_store(command: Command, store: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "b.json"
    query = ["--preset", "cems", "--as-of", AS_OF, "--store", store]
    assert command("search", QUERY, *query, "--set", "judge.backend=none", "--bundle", bundle).code == 0
    finished = command("why", QUERY, "m089", "--evidence", bundle, "--preset", "cems", "--cutoff", "5", "--json")
    assert json.loads(finished.out)["lost_at"] == "fusion"
    other = command("why", "another query", "m089", "--evidence", bundle)
    assert other.code == 2 and "evidence of another query" in other.err


def test_a_variant_that_is_left_out_helps_nobody(command: Command, store: Path) -> None:
    query = "our customer in Gdańsk sees squares instead of his name"
    arguments = [
        "why",
        query,
        "m111",
        "--store",
        store,
        "--preset",
        "cems",
        "--as-of",
        "2026-09-01",
        "--cutoff",
        "5",
        "--json",
    ]
    typed = [*arguments, "--variant", "letters"]
    assert json.loads(command(*typed).out)["status"] == "in the top k"
    assert json.loads(command(*typed, "--without-variant", "1").out)["status"] == "below the top k"
    finished = command(*typed, "--without-variant", "2")
    assert finished.code == 2
    assert finished.err.splitlines() == ["error: --without-variant 2: there are 2 query variants, counted from 0"]


def test_an_unknown_memory_is_one_line_with_the_nearest_ids(command: Command, store: Path) -> None:
    finished = command("why", QUERY, "m8", "--store", store)
    assert finished.code == 2
    assert finished.err.splitlines() == ["error: m8: no such memory; the nearest are m008, m018, m028"]
