"""Judgments that follow their memories to other ids: which status each gets, what is written, and what an undo brings back."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from cems_workbench import formats
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.evaluation.labelling.queue import LabelQueue
from cems_workbench.jobs import importing
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import ImportOptions, Store
from cems_workbench.store.judgments import WORKBENCH

Rows = Callable[..., ParsedInput]
SAID_AGAIN = Path(__file__).resolve().parents[2] / "recordings" / "said_again.json.gz"
OLD = {
    "same": "The invoice job runs at 02:30 on the first of each month.",
    "marks": "Mira drinks oat milk, never cow's milk.",
    "piece one": "The staging database is restored from the nightly dump at six.",
    "piece two": "Its password is rotated by the platform team every quarter.",
    "cut": "Deploys stop on Friday at noon and nobody may override it. Hotfixes need two approvals from people of another team.",
    "said": "Caroline adopted a grey kitten named Biscuit from the shelter in Porto.",
    "doubt": "The warehouse in Graz ships parcels with Hermes on 14 May before lunch.",
    "gone": "Nobody remembers the colour of the old logo.",
}
NEW = {
    "n1": OLD["same"],
    "n2": "mira drinks Oat-milk never  cow's milk",
    "n3": f"{OLD['piece one']} {OLD['piece two']}",
    "n4": "Deploys stop on Friday at noon and nobody may override it.",
    "n5": "Hotfixes need two approvals from people of another team.",
    "n6": "From the shelter in Porto Caroline adopted Biscuit, a kitten that was grey, named so by her.",
    "n7": "The warehouse in Graz ships parcels with Hermes on 15 May before lunch.",
    "n8": "An unrelated note about tea.",
}
STATUSES = {
    "same": ("moved", ("n1",)),
    "marks": ("moved", ("n2",)),
    "piece one": ("merged", ("n3",)),
    "piece two": ("merged", ("n3",)),
    "cut": ("split", ("n4", "n5")),
    "said": ("moved", ("n6",)),
    "doubt": ("orphaned", ()),
    "gone": ("orphaned", ()),
}


def memories(texts: dict[str, str]) -> tuple[Memory, ...]:
    return tuple(Memory(key, text) for key, text in texts.items())


def judged(texts: dict[str, str]) -> tuple[Judgment, ...]:
    return tuple(Judgment("q1", key, 1 + i % 3, note="read twice" if key == "same" else None) for i, key in enumerate(texts))


@pytest.fixture
def replaced(store: Store) -> Store:
    """A store whose memories were judged, and came again under other ids."""
    first = store.add(ParsedInput("old.jsonl", "memories-jsonl", memories=memories(OLD))).event
    store.add(ParsedInput("labels.jsonl", "judgments-jsonl", queries=(Query("q1", "which"),), judgments=judged(OLD)))
    store.imports.undo(first)
    store.add(ParsedInput("new.jsonl", "memories-jsonl", memories=memories(NEW)))
    return store


def test_each_judged_memory_is_found_and_its_judgments_say_how_they_moved(replaced: Store) -> None:
    plan = replaced.plan_rebase()
    assert {key: (one.status, one.targets) for key, one in plan.found.items()} == STATUSES
    assert plan.doubtful == (("q1", "n7"),)  # another day: a person has to tell
    assert replaced.judgments.read() == []  # a plan changes nothing

    done = replaced.rebase(plan)
    after = {one.memory_id: one for one in replaced.judgments.read()}
    assert {key: one.grade for key, one in after.items()} == {"n1": 1, "n2": 2, "n3": 3, "n4": 2, "n5": 2, "n6": 3}
    assert after["n1"].note == "read twice; moved from same: same text"
    assert after["n5"].note == "split from cut: pieces"
    assert replaced.queues.pairs(done.queue) == (("q1", "n7"),)
    assert not replaced.plan_rebase().changes  # once is enough

    event = replaced.imports.get(done.event)
    ways = {"moved: same text": 1, "moved: same words": 1, "merged: its words": 2, "split: pieces": 1, "moved: says most of it": 1}
    assert dict(event.outcome) == {**ways, "orphaned": 1, "orphaned: perhaps": 1} and event.queue == done.queue

    replaced.imports.undo(done.event)
    assert replaced.judgments.read() == []


def test_a_person_tells_what_a_doubtful_move_is_and_one_is_enough(replaced: Store) -> None:
    done = replaced.rebase(replaced.plan_rebase())
    work = LabelQueue(replaced, done.queue)
    card, _ = work.deal("ada")
    assert card is not None and (card.memory.id, card.judged) == ("n7", {"doubt": OLD["doubt"]})

    assert replaced.labels.decide_move("q1", "n7", [*card.judged], "ada", accept=True) == 1
    (label,) = (one for one in replaced.judgments.read() if one.memory_id == "n7")
    assert (label.grade, label.judge, label.note) == (1, "human", "moved from doubt: accepted by ada")
    assert (work.progress("ada").graded, work.progress("bob").left) == (1, 0)
    assert not replaced.plan_rebase().changes

    undone = replaced.labels.undo("ada")
    assert undone is not None and undone.action == "accept"
    assert "n7" not in {one.memory_id for one in replaced.judgments.read()}
    assert work.progress("bob").left == 1
    replaced.labels.decide_move("q1", "n7", [*card.judged], "bob", accept=False)
    assert work.deal("ada")[0] is None
    replaced.queues.remove(done.queue)
    assert not replaced.plan_rebase().doubtful  # what was rejected is not asked for again


def test_labels_follow_texts_that_a_small_model_said_again_and_doubt_those_that_it_changed(store: Store) -> None:
    recorded = json.loads(gzip.decompress(SAID_AGAIN.read_bytes()))
    said, read = recorded["texts"], recorded["verdicts"]  # read one by one: whether the new text states what was judged
    old = formats.read(SAMPLE_DATA / "memories.jsonl").memories
    given = [one for one in formats.read(SAMPLE_DATA / "judgments.qrels").judgments if one.memory_id in said]
    first = store.add(ParsedInput("old", "x", memories=old)).event
    asked = tuple(Query(qid, qid) for qid in {one.qid for one in given})
    store.add(ParsedInput("labels", "x", queries=asked, judgments=tuple(given)))
    store.imports.undo(first)
    store.add(ParsedInput("new", "x", memories=tuple(Memory(f"n{one.id}", said.get(one.id, one.content)) for one in old)))

    found = store.plan_rebase().found
    told = Counter((read[key], "moved" if found[key].targets else "doubtful" if found[key].doubtful else "gone") for key in said)
    assert told == {
        ("said", "moved"): 48,
        ("said", "doubtful"): 4,
        ("part", "moved"): 8,
        ("part", "doubtful"): 59,
        ("part", "gone"): 1,
        ("lost", "moved"): 1,
        ("lost", "doubtful"): 11,
        ("lost", "gone"): 6,
    }
    moved = Counter(read[one.memory_id] for one in given if found[one.memory_id].targets)
    assert (moved, len(given)) == ({"said": 140, "part": 30, "lost": 5}, 458)


def test_an_id_that_has_another_text_now_loses_the_judgment_until_an_undo(store: Store) -> None:
    first, second, third = OLD["same"], OLD["said"], OLD["gone"]
    store.add(
        ParsedInput("a.jsonl", "memories-jsonl", memories=memories({"c0": first, "c1": second}), queries=(Query("q1", "which"),))
    )
    store.labels.give(Judgment("q1", "c0", 3, "mira"))
    store.labels.give(Judgment("q1", "c1", 1, "mira"))
    texts = {"c0": third, "c1": first, "c2": second}
    store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=memories(texts)), options=ImportOptions(replace=True))

    (line,) = importing.follow(store)
    assert line.startswith("judgments: 2 moved; import ")
    assert {(one.memory_id, one.grade, one.judge) for one in store.judgments.read()} == {("c1", 3, "mira"), ("c2", 1, "mira")}
    assert importing.follow(store) == []

    store.imports.undo()
    assert {(one.memory_id, one.grade) for one in store.judgments.read()} == {("c0", 3), ("c1", 1)}
    assert importing.follow(store) == []  # an undone move is made again by the command alone
    assert {one.memory_id for one in store.plan_rebase().moved} == {"c1", "c2"}
    assert store.plan_rebase().counts == {"moved": 2}
    (event, *_) = store.labels.history("mira", memory_id="c0")
    assert (event.action, event.source) == ("label", WORKBENCH)


def test_a_store_of_an_earlier_version_keeps_what_was_judged_in_it(store: Store) -> None:
    store.add(ParsedInput("a", "x", memories=memories(OLD), queries=(Query("q1", "which"),), judgments=judged({"same": ""})))
    store.close()
    with duckdb.connect(str(store.path / "workbench.duckdb")) as database:
        database.execute("DROP TABLE judged_texts; UPDATE workbench_meta SET value = '1' WHERE key = 'schema'")
    with Store.open(store.path) as opened:
        opened.memories.update(Memory("same", OLD["gone"]))
        assert opened.plan_rebase().counts == {"changed": 1}


def test_an_edit_that_keeps_what_was_said_keeps_the_judgment_and_another_text_is_named(store: Store) -> None:
    texts = {"m1": OLD["said"], "m2": OLD["same"]}
    store.add(ParsedInput("a", "x", memories=memories(texts), queries=(Query("q1", "which"),), judgments=judged(texts)))
    for key, text in (("m1", f"{OLD['said']} She feeds it twice a day."), ("m2", "Tea is served at four.")):
        store.memories.update(Memory(key, text))
    plan = store.plan_rebase()
    assert (plan.found["m1"].status, plan.found["m2"].status, plan.moved) == ("valid", "changed", ())
    store.labels.give(Judgment("q1", "m2", 0))  # judged again, of the text that it has now
    assert store.plan_rebase().found["m2"].status == "valid"


def test_an_import_of_judgments_follows_the_texts_of_an_older_store_or_file(store: Store, tmp_path: Path) -> None:
    store.add(ParsedInput("new", "x", memories=memories(NEW), queries=(Query("q1", "which"),)))
    old = tmp_path / "old.jsonl"
    old.write_text("".join(f'{{"id": "{key}", "content": "{text}"}}\n' for key, text in OLD.items()), "utf-8")
    given = ParsedInput("judgments.qrels", "qrels", judgments=judged(OLD))
    assert store.add(given).judgments.total == 0  # this store never had these texts
    report = store.add(given, options=ImportOptions(texts=importing.texts_of(old), queue="doubts"))
    assert {one.memory_id for one in store.judgments.read()} == {"n1", "n2", "n3", "n4", "n5", "n6"}
    assert sorted(error.row for error in report.errors) == [7, 8]  # found nowhere: left out, each with its row
    assert "judgments of memories with another id or text here: 3 moved, 2 merged, 2 orphaned, 1 split" in report.notes
    assert store.queues.pairs("doubts") == (("q1", "n7"),)
