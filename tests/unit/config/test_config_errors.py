"""Configs that are read: mistakes in one line, what is extended, renamed or salvaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from cems_workbench.config import (
    PipelineConfig,
    config_from,
    dump_config,
    export_config,
    field_specs,
    import_config,
    load_config,
    nested,
    parse_assignment,
    parse_config,
    preset,
    preset_names,
    with_values,
)
from cems_workbench.config.forms import yaml_form as configs
from cems_workbench.config.forms.files import salvaged
from cems_workbench.errors import InputError

REFUSED: dict[str, tuple[str, str]] = json.loads(Path(__file__).with_name("refused.json").read_text("utf-8")) | {
    "huge tier": ("adjust: {time_decay: {tiers: {a: 1" + "0" * 400 + "}}}", "adjust.time_decay.tiers: 1000"),
    "5000 digits": ("fusion: {k: " + "1" * 5000 + "}", "a number of 5,000 digits"),
    "deep": ("{a: " * 3000 + "1" + "}" * 3000, "nested too deeply"),
}
"""By what is wrong with a config its text, and what the refusal says."""


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_config_is_one_line_that_names_the_place_and_what_is_allowed(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_config(text, source="my.yaml")
    assert str(caught.value).startswith("my.yaml:")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_several_mistakes_are_all_named() -> None:
    with pytest.raises(InputError, match=r"fusion\.k: -1 .* \(and 1 more: filter\.percentile: 101"):
        parse_config("fusion: {k: -1}\nfilter: {percentile: 101}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfev\x00", "not UTF-8 text (byte 0)"),
        (b"name: caf\xe9", "not UTF-8 text (byte 9)"),
        (b"", "the file is empty"),
    ],
)
def test_a_file_that_is_no_text_is_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_config(path)
    assert str(caught.value).startswith(f"{path}: ") and message in str(caught.value)


def test_a_missing_file_and_a_directory_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such config file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="directory"):
        load_config(tmp_path)


def test_missing_keys_take_the_default() -> None:
    assert parse_config("fusion: {k: 30}") == with_values(PipelineConfig(), {"fusion.k": 30})
    assert parse_config("{}") == PipelineConfig()


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: mine\n")
    assert load_config(path).name == "mine"


@pytest.mark.parametrize(("text", "value"), [("1e-3", 0.001), ("1E2", 100.0), ("5", 5.0), ("0.5", 0.5)])
def test_numbers_are_read_as_other_tools_write_them(text: str, value: float) -> None:
    assert parse_config(f"lists: {{vector: {{weight: {text}}}}}").lists.vector.weight == value


def test_json_is_read_with_its_own_escapes() -> None:
    """YAML 1.1 makes two broken characters of an emoji that JSON escapes as two."""
    text = '{"name": "\\ud83d\\ude00 \\u007f", "fusion": {"k": 7}}'
    assert parse_config(text) == with_values(PipelineConfig(), {"name": "😀 \x7f", "fusion.k": 7})


def test_an_unknown_preset_names_the_nearest_and_all() -> None:
    with pytest.raises(InputError, match="preset qmdd: unknown; did you mean qmd"):
        preset("qmdd")


def test_an_unknown_export_form_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="export to 'xml': not known; allowed: yaml, json"):
        export_config(PipelineConfig(), "xml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fusion.k=30", ("fusion.k", 30)),
        (" fusion.method = combsum", ("fusion.method", "combsum")),
        ("lists.vector.depth=null", ("lists.vector.depth", None)),
        ("rerank.query=a=b", ("rerank.query", "a=b")),
        ("threshold.applies_to=[vector]", ("threshold.applies_to", ["vector"])),
    ],
)
def test_an_assignment_is_a_path_and_a_yaml_value(text: str, expected: tuple[str, object]) -> None:
    assert parse_assignment(text) == expected


@pytest.mark.parametrize("text", ["fusion.k", "=3", "", "fusion.k=[", "fusion.k=0x_", "name=2020-13-45"])
def test_what_is_no_assignment_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match="--set"):
        parse_assignment(text)


@pytest.mark.parametrize(
    "path", ["fusion.kk", "fuson.k", "fusion.k.deeper", "rerank.bands.0.retrieval", "nope", "fusion."]
)
def test_setting_an_unknown_path_is_an_error(path: str) -> None:
    with pytest.raises(InputError):
        with_values(PipelineConfig(), {path: 0.5})


def test_values_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(InputError, match="expected a mapping of sections, found int"):
        config_from(3)


@pytest.fixture
def presets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in place of that of the shipped presets."""
    monkeypatch.setattr("cems_workbench.config.forms.yaml_form.preset_folder", lambda: tmp_path)
    monkeypatch.setattr(
        "cems_workbench.config.forms.yaml_form.preset_names",
        lambda: tuple(path.stem for path in sorted(tmp_path.iterdir())),
    )
    return tmp_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_values_lie_over_those_of_the_preset() -> None:
    config = parse_config("{extends: qmd, name: mine, fusion: {top_rank_bonus: {rank1: 0.5}}}")
    assert config == with_values(preset("qmd").config, {"name": "mine", "fusion.top_rank_bonus.rank1": 0.5})


def test_name_is_inherited_if_none_is_stated() -> None:
    assert parse_config("extends: ace_b") == preset("ace_b").config


