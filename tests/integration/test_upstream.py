"""`what-if --upstream`: known faults as data, and what mending one does to judged queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import difference, preset
from cems_workbench.jobs.upstream import Fault, faults

if TYPE_CHECKING:
    from conftest import Command


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.id)
def test_a_fault_is_a_change_of_each_of_its_presets(fault: Fault) -> None:
    """The two sides differ in what the fault names alone, and say where and when it was seen and what was run."""
    assert fault.presets and fault.url and fault.seen and fault.what and fault.basis
    for name in fault.presets:
        as_it_is, mended = fault.configs(preset(name).config)
        assert {path for path, *_ in difference(as_it_is, mended)} <= {*fault.as_it_is, *fault.as_mended}
        assert difference(as_it_is, mended)


def test_the_mend_is_compared_on_the_judged_queries(command: Command, store: Path, tmp_path: Path) -> None:
    """engram's list of the oldest matches against the best: the queries that change are listed, and better or worse is told."""
    judged = {line.split()[0] for line in (SAMPLE_DATA / "judgments.qrels").read_text().splitlines()}
    rows = [json.loads(line) for line in (SAMPLE_DATA / "queries.jsonl").read_text("utf-8").splitlines()]
    few = [row for row in rows if row["qid"] in judged][:3]
    (tmp_path / "few.jsonl").write_text("\n".join(map(json.dumps, few)), "utf-8")
    assert command("import", tmp_path / "few.jsonl", "--store", store, "--query-set", "few").code == 0
    asked = ("what-if", "--upstream", "engram-fts-limit", "--queries", "few", "--store", store)
    done = command(*asked, "--preset", "engram_head", "--json")
    found = json.loads(done.out)
    assert (found["fault"], done.code) == ("engram-fts-limit", 0), done
    moved, measured = found["changed"], found["compared"][0]["measures"]["nDCG@10"]
    assert moved and {*measured["wins"], *measured["losses"]} <= {*moved}
    assert found["verdicts"]
    reread = command("what-if", "--upstream", "mem0-6448", *asked[3:], "--preset", "mem0", "--json")
    assert "Not measured" not in reread.out and json.loads(reread.out)["changed"], reread  # a reranker that reads more
    wrong = command(*asked, "--preset", "mem0")
    assert wrong.code == 2 and "engram-fts-limit: no known fault of mem0; known are" in wrong.err
    assert "this takes no query" in command("what-if", "tea", *asked[1:]).err


def test_the_page_names_the_faults_of_the_stores_target() -> None:
    """Evaluate has a line for each, with the command that says what its mend does."""

    def script() -> None:
        from types import SimpleNamespace
        from typing import Any
        from unittest.mock import patch

        from cems_workbench.settings import SavedTarget
        from cems_workbench.ui.evaluate import compare

        header = SimpleNamespace(query_set="my queries")
        measured: Any = SimpleNamespace(labelled=SimpleNamespace(evidence=SimpleNamespace(header=header)))
        with patch.object(compare, "saved_target", lambda _: SavedTarget("engram", "engram_head", {})):
            compare._draw_upstream([measured])

    page = AppTest.from_function(script, default_timeout=60).run()
    assert not page.exception
    (said,) = [caption.value for caption in page.caption]
    assert (
        "oldest matches" in said and "--upstream engram-fts-limit --queries 'my queries' --preset engram_head" in said
    )
