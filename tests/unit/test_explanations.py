"""Explanations that live systems printed: read, replayed, and what they cannot show (plugins/workbench_explanations).

The recordings are what the real programs answered (docs/use/explanations.md); their first queries are kept here.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cems_workbench import explanations, formats, replay
from cems_workbench.analysis.known_mistakes import next_step
from cems_workbench.cli.main import commands
from cems_workbench.config import with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.traces import add_input, import_traces, inputs_of, read_traced
from cems_workbench.mcp.protocol import ServedStore
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.explained import UNSHOWN, explained, explained_config, read_explanations, said_of
from cems_workbench.records import Memory, ParsedInput, RowError
from cems_workbench.store import Store
from workbench_explanations.tool import Explaining, explanation
from workbench_fidelity.fidelity import kept_recording

RECORDED = Path(__file__).resolve().parents[1] / "recordings" / "explanations"


def read(text: str, query: str = "") -> tuple[list[Evidence], list[str]]:
    errors: list[RowError] = []
    return list(read_explanations(io.StringIO(text), "pasted", errors, query)), [str(error) for error in errors]


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / name).read_text("utf-8").splitlines()[0])
    return found


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_recorded_explanation_replays_its_order_and_scores(path: Path) -> None:
    found, errors = read(path.read_text("utf-8"))
    assert found and not errors
    for evidence in found:
        note = explained(evidence)
        assert note is not None and note["same_order"], (evidence.query, note)


def test_mem0_scores_are_replayed_and_a_setting_moves_them() -> None:
    (answer,) = explanations(RECORDED / "mem0.jsonl", recorded("mem0.jsonl")["query"])
    rows = recorded("mem0.jsonl")["results"]
    assert [row.memory_id for row in answer.trace.results] == [row["id"] for row in rows]
    assert [row.score for row in answer.trace.results] == pytest.approx([row["score"] for row in rows])
    above = rows[4]["score"]
    moved = replay(answer, with_values(answer.config, {"threshold.fixed": above}))
    assert list(moved.ids) == [row["id"] for row in rows[:5]]


def test_a_trace_of_hindsight_0_6_replays_by_its_arms_and_is_mended_by_the_own_scores() -> None:
    """Up to 0.6 it says no ranks, and unit scores passed the sigmoid too; a window of time moves one memory."""
    document = recorded("hindsight.jsonl")
    rows = document["trace"]["reranked"]
    rows[3]["score_components"]["temporal"] = 0.9583
    plain: dict[str, float] = {}
    for row in rows:
        parts = row["score_components"]
        raw = parts["cross_encoder_score"]
        parts["cross_encoder_score_normalized"] = 1 / (1 + math.exp(-raw))
        factors = (1 + 0.2 * (parts["recency"] - 0.5)) * (1 + 0.2 * (parts["temporal"] - 0.5))
        row["rerank_score"] = parts["cross_encoder_score_normalized"] * factors
        plain[row["node_id"]] = raw * factors
    rows.sort(key=lambda row: -row["rerank_score"])
    for row in document["trace"]["rrf_merged"]:
        row["source_ranks"] = {}
    (evidence,), errors = read(json.dumps(document))
    config = explained_config(evidence)
    assert not errors and config is not None and config.rerank.raw_scale == "sigmoid"
    assert (explained(evidence) or {})["same_order"] and {one.source for one in evidence.lists} == {
        "vector",
        "ts_rank_cd",
    }
    mended = replay(evidence, with_values(config, {"rerank.raw_scale": "sigmoid_outside_unit"}))
    assert list(mended.ids) == sorted(plain, key=lambda key: -plain[key])


def change(make: Callable[[dict[str, Any]], Any]) -> str:
    document = recorded("mem0.jsonl")
    return json.dumps(make(document) or document)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            change(lambda d: d["results"][1]["score_details"].update(semantic_score=float("nan"))),
            "pasted:1: results[1].score_details.semantic_score: must be a finite number, found nan",
        ),
        (
            change(lambda d: [row["score_details"].pop("threshold") for row in d["results"]] and None),
            "pasted:1: mem0 of another version than 2.2: lacks threshold",
        ),
        (change(lambda d: None)[:900], "pasted:1: is cut off"),
        (change(lambda d: None)[:250] + "\n", "pasted:1: is cut off"),
        (change(lambda d: d["results"][2].update(memory=5)), "pasted:1: results[2].memory: must be text, found 5"),
        (
            change(lambda d: d["results"].append(d["results"][0])),
            f"pasted:1: '{recorded('mem0.jsonl')['results'][0]['id']}': id: stands already above: the row is left out",
        ),
        ('{"results": {}}', "pasted:1: results: must be a list, found {}"),
        (
            '{"id": "a", "relevance": 1, "fields": {"matchfeatures": {"f": 1}}}',
            'pasted:1: root: is missing: write down the whole answer, {"root": {"children": […]}}',
        ),
        (change(lambda d: {"query": "a", "results": []}), "pasted:1: is empty: nothing was returned"),
    ],
)
def test_what_cannot_be_used_is_one_line(text: str, error: str) -> None:
    assert read(text)[1] == [error]


@pytest.mark.parametrize("rank", [0, -1, 1.5])
def test_a_rank_is_at_least_1_or_its_row_is_left_out(rank: float) -> None:
    qmd, hindsight = recorded("qmd.jsonl"), recorded("hindsight.jsonl")
    qmd["results"][1]["explain"]["rrf"]["contributions"][0]["rank"] = rank
    hindsight["trace"]["rrf_merged"][1]["source_ranks"]["semantic_rank"] = rank
    for document, where in (
        (qmd, "results[1].explain.rrf.contributions[0].rank"),
        (hindsight, "rrf_merged[1].source_ranks.semantic_rank"),
    ):
        (_, errors) = read(json.dumps(document))
        assert errors == [f"pasted:1: {where}: must be at least 1, and whole, found {rank}"]


def test_a_setting_or_a_date_that_cannot_be_used_is_said() -> None:
    qdrant, hindsight = recorded("qdrant.jsonl"), recorded("hindsight.jsonl")
    qdrant["request"]["query"] = {"rrf": {"k": "ten", "weights": [1]}}
    hindsight["trace"]["query"]["timestamp"] = "x"
    hindsight["trace"]["retrieval_results"][0]["results"][0]["event_date"] = "yesterday"
    found, _ = read(json.dumps([qdrant, hindsight]))
    said = [line.split(":")[0] for one in found for line in said_of(one)]
    assert {"request.query.rrf.k", "request.query.rrf.weights", "query.timestamp", "event_date"} <= {*said}


def test_scores_that_contradict_the_ranks_are_said_and_the_ranks_taken() -> None:
    document = recorded("mem0.jsonl")
    first, second = document["results"][:2]
    document["results"][:2] = [second, first]
    ((evidence,), _) = read(json.dumps(document))
    note = explained(evidence)
    assert note is not None and not note["same_order"]
    assert note["lines"][0].startswith("the answer: rank 2 (")


def test_a_bad_document_costs_only_itself_and_memory_stays_bounded() -> None:
    line = change(lambda d: d.update(results=d["results"][:2]))
    errors: list[RowError] = []

    class Endless(io.StringIO):
        """Ten thousand lines, of which only what is asked for is made."""

        left, most = 10_000, 0

        def read(self, size: int | None = -1) -> str:
            part = "".join(line + "\n" for _ in range(min(self.left, 50)))
            self.left -= min(self.left, 50)
            self.most = max(self.most, len(part))
            return part.replace(line, "{broken", 1) if self.left == 9_950 else part

    stream = Endless()
    seen = read_explanations(stream, "pasted", errors)
    assert next(seen).query == recorded("mem0.jsonl")["query"]
    assert stream.left > 9_900
    assert [error.row for error in errors] == [1]


def test_a_formula_that_nothing_states_is_solved_and_another_is_not_stated() -> None:
    documents = [json.loads(line) for line in (RECORDED / "qdrant.jsonl").read_text("utf-8").splitlines()[:2]]
    for document in documents:
        del document["request"]
    found, _ = read(json.dumps(documents))
    for evidence in found:
        note, config = explained(evidence), explained_config(evidence)
        assert note is not None and note["same_order"] and config is not None
        assert note["formula"] and evidence.as_of is None
        assert sorted([config.get("lists.fts5.weight"), config.get("lists.lexical.weight")]) == [1.0, 3.0], note[
            "formula"
        ]
    for place, row in enumerate(row for document in documents for row in document["result"]["points"]):
        row["score"] *= 1 + 0.01 * (place * 7 % 5)
    for evidence in read(json.dumps(documents))[0]:
        note = explained(evidence)
        assert note is not None and not note["formula"] and any("a guess" in line for line in note["lines"])


def vespa(*hits: tuple[float, dict[str, float]]) -> str:
    rows = [
        {"id": f"id:d:d::{i}", "relevance": score, "fields": {"matchfeatures": features, "title": f"t{i}", "by": "x"}}
        for i, (score, features) in enumerate(hits)
    ]
    return json.dumps({"root": {"id": "toplevel", "children": rows}})


def test_a_distance_of_vespa_is_a_closeness_and_what_is_assumed_is_a_guess() -> None:
    """Vespa 8's documentation: closeness is 1 / (1 + distance); `query(…)` is an input of the query."""
    near, far = {"distance(field,e)": 0.0, "query(w)": 2.0}, {"distance(field,e)": 3.0, "query(w)": 2.0}
    ((evidence,), errors) = read(vespa((1.0, near), (0.25, far)))
    note = explained(evidence)
    assert note is not None and not errors and note["same_order"] and not note["assumed"]
    assert list(note["taken"]) == ["closeness(field,e)"]
    assert [evidence.memories[f"id:d:d::{i}"].content for i in (0, 1)] == ["t0, x", "t1, x"]
    ((evidence,), _) = read(vespa((7.0, near | {"bm25(t)": 2.0}), (6.0, far | {"bm25(t)": 1.0})))
    assert "combsum is assumed, which gives its order, not its scores: a guess" in said_of(evidence)[0]


