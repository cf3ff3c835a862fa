"""What users stored or typed under an older name is read as under the present one, and reported once.

tests/data/written_by_0_1_0 was written by commit 92bc0a9: every preset and a config with every renamed parameter in all forms of export,
a bundle, an evidence file and a link, with their hashes and the scores of replay.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cems_workbench import renamed
from cems_workbench.config import (
    PipelineConfig,
    config_hash,
    field_specs,
    import_config,
    load_config,
    load_import,
    nested,
    parse_config,
    preset,
    with_values,
)
from cems_workbench.config.forms.reading import salvaged
from cems_workbench.config.original_names import original_values
from cems_workbench.config.renamed import old_names, present_assignment, present_path, present_values
from cems_workbench.config.sections.gathering import ADDED_LISTS
from cems_workbench.evaluation.evidence_file import config_text, read_evidence_file
from cems_workbench.jobs.query_set_evidence import QuerySelection, evidence_path
from cems_workbench.pipeline import Evidence, Trace, read_bundle, replay
from cems_workbench.tuning.score_cache import config_digest
from cems_workbench.tuning.space import parse_axis

KEPT = Path(__file__).resolve().parents[2] / "data" / "written_by_0_1_0"


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Some rows of each kind, and nothing reported yet."""
    monkeypatch.setattr(renamed, "COMMANDS", {"embed": "reindex", "report figures": "report plots"})
    monkeypatch.setattr(renamed, "OPTIONS", {"sample": {"--by": "--strategy"}, "report plots": {"--k": "--cutoff"}})
    monkeypatch.setattr(renamed, "LIST_OPTIONS", {"evaluate": {"--metrics": "--metric"}})
    monkeypatch.setattr(renamed, "_reported", {})
    for name, table in {
        "PARAMETERS": {"rerank.wide": "rerank.depth", "lists.pond": "lists.candidate_set"},
        "PARAMETER_VALUES": {"rerank.depth": {"many": "all"}},
    }.items():
        monkeypatch.setattr(f"cems_workbench.config.renamed.{name}", table)
    present_path.cache_clear()
    yield
    present_path.cache_clear()


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("typed", "present"),
    [
        ("embed --store x", "reindex --store x"),
        ("report figures --k 3", "report plots --cutoff 3"),
        ("sample --by=random --by x", "sample --strategy=random --strategy x"),
        ("search --by x", "search --by x"),
        ("sample -- --by", "sample -- --by"),
        ("sample", "sample"),
        ("--version", "--version"),
        ("report", "report"),
    ],
)
def test_old_command_line_names_become_present_ones(typed: str, present: str) -> None:
    assert renamed.present_arguments(typed.split(), groups=("report",)) == present.split()


@pytest.mark.usefixtures("rows")
def test_option_of_several_values_becomes_a_repeated_one() -> None:
    present = ["evaluate", "--metric", "P@5", "--metric", "nDCG@10", "x"]
    assert renamed.present_arguments(["evaluate", "--metrics", "P@5 nDCG@10", "x"]) == present
    assert renamed.present_arguments(["evaluate", "--metrics=P@5 nDCG@10", "x"]) == present


@pytest.mark.usefixtures("rows")
def test_old_name_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        renamed.present_arguments(["embed"])
    assert [record.getMessage() for record in caplog.records] == ["embed is now reindex; the old name still works"]
    assert renamed.reported() == ("embed is now reindex; the old name still works",)


@pytest.mark.usefixtures("rows")
def test_nested_values_get_present_names_in_their_order() -> None:
    old = {"rerank": {"backend": "none", "wide": "many"}, "lists": {"pond": {"size": 3}}, "x": 1}
    new = {"rerank": {"backend": "none", "depth": "all"}, "lists": {"candidate_set": {"size": 3}}, "x": 1}
    assert present_values(old) == new and list(present_values(old)["rerank"]) == ["backend", "depth"]
    assert present_values(new) == new
    assert old_names(old) == [
        ("rerank.wide", "rerank.depth"),
        ("rerank.wide: many", "rerank.depth: all"),
        ("lists.pond", "lists.candidate_set"),
    ]
    assert old_names(new) == []


@pytest.mark.usefixtures("rows")
def test_both_names_of_a_parameter_leave_the_old_one_as_unknown() -> None:
    assert present_values({"rerank": {"wide": 1, "depth": 2}}) == {"rerank": {"wide": 1, "depth": 2}}


@pytest.mark.usefixtures("rows")
def test_assignment_to_an_old_path_below_a_section() -> None:
    assert present_assignment("lists.pond.size", 3) == ("lists.candidate_set.size", 3)
    assert renamed.reported() == ("lists.pond.size is now lists.candidate_set.size; the old name still works",)


