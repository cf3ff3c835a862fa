"""A store of long documents, from import to evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.evaluation.evidence_file import EvidenceFile, read_evidence_file
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import header_for
from cems_workbench.models import tokens
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.bundle import read_bundle, write_bundle
from cems_workbench.pipeline.gather import Request, gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.scoring import given_chunks
from cems_workbench.records import Query
from cems_workbench.settings import Settings

if TYPE_CHECKING:
    from conftest import Command

QUERY = "What did Caroline do at the LGBTQ support group?"


@pytest.fixture
def sessions(shared: Path) -> Path:
    """The long documents; skips where they are not beside the checkout."""
    folder = shared / "cems" / "sessions"
    if not folder.is_dir():
        pytest.skip("../shared/cems is not beside the checkout")
    return folder


@pytest.fixture
def cems(sessions: Path, command: Command, tmp_path: Path) -> Path:
    """A store of them, cut as CEMS cuts."""
    folder = tmp_path / "cems"
    finished = command("import", sessions / "memories.jsonl", "--chunks", "cems", "--store", folder)
    assert finished.code == 0
    assert "rule cems, 19 memories have" in finished.out
    return folder


@pytest.mark.thorough
def test_long_documents_have_several_chunks_and_lists_say_which(cems: Path, tmp_path: Path) -> None:
    resources = open_resources(Settings(store=cems))
    try:
        statistics = resources.store.chunks.statistics()
        assert statistics.memories == 19 and statistics.chunks > 19
        config = with_values(preset("workbench").config, {"rerank.text_source": "chunk"})
        evidence = gather(Request(QUERY), config, resources)
        _check_evidence(evidence, config)
        _check_files(evidence, tmp_path, resources)
        trace = replay(evidence, config)
        assert trace.results
    finally:
        resources.close()


def _check_evidence(evidence: Evidence, config: PipelineConfig) -> None:
    for ranked in evidence.lists:
        if ranked.source in ("vector", "lexical"):
            assert all(hit.chunk is not None for hit in ranked.hits)
            assert [hit.score for hit in ranked.hits] == sorted((hit.score for hit in ranked.hits), reverse=True)
    assert len({hit.memory_id for hit in evidence.lists[0].hits}) == 19 < len(evidence.lists[0].hits)
    for key, memory in evidence.memories.items():
        chunks = evidence.chunks[key]
        assert evidence.tokens[key] == (tokens.count(memory.content), *(tokens.count(chunk.text) for chunk in chunks))
        assert all(memory.content[chunk.start :].startswith(chunk.text) for chunk in chunks)
    given = given_chunks(evidence, config)
    for scores in evidence.model_scores.values():
        assert all(score.chunk is not None and score.chunk in given[key].text for key, score in scores.items())


def _check_files(evidence: Evidence, folder: Path, resources: Resources) -> None:
    write_bundle(evidence, folder / "bundle.json")
    assert read_bundle(folder / "bundle.json").lists == evidence.lists
    header = header_for(preset("workbench").config, resources, query_set="set", only_project=False)
    with EvidenceFile.create(folder / "set.duckdb", header, [Query("q", QUERY)], []) as file:
        file.add("q", evidence, 0.1)
        mark = file.finish()
    read = read_evidence_file(folder / "set.duckdb")
    back = read.evidences["q"]
    assert read.content_hash == mark
    assert (back.lists, back.chunks, back.tokens, back.memories) == (
        evidence.lists,
        evidence.chunks,
        evidence.tokens,
        evidence.memories,
    )
