"""The strong-signal probe on its three scales (docs/internals/specification.md, "expansion")."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from cases import configured

from cems_workbench.pipeline.stages.expansion import ExpansionFields, StrongSignal
from cems_workbench.pipeline.understanding import strong_signal


def probed(raw: list[float], scale: str, **settings: float) -> StrongSignal:
    """The probe of lexical hits with these scores."""
    hits = [(f"m{i}", score) for i, score in enumerate(raw)]
    path = "expansion.skip_on_strong_signal"
    config = configured({f"{path}.scale": scale} | {f"{path}.{key}": value for key, value in settings.items()})
    return strong_signal(hits[:2], config)


def test_raw_compares_the_score_itself_so_nearly_every_query_fires() -> None:
    found = probed([1.2, 0.9], "raw")
    assert (found.top, found.second, found.fires) == (1.2, 0.9, True)


@pytest.mark.parametrize(("top", "fires"), [(5.66, False), (5.67, True)])
def test_the_saturating_scale_needs_raw_5_67(top: float, fires: bool) -> None:
    """0.85 = s / (1 + s) at s = 0.85 / 0.15 = 5.667."""
    found = probed([top], "saturating")
    assert found.fires is fires
    assert found.top == pytest.approx(top / (1 + top), rel=1e-15)
    assert found.short_of_threshold == pytest.approx(0.0 if fires else 0.85 - top / (1 + top), abs=1e-15)


def test_max_makes_every_first_hit_one() -> None:
    assert probed([0.2, 0.1], "max").fires
    near = probed([0.2, 0.19], "max")
    assert (near.top, near.fires) == (1.0, False)
    assert near.short_of_gap == pytest.approx(0.15 - 0.05)


def test_the_gap_to_the_second_is_needed_too() -> None:
    assert not probed([2.0, 1.9], "raw").fires
    assert probed([2.0, 1.5], "raw").fires


def test_with_one_hit_the_second_is_zero() -> None:
    found = probed([1.0], "raw")
    assert (found.second, found.fires) == (0.0, True)


@pytest.mark.parametrize("scale", ["raw", "max", "saturating"])
def test_no_hit_never_fires(scale: str) -> None:
    assert not probed([], scale, threshold=0.0, gap=0.0).fires


def test_what_was_noted_in_evidence_is_read_back_and_what_is_no_probe_is_none() -> None:
    found = probed([1.2, 0.9], "raw")
    noted = asdict(found)
    assert ExpansionFields(notes={"probe": noted}).probe == found
    for other in (None, "yes", {}, {"top": 4.0}, noted | {"top": "4.0"}, noted | {"scale": 1}):
        assert ExpansionFields(notes={"probe": other}).probe is None