def fused(score: float, said: str, *details: dict[str, Any]) -> dict[str, Any]:
    return {"value": score, "description": said, "details": list(details)}


@pytest.mark.parametrize("rrf", [True, False], ids=["rrf", "linear"])
def test_the_retrievers_of_elasticsearch_say_ranks_and_weights(rrf: bool) -> None:
    """Elasticsearch 9's source: RRFRankDoc and LinearRankDoc; what a retriever fused may stand below a sum."""
    ranks = {"a": (3, 1), "b": (1, 0), "c": (0, 2)}
    rows = []
    for key, held in ranks.items():
        parts = []
        for i, rank in enumerate(held):
            of = f"in query at index [{i}] [{('words', 'my knn')[i]}]"
            own = (i + 1) / (20 + rank) if rrf else 2.0 * (1 - 0.1 * rank)
            if not rank:
                parts.append(fused(0, f"result not found {of}"))
            elif rrf:
                parts.append(fused(rank, f"rrf score: [{own}], for rank [{rank}] {of} computed as [1 / ({rank} + 20)]"))
            else:
                said = (
                    f"weighted score: [{own}] {of} computed as [2.0 * {1 - 0.1 * rank}] using score normalizer [minmax]"
                )
                parts.append(fused(own, said))
        total = sum((i + 1) / (20 + rank) if rrf else 2.0 * (1 - 0.1 * rank) for i, rank in enumerate(held) if rank)
        said = (
            "computed for initial ranks [] with rankConstant: [20]" if rrf else "weighted linear combination score: []"
        )
        rows.append({"_id": key, "_score": total, "_explanation": fused(total, "sum of:", fused(total, said, *parts))})
    rows.sort(key=lambda row: -row["_score"])
    ((evidence,), errors) = read(json.dumps({"hits": {"hits": rows}}))
    note = explained(evidence)
    assert note is not None and not errors and note["same_order"]
    assert note["formula"].startswith("fusion.method=rrf fusion.k=20" if rrf else "fusion.method=combsum")
    assert list(note["taken"]) == ["my knn", "words"] and "weight=2.0" in note["formula"]
    names = {hit.memory_id for ranked in evidence.lists for hit in ranked.hits}
    assert any(name.startswith(UNSHOWN) for name in names) == rrf  # rank 2 of the first list is of no hit shown


