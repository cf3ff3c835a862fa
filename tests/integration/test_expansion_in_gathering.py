"""Expansion within gathering: a strong signal skips it, unless it was typed; the user's dictionary stands for the shipped one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.gather import Request, gather_lists
from cems_workbench.pipeline.list_provenance import searched_lines
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.understanding import SHIPPED, write_dictionary
from cems_workbench.settings import Settings

pytestmark = [pytest.mark.models]


@pytest.fixture(scope="module")
def opened(sample_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resources]:
    """A copy of the sample store with a dictionary of its own."""
    folder = shutil.copytree(sample_store, tmp_path_factory.mktemp("expanding") / "store")
    resources = open_resources(Settings(store=folder))
    yield resources
    resources.close()


def gathered(resources: Resources, backend: str, fires: bool, **changes: Any) -> tuple[list[str], list[str]]:
    """Variant texts and what gathering said of them; the probe's thresholds decide whether it fires."""
    values = {
        "expansion.backend": backend,
        "expansion.skip_on_strong_signal.threshold": 0.0 if fires else 1.0,
        "expansion.skip_on_strong_signal.gap": 0.0,
        "expansion.skip_on_strong_signal.scale": "saturating",
        "query.mode": "hybrid",
        **{path.replace("__", "."): value for path, value in changes.items()},
    }
    manual = ("undo a release",) if backend == "manual" else ()
    request = Request("wired deploy rollback", variants=manual)
    evidence = gather_lists(request, with_values(PipelineConfig(), values), resources)
    assert evidence.notes["expansion"]["probe"]["fires"] is fires
    assert len([ranked for ranked in evidence.lists if ranked.source == "vector"]) == len(evidence.variants)
    return [variant.text for variant in evidence.variants], evidence.notes["warnings"].get("expansion", [])


@pytest.mark.parametrize("backend", ["feedback", "dictionary"])
def test_a_strong_signal_skips_expansion_and_says_so(opened: Resources, backend: str) -> None:
    texts, said = gathered(opened, backend, fires=False)
    assert len(texts) == 2 and said == []
    assert gathered(opened, backend, fires=True) == (
        ["wired deploy rollback"],
        ["the strong-signal probe fired: no expansion was made"],
    )


def test_a_strong_signal_does_not_skip_what_was_typed(opened: Resources) -> None:
    assert gathered(opened, "manual", fires=True) == (["wired deploy rollback", "undo a release"], [])


def test_a_switched_off_probe_skips_nothing(opened: Resources) -> None:
    texts, _ = gathered(opened, "dictionary", fires=True, expansion__skip_on_strong_signal__enabled=False)
    assert texts == ["wired deploy rollback", f"{SHIPPED['wired']} deploy rollback"]


def test_an_expansion_may_replace_what_is_searched_while_rerankers_read_the_query(opened: Resources) -> None:
    values = {
        "expansion.backend": "dictionary",
        "expansion.skip_on_strong_signal.enabled": False,
        "variants.search": "replaced",
        "query.mode": "hybrid",
    }
    expanded = f"{SHIPPED['wired']} deploy rollback"
    found = gather_lists(Request("wired deploy rollback"), with_values(PipelineConfig(), values), opened)
    alone = gather_lists(Request(expanded), with_values(PipelineConfig(), {"query.mode": "hybrid"}), opened)
    assert [(variant.text, variant.kind) for variant in found.variants] == [(expanded, "original")]
    assert found.lists[:2] == alone.lists[:2]
    assert (found.corrected, found.searched) == ("wired deploy rollback", expanded)
    assert searched_lines(found.notes) == [f"searched instead of the query, its expansion: {expanded}"]
    plain = gather_lists(Request("deploy rollback"), with_values(PipelineConfig(), values), opened)
    assert plain.searched == "deploy rollback" and searched_lines(plain.notes) == []
    given = gather_lists(Request("wired", searched="deploy"), with_values(PipelineConfig(), values), opened)
    assert given.searched == "deploy"


def test_the_users_dictionary_stands_for_the_shipped_one(opened: Resources) -> None:
    write_dictionary(opened.dictionary_path, {"Deploy": "release"})
    try:
        texts, _ = gathered(opened, "dictionary", fires=False)
        assert texts == ["wired deploy rollback", "wired release rollback"]
        opened.dictionary_path.write_text("[")
        with pytest.raises(InputError, match=r"expansions\.yaml"):
            gathered(opened, "dictionary", fires=False)
    finally:
        opened.dictionary_path.unlink()