def test_tables_lead_to_present_parameters() -> None:
    paths = {spec.path for spec in field_specs()}
    sections = {path.rsplit(".", depth)[0] for path in paths for depth in range(1, path.count(".") + 1)}
    for old, new in renamed.PARAMETERS.items():
        assert new in paths | sections and old not in paths | sections
        assert old.rpartition(".")[0] == new.rpartition(".")[0]
    for path, values in renamed.PARAMETER_VALUES.items():
        allowed = {spec.path: spec for spec in field_specs()}[path].choices
        assert set(values.values()) <= set(allowed) and not set(values) & set(allowed)


def test_tables_of_the_command_line_name_present_commands() -> None:
    from typer.main import get_command

    from cems_workbench.cli.main import commands

    known = {}
    for name, command in get_command(commands).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", {})
        known |= {f"{name} {inner}": one for inner, one in below.items()} if below else {name: command}
    for old, new in renamed.COMMANDS.items():
        assert new in known and old not in known
    for table in (renamed.OPTIONS, renamed.LIST_OPTIONS):
        for name, options in table.items():
            present = {option for param in known[name].params for option in param.opts}
            assert set(options.values()) <= present and not set(options) & present, name


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    values: dict[str, Any] = json.loads((KEPT / "expected.json").read_text(encoding="utf-8"))
    return values


@pytest.fixture(scope="module")
def exports() -> dict[str, dict[str, str]]:
    """Text of every export by form and config."""
    values: dict[str, dict[str, str]] = json.loads(gzip.decompress((KEPT / "exports.json.gz").read_bytes()))
    return values


@pytest.fixture(scope="module")
def kept_evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kept") / "asked.evidence"
    path.write_bytes(gzip.decompress((KEPT / "evidence.gz").read_bytes()))
    return path


def everything() -> PipelineConfig:
    """The kept config, which has no renamed parameter at its default but `lists.answered_by`, under the present names."""
    changes = {
        "name": "renamed",
        "lists.vector.depth": 5,
        "lists.vector.first_stage_factor": 2,
        "lists.lexical.depth": 4,
        "lists.lexical.first_stage_factor": 3,
        "lists.first_stage_factor": 2,
        "lists.candidate_set.mode": "recent_access",
        "lists.candidate_set.size": 9,
        "fusion.method": "combsum",
        "fusion.multi_list_boost": 0.1,
        "rerank.backend": "cross_encoder",
        "rerank.model": "workbench/minilm-judge",
        "rerank.depth": 5,
        "rerank.score_window": 0.75,
        "rerank.below_depth": "below",
        "rerank.text_source": "chunk",
        "rerank.prepend_question": True,
        "rerank.chunk_selection": "passages",
        "rerank.raw_scale": "sigmoid",
        "rerank.retrieval_score": "fused",
        "assembly.limit": 2,
        "filter.min_score": None,
        "judge.backend": "none",
        "query.mode": "hybrid",
    }
    return with_values(preset("cems").config, changes)


def live() -> PipelineConfig:
    changes = {"name": "renamed-live", "lists.answered_by": "source", "fusion.method": "combmax"}
    return with_values(everything(), changes)


PRESETS_OF_0_1_0 = (
    "cems",
    "ace",
    "ace_a",
    "ace_b",
    "ace_c",
    "ace_d",
    "cems_head",
    "cems_qwen",
    "memory_agent",
    "qmd",
    "recollection",
    "workbench",
)


SINCE = {"workbench": {"rerank.expected_misses": None, "rerank.brief.long_chars": None}}
"""What a preset has changed since, and what was done before."""


def kept_configs() -> list[PipelineConfig]:
    presets = (with_values(preset(name).config, SINCE.get(name, {})) for name in PRESETS_OF_0_1_0)
    return [*presets, everything(), live()]


def scores(trace: Trace) -> dict[str, Any]:
    """Ids and scores of every stage and of the results, as the kept ones were written."""
    stages = {
        stage.name: [[row.memory_id, row.score_after] for row in stage.rows]  # type: ignore[attr-defined]
        for stage in trace.stages
        if stage.rows and hasattr(stage.rows[0], "score_after")
    }
    return stages | {"results": [[result.memory_id, result.score] for result in trace.results]}


def needed(need: dict[str, Any]) -> dict[str, Any]:
    """A kept need under the present names."""
    if "parameter" not in need:
        return need
    path, gathered = present_assignment(need["parameter"], need["gathered"], quiet=True)
    return need | {
        "parameter": path,
        "gathered": gathered,
        "wanted": present_assignment(path, need["wanted"], quiet=True)[1],
    }