def test_runs_are_read_alone_nested_and_by_page(tmp_path: Path) -> None:
    def run(name: str, parent: str | None, *texts: str) -> dict[str, Any]:
        found = [{"page_content": text, "type": "Document", "metadata": {}} for text in texts]
        at = {"start_time": "2026-08-01T00:00:00", "end_time": "2026-08-01T00:00:01", "trace_id": "t"}
        kept = {"id": name, "name": name, "parent_run_id": parent, "run_type": "retriever"}
        return {**kept, **at, "inputs": {"query": "q"}, "outputs": {"documents": found}}

    top, below = run("both", None, "b", "a", "c"), [run("bm25", "both", "b", "a"), run("vectors", "both", "b", "c")]
    for document in ([top, *below], {**top, "child_runs": below}, {"runs": [top, *below]}):
        ((evidence,), errors) = read(json.dumps(document))
        note = explained(evidence)
        assert note is not None and not errors
        assert note["taken"] == {"bm25": "lexical:0", "vectors": "vector:0"}
    path = tmp_path / "runs.json"
    path.write_text(json.dumps([top, {**top, "id": "again", "parent_run_id": "both"}, *below]), "utf-8")
    notes = formats.read_path(path)[0].notes
    assert any(note.startswith("1 spans are the same retrieval") for note in notes)
    assert any(note.startswith("2 spans are lists that the retrieval around them joins") for note in notes)
    ((alone,), _) = read(json.dumps(below[0]))
    assert "one list, in its order" in said_of(alone)[0]


