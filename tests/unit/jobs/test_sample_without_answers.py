"""The sample's questions without an answer: said to be such, measurable without a judgment, and apart from the others."""

from __future__ import annotations

import json
from collections import Counter

from cems_workbench import formats
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.jobs.query_set_evidence import measurable
from cems_workbench.records import Judgment
from cems_workbench.store.importing import set_name

PATH = SAMPLE_DATA / "no_answer" / "unanswerable.jsonl"


def test_the_sample_has_questions_of_every_sort_of_near_miss_that_nothing_answers() -> None:
    parsed = formats.read(PATH)
    assert (len(parsed.queries), parsed.errors, parsed.notes) == (68, (), ())
    assert {(query.answerable, query.type) for query in parsed.queries} == {(False, "unanswerable")}
    sorts = Counter(json.loads(line)["note"].partition(":")[0] for line in PATH.read_text("utf-8").splitlines())
    assert min(sorts.values()) >= 4 and len(sorts) == 6
    assert set_name(str(PATH)) == "unanswerable"


def test_they_are_apart_from_the_others_and_no_judgment_is_needed_to_measure_them() -> None:
    others = [query for file in formats.read_path(SAMPLE_DATA) for query in file.queries]
    queries = formats.read(PATH).queries
    assert len(others) == 129 and not {query.qid for query in others} & {query.qid for query in queries}
    assert not {query.query.lower() for query in others} & {query.query.lower() for query in queries}
    assert measurable([*others[:2], *queries[:2]], [Judgment(others[1].qid, "m001", 0)]) == [others[1], *queries[:2]]
