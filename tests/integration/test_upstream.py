"""`what-if --upstream`: known faults as data, and what mending one does to judged queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import difference, preset
from cems_workbench.evaluation.metrics import graded, parse_measure
from cems_workbench.jobs.upstream import MEASURE, Fault, faults

if TYPE_CHECKING:
    from conftest import Command

RECORDED = Path(__file__).parents[1] / "recordings" / "upstream"
"""What two versions of a program answered to some queries of the sample, with the lists of the first."""


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


def test_recorded_lists_give_the_sign_that_the_mended_version_shows(
    command: Command, store: Path, tmp_path: Path
) -> None:
    """mem0ai 2.0.4 and 2.0.6 really run on Chroma: what the lists of the first say of each query is what the second answers."""
    before, after = (
        json.loads((RECORDED / f"mem0-4999.{side}.json").read_text("utf-8")) for side in ("before", "after")
    )
    asked = ("what-if", "--upstream", "mem0-4999", "--preset", "mem0", "--store", store, "--json", "--recorded")
    done = command(*asked, RECORDED / "mem0-4999.before.json")
    found = json.loads(done.out)
    grades: dict[str, dict[str, int]] = {}
    for line in (SAMPLE_DATA / "judgments.qrels").read_text().splitlines():
        qid, _, memory_id, grade = line.split()
        grades.setdefault(qid, {})[memory_id] = int(grade)
    qids = [answer["qid"] for answer in before["answers"]]
    orders = ([answer["results"] for answer in side["answers"]] for side in (before, after))
    was, now = (parse_measure(MEASURE).values(graded(each, [grades[qid] for qid in qids])) for each in orders)
    assert (now > was).sum() > 2 and (now < was).sum() > 2
    measured = found["compared"][0]["measures"][MEASURE]
    assert {*measured["wins"]} == {qid for qid, one, other in zip(qids, was, now, strict=True) if other > one}
    assert {*measured["losses"]} == {qid for qid, one, other in zip(qids, was, now, strict=True) if other < one}
    assert (
        "vector from semantic" in found["lists"][0] and f"first ten of {len(qids)} of {len(qids)}" in found["lists"][-1]
    )
    (tmp_path / "bare.json").write_text(json.dumps({**after, "engine": "mem0ai 2.0.6"}), "utf-8")
    bare = command(*asked, tmp_path / "bare.json")  # answers without lists
    assert bare.code == 2 and "no lists" in bare.err
    alone = command("what-if", "tea", "--without", "m001", "--recorded", tmp_path / "bare.json", "--store", store)
    assert alone.code == 2 and "--recorded: only with --upstream" in alone.err


def test_explained_answers_of_the_store_are_replayed(command: Command, store: Path) -> None:
    """A set of Hindsight's explanations has its lists, and no list of the store is gathered."""
    explanations = RECORDED.with_name("explanations") / "hindsight.jsonl"
    assert command("import", explanations, "--store", store).code == 0
    asked = ("what-if", "--upstream", "hindsight-1727", "--preset", "hindsight", "--store", store, "--json")
    of_set = json.loads(command(*asked, "--queries", "hindsight").out)
    of_file = json.loads(command(*asked, "--recorded", explanations).out)
    assert of_set["lists"][0] == "the lists are those that hindsight explains"
    for found in (of_set, of_file):
        assert "as it is, the first ten of" in found["lists"][-1] and found["changed"]
    mended = explanations.with_name("mem0.jsonl")  # of a version after the mend
    assert command("import", mended, "--store", store).code == 0
    of_mem0 = ("what-if", "--upstream", "mem0-4999", "--store", store)
    for place in (("--preset", "mem0", "--recorded", mended), ("--queries", "mem0")):
        said = " ".join(command(*of_mem0, *place).out.split())
        assert f"{place[-1]} does not show mem0-4999 as described: as it is, the first ten of 0 of 3" in said
        assert "looks better" not in said and "measured by the project on its sample, not on these lists" in said
    other = command(
        "what-if", "--upstream", "mem0-4805", "--preset", "mem0_keyword", "--queries", "mem0", "--store", store
    )
    assert other.code == 2 and "mem0: it is of mem0" in other.err
    assert " --evidence mem0 " in command("evaluate", "mem0", "--losses", "--store", store).out
    assert command("fidelity", "--recorded", "mem0", "--store", store).out.startswith("mem0, mem0: 3 queries")


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