def test_a_list_of_answers_and_json_lines_are_the_same() -> None:
    lines = (RECORDED / "mem0.jsonl").read_text("utf-8").splitlines()
    of_lines, of_list = (read(text)[0] for text in ("\n".join(lines), f"[{', '.join(lines)}]"))
    assert [one.query for one in of_lines] == [one.query for one in of_list] and len(of_lines) == len(lines)


def test_an_agent_replays_one_under_changes_and_asks_why() -> None:
    document = recorded("mem0.jsonl")
    asked = Explaining(
        explanation=json.dumps(document), changes={"threshold.fixed": document["results"][4]["score"]}, memory_id="m999"
    )
    with pytest.raises(InputError, match="m999 is not among the 20 it shows"):
        explanation(ServedStore(), asked)
    reply = explanation(ServedStore(), asked.model_copy(update={"memory_id": document["results"][6]["id"]}))
    assert [row["memory_id"] for row in reply["results"]] == [row["id"] for row in document["results"][:5]]
    assert "threshold" in reply["cause"] and "threshold" in reply["fix"]


def test_the_command_pipes_replays_explains_and_names_the_bound(tmp_path: Path) -> None:
    run, document = CliRunner().invoke, recorded("mem0.jsonl")
    place = tmp_path / "explained.json"
    place.write_text(json.dumps(document), "utf-8")
    searched = run(
        commands, ["search", "--explained", "-", "--bundle", str(tmp_path / "bundle.json")], input=json.dumps(document)
    )
    assert searched.exit_code == 0, searched.output
    assert "explained by mem0: 20 memories; preset mem0 replays its order" in " ".join(searched.output.split())
    wanted = document["results"][9]["id"]
    for name in (place, tmp_path / "bundle.json"):
        told = run(commands, ["why", document["query"], wanted, "--evidence", str(name), "--cutoff", "5"])
        assert "it ended 10th" in " ".join(told.output.split())
        bound = run(commands, ["why", document["query"], "m999", "--evidence", str(name)])
        assert (
            str(bound.exception)
            == "m999 is not among the 20 it shows: no slider can bring it; the depth must be at least 21, if the system has it"
        )
        assert str(run(commands, ["why", document["query"], "", "--evidence", str(name)]).exception) == "name a memory"
    several = run(
        commands,
        ["search", "--explained", str(RECORDED / "mem0.jsonl"), "--bundle", str(tmp_path / "all.evidence"), "--json"],
    )
    assert json.loads(several.stdout)["queries"] == 3
    refused = run(commands, ["search", "tea", "--explained", str(place)])
    assert "no explanation of 'tea', of 1: 'HBR-4417' (q01)" in str(refused.exception)
    twice = str(RECORDED / "qdrant.jsonl")
    third = run(commands, ["replay", twice, "--query", "#3", "--set", "fusion.k=20"])
    said = " ".join(third.output.split())
    assert "as answered: fusion.method=dbsf; its lists" in said and "fusion.k: no effect under dbsf" in said
    assert "why '#3'" in said and "replays its order" not in said
    by_id = json.loads(
        run(commands, ["replay", "-", "--query", "q02", "--json"], input=Path(twice).read_text("utf-8")).stdout
    )
    assert by_id["query"].startswith("E_IDEMPOTENCY")
    for other in (["search", "tea", "--explained", twice], ["why", "tea", "m001", "--evidence", twice]):
        none = run(commands, other)
        assert "no explanation of 'tea', of 4: 'HBR-4417' (q01)" in str(none.exception)
    measured = run(commands, ["memory", document["results"][0]["id"], str(tmp_path / "all.evidence"), "--json"])
    assert measured.exit_code == 0


