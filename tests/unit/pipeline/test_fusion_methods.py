"""Fusion methods: what one record decides, on a method made up here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from cases import evidence, stage

from cems_workbench.config import PipelineConfig, field_spec, field_specs
from cems_workbench.config.sections.ranking import FusionConfig
from cems_workbench.errors import InputError
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.pipeline.fusion_methods import FUSION_METHODS, FusionMethod, Hits, own_parameters
from cems_workbench.pipeline.fusion_methods.rrf import FUSION_METHOD as RRF
from cems_workbench.pipeline.stages import FUSION
from cems_workbench.pipeline.table import Floats

LISTS = {"vector": {"a": 0.9, "b": 0.8}, "lexical": {"b": 8.0, "a": 4.0}}
BONUS = {"fusion.top_rank_bonus.rank1": 0.5, "fusion.top_rank_bonus.mode": "per_list"}


def use(monkeypatch: pytest.MonkeyPatch, method: FusionMethod, origin: str | None = None) -> None:
    """Let the name rrf stand for another method, of the package `origin`."""
    monkeypatch.setattr(FUSION_METHODS, "_items", {**FUSION_METHODS, "rrf": method})
    monkeypatch.setattr(FUSION_METHODS, "_origins", {} if origin is None else {"rrf": origin})


def test_own_parameters_are_parameters_or_sections() -> None:
    paths = {spec.path for spec in field_specs()}
    assert all(path in paths or any(known.startswith(f"{path}.") for known in paths) for path in own_parameters())


def test_help_of_the_parameter_names_every_method_of_ours() -> None:
    assert [text.partition(":")[0] for text in field_spec("fusion.method").help.split("; ")] == [
        *field_spec("fusion.method").choices
    ]


def test_max_counts_the_largest_base_with_its_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(RRF, combine="max"))
    rows = stage("fusion", evidence(LISTS), BONUS).by_id
    assert {key: rows[key].raw for key in "ab"} == pytest.approx({"a": 1 / 61 + 0.5, "b": 1 / 61 + 0.5})


def test_bonus_is_left_out_and_idle_without_its_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, replace(RRF, parameters=("fusion.k",)))
    rows = stage("fusion", evidence(LISTS), BONUS).by_id
    assert rows["a"].raw == pytest.approx(1 / 61 + 1 / 62)
    idle = idle_parameters(PipelineConfig())
    assert "fusion.k" not in idle
    monkeypatch.setattr(FUSION_METHODS, "_items", {**FUSION_METHODS, "other": RRF})
    idle = idle_parameters(PipelineConfig())
    assert idle["fusion.top_rank_bonus.rank1"] == idle["fusion.importance_bonus_ranks"] == "No effect under rrf"
    assert next(part for part in FUSION.parts if part.name == "top-rank bonus").is_off(PipelineConfig())


def test_failing_method_of_a_package_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def base(hits: Hits, weight: Floats, config: FusionConfig) -> Floats:
        return np.ones(1 + len(weight))

    use(monkeypatch, FusionMethod("rrf", base), "plugin 1.0")
    with pytest.raises(
        InputError, match=r"^rrf of plugin 1\.0 failed: ValueError: base has shape \(5,\); expected \(4,\)"
    ):
        stage("fusion", evidence(LISTS))


def test_method_that_is_not_available_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FUSION_METHODS, "_items", {})
    with pytest.raises(InputError, match=r"fusion\.method: rrf is not available; `doctor` says why"):
        stage("fusion", evidence(LISTS))
