"""What a later version renamed is read as under the present name: config files of version 1, and rows as the next rename has them."""

from __future__ import annotations

import json

import pytest

from cems_workbench import renamed
from cems_workbench.config import PipelineConfig, dump_config, field_specs, import_config, parse_config, with_values
from cems_workbench.config.forms import yaml_form as configs
from cems_workbench.errors import InputError

VERSION_1 = """
version: 1
lists: {vector: {prefetch: 3}, lexical: {prefetch: 2}, pool: {mode: recent_access, size: 9}, origin: store, coarse_multiplier: 2}
fusion: {method: score_sum, multi_query_boost: 0.1}
rerank: {input_limit: 5, score_span: 0.75, tail: below, reads: chunk, question_before: true}
"""
PRESENT = {
    "lists.vector.first_stage_factor": 3,
    "lists.lexical.first_stage_factor": 2,
    "lists.candidate_set.mode": "recent_access",
    "lists.candidate_set.size": 9,
    "lists.answered_by": "workbench",
    "lists.first_stage_factor": 2,
    "fusion.method": "combsum",
    "fusion.multi_list_boost": 0.1,
    "rerank.depth": 5,
    "rerank.score_window": 0.75,
    "rerank.below_depth": "below",
    "rerank.text_source": "chunk",
    "rerank.prepend_question": True,
}


def test_a_config_of_version_1_is_read_under_the_names_of_the_specification() -> None:
    """The form of the shared golden cases, and of configs that people wrote for other systems."""
    config = parse_config(VERSION_1)
    assert config == with_values(PipelineConfig(), PRESENT)
    assert import_config(VERSION_1, config).changes == []
    assert parse_config(dump_config(config)) == config and dump_config(config).startswith("version: 2\n")
    as_json = json.dumps({"version": 1, "rerank": {"input_limit": 5}})
    assert import_config(as_json).config.rerank.depth == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{version: 2, rerank: {input_limit: 7}}", "x: rerank.input_limit: unknown key; it is now rerank.depth"),
        (
            "{version: 1, rerank: {input_limit: 7, depth: 7}}",
            "x: rerank.input_limit: unknown key; it is now rerank.depth",
        ),
        ("{version: 3}", "x: version: 3 is not allowed; allowed: 1, 2"),
        ("{version: 0}", "x: version: 0 is not allowed; allowed: 1, 2"),
        ("{version: 1, fusion: {method: score_mean}}", "x: fusion.method: 'score_mean' is not allowed; allowed: rrf"),
    ],
)
def test_another_version_and_an_old_name_outside_of_version_1_are_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as error:
        parse_config(text, "x")
    assert str(error.value).startswith(said)


def test_every_row_leads_to_a_present_parameter_and_none_from_one() -> None:
    specs = {spec.path: spec for spec in field_specs()}
    sections = {path.rsplit(".", depth)[0] for path in specs for depth in range(1, path.count(".") + 1)}
    assert list(configs.PARAMETERS) == list(configs.VALUES) == list(range(2, configs.VERSION + 1))
    for old, new in configs.PARAMETERS[configs.VERSION].items():
        assert new in specs.keys() | sections and old not in specs.keys() | sections
        assert old.rpartition(".")[0] == new.rpartition(".")[0]
    for path, values in configs.VALUES[configs.VERSION].items():
        assert set(values.values()) <= set(specs[path].choices) and not set(values) & set(specs[path].choices)


def test_the_next_rename_is_a_row_for_files_of_both_earlier_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "VERSION", 3)
    monkeypatch.setattr(configs, "PARAMETERS", {**configs.PARAMETERS, 3: {"rerank.depth": "rerank.most"}})
    monkeypatch.setattr(configs, "VALUES", {**configs.VALUES, 3: {"rerank.most": {"many": "all"}}})
    of_1 = {"name": "n", "version": 1, "rerank": {"input_limit": "many", "model": "m"}}
    of_3 = {"name": "n", "version": 3, "rerank": {"most": "all", "model": "m"}}
    assert configs.present_values(of_1) == configs.present_values(of_3) == of_3
    assert configs.present_values({"version": 2, "rerank": {"depth": 5}}) == {"version": 3, "rerank": {"most": 5}}
    assert list(configs.present_values(of_1)) == list(of_1)
    assert configs.present_path("rerank.input_limit") == "rerank.most"


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
        ("", ""),
    ],
)
def test_a_renamed_word_of_the_command_line_is_a_row(typed, present, monkeypatch, caplog):
    rows = {
        "embed": "reindex",
        "report figures": "report plots",
        "sample --by": "--strategy",
        "report plots --k": "--cutoff",
    }
    monkeypatch.setattr(renamed, "WORDS", rows)
    renamed.report.cache_clear()
    for _ in range(2):
        assert renamed.present_arguments(typed.split(), groups=("report",)) == present.split()
    assert renamed.present_arguments(["a b", "--by"]) == ["a b", "--by"]
    changed = typed != present
    assert len(caplog.messages) == (
        len(set(typed.split()) - set(present.split())) if changed and "=" not in typed else changed
    )
    assert not changed or caplog.messages[0].endswith("; the old name still works")
