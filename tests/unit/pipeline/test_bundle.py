"""Evidence bundles: what is read, and the one line for what cannot be (docs/internals/specification.md, "Evidence bundle and trace")."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from cases import evidence, falling, trace

from cems_workbench.errors import InputError
from cems_workbench.pipeline import ModelScore, Variant, bundle_from, evidence_from, read_bundle, replay, write_bundle

GOOD: dict[str, Any] = {
    "format": "cems-workbench-evidence/1",
    "query": "q",
    "memories": {"a": {"content": "x"}, "b": {"content": "y"}},
    "lists": [{"name": "v", "source": "vector", "variant": 0, "hits": [{"memory_id": "a", "score": 0.9}]}],
}


def hits(*entries: Any) -> list[dict[str, Any]]:
    return [{"name": "v", "source": "vector", "hits": list(entries)}]


def memory(**fields: Any) -> dict[str, Any]:
    return {"a": {"content": "x", **fields}}


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "wrong format": ({"format": "cems-workbench-evidence/9"}, "format: 'cems-workbench-evidence/9' is not known"),
    "no query": ({"query": None}, "query: expected text"),
    "unknown source": (
        {"lists": [{"name": "v", "source": "graph", "hits": []}]},
        "lists[0].source: 'graph' is not known",
    ),
    "hit without memory": ({"lists": hits({"memory_id": "zz", "score": 1})}, "'zz' is not among the memories"),
    "hit without score": ({"lists": hits({"memory_id": "a"})}, "lists[0].hits[0].score: expected a number, found None"),
    "hit that is text": ({"lists": hits("a")}, "lists[0].hits[0]: expected an object"),
    "NaN score": ({"lists": hits({"memory_id": "a", "score": math.nan})}, "score: expected a finite number"),
    "infinite score": ({"lists": hits({"memory_id": "a", "score": math.inf})}, "score: expected a finite number"),
    "score as text": ({"lists": hits({"memory_id": "a", "score": "0.9"})}, "score: expected a number, found '0.9'"),
    "score true": ({"lists": hits({"memory_id": "a", "score": True})}, "score: expected a number, found True"),
    "huge score": ({"lists": hits({"memory_id": "a", "score": 10**400})}, "score: the number is too large"),
    "a memory twice": ({"lists": hits({"memory_id": "a", "score": 1}, {"memory_id": "a", "score": 2})}, "twice"),
    "two lists of one name": ({"lists": hits() + hits()}, "lists: two lists are named 'v'"),
    "list without name": ({"lists": [{"source": "vector", "hits": []}]}, "lists[0].name: expected text"),
    "unknown variant": ({"lists": [{"name": "v", "source": "vector", "variant": 1, "hits": []}]}, "not an index"),
    "unknown kind": ({"variants": [{"text": "q", "kind": "guess"}]}, "variants[0].kind: 'guess' is not known"),
    "memory without content": ({"memories": {"a": {}}}, "memories.a.content: missing"),
    "content not text": ({"memories": {"a": {"content": 3}}}, "memories.a.content: missing, or not text"),
    "date not a date": ({"memories": memory(created_at="yesterday")}, "memories.a.created_at: expected an ISO 8601"),
    "date a number": ({"memories": memory(last_accessed=1700000000)}, "memories.a.last_accessed: expected an ISO 8601"),
    "priority NaN": ({"memories": memory(priority=math.nan)}, "memories.a.priority: expected a finite number"),
    "count not whole": ({"memories": memory(access_count=1.5)}, "memories.a.access_count: expected a whole number"),
    "pinned not true or false": ({"memories": memory(pinned=1)}, "memories.a.pinned: expected true or false"),
    "project not text": ({"memories": memory(project=5)}, "memories.a.project: expected text or null"),
    "tags not an array": ({"memories": memory(tags="red")}, "memories.a.tags: expected an array"),
    "memories an array": ({"memories": []}, "memories: expected an object"),
    "as_of not a time": ({"as_of": "soon"}, "as_of: expected an ISO 8601 time, found 'soon'"),
    "model score not an object": ({"model_scores": {"m": {"a": 3}}}, "model_scores.m.a: expected an object"),
    "embedding not numbers": ({"embeddings": {"a": [1, "x"]}}, "embeddings.a[1]: expected a number"),
    "embeddings of two lengths": ({"embeddings": {"a": [1], "b": [1, 2]}}, "embeddings: vectors of different lengths"),
    "notes not an object": ({"notes": {"query": 5}}, "notes.query: expected an object"),
    "warnings not by stage": ({"notes": {"warnings": "careful"}}, "notes.warnings: expected an object"),
    "warnings of a stage not an array": (
        {"notes": {"warnings": {"lists": "careful"}}},
        "notes.warnings.lists: expected an array",
    ),
    "judges not by name": ({"notes": {"judges": ["x"]}}, "notes.judges: expected an object"),
    "a judge's threshold in words": (
        {"notes": {"judges": {"j": {"threshold": "high"}}}},
        "notes.judges.j.threshold: expected a number",
    ),
    "two bands": ({"notes": {"judges": {"j": {"bands": [1.0, 0.0]}}}}, "notes.judges.j.bands: a judge has three"),
    "NaN in the notes": ({"notes": {"query": {"x": math.nan}}}, "notes: a number in them is not finite"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_bundle_is_one_line_naming_file_and_field(change, message, tmp_path):
    path = tmp_path / "bundle.json"
    path.write_text(json.dumps(GOOD | change))
    with pytest.raises(InputError) as caught:
        read_bundle(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "line 1: not JSON"),
        (b"", "line 1: not JSON"),
        (b"[]", "expected a JSON object, found list"),
        (b"true", "expected a JSON object, found bool"),
        (b"\xff\xfe{", "not UTF-8 text (byte 0)"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"query": ' + b"1" * 5000 + b"}", "a number of too many digits"),
    ],
    ids=["cut off", "empty", "array", "true", "not UTF-8", "deep", "many digits"],
)
def test_what_is_no_bundle_at_all_is_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_bundle(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such bundle"):
        read_bundle(tmp_path / "none.json")


def test_what_is_not_stated_takes_the_default() -> None:
    read = evidence_from(GOOD)
    assert read.variants == (Variant("q"),)
    assert read.memories["a"].priority == 1.0 and read.memories["a"].importance == "normal"
    assert read.as_of is None and read.project is None
    assert evidence_from({"format": GOOD["format"], "query": "q"}).candidate_ids == []


def test_keys_of_a_newer_writer_are_left_out() -> None:
    read = evidence_from(GOOD | {"memories": {"a": {"content": "x", "colour": "red"}}, "lists": hits(), "extra": 1})
    assert read.memories["a"].content == "x"


def test_a_time_without_zone_is_utc_and_every_zone_becomes_utc() -> None:
    assert bundle_from(evidence_from(GOOD | {"as_of": "2026-09-01T00:00:00"}))["as_of"] == "2026-09-01T00:00:00+00:00"
    assert (
        bundle_from(evidence_from(GOOD | {"as_of": "2026-09-01T02:00:00+02:00"}))["as_of"]
        == "2026-09-01T00:00:00+00:00"
    )


@pytest.mark.parametrize("raw", ["high", True, [0.5], 10**400, math.nan, -math.inf], ids=repr)
def test_a_score_that_is_no_finite_number_is_a_failed_score(raw: Any) -> None:
    score = evidence_from(GOOD | {"model_scores": {"m": {"a": {"raw": raw}}}}).model_scores["m"]["a"]
    assert not score.good


@pytest.mark.parametrize(
    "score",
    [
        ModelScore(0.1 + 0.2, "chunk"),
        ModelScore(1.5e308),
        ModelScore(None, error="timeout"),
        ModelScore(math.nan),
        ModelScore(0.5, detail={"outcome": "yes"}),
    ],
    ids=["number", "very large", "failed", "nan", "detail"],
)
def test_model_scores_are_written_and_read_to_the_same_trace(score: ModelScore, tmp_path: Path) -> None:
    subject = evidence({"vector": falling(3)}, model={"m01": score, "m02": 0.3})
    write_bundle(subject, tmp_path / "bundle.json")
    again = read_bundle(tmp_path / "bundle.json")
    changes = {"rerank.backend": "cross_encoder", "rerank.model": "oracle"}
    assert trace(again, changes).same_as(trace(subject, changes))


def test_a_bundle_is_json_without_nan(tmp_path: Path) -> None:
    subject = evidence({"vector": falling(2)}, model={"m01": math.nan, "m02": math.inf})
    write_bundle(subject, tmp_path / "bundle.json")
    values = json.loads((tmp_path / "bundle.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert values["model_scores"]["oracle"]["m01"] == {"raw": None, "error": "not finite: nan"}


def test_half_an_emoji_survives_the_round_trip(tmp_path: Path) -> None:
    subject = evidence({"vector": {"a": 0.5}}, memories={"a": {"content": "cut \ud83d"}})
    write_bundle(subject, tmp_path / "bundle.json")
    assert read_bundle(tmp_path / "bundle.json").memories["a"].content == "cut \ud83d"


def test_a_bundle_that_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_bundle(evidence({}), tmp_path / "no" / "bundle.json")
    assert list(tmp_path.iterdir()) == []


def test_the_golden_bundles_read_and_write_losslessly(shared: Path, tmp_path: Path) -> None:
    from cems_workbench.config import PipelineConfig

    for folder in sorted((shared / "golden").iterdir()):
        first = read_bundle(folder / "bundle.json")
        write_bundle(first, tmp_path / "bundle.json")
        second = read_bundle(tmp_path / "bundle.json")
        assert bundle_from(first) == bundle_from(second)
        assert replay(first, PipelineConfig()).same_as(replay(second, PipelineConfig()))
