"""A log of queries: reading it, what counts as one query, and the three ways to sample it."""

from __future__ import annotations

import json
import math
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.evaluation.log_sampling import distinct, sample
from cems_workbench.formats import query_log
from cems_workbench.formats.query_log import LogEntry

DAY = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 9)]


def words(chosen):
    return [one.query.query for one in chosen]


def test_a_log_in_json_lines_with_its_bad_rows_reported(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [
        {
            "time": "2026-01-01T10:00:00Z",
            "query": "a",
            "results": ["m", {"id": "n"}, {"memory_id": "o"}, "m"],
            "project": "p",
        },
        {"timestamp": "2026-01-02", "q": "b"},
        {"query": " "},
        {"query": "c", "results": [None]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    entries, errors = query_log.read(path)
    assert entries == [
        LogEntry("a", datetime(2026, 1, 1, 10, tzinfo=UTC), ("m", "n", "o"), "p"),
        LogEntry("b", DAY[1]),
    ]
    assert [(error.row, error.field) for error in errors] == [(3, "query"), (4, "results")]


def test_a_log_in_csv_with_ids_in_either_form(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('time,query,results\n2026-01-01,"a, b","[""m"", ""n""]"\n,c,m; n\nlater,d,\n,e,"[1"\n')
    entries, errors = query_log.read(path)
    assert entries == [LogEntry("a, b", DAY[0], ("m", "n")), LogEntry("c", None, ("m", "n"))]
    assert [(error.row, error.field) for error in errors] == [(4, "time"), (5, "results")]
    path.write_text("time;query\n2026-01-01;a, b\n")
    assert query_log.read(path) == ([LogEntry("a, b", DAY[0])], [])
    (tmp_path / "x.csv").write_text("time,results\n1,2\n")
    with pytest.raises(InputError, match="no column query"):
        query_log.read(tmp_path / "x.csv")


@given(
    raw=st.binary(max_size=80),
    suffix=st.sampled_from([".jsonl", ".json", ".csv"]),
    header=st.sampled_from([b"", b"time,query,results\n"]),
)
def test_a_log_of_garbage_is_read_or_refused_in_one_line(raw, suffix, header):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"log{suffix}"
        path.write_bytes(header + raw)
        try:
            query_log.read(path)
        except InputError as error:
            assert "\n" not in str(error)


LOG = [
    LogEntry("Deploy  now", DAY[0], ("m",)), LogEntry("deploy now", DAY[3], ("n",)), LogEntry("deploy now", DAY[1]),
    LogEntry("who?", DAY[2]), LogEntry("who?", None, ("x",)), LogEntry("who?", None, project="p"), LogEntry("rare", DAY[5]),
]  # fmt: skip


def test_a_query_is_taken_once_in_the_words_and_with_the_results_of_its_latest_entry():
    found = distinct(LOG)
    assert [(one.query.query, one.query.project, one.times, one.query.as_of) for one in found] == [
        ("deploy now", None, 3, DAY[3]), ("who?", None, 2, DAY[2]), ("rare", None, 1, DAY[5]), ("who?", "p", 1, None),
    ]  # fmt: skip
    assert found[0].results == ("n",)
    assert len({one.query.qid for one in found}) == 4


def test_of_entries_without_time_the_last_one_counts():
    assert distinct([LogEntry("a", None, ("m",)), LogEntry("A", None, ("n",))])[0].results == ("n",)


def test_the_most_frequent_come_first():
    assert words(sample(LOG, "frequent", 2)) == ["deploy now", "who?"]


def test_a_random_sample_depends_on_its_seed_and_prefers_the_frequent():
    assert sample(LOG, "random", 2, seed=3) == sample(LOG, "random", 2, seed=3)
    log = [LogEntry("often")] * 90 + [LogEntry(f"once {n}") for n in range(10)]
    first = [words(sample(log, "random", 1, seed))[0] for seed in range(200)]
    assert 0.8 < first.count("often") / 200 < 0.98
    assert len(sample(LOG, "random", 99)) == 4


def test_the_worst_are_those_whose_best_result_scores_lowest():
    found = {one.query.query: one.query.qid for one in distinct(LOG)}
    scores = {found["deploy now"]: 2.0, found["rare"]: -math.inf, found["who?"]: -4.0}
    assert words(sample(LOG, "worst", 2, scores=scores)) == ["rare", "who?"]
    with pytest.raises(InputError, match="scores"):
        sample(LOG, "worst", 2)


@pytest.mark.parametrize(("way", "size"), [("best", 1), ("random", 0)])
def test_what_cannot_be_sampled_is_refused(way, size):
    with pytest.raises(InputError):
        sample(LOG, way, size)
