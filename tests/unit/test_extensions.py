"""Registries: what is ours is found by itself, what others add is loaded late, and what cannot be used is said and left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from cems_workbench import extensions
from cems_workbench.config import field_spec
from cems_workbench.errors import InputError, ModelError
from cems_workbench.evaluation.metrics import MEASURES, MeasureFamily
from cems_workbench.extensions import Registry
from cems_workbench.formats import FORMATS
from cems_workbench.pipeline.fusion_methods import FUSION_METHODS
from cems_workbench.pipeline.rerankers import RERANKERS
from cems_workbench.pipeline.retrievers import RETRIEVERS
from cems_workbench.progress import Cancelled

METRICS = "cems_workbench.evaluation.metrics"


@dataclass(frozen=True)
class Distribution:
    name: str
    version: str = "1.0"


class Plugin(EntryPoint):
    """An entry point of a made-up package."""

    dist = Distribution("plugin")  # type: ignore[assignment]


class Other(EntryPoint):
    dist = Distribution("other")  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _nothing_reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(extensions, "_problems", {})
    assert [
        list(kind) for kind in (FORMATS, MEASURES, RERANKERS, RETRIEVERS, FUSION_METHODS)
    ]  # loaded, before anything is made up
    extensions._declared.cache_clear()
    yield
    extensions._declared.cache_clear()


def registry(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> Registry[MeasureFamily]:
    """The measures, with these entry points beside them."""
    monkeypatch.setattr(extensions, "entry_points", lambda group: entries)
    return Registry(extensions.MEASURES, MeasureFamily, METRICS, "MEASURE")


ADDED = MeasureFamily("gain", "a made-up measure", lambda rankings, k, grade: rankings.grade[:, 0] / 0)
MISNAMED = MeasureFamily("profit", "a made-up measure", lambda rankings, k, grade: rankings.grade[:, 0] * 1.0)


def test_what_a_package_adds_stands_after_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry(monkeypatch, Plugin("gain", f"{__name__}:ADDED", extensions.MEASURES))
    assert list(found) == [*MEASURES, "gain"]
    assert found["gain"] is ADDED
    assert found.origins == {"gain": "plugin 1.0"}
    assert found.origin("hit") is None
    assert extensions.problems() == ()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (Plugin("gain", "no.such.module:X", extensions.MEASURES), "does not load: ModuleNotFoundError"),
        (Plugin("gain", f"{__name__}:METRICS", extensions.MEASURES), "is no MeasureFamily, but str"),
        (Plugin("gain", f"{__name__}:MISNAMED", extensions.MEASURES), "calls itself 'profit'"),
        (Plugin("hit", f"{__name__}:ADDED", extensions.MEASURES), "CEMS Workbench has a hit itself"),
        (Plugin("a gain", f"{__name__}:ADDED", extensions.MEASURES), "a name here looks like"),
    ],
)
def test_what_cannot_be_used_is_said_once_and_left_out(monkeypatch, capsys, entry, problem):
    found = registry(monkeypatch, entry)
    assert list(found) == list(MEASURES)
    assert [*found.items()] == [*MEASURES.items()]
    (said,) = extensions.problems()
    assert problem in said
    assert "plugin 1.0" in said
    assert capsys.readouterr().err == f"warning: {said}\n"


def test_a_name_that_two_packages_have_is_neithers(monkeypatch: pytest.MonkeyPatch) -> None:
    target = f"{__name__}:ADDED"
    found = registry(
        monkeypatch, Plugin("gain", target, extensions.MEASURES), Other("gain", target, extensions.MEASURES)
    )
    assert "gain" not in found
    assert extensions.problems() == (
        "cems_workbench.measures: gain is left out: other 1.0 and plugin 1.0 both have one",
    )


def test_reading_names_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extensions, "entry_points", lambda group: [Plugin("words", "no.such:X", group)])
    named = extensions.names(extensions.RERANKERS, "cems_workbench.pipeline.rerankers", first=("ollama",))
    assert named[0] == "ollama" and named[-1] == "words"
    assert list(named[1:-1]) == sorted({"cross_encoder", "late_interaction", "llama_server", "llm", *named[1:-1]})
    assert extensions.problems() == ()


def test_code_of_another_package_that_fails_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = registry(monkeypatch, Plugin("gain", f"{__name__}:ADDED", extensions.MEASURES))
    failed = r"gain of plugin 1\.0 failed: ZeroDivisionError: division"
    with pytest.raises(ModelError, match=failed), found.guarded("gain", ModelError):
        raise ZeroDivisionError("division")
    with pytest.raises(InputError, match="its own"), found.guarded("gain", ModelError):
        raise InputError("its own")
    with pytest.raises(Cancelled), found.guarded("gain", ModelError):
        raise Cancelled
    with pytest.raises(ZeroDivisionError), found.guarded("hit", ModelError):
        raise ZeroDivisionError  # ours: a bug keeps its traceback
    with pytest.raises(InputError, match=r"^hit failed: ZeroDivisionError"), found.guarded("hit", InputError, own=True):
        raise ZeroDivisionError


def test_every_module_of_a_folder_is_found() -> None:
    """Nothing lists formats, measures, rerankers and retrievers a second time."""
    assert len(FORMATS) >= 21
    ours = "hit recall P MRR nDCG AP Judged noise answered refused AUROC AUPRC AURC"
    assert set(MEASURES) >= set(ours.split())
    assert set(field_spec("rerank.backend").choices) == {"none", *RERANKERS}
    assert set(field_spec("fusion.method").choices) == {*FUSION_METHODS}
    assert "entities" in RETRIEVERS
    for kind in (FORMATS, MEASURES, RERANKERS, RETRIEVERS, FUSION_METHODS):
        assert kind.origins == {}