def assert_replays(evidence: Evidence, kept: dict[str, dict[str, Any]]) -> None:
    for config in kept_configs():
        if config.name in kept:
            trace = replay(evidence, config)
            values = kept[config.name]
            assert scores(trace) == {name: rows for name, rows in values.items() if name != "needs"}, config.name
            assert [need.to_json() for need in trace.needs] == [needed(need) for need in values["needs"]]


@pytest.mark.parametrize("form", ["yaml", "json", "toml", "python"])
def test_whole_exports_of_0_1_0_are_read_as_the_same_configs(form: str, exports: dict[str, dict[str, str]]) -> None:
    for config in kept_configs():
        imported = import_config(exports[form][config.name])
        assert imported.config == config
        assert imported.renamed.startswith("config has older names: ")


@pytest.mark.parametrize("form", ["env", "reranker-env"])
def test_env_exports_of_0_1_0_change_nothing(form: str, exports: dict[str, dict[str, str]]) -> None:
    for config in kept_configs():
        imported = import_config(exports[form][config.name], config, source="x.env")
        assert (imported.config, imported.changes, imported.warnings, imported.renamed) == (config, [], [], "")


def test_file_of_0_1_0_is_reported_in_one_line() -> None:
    imported = load_import(KEPT / "config.yaml")
    assert imported.renamed.endswith(
        "config.yaml has older names: lists.vector.prefetch is now lists.vector.first_stage_factor, lists.lexical.prefetch is "
        "now lists.lexical.first_stage_factor, lists.pool is now lists.candidate_set (and 10 more); they still work"
    )
    assert imported.renamed in renamed.reported()


def test_digests_are_those_of_0_1_0(expected: dict[str, Any]) -> None:
    for config in kept_configs():
        assert config_hash(config) == expected["config_hash"][config.name]
        assert config_digest(config) == expected["config_digest"][config.name]


@pytest.mark.skipif(bool(ADDED_LISTS), reason="the list of an added retriever is gathered too, which is other evidence")
def test_name_of_gathered_evidence_is_that_of_0_1_0(kept_evidence: Path, expected: dict[str, Any]) -> None:
    relations = SimpleNamespace(has_superseding=lambda: False)
    store = SimpleNamespace(identity="0123456789ab", content_version=7, path=Path("/store"), relations=relations)
    resources: Any = SimpleNamespace(store=store, embedder=SimpleNamespace(model_id="hash-16"))
    selection = QuerySelection("asked", tuple(read_evidence_file(kept_evidence).queries))
    assert evidence_path(everything(), selection, resources).name == expected["evidence_name"]


def test_evidence_file_of_0_1_0_is_whole_and_replays_to_the_last_bit(
    kept_evidence: Path, expected: dict[str, Any]
) -> None:
    kept = read_evidence_file(kept_evidence)
    assert kept.content_hash == expected["content_hash"]
    assert kept.header.config == everything()
    assert kept.header.config_yaml == config_text(everything())
    for qid, evidence in kept.evidences.items():
        assert_replays(evidence, expected["traces"][qid])
        assert replay(evidence, everything()).needs == []


def test_bundle_of_0_1_0_replays_to_the_last_bit(expected: dict[str, Any]) -> None:
    assert_replays(read_bundle(KEPT / "bundle.json"), expected["traces"]["q1"])


def test_link_of_0_1_0_has_its_config() -> None:
    values = json.loads(json.loads((KEPT / "link.json").read_text(encoding="utf-8"))["config"])
    assert salvaged(values) == (everything(), ())


def test_original_values_are_a_config_of_version_1() -> None:
    for config in kept_configs():
        values = original_values(nested(config))
        assert values["version"] == 1 and salvaged(values) == (config, ())


def test_old_names_are_read_wherever_they_are_typed() -> None:
    """Changes by path, a single parameter read by path, and the axes of a tuning space."""
    config = with_values(PipelineConfig(), {"rerank.input_limit": 7, "lists.origin": "source"})
    assert (config.rerank.depth, config.lists.answered_by) == (7, "source")
    assert config.get("rerank.input_limit") == 7
    assert parse_axis("rerank.input_limit=1:6:1") == parse_axis("rerank.depth=1:6:1")
    assert parse_axis("fusion.method=rrf|score_sum").choices == ("rrf", "combsum")


def test_version_1_may_use_present_names_and_version_2_old_ones() -> None:
    assert parse_config("{version: 1, rerank: {depth: 7}}").rerank.depth == 7
    assert parse_config("{version: 2, rerank: {input_limit: 7}}").rerank.depth == 7
    assert load_config(KEPT / "config.yaml").version == 2
