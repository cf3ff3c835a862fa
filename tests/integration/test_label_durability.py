"""Labels of several sessions at once, and of a process that is killed: what was confirmed is there, once."""

from __future__ import annotations

from benchmarks.bench_durability import concurrent_sessions, killed_process


def test_labels_of_eight_sessions_are_all_there_once_with_their_author(tmp_path):
    wrong, times = concurrent_sessions(tmp_path / "store", sessions=8, labels=12)
    assert wrong == []
    assert len(times) == 96


def test_a_killed_process_loses_no_label_it_had_confirmed(tmp_path):
    wrong, confirmed = killed_process(tmp_path / "store", kills=3, seed=1)
    assert wrong == []
    assert confirmed > 0
