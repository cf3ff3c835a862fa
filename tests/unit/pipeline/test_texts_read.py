"""What reranker and judge are given to read is what the evidence, and the Judge view, say they read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.jobs.factory import servers
from cems_workbench.models.protocol import PairScore
from cems_workbench.pipeline import replay, scoring
from cems_workbench.pipeline.evidence import QUESTIONS, Evidence, Hit, RankedList, Variant
from cems_workbench.pipeline.gather import gather_scores
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.rerank import model_key
from cems_workbench.records import Chunk, Memory, ParsedInput
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.caches import PairScores
from cems_workbench.ui.inspect.views.judge import differing_texts, judge_columns


@dataclass
class Reader:
    """Scores a text by its length, and remembers what it was given."""

    label: str = "reader"
    scale: None = None
    batch: int = 8
    given: list[str] = field(default_factory=list)

    def cache_model(self, query: str) -> str:
        return f"reader {id(self)}"

    def score(self, query: str, texts: Sequence[str]) -> list[PairScore]:
        self.given += texts
        return [PairScore(float(len(text))) for text in texts]


def some_evidence(turn: int) -> Evidence:
    """A query over five memories of three sentences each, found whole or by their second chunk."""
    drawn = random.Random(turn)
    words = ["deploy", "database", "lunch", "doctor", "garden", "train"]
    texts = {f"m{n}": [" ".join(drawn.choices(words, k=9)) + f" {n}. " for _ in range(3)] for n in range(5)}
    chunked = {key for key in texts if drawn.random() < 0.5}
    hits = tuple(Hit(key, 0.9 - n / 10, 1 if key in chunked else None) for n, key in enumerate(texts))
    return Evidence(
        query=" ".join(drawn.choices(words, k=2)),
        memories={key: Memory(key, "".join(parts)) for key, parts in texts.items()},
        variants=(Variant("query"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        chunks={key: tuple(Chunk(key, seq, part) for seq, part in enumerate(texts[key])) for key in chunked},
        notes={QUESTIONS: {key: f"Which {drawn.choice(words)}?" for key in texts if drawn.random() < 0.5}},
    )


def given_text(evidence: Evidence, memory_id: str, config: PipelineConfig) -> str:
    """What the reranker's texts are chosen from."""
    chunk = scoring.given_chunks(evidence, config).get(memory_id)
    return evidence.memories[memory_id].content if chunk is None else chunk.text


def test_reranker_and_judge_say_what_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, readers, differ = random.Random(18), [], []

    def reading(backend: str, request: object, use: Callable[[Reader], Any]) -> tuple[Reader, None, Any]:
        readers.append(Reader())
        return readers[-1], None, use(readers[-1])

    monkeypatch.setattr(scoring, "score_with", reading)
    # Every reader is another model, so that nothing would be found: 200 turns take four seconds instead of twenty.
    monkeypatch.setattr(PairScores, "read", lambda cache, texts: [None] * len(texts))
    monkeypatch.setattr(PairScores, "write", lambda *given: None)
    with Store.open(tmp_path / "store") as store:
        resources = Resources(store, None, servers(Settings()))  # type: ignore[arg-type]
        for turn in range(200):
            config = with_values(
                PipelineConfig(),
                {
                    "rerank.backend": "cross_encoder",
                    "rerank.model": "one",
                    "rerank.skip_if_few": False,
                    "judge.backend": "cross_encoder",
                    "rerank.chunk_selection": drawn.choice(["seed_overlap", "term_overlap", "head", "passages"]),
                    "rerank.passages": drawn.choice([1, 2, None]),
                    "rerank.text_source": drawn.choice(["memory", "chunk"]),
                    "rerank.chunk_chars": drawn.choice([60, 300]),
                    "rerank.prepend_question": drawn.choice([True, False]),
                    "judge.max_chars": drawn.choice([None, None, 40]),
                    "filter.min_score": None,
                },
            )
            readers.clear()
            found = gather_scores(some_evidence(turn), config, resources)
            trace = replay(found, config)
            for key, score in found.model_scores[model_key(config.rerank)].items():
                read = scoring.Reading.of(found, config).by_reranker(key)
                asked = config.rerank.prepend_question and key in found.questions
                assert read[: len(read) - asked] == scoring.texts_for_reranker(
                    given_text(found, key, config), found.searched, config
                )
                assert score.raw == max(map(len, read)) and set(read) <= set(readers[0].given)
            reranked = {key: score.chunk for key, score in found.model_scores[model_key(config.rerank)].items()}
            judged = {key: score.chunk for key, score in next(iter(found.judge_scores.values())).items()}
            assert set(readers[1].given) == set(judged.values())
            several = config.rerank.prepend_question or (
                config.rerank.chunk_selection == "passages" and config.rerank.passages != 1
            )
            assert set(readers[0].given) >= set(reranked.values()) and (
                several or len(readers[0].given) == len(set(reranked.values()))
            )
            assert trace.results and not scoring.wanted_scores(trace, "judge")
            texts = differing_texts(trace)
            if config.judge.max_chars is None:
                assert {key: reranked[key] for key in judged} == judged
                assert not texts
            else:
                assert texts["judge read"] == judged
                read = next(column for column in judge_columns(trace, {}, None) if column.name == "judge read")
                assert [read.cell(row) for row in trace.results] == [judged[row.memory_id] for row in trace.results]
            differ.append(bool(texts))
    assert set(differ) == {True, False}


def test_questions_are_looked_up_once_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()
    monkeypatch.setattr(scoring, "score_with", lambda backend, request, use: (reader, None, use(reader)))
    said = [
        Memory(f"t{n}", text, session="s", created_at=datetime(2026, 1, 1, 9, 0, n, tzinfo=UTC))
        for n, text in enumerate(TURNS)
    ]
    hits = tuple(Hit(memory.id, 0.9) for memory in said[1:])
    with Store.open(tmp_path / "store") as store:
        store.add(ParsedInput("t.jsonl", "t", memories=tuple(said)))
        resources = Resources(store, None, servers(Settings()))  # type: ignore[arg-type]
        evidence = Evidence(
            "where",
            {memory.id: memory for memory in said[1:]},
            (Variant("where"),),
            (RankedList("vector:0", "vector", 0, hits),),
        )
        config = with_values(
            PipelineConfig(),
            {
                "rerank.backend": "cross_encoder",
                "rerank.skip_if_few": False,
                "filter.min_score": None,
                "rerank.chunk_selection": "head",
            },
        )
        assert gather_scores(evidence, config, resources, only="rerank").questions == {}
        assert sorted(reader.given) == sorted(TURNS[1:])
        asking = with_values(config, {"rerank.prepend_question": True})
        scored = gather_scores(evidence, asking, resources, only="rerank")
        assert scored.questions == {"t1": TURNS[0]}
        assert scored.model_scores[model_key(asking.rerank)]["t1"].chunk == f"{TURNS[0]}\n{TURNS[1]}"
        monkeypatch.setattr(store.memories, "before", None)
        assert (
            gather_scores(scoring.without_failures(scored, "none"), asking, resources, only="rerank").questions
            == scored.questions
        )


TURNS = ("Where did you go?", "To the lake.", "Lovely.")
