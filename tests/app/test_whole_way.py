"""The way of the guide on one session: a failing query, labels, a search, the comparison, the file; each page hands on to the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.config import difference, export_config, import_config, preset
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.ui.kit import handles
from tests.sample import FAILING, MISSING, answered_queries, copied

from .inspect_page import config_of, state_of
from .pages import captions, checked
from .tune_page import set_tune_state, tune_state_of

pytestmark = [pytest.mark.models]
QUERIES = 16


@pytest.fixture
def few_store(sample_store: Path, tmp_path: Path) -> Path:
    """The sample store with a set "a few", the failing query in it, and a queue of one pair that nobody judged."""
    with copied(sample_store, tmp_path) as store:
        queries = answered_queries(store, first=FAILING)[:QUERIES]
        store.query_sets.put("a few", queries, "test")
        judged = {judgment.memory_id for judgment in store.judgments.read() if judgment.qid == queries[0].qid}
        unjudged = next(memory_id for memory_id in sorted(store.memories.read()) if memory_id not in judged)
        store.queues.save(make_queue("one", [PooledPair(queries[0].qid, unjudged, {"cems": 1})], "top"))
    return tmp_path / "store"


def test_from_a_failing_query_to_a_tuned_config(open_page: Callable[..., AppTest], few_store: Path) -> None:
    page = open_page(few_store)
    page.text_input(key="inspect:query").set_value(FAILING)
    assert f"missing: {MISSING} (grade 3)" in captions(checked(page.run()))

    page = checked(page.switch_page("pages/label.py").run())
    page.text_input(key="reviewer:name").set_value("ada").run()
    next(button for button in page.button if str(button.key).startswith("label:grade:0")).click()
    checked(page.run())
    assert [(one.judge, one.grade) for one in handles.resources().store.queues.labels("one")] == [("ada", 0)]

    page = checked(page.switch_page("pages/tune.py").run())
    page.button(key="tune:gather").click().run()
    page.selectbox(key="tune:group_by").select("query")
    page.number_input(key="tune:trials").set_value(30)
    page.multiselect(key="tune:paths").set_value(
        ["lists.lexical.weight", "fusion.score_blend", "adjust.time_decay.half_life_days"]
    ).run()
    page.button(key="tune:start").click().run()
    if (running := tune_state_of(page).running) is not None:
        running.wait(60)
    page = checked(page.run())
    set_tune_state(page, next_view="Take it away")
    page = checked(page.run())
    page.button(key="tune:take").click()
    tuned = config_of(checked(page.run()))

    page = checked(page.switch_page("pages/evaluate.py").run())
    table = page.dataframe[0].value
    assert list(table["config"]) == ["cems", "as set in Inspect"]
    page = checked(page.switch_page("pages/inspect.py").run())
    assert config_of(page) == tuned
    assert page.text_input(key="inspect:query").value == FAILING
    assert import_config(export_config(tuned, "yaml"), preset("cems").config, source="tuned.yaml").config == tuned
    assert bool(difference(preset("cems").config, tuned)) == (len(state_of(page).history.past) > 0)
