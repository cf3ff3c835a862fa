"""Bundles: written and read, and redacted; what is gone, what stays, and that the numbers are the same."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import evidence, falling, trace

from cems_workbench.config import PipelineConfig, load_config, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import (
    Evidence,
    Hit,
    ModelScore,
    RankedList,
    Variant,
    bundle_from,
    evidence_from,
    read_bundle,
    replay,
    write_bundle,
)
from cems_workbench.pipeline.list_sources import provenance_of
from cems_workbench.pipeline.redact import Pseudonyms, redacted
from cems_workbench.pipeline.stages.query import SIGNALS
from cems_workbench.records import Memory
from tests.redaction import assert_same_numbers, telling_words, words_left

GOLDEN = Path(__file__).resolve().parents[4] / "shared" / "golden"
CASES = sorted(GOLDEN.iterdir()) if GOLDEN.is_dir() else []
KEY = b"a key for tests"

ANNA = Memory(
    "note-anna-1",
    "Anna visits her doctor Klein on Tuesday, in Zürich. İzmir is for later.",
    "Doctor Klein",
    "health",
    "acme/clinic",
    "monday-call",
    "anna",
    ("doctor", "zürich"),
    source_ref="project:acme/clinic",
    relevant_count=3,
    created_at=datetime(2026, 1, 5, tzinfo=UTC),
)
BERT = replace(
    ANNA, id="note-bert", content="The doctor Klein moved; доктор Кляйн.", project="acme/clinic2", session=None
)
CARL = replace(
    ANNA, id="zz-carl", content="Deploy the release.", project="other/place", author=None, title=None, tags=()
)
QUERY = "How many doctors, and restart elasticsearch?"


def telling(**changes: Any) -> Evidence:
    base = Evidence(
        QUERY,
        {memory.id: memory for memory in (ANNA, BERT, CARL)},
        (Variant(QUERY), Variant("physicians Klein", "expansion")),
        (
            RankedList("vector:0", "vector", 0, (Hit(BERT.id, 0.9), Hit(CARL.id, 0.4), Hit(ANNA.id, 0.4))),
            RankedList("how many doctors", "lexical", 1, (Hit(ANNA.id, 4.0),)),
        ),
        as_of=datetime(2026, 9, 1, tzinfo=UTC),
        project="acme/clinic",
        model_scores={
            "cross_encoder": {
                ANNA.id: ModelScore(2.0, "Anna visits her doctor", detail={"seconds": 0.5, "alignment": [["doctor"]]}),
                BERT.id: ModelScore(None, None, "not a number: “Klein is the doctor”"),
            }
        },
        embeddings={ANNA.id: [1.0, 0.0, 0.5], BERT.id: [0.9, 0.1, 0.5], CARL.id: [0.0, 2.0, 0.0]},
        notes={
            "query": {
                "route": "hybrid",
                "route_reason": "complex, reasoning",
                "searched": QUERY,
                "terms": ["elasticsearch"],
            },
            "expansion": {"backend": "manual", "manual": ["physicians Klein"], "probe": {"top": 4.0}},
            "warnings": {"expansion": ["1 expansions of “physicians” were found"]},
            "gathered": {"lists.vector.depth": 150, "rerank.query": "physicians in Zürich"},
            "somebody else’s": "Klein",
        },
    )
    return replace(base, **changes)


def test_words_of_the_detectors_stay_in_their_place_and_their_letters_alone() -> None:
    query = redacted(telling(), KEY).query
    assert query.startswith("How many ")
    assert query[QUERY.index("elastic") + 1 :][:5] == "last" + query[QUERY.index("elastic") + 5]
    assert "elastic" not in query


def test_ids_keep_their_order_and_projects_what_they_begin_with() -> None:
    after = redacted(telling(), KEY)
    assert list(after.memories) == ["m-001", "m-002", "m-003"]
    assert [memory.project for memory in after.memories.values()] == ["p", "p-001", "o-001"]
    assert after.project == "p"
    assert [hit.memory_id for hit in after.lists[0].hits] == ["m-002", "m-003", "m-001"]
    assert [ranked.name for ranked in after.lists] == ["vector:0", "lexical-1"]
    nobody = redacted(telling(project=None), KEY)
    assert [memory.project for memory in nobody.memories.values()] == ["o-001", "o-002", "o-003"]
    assert nobody.project is None


def test_vectors_keep_their_angles_and_nothing_else() -> None:
    before, after = telling(), redacted(telling(), KEY)
    old = np.array([before.embeddings[key] for key in sorted(before.embeddings)])
    new = np.array([after.embeddings[key] for key in sorted(after.embeddings)])
    assert np.abs(old @ old.T - new @ new.T).max() < 1e-12
    assert np.triu(new, 1).max() == 0
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    other = redacted(telling(embeddings=dict(zip(sorted(before.embeddings), old @ turned, strict=True))), KEY)
    again = np.array([other.embeddings[key] for key in sorted(other.embeddings)])
    assert np.abs(np.abs(again) - np.abs(new)).max() < 1e-12, "a turned space gives the same coordinates"


def test_scores_keep_numbers_and_lose_what_was_read() -> None:
    rows = redacted(telling(), KEY).model_scores["cross_encoder"]
    assert rows["m-001"].raw == 2.0
    assert rows["m-001"].detail == {"seconds": 0.5}
    assert len(rows["m-001"].chunk or "") == len("Anna visits her doctor")
    assert (rows["m-002"].error or "").startswith("not a number: “")


def test_notes_keep_what_replay_reads_and_lose_what_it_does_not_know() -> None:
    notes = redacted(telling(), KEY).notes
    assert notes["gathered"] == {"lists.vector.depth": 150}
    assert notes["query"]["route_reason"] == "complex, reasoning"
    assert notes["expansion"]["probe"] == {"top": 4.0}
    assert notes["warnings"]["expansion"][0].startswith("1 expansions of “")
    assert "somebody else’s" not in notes


def test_of_a_running_system_its_kind_and_the_moment_stay_and_its_name_goes() -> None:
    note = {
        "source": "acme_prod",
        "kind": "qdrant",
        "at": "2026-09-01T12:04:09+00:00",
        "lists": {"vector:0": {"asked": 600, "returned": 40, "unknown": 0, "seconds": 0.01}},
    }
    whole = telling()
    whole = replace(whole, notes=whole.notes | {"engine": note})
    assert provenance_of(whole.notes, "vector:0") == "as answered by acme_prod at 2026-09-01 12:04 UTC"
    without = redacted(whole, KEY)
    assert without.notes["engine"] == {name: note[name] for name in ("kind", "at", "lists")}
    assert "acme_prod" not in json.dumps(bundle_from(without))
    assert provenance_of(without.notes, "vector:0") == "as answered by Qdrant at 2026-09-01 12:04 UTC"


def test_a_key_decides_the_pseudonyms_and_none_is_drawn_anew() -> None:
    once = bundle_from(redacted(telling(), KEY))
    assert once == bundle_from(redacted(telling(), KEY))
    assert bundle_from(redacted(telling())) != bundle_from(redacted(telling()))


def test_every_word_has_a_pseudonym_of_its_own() -> None:
    texts = [f"{a}{b}" for a in "abcdefghijklmnopqrstuvwxyz0123456789" for b in "abcdefghijklmnopqrstuvwxyz0123456789"]
    texts += [*"abcdefghijklmnopqrstuvwxyz0123456789", "kelvin", "naïve", "DOĞRU", "i̇stanbul", "İ", "Xİ"]
    words = Pseudonyms(KEY, texts)
    seen = {word for text in texts for word in re.findall("[a-z0-9]+", text.lower())}
    for text in texts:
        assert len(words.text(text)) == len(text)
    replaced = [tuple(re.findall("[a-z0-9]+", words.text(text).lower())) for text in texts]
    assert len(set().union(*replaced)) == len(seen)
    assert [len(found) for found in replaced] == [len(re.findall("[a-z0-9]+", text.lower())) for text in texts]


def test_no_pseudonym_reads_like_a_signal() -> None:
    signals = [signal for group in SIGNALS.values() for signal in group]
    words = Pseudonyms(KEY, [f"w{i:05d}" for i in range(3000)])
    for i in range(3000):
        assert not any(signal in words.text(f"w{i:05d}") for signal in signals)


def test_a_golden_bundle_replays_with_the_same_numbers(subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case=case.name):
            before = read_bundle(case / "bundle.json")
            after = redacted(before, KEY)
            diverse = {"assembly.strategy": "mmr", "dedup.enabled": True, "dedup.similarity": 0.8}
            own = load_config(case / "config.yaml")
            for config in (own, with_values(own, diverse), with_values(PipelineConfig(), diverse)):
                assert_same_numbers(before, after, config)
            categories = {memory.category for memory in before.memories.values()}
            assert words_left(after, telling_words(before) - categories) == set()


def test_the_command_line_replays_what_it_wrote(tmp_path: Path) -> None:
    from cems_workbench.pipeline import write_bundle

    write_bundle(redacted(telling(), KEY), tmp_path / "bundle.json")
    again = read_bundle(tmp_path / "bundle.json")
    config = preset("cems").config
    assert replay(again, config).to_json() == replay(redacted(telling(), KEY), config).to_json()


def test_no_pseudonym_reads_like_the_id_of_a_memory() -> None:
    drawn = Pseudonyms(KEY + bytes(1), ["k8s1"]).text("k8s1")
    taken = replace(CARL, id=drawn, content="k8s1")
    after = redacted(
        telling(memories={memory.id: memory for memory in (ANNA, BERT, taken)}, lists=(), embeddings={}), KEY
    )
    assert drawn not in json.dumps(bundle_from(after))


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
    "memory without content": ({"memories": {"a": {}}}, "memories.a.content: expected text, found None"),
    "content not text": ({"memories": {"a": {"content": 3}}}, "memories.a.content: expected text, found 3"),
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


def test_what_is_not_stated_takes_the_default() -> None:
    read = evidence_from(GOOD)
    assert read.variants == (Variant("q"),)
    assert read.memories["a"].priority == 1.0 and read.memories["a"].importance == "normal"
    assert read.as_of is None and read.project is None
    assert evidence_from({"format": GOOD["format"], "query": "q"}).candidate_ids == []


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
    assert trace(again, changes).to_json() == trace(subject, changes).to_json()


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
        assert replay(first, PipelineConfig()).to_json() == replay(second, PipelineConfig()).to_json()
