"""docs/reference/parameters.md has every parameter, and the specification every stage."""

from __future__ import annotations

from pathlib import Path

from cems_workbench.config import field_specs
from cems_workbench.pipeline.stages import STAGES
from docs.reference_pages.parameters import tables

SPECIFICATION = Path(__file__).resolve().parents[3] / "docs" / "internals" / "specification.md"


def test_every_parameter_has_a_row_with_its_default_and_range() -> None:
    rows = {line.split("|")[1].strip(): line for line in tables().splitlines() if line.startswith("| `")}
    assert list(rows) == [f"`{spec.path}`" for spec in field_specs()]
    for spec in field_specs():
        assert spec.cost in rows[f"`{spec.path}`"]
        assert spec.help.split("|")[0].strip() in rows[f"`{spec.path}`"]


def test_every_stage_has_a_section_of_its_name() -> None:
    headings = [line[3:] for line in SPECIFICATION.read_text(encoding="utf-8").splitlines() if line.startswith("## ")]
    assert [heading for heading in headings if heading in {stage.name for stage in STAGES}] == [
        stage.name for stage in STAGES
    ]
