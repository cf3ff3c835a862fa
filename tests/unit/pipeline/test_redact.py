"""A redacted bundle: what is gone, what stays, and that the numbers are the same."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cems_workbench.config import PipelineConfig, load_config, preset, preset_names, with_values
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant, bundle_from, read_bundle, replay
from cems_workbench.pipeline.list_provenance import provenance_of
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


def evidence(**changes: Any) -> Evidence:
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


def test_no_telling_word_of_a_text_is_left() -> None:
    left_over = words_left(redacted(evidence(), KEY), telling_words(evidence()))
    assert left_over == {"many", "project"}, "“How many” is a signal, “project:” the form of a source reference"
    left = json.dumps(bundle_from(redacted(evidence(), KEY)), ensure_ascii=False).lower()
    for name in ("Klein", "Кляйн", "zürich", "acme", "monday", "note-", "anna", "elastic", "physicians"):
        assert name.lower() not in left


def test_texts_keep_their_length_their_shape_and_the_words_they_share() -> None:
    after = redacted(evidence(), KEY)
    for before, now in zip((ANNA, BERT, CARL), after.memories.values(), strict=True):
        assert len(now.content) == len(before.content)
        assert re.sub(r"[^\W_]", "x", now.content) == re.sub(r"[^\W_]", "x", before.content)
    contents = [memory.content.lower() for memory in after.memories.values()]
    words = [set(re.findall("[a-z0-9]+", content)) for content in contents]
    assert len(words[0] & words[1]) == 2  # doctor, klein
    assert not words[0] & words[2]
    assert "İ" in after.memories["m-001"].content


def test_words_of_the_detectors_stay_in_their_place_and_their_letters_alone() -> None:
    query = redacted(evidence(), KEY).query
    assert query.startswith("How many ")
    assert query[QUERY.index("elastic") + 1 :][:5] == "last" + query[QUERY.index("elastic") + 5]
    assert "elastic" not in query


def test_ids_keep_their_order_and_projects_what_they_begin_with() -> None:
    after = redacted(evidence(), KEY)
    assert list(after.memories) == ["m-001", "m-002", "m-003"]
    assert [memory.project for memory in after.memories.values()] == ["p", "p-001", "o-001"]
    assert after.project == "p"
    assert [hit.memory_id for hit in after.lists[0].hits] == ["m-002", "m-003", "m-001"]
    assert [ranked.name for ranked in after.lists] == ["vector:0", "lexical-1"]
    nobody = redacted(evidence(project=None), KEY)
    assert [memory.project for memory in nobody.memories.values()] == ["o-001", "o-002", "o-003"]
    assert nobody.project is None


def test_vectors_keep_their_angles_and_nothing_else() -> None:
    before, after = evidence(), redacted(evidence(), KEY)
    old = np.array([before.embeddings[key] for key in sorted(before.embeddings)])
    new = np.array([after.embeddings[key] for key in sorted(after.embeddings)])
    assert np.abs(old @ old.T - new @ new.T).max() < 1e-12
    assert np.triu(new, 1).max() == 0
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    other = redacted(evidence(embeddings=dict(zip(sorted(before.embeddings), old @ turned, strict=True))), KEY)
    again = np.array([other.embeddings[key] for key in sorted(other.embeddings)])
    assert np.abs(np.abs(again) - np.abs(new)).max() < 1e-12, "a turned space gives the same coordinates"


def test_scores_keep_numbers_and_lose_what_was_read() -> None:
    rows = redacted(evidence(), KEY).model_scores["cross_encoder"]
    assert rows["m-001"].raw == 2.0
    assert rows["m-001"].detail == {"seconds": 0.5}
    assert len(rows["m-001"].chunk or "") == len("Anna visits her doctor")
    assert (rows["m-002"].error or "").startswith("not a number: “")


def test_notes_keep_what_replay_reads_and_lose_what_it_does_not_know() -> None:
    notes = redacted(evidence(), KEY).notes
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
    whole = evidence()
    whole = replace(whole, notes=whole.notes | {"engine": note})
    assert provenance_of(whole.notes, "vector:0") == "as answered by acme_prod at 2026-09-01 12:04 UTC"
    without = redacted(whole, KEY)
    assert without.notes["engine"] == {name: note[name] for name in ("kind", "at", "lists")}
    assert "acme_prod" not in json.dumps(bundle_from(without))
    assert provenance_of(without.notes, "vector:0") == "as answered by Qdrant at 2026-09-01 12:04 UTC"


def test_a_key_decides_the_pseudonyms_and_none_is_drawn_anew() -> None:
    once = bundle_from(redacted(evidence(), KEY))
    assert once == bundle_from(redacted(evidence(), KEY))
    assert bundle_from(redacted(evidence())) != bundle_from(redacted(evidence()))


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


def test_every_preset_gives_the_same_numbers(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        with subtests.test(name=name):
            before = evidence()
            before = replace(before, notes={**before.notes, "gathered": {"lists.vector.depth": 5}})
            assert_same_numbers(before, redacted(before, KEY), preset(name).config)


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

    write_bundle(redacted(evidence(), KEY), tmp_path / "bundle.json")
    again = read_bundle(tmp_path / "bundle.json")
    config = preset("cems").config
    assert replay(again, config).same_as(replay(redacted(evidence(), KEY), config))


def test_no_pseudonym_reads_like_the_id_of_a_memory() -> None:
    drawn = Pseudonyms(KEY + bytes(1), ["k8s1"]).text("k8s1")
    taken = replace(CARL, id=drawn, content="k8s1")
    after = redacted(
        evidence(memories={memory.id: memory for memory in (ANNA, BERT, taken)}, lists=(), embeddings={}), KEY
    )
    assert drawn not in json.dumps(bundle_from(after))
