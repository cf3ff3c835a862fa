"""What a config file must not say, and the one line that answers it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cems_workbench.config import (
    PipelineConfig,
    config_from,
    export_config,
    load_config,
    parse_assignment,
    parse_config,
    preset,
    with_values,
)
from cems_workbench.errors import InputError

REFUSED: dict[str, tuple[str, str]] = {
    "unknown key": ("fusion: {kk: 3}", "fusion.kk: unknown key; the nearest known key is fusion.k"),
    "unknown section": ("fuson: {k: 3}", "fuson: unknown key; the nearest known key is fusion"),
    "misspelt nested key": (
        "lists: {vector: {deph: 3}}",
        "lists.vector.deph: unknown key; the nearest known key is lists.vector.depth",
    ),
    "several": (
        "{fusion: {kk: 3}, lists: {vektor: {}}, query: 3}",
        "fusion.k (and 2 more: lists.vektor: unknown key; the nearest known key is lists.vector; query: expected a mapping",
    ),
    "unknown key and a value": (
        "{fusion: {kk: 3}, rerank: {backend: nosuch}, dedup: {enabled: 1}}",
        "fusion.k (and 2 more: rerank.backend: 'nosuch' is not allowed; allowed: none | ",
    ),
    "nothing near": ("xyzzy: 3", "xyzzy: unknown key; known here: abstain, adjust, assembly"),
    "unknown band key": (
        "rerank: {bands: [{max_ranks: 3}]}",
        "rerank.bands.0.max_ranks: unknown key; the nearest known key is rerank.bands.0.max_rank",
    ),
    "a name of the code": (
        "query: {typo_correction: {validate_: true}}",
        "unknown key; the nearest known key is query.typo_correction.validate",
    ),
    "below the range": ("fusion: {k: -1}", "fusion.k: -1 is not allowed; allowed: 0 to 10000"),
    "above the range": ("fusion: {score_blend: 1.01}", "fusion.score_blend: 1.01 is not allowed; allowed: 0 to 1"),
    "excluded bound": ("adjust: {time_decay: {half_life_days: 0}}", "allowed: more than 0, at most 36500"),
    "a step that never ends": (
        "threshold: {adaptive: {step: 1.0e-12}}",
        "threshold.adaptive.step: 1e-12 is not allowed; allowed: 0.001 to 1",
    ),
    "optional": ("lists: {vector: {depth: 0}}", "lists.vector.depth: 0 is not allowed; allowed: 1 to 10000, or null"),
    "not a choice": (
        "fusion: {method: max}",
        "fusion.method: 'max' is not allowed; allowed: rrf | combsum | combmax",
    ),
    "null where none is allowed": ("fusion: {k: null}", "fusion.k: None is not allowed; allowed: 0 to 10000"),
    "text for a number": ("fusion: {k: '60'}", "fusion.k: '60' is not allowed; allowed: 0 to 10000"),
    "truth for a number": ("fusion: {k: true}", "fusion.k: True is not allowed; allowed: 0 to 10000"),
    "number for truth": ("dedup: {enabled: 1}", "dedup.enabled: 1 is not allowed; allowed: true | false"),
    "band out of range": (
        "rerank: {bands: [{retrieval: 2.0}]}",
        "rerank.bands.0.retrieval: 2.0 is not allowed; allowed: 0 to 1",
    ),
    "tier out of range": (
        "adjust: {time_decay: {tiers: {a: 0}}}",
        "adjust.time_decay.tiers: 0.0 is not allowed; allowed: a mapping",
    ),
    "huge tier": ("adjust: {time_decay: {tiers: {a: 1" + "0" * 400 + "}}}", "adjust.time_decay.tiers: 1000"),
    "unknown list": (
        "threshold: {applies_to: [candidate_set]}",
        "threshold.applies_to.0: 'candidate_set' is not allowed",
    ),
    "NaN": ("fusion: {score_blend: .nan}", "fusion.score_blend: nan is not allowed; allowed: 0 to 1"),
    "infinity": ("adjust: {time_decay: {half_life_days: .inf}}", "half_life_days: inf is not allowed"),
    "NaN in the judge's bands": ("judge: {bands: [.nan, -10.0, -12.0]}", "judge.bands.0: nan"),
    "another version": ("version: 3", "version: 3 is not allowed; allowed: 1, 2"),
    "empty name": ("name: ''", "name: ''"),
    "section that is none": ("fusion: 3", "fusion: expected a mapping of its keys, found 3"),
    "empty section": ("fusion:", "fusion: expected a mapping of its keys, found None"),
    "duplicate key": ("fusion: {k: 1, k: 2}", "duplicate key 'k'"),
    "duplicate section": ("fusion: {k: 1}\nfusion: {k: 2}", "line 2 not readable as YAML: duplicate key 'fusion'"),
    "duplicate key in JSON": ('{"fusion": {"k": 1, "k": 2}}', "duplicate key 'k'"),
    "key that is no text": ("1: 2", "key 1 is not text"),
    "empty": ("", "the file is empty"),
    "only a comment": ("# nothing\n", "the file is empty"),
    "a list": ("[1, 2]", "expected a mapping of sections, found list"),
    "a word": ("fusion", "expected a mapping of sections, found str"),
    "not YAML": ("fusion: {k: 3", "line 1 not readable as YAML"),
    "a tab": ("fusion:\n\tk: 3", "line 2 not readable as YAML"),
    "code": ("name: !!python/object/apply:os.getcwd []", "not readable as YAML: could not determine a constructor"),
    "no date": ("name: 2020-13-45", "not readable: month must be in 1..12"),
    "no number": ("fusion: {k: 0x_}", "not readable: invalid literal"),
    "5000 digits": ("fusion: {k: " + "1" * 5000 + "}", "a number of 5,000 digits"),
    "octal of YAML 1.1": ("fusion: {k: 010}", "010 is octal in YAML 1.1; write 10, or text in quotes"),
    "base 60 of YAML 1.1": ("fusion: {k: 1:30}", "1:30 is base 60 in YAML 1.1; write the number itself"),
    "an answer for text": ("name: no", "name: False is not text; put it in quotes"),
    "an answer for a key": ("no: 1", "key False is not text; put it in quotes"),
    "deep": ("{a: " * 3000 + "1" + "}" * 3000, "nested too deeply"),
}


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
    with pytest.raises(InputError, match="export to xml: not known; allowed: yaml, json"):
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