def test_lists_and_tiers_are_replaced_as_a_whole() -> None:
    config = parse_config(
        "{extends: cems_head, rerank: {bands: [{retrieval: 1.0}]}, adjust: {time_decay: {tiers: {a: 3}}}}"
    )
    assert [band.retrieval for band in config.rerank.bands] == [1.0]
    assert config.adjust.time_decay.tiers == (("a", 3.0),)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"extends": "qmd", "gap": {"ratio": 0.5}}'),
        ("c.toml", 'extends = "qmd"\n[gap]\nratio = 0.5\n'),
        ("c.py", "config_from({'extends': 'qmd', 'gap': {'ratio': 0.5}})"),
    ],
)
def test_every_whole_form_may_extend_and_is_named_after_its_file(name: str, text: str) -> None:
    expected = with_values(preset("qmd").config, {"gap.ratio": 0.5, "name": "qmd-c"})
    assert import_config(text, source=name).config == expected


def test_names_of_version_1_lie_over_present_ones() -> None:
    assert parse_config("{version: 1, extends: workbench, rerank: {input_limit: 7}}").rerank.depth == 7


def test_path_of_a_shipped_preset_loads_it() -> None:
    folder = Path(__file__).resolve().parents[3] / "cems_workbench/config/presets"
    assert load_config(folder / "ace_b.yaml") == preset("ace_b").config


def test_chain_of_presets(presets: Path) -> None:
    write(
        presets,
        {
            "first": "{name: first, gap: {ratio: 0.1, keep: 7}}",
            "second": "{extends: first, name: second, gap: {ratio: 0.2}}",
        },
    )
    config = parse_config("{extends: second, name: third, fusion: {k: 9}}")
    expected = {"name": "third", "gap.ratio": 0.2, "gap.keep": 7, "fusion.k": 9}
    assert config == with_values(PipelineConfig(), expected)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"one": "extends: two", "two": "extends: one"},
            "presets/one.yaml: extends: two → one → two: these presets extend each other",
        ),
        (
            {"one": "extends: one", "two": "extends: one"},
            "presets/one.yaml: extends: two → one → one: these presets extend each other",
        ),
        ({"two": "extends: tow"}, "presets/two.yaml: extends tow: unknown; did you mean two? Known presets: two"),
    ],
)
def test_chain_without_an_end_is_one_line(presets: Path, files: dict[str, str], message: str) -> None:
    write(presets, files)
    with pytest.raises(InputError) as caught:
        parse_config("extends: two")
    assert str(caught.value) == message


def test_unknown_preset_is_one_line_with_the_known_names() -> None:
    with pytest.raises(
        InputError, match=r"^mine.yaml: extends qdm: unknown; did you mean qmd\? Known presets: cems, ace, "
    ) as caught:
        parse_config("extends: qdm", "mine.yaml")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"extends: unknown key|extends \["):
        parse_config("extends: [qmd]", "mine.yaml")


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
    assert list(configs.RENAMED) == [str(version) for version in range(2, configs.VERSION + 1)]
    renamed = configs.RENAMED[str(configs.VERSION)]
    for old, new in renamed["paths"].items():
        assert new in specs.keys() | sections and old not in specs.keys() | sections
        assert old.rpartition(".")[0] == new.rpartition(".")[0]
    for path, values in renamed["values"].items():
        assert set(values.values()) <= set(specs[path].choices) and not set(values) & set(specs[path].choices)


def test_the_next_rename_is_a_row_for_files_of_both_earlier_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configs, "VERSION", 3)
    row = {"paths": {"rerank.depth": "rerank.most"}, "values": {"rerank.most": {"many": "all"}}}
    monkeypatch.setattr(configs, "RENAMED", {**configs.RENAMED, "3": row})
    of_1 = {"name": "n", "version": 1, "rerank": {"input_limit": "many", "model": "m"}}
    of_3 = {"name": "n", "version": 3, "rerank": {"most": "all", "model": "m"}}
    assert configs.present_values(of_1) == configs.present_values(of_3) == of_3
    assert configs.present_values({"version": 2, "rerank": {"depth": 5}}) == {"version": 3, "rerank": {"most": 5}}
    assert list(configs.present_values(of_1)) == list(of_1)
    assert configs.present_path("rerank.input_limit") == "rerank.most"


def test_a_config_of_this_version_is_read_whole(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        with subtests.test(name=name):
            config = preset(name).config
            assert salvaged(json.loads(json.dumps(nested(config)))) == (config, ())


def test_unknown_keys_are_left_out_and_named_and_missing_ones_have_the_default() -> None:
    values = nested(with_values(PipelineConfig(), {"fusion.k": 30, "gap.ratio": 0.25}))
    values["fusion"]["magic"] = 1
    values["hyperspace"] = {"enabled": True}
    del values["dedup"]
    config, left_out = salvaged(values)
    assert config == with_values(PipelineConfig(), {"fusion.k": 30, "gap.ratio": 0.25})
    assert left_out == ("fusion.magic", "hyperspace")


def test_a_value_that_is_not_allowed_is_left_out_and_the_others_stay() -> None:
    values = nested(with_values(PipelineConfig(), {"gap.ratio": 0.25, "adjust.time_decay.tiers": {"b": 3.0, "a": 2.0}}))
    values["fusion"]["method"] = "no_such_method"
    values["rerank"] = "none"
    config, left_out = salvaged(values)
    assert config == with_values(PipelineConfig(), {"gap.ratio": 0.25, "adjust.time_decay.tiers": {"b": 3.0, "a": 2.0}})
    assert set(left_out) == {"fusion.method", "rerank"}
