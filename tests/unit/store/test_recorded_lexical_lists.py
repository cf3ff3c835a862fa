"""CEMS's own lexical lists, recorded while it ran, against the index: chunks as it cuts them, rows as they lay, ranks, order of ties."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.models.chunking import cems_pieces
from cems_workbench.progress import silent
from cems_workbench.store.search import postgres
from cems_workbench.store.search.postgres import TsRankIndex
from pg_text_search.heap import HeapRow, heap_order
from pg_text_search.ts_rank import lexemes


@pytest.mark.parametrize(
    ("recording", "memories"),
    [("sample", SAMPLE_DATA / "memories.jsonl"), ("sessions", Path("sessions/memories.jsonl"))],
    ids=["sample", "sessions"],
)
def test_recorded_lexical_lists_of_cems_come_out_to_the_score_and_the_place(
    shared: Path, tmp_path: Path, recording: str, memories: Path
) -> None:
    answers = json.loads((shared / "cems" / f"{recording}.json").read_text("utf-8"))["answers"]
    rows = [json.loads(line) for line in (shared / "cems" / memories).read_text("utf-8").splitlines()]
    chunks = [
        (row["id"], number, piece.text) for row in rows for number, piece in enumerate(cems_pieces(row["content"]))
    ]
    order = heap_order([HeapRow(text, 384, lexemes(text)) for _, _, text in chunks])
    index = indexed(tmp_path, [chunks[place] for place in order])
    for answer in answers:
        recorded = [(memory_id, score) for memory_id, score in answer["lists"]["lexical"][-1]]
        best: dict[str, float] = {}
        for memory_id, score, _ in index.search(answer["query"], 100, ties="limit"):
            best.setdefault(memory_id, score)
        assert list(best.items())[:50] == [(m, pytest.approx(score, abs=1e-6)) for m, score in recorded], answer[
            "query"
        ]
    assert len(answers) > 100


def indexed(home: Path, chunks: list[tuple[str, int, str]]) -> TsRankIndex:
    entries = [postgres.Chunk(memory_id, number, text, None, "personal") for memory_id, number, text in chunks]
    return TsRankIndex(home / postgres.build(home, entries, len(entries), 1, silent).directory)