def test_a_file_is_a_query_set_whose_lists_replay_and_a_bad_row_costs_only_itself(tmp_path: Path) -> None:
    lines = (RECORDED / "mem0.jsonl").read_text("utf-8").splitlines()
    good, first = [json.loads(line) for line in lines], recorded("mem0.jsonl")["results"]
    good.append({"query": "what nobody wrote", "qid": "none", "results": []})
    bad = [
        change(lambda d: d.pop("query") and None),
        change(
            lambda d: (
                d["results"][1]["score_details"].update(semantic_score=float("nan")) or d.update(query="nan", qid="n")
            )
        ),
        change(lambda d: [row["score_details"].pop("threshold") for row in d["results"]] and None),
        change(lambda d: d.update(results=d["results"][1::-1], query="turned", qid="t")),
        lines[0][:900],
    ]
    path = tmp_path / "live.jsonl"
    path.write_text("\n".join([*lines, *bad, json.dumps(good[-1])]), "utf-8")
    with Store.open(tmp_path / "store") as store:
        known = Memory("ours", first[0]["memory"])
        store.add(ParsedInput("memories", "memories-jsonl", memories=(known,)))
        (parsed,) = inputs_of(path, "auto")
        report = add_input(parsed, store)
        assert [(error.row, error.field, error.reason[:30]) for error in report.errors] == [
            (4, "query", "is missing; write it beside th"),
            (5, "results[1].score_details.semantic_score", "must be a finite number, found"),
            (6, "", "mem0 of another version than 2"),
            (8, None, "is cut off"),
        ]
        assert any("whose order does not replay: 1, such as t: the answer: rank 2 (" in note for note in report.notes)
        found = read_traced(store, "live")
        assert found is not None and not found.external and found.header.config.assembly.limit == 20
        assert [query.qid for query in found.queries] == [*(one["qid"] for one in good[:-1]), "n", "t", "none"]
        assert not replay(found.evidences["none"], found.header.config).ids
        assert any(note.endswith("which count as queries that found nothing: 1, such as none") for note in report.notes)
        assert store.memories.count() == 1 + report.memories.added
        evidence = found.evidences[good[0]["qid"]]
        replayed = replay(evidence, found.header.config)
        assert list(replayed.ids) == ["ours", *(row["id"] for row in first[1:])]
        kept = {answer.qid: answer for answer in kept_recording(store, "live").answers}[good[0]["qid"]]
        assert [(row.memory_id, row.score) for row in kept.returned][1:] == [
            (row["id"], row["score"]) for row in first[1:]
        ]
        assert list(kept.lists) == ["vector"] and len(kept.lists["vector"][0]) == 20
        (again,) = inputs_of(path, "auto")
        assert add_input(again, store).memories.added == 0
        # Hindsight says a date for the same queries, which stays with its own lists, whichever is imported last.
        before = store.queries.read()
        for other in (RECORDED / "hindsight.jsonl", path, RECORDED / "hindsight.jsonl"):
            add_input(inputs_of(other, "auto")[0], store)
            assert store.queries.read() == before
        dated = read_traced(store, "hindsight")
        assert dated is not None and all(one.as_of is not None for one in dated.evidences.values())
        assert [one.name for one in store.query_sets.versions("live")] == ["live"]
    assert "m999 (grade 3), which is not among the 20 it shows" in next_step(replayed.trace, {"m999": 3}).words


Pairs = dict[str, tuple[float | None, float | None]]


