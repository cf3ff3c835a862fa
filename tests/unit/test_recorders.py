"""What recorders share, and what they write, without the systems: those were run by hand (docs/use/recording.md)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.record import engram, mem0, qmd
from benchmarks.record.recording import asked, memories_of, milliseconds, written
from cems_workbench.formats.recorded_answers import read_recording

NOW = datetime(2026, 9, 1, tzinfo=UTC)


def test_memories_are_inserted_in_order_of_creation_and_equal_ones_as_in_the_file(tmp_path: Path) -> None:
    rows = [{"id": "b", "created_at": "2026-02-01"}, {"id": "c", "created_at": "2026-01-01"}, {"id": "a"}]
    rows.append({"id": "d", "created_at": "2026-01-01"})
    (tmp_path / "memories.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert [row["id"] for row in memories_of(tmp_path)] == ["a", "c", "d", "b"]
    assert milliseconds("1970-01-01T00:00:01Z", NOW) == 1000
    assert milliseconds(None, NOW) == 1788220800000


def test_a_recording_is_read_as_that_of_another_system(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    query = {"qid": "q", "query": "x", "as_of": "2026-09-01T00:00:00Z", "type": "t", "project": None}
    count = written(path, "system 1", {"limit": 3}, iter([asked(query, results=["a"])]), clock=lambda: 0.0)
    found = read_recording(path)
    assert (count, found.system, dict(found.own_settings), found.errors) == (1, "system 1", {"limit": "3"}, ())
    assert (found.answers[0].query, found.answers[0].asked_at) == ("x", NOW)
    assert found.answered_at is not None
    assert found.answered_at.year == 1970


def test_full_text_rows_of_engram_are_a_list_with_the_best_match_first() -> None:
    one: dict[str, Any] = {"results": [{"id": "b"}], "fts_query": "x", "fts_rows": [[1, "a", -1.0], [2, "b", -3.0]]}
    (answer,) = engram.answers([{"qid": "q", "query": "x"}], [one])
    assert answer["lists"] == {"lexical": [["b", 3.0], ["a", 1.0]]}


def test_the_searches_of_a_mem0_store_are_kept_under_our_ids() -> None:
    hit = SimpleNamespace(id="uuid", score=0.5, payload={mem0.OWN_ID: "m1"})
    store = SimpleNamespace(
        search=lambda **named: [hit], keyword_search=lambda **named: None, collection_name="memories"
    )
    watched = mem0.WatchedStore(store)
    assert watched.search(query="x") == [hit]
    assert watched.keyword_search(query="x") is None
    assert (watched.semantic, watched.keyword) == ([{"id": "m1", "score": 0.5}], None)
    assert watched.collection_name == "memories"


def test_an_id_that_no_file_name_can_hold_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = qmd.write_files([{"id": "a/b", "content": "x", "title": "T"}], tmp_path, titles=True)
    assert (tmp_path / "0.md").read_text() == "# T\n\nx\n"
    out = 'note\n[{"file": "qmd://memories/0.md", "score": 0.5}]'
    monkeypatch.setattr(qmd, "run", lambda command, environment: out)
    (answer,) = qmd.answers("qmd", [{"qid": "q", "query": "x"}], ids, 10, {})
    assert answer["results"] == [{"id": "a/b", "score": 0.5}]
