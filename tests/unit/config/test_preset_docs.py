"""docs/reference/presets.md says what the preset files say."""

from __future__ import annotations

import pytest

from cems_workbench.config import PipelineConfig, difference, preset, preset_names
from docs.reference_pages.presets import document, paragraphs, shown


def test_a_section_has_the_notes_and_every_difference(subtests: pytest.Subtests) -> None:
    for name in preset_names():
        with subtests.test(name=name):
            section = document().split(f"\n## {name}\n")[1].split("\n## ")[0]
            for word in preset(name).notes.split():
                assert word.strip("#") in section
            changes = difference(preset("cems").config, preset(name).config)
            assert section.count("\n| `") == len(changes)
            for path, _, now in changes:
                assert any(
                    line.startswith(f"| `{path}` | ") and f"`{shown(now)}`" in line for line in section.splitlines()
                )


def test_every_preset_has_a_source_and_a_known_mistake() -> None:
    for name in preset_names():
        labels = [line.split(":")[0] for line in paragraphs(preset(name).notes)]
        assert any(label == "Source" for label in labels), name
        assert any(label.startswith("Known mistake") for label in labels), name


def test_what_a_file_leaves_out_is_as_in_the_default_preset() -> None:
    """So the page need not say what cems differs from."""
    assert difference(PipelineConfig(), preset("cems").config) == []


def test_wrapped_lines_are_one_paragraph() -> None:
    notes = "What it is.\nSource: a document that\nruns on. Still the source.\nKnown mistake: one; it\nstays."
    assert paragraphs(notes) == [
        "What it is.",
        "Source: a document that runs on. Still the source.",
        "Known mistake: one; it stays.",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0.5, "0.5"),
        (60.0, "60"),
        (("a", 1), "[a, 1]"),
        ({"a": None}, "{a: null}"),
        ({}, "{}"),
    ],
)
def test_values_are_shown_as_in_the_file(value: object, text: str) -> None:
    assert shown(value) == text


def test_bands_are_shown_as_in_the_file() -> None:
    assert shown(preset("cems").config.rerank.bands).startswith("[{max_rank: 3, retrieval: 0.75}, {max_rank: 10,")