def opensearch(described: str, normalised: str, rows: Pairs, scores: dict[str, float]) -> str:
    """A hybrid query's answer as OpenSearch's ExplanationResponseProcessor makes it: of each hit the queries that found it."""
    inner = ("weight(body:tea in 3) [PerFieldSimilarity], result of:", "within top 10 docs")
    hits = []
    for key, score in sorted(scores.items(), key=lambda pair: -pair[1]):
        parts = [(value, text) for value, text in zip(rows[key], inner, strict=True) if value is not None]
        details = [
            {
                "value": value,
                "description": f"{normalised} normalization of:",
                "details": [{"value": 9, "description": text}],
            }
            for value, text in parts
        ]
        tree = {"value": score, "description": f"{described} combination of:", "details": details}
        hits.append({"_id": key, "_score": score, "_source": {"text": f"text of {key}"}, "_explanation": tree})
    return json.dumps({"query": "q", "response": {"hits": {"hits": hits}}})


HYBRID: Pairs = {"a": (1.0, 0.5), "b": (0.2, 1.0), "c": (None, 0.6), "d": (0.9, None), "e": (None, 0.1)}
RANKED: Pairs = {"a": (1 / 61, 1 / 63), "b": (1 / 63, 1 / 61), "c": (None, 1 / 62), "d": (1 / 62, None)}


def test_an_opensearch_hybrid_answer_replays_its_mean_with_weights_and_its_rrf() -> None:
    mean = {key: 0.3 * (one or 0.0) + 0.7 * (other or 0.0) for key, (one, other) in HYBRID.items()}
    ((evidence,), _) = read(opensearch("arithmetic_mean, weights [0.3, 0.7]", "min_max", HYBRID, mean))
    note, config = explained(evidence), explained_config(evidence)
    assert (
        note is not None
        and note["same_order"]
        and note["taken"] == {"body": "lexical:0", "knn": "vector:0"}
        and config is not None
    )
    assert (config.get("lists.lexical.weight"), config.get("lists.vector.weight")) == (0.3, 0.7)
    fused = {key: (one or 0.0) + (other or 0.0) for key, (one, other) in RANKED.items()}
    ((evidence,), _) = read(opensearch("rrf", "rrf, rank_constant [60]", RANKED, fused))
    note = explained(evidence)
    assert note is not None and note["same_order"] and evidence.lists[0].source == "vector"
    assert [hit.memory_id for hit in evidence.lists[0].hits] == ["b", "c", "a"]


def test_a_remnic_xray_replays_what_its_cap_kept_and_names_what_its_filters_left_out() -> None:
    scored = (("a", 0.9, 0.8), ("b", 0.8, 0.9), ("c", 0.5, 0.2), ("d", 0.9, 0.9))
    terms = {key: {"vector": one, "bm25": other, "final": one + other} for key, one, other in scored}
    results: list[dict[str, Any]] = [
        {"memoryId": key, "path": key, "scoreDecomposition": own} for key, own in terms.items()
    ]
    results[3]["rejectedBy"] = "status-filter"
    snapshot = {"schemaVersion": "1", "query": "q", "tierExplain": None, "appliedResultLimit": 2, "results": results}
    ((evidence,), _) = read(json.dumps({"snapshotFound": True, "snapshot": snapshot | {"appliedResults": results[:2]}}))
    note, config = explained(evidence), explained_config(evidence)
    assert (
        note is not None
        and note["same_order"]
        and note["order"] == ["a", "b"]
        and "d by status-filter" in note["lines"][0]
    )
    assert config is not None
    assert list(replay(evidence, with_values(config, {"assembly.limit": 3})).ids)[2:] == ["c"]
    assert "another version than schema 1" in read(json.dumps(snapshot | {"schemaVersion": "2"}))[1][0]


@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_imported_recording_replays_under_the_one_config_of_its_set(path: Path, tmp_path: Path) -> None:
    listed = tmp_path / f"{path.stem}.json"
    lines = path.read_text("utf-8").splitlines()
    listed.write_text(f"[{','.join(lines)}]", "utf-8")
    asked = [json.loads(line)["qid"] for line in lines]
    assert formats.detect(path) == formats.detect(listed) == "explanations"
    with Store.open(tmp_path / "store") as store:
        import_traces(path, "explanations", store)
        found = read_traced(store, path.stem)
    assert found is not None and [*found.evidences] == list(dict.fromkeys(asked))
    for evidence in found.evidences.values():
        order = (explained(evidence) or {})["order"]
        ours = {row.memory_id: row.score or 0.0 for row in replay(evidence, found.header.config).trace.results}
        pairs = zip(order, ours, strict=False)
        assert all(ours[one] == pytest.approx(ours[other], abs=1e-6) for one, other in pairs), evidence.query
