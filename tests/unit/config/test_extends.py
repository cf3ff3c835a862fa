"""A config that extends a preset has the values of that preset where it states none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from cems_workbench.config import PipelineConfig, import_config, load_config, parse_config, preset, with_values
from cems_workbench.errors import InputError


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
def test_every_whole_form_may_extend(name: str, text: str) -> None:
    assert import_config(text, source=name).config == with_values(preset("qmd").config, {"gap.ratio": 0.5})


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
