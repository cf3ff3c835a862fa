"""Redacted bundles of the sample queries: the numbers of every preset, and no word of a memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cems_workbench.config import preset, preset_names, with_values
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline import read_bundle
from cems_workbench.pipeline.gather import Request, gather_lists, gather_scores
from cems_workbench.pipeline.redact import redacted
from cems_workbench.settings import Settings
from tests.redaction import assert_same_numbers
from tests.thoroughly import partly, some

if TYPE_CHECKING:
    from conftest import Command

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
