"""Files of public reports, as people have them: what each brings into a store of twelve memories and six queries, and what is said of it.

The inputs are small ones written after the reports (tests/recordings/reports); a case names its report and the day it was made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.errors import InputError
from cems_workbench.jobs.traces import add_input, inputs_of
from cems_workbench.records import GradeScale
from cems_workbench.store import ImportOptions, Store

REPORTS = Path(__file__).parent.parent / "recordings" / "reports"
PLAIN = ImportOptions()


def graded(grades: Iterable[int]) -> GradeScale:
    return GradeScale(tuple((grade, f"Grade {grade}") for grade in grades))


@dataclass(frozen=True)
class Case:
    """`path` below the folder of reports, `report` and its day; then the rows that are new, and the words of what is said.

    `grades` are all judgments by the words of the query, the memory and, where there are several, the judge;
    `answers` the ids that were recorded, `queries` the words of the new queries.
    """

    path: str
    report: str
    memories: int = 0
    queries: Sequence[str] = ()
    grades: Sequence[Sequence[Any]] = ()
    answers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    left_out: Sequence[str] = ()
    said: Sequence[str] = ()
    refused: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> ImportOptions:
        """The options of the import; a scale is its grades."""
        scale = self.options.get("scale")
        return ImportOptions(**{**self.options, "scale": scale and graded(scale)})

    @property
    def by_pair(self) -> dict[tuple[str, ...], int]:
        return {tuple(pair): grade for *pair, grade in self.grades}


CASES = [Case(**row) for row in json.loads((REPORTS / "cases.json").read_text("utf-8"))]


def rows_of(store: Store) -> tuple[int, dict[str, str], dict[tuple[str, str, str], int]]:
    words = {query.qid: query.query for query in store.queries.read()}
    grades = {(words[each.qid], each.memory_id, each.judge): each.grade for each in store.judgments.read()}
    return store.memories.count(), words, grades


@pytest.fixture(scope="module")
def base_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base") / "store"
    with Store.open(folder) as store:
        for name, query_set in (("memories.jsonl", None), ("queries.jsonl", "base")):
            for parsed in inputs_of(REPORTS / "base" / name, "auto"):
                add_input(parsed, store, options=ImportOptions(query_set=query_set))
    return folder


@pytest.fixture
def base(base_store, tmp_path):
    with Store.open(shutil.copytree(base_store, tmp_path / "store")) as store:
        yield store


def imported(base, path, options=PLAIN):
    reports = [add_input(parsed, base, options=options) for parsed in inputs_of(REPORTS / path, "auto")]
    return [str(error) for each in reports for error in each.errors], [note for each in reports for note in each.notes]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.path)
def test_file_of_a_report(base, case):
    before, known, _ = rows_of(base)
    if case.refused:
        with pytest.raises(InputError, match=case.refused):
            imported(base, case.path, case.given)
        return
    left_out, notes = imported(base, case.path, case.given)
    memories, words, grades = rows_of(base)
    assert memories - before == case.memories
    assert set(words.values()) - set(known.values()) == set(case.queries)
    length = max(map(len, case.by_pair), default=2)
    assert {key[:length]: grade for key, grade in grades.items()} == case.by_pair
    recorded = {
        words[one.qid]: [each.memory_id for each in one.returned]
        for name in base.recorded_answers.sets()
        for one in base.recorded_answers.read(name)
    }
    assert recorded == case.answers
    assert len(left_out) == len(case.left_out) and all(
        said in line for said, line in zip(case.left_out, left_out, strict=True)
    )
    for said in case.said:
        assert any(said in note for note in notes), notes


def test_what_another_import_brought_is_replaced_only_on_demand(base):
    path = "34-engine-answers/chroma_get.json"  # Chroma's get(), seen 2026-11
    before = base.memories.read(["m01", "m07"])
    notes = imported(base, path)[1]
    assert any("left as before: 2 memories that base/memories.jsonl brought" in note for note in notes), notes
    assert base.memories.read(["m01", "m07"]) == before
    assert imported(base, path, ImportOptions(replace=True))[0] == []
    assert base.memories.read(["m07"])["m07"].content == "The rollback command"
