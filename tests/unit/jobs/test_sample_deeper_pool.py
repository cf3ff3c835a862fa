"""The sample's deeper pool: a model's judgments, apart from the others, that join them when they are imported into the set."""

from __future__ import annotations

import pytest

from cems_workbench import formats
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.evaluation.grades import agreed_grades
from cems_workbench.store import ImportOptions
from tests.sample import copied

FOLDER = SAMPLE_DATA / "deeper_pool"


def test_it_judges_what_nobody_had_judged_and_nothing_that_did_not_exist_yet_is_relevant() -> None:
    parsed, sample = formats.read(FOLDER / "judgments.jsonl"), list(formats.read_path(SAMPLE_DATA))
    assert (len(parsed.judgments), parsed.errors, parsed.notes) == (2504, (), ())
    assert {(judgment.judge, judgment.kind) for judgment in parsed.judgments} == {("deeper-pool", "model")}
    pairs = [(judgment.qid, judgment.memory_id) for judgment in parsed.judgments]
    assert pairs == sorted(set(pairs))
    assert not set(pairs) & {(judgment.qid, judgment.memory_id) for file in sample for judgment in file.judgments}
    asked = {query.qid: query for file in sample for query in file.queries}
    written = {memory.id: memory.created_at for file in sample for memory in file.memories}
    assert {judgment.grade for judgment in parsed.judgments} == {0, 1, 2}
    for judgment in parsed.judgments:
        query, at = asked[judgment.qid], written[judgment.memory_id]
        relevant_is_out = query.type == "no-answer" or (query.as_of is not None and at is not None and at > query.as_of)
        assert not (judgment.grade and relevant_is_out), judgment


@pytest.mark.thorough
def test_it_is_read_only_where_it_is_asked_for_and_then_joins_the_set_as_a_models(sample_store, tmp_path):
    with copied(sample_store, tmp_path) as store:
        before = store.judgments.read()
        assert (len(before), {judgment.kind for judgment in before}) == (1241, {"human"})
        version = store.query_sets.get("sample_data").version
        for parsed in formats.read_path(FOLDER):
            report = store.add(parsed, options=ImportOptions("sample_data"))
        assert (report.errors, store.query_sets.get("sample_data").version) == ((), version)
        assert (len(store.judgments.read()), len(store.judgments.read(kind="model"))) == (3745, 2504)
        people, everybody = agreed_grades(before), agreed_grades(store.judgments.read())
        assert all(everybody[qid][key] == grade for qid, of in people.items() for key, grade in of.items())
        assert (people["q100"].get("m352"), everybody["q100"]["m352"]) == (None, 2)
        assert agreed_grades(store.judgments.read(), "human") == people
