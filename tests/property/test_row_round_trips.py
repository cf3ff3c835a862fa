"""Memories, queries, relations and BEIR's folder: what is written is read again as it was, and what is not is named.

LoCoMo, LongMemEval and BEAM: what was read of a document is written so that it is read again, and what is not is named.
"""

from __future__ import annotations

import csv
import io
import json
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import IDS, MEMORIES, QUERIES, RELATIONS, TIMES, WORDS, judgments

from cems_workbench.errors import InputError
from cems_workbench.formats import DataSet, detect, read, write_dataset
from cems_workbench.formats.base import csv_table
from cems_workbench.records import Memory

SUFFIX = {"memories-csv": "csv", "beir": "folder", "mteb": "folder"}
SOME_MEMORIES = st.lists(MEMORIES, min_size=1, max_size=5, unique_by=lambda one: one.id)
SOME_QUERIES = st.lists(QUERIES, max_size=4, unique_by=lambda one: one.qid)


def through(form, dataset):
    """What was said of the writing, what is read again, and what the file is taken for when nobody says."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"file.{SUFFIX.get(form, 'jsonl')}"
        done = write_dataset(form, dataset, path)
        return done, read(path, form), form if path.is_dir() else detect(path)


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv"])
@given(memories=SOME_MEMORIES)
def test_memories_lose_nothing(form, memories):
    done, parsed, found = through(form, DataSet(memories))
    assert parsed.memories == tuple(memories)
    assert (done.left_out, done.not_kept, parsed.errors, parsed.notes) == ((), (), (), ())
    assert (done.rows, found) == ({"memories": len(memories)}, form)


@given(queries=st.lists(QUERIES, min_size=1, max_size=5, unique_by=lambda one: one.qid))
def test_queries_lose_nothing(queries):
    done, parsed, found = through("queries-jsonl", DataSet((), queries=queries))
    assert parsed.queries == tuple(queries)
    assert (done.left_out, done.not_kept, parsed.errors, found) == ((), (), (), "queries-jsonl")


@given(
    relations=st.lists(
        RELATIONS, min_size=1, max_size=5, unique_by=lambda one: (one.source_id, one.target_id, one.kind)
    )
)
def test_relations_lose_nothing(relations):
    done, parsed, found = through("relations-jsonl", DataSet((), relations=relations))
    assert parsed.relations == tuple(relations)
    assert (done.left_out, done.not_kept, parsed.errors, found) == ((), (), (), "relations-jsonl")


@pytest.mark.parametrize("form", ["beir", "mteb"])
@given(data=st.data(), memories=SOME_MEMORIES, queries=SOME_QUERIES)
def test_beir_and_mteb_lose_nothing_of_memories_and_queries_and_of_judgments_only_what_they_name(
    form, data, memories, queries
):
    labels = []
    if queries:
        pairs = judgments(st.sampled_from([one.qid for one in queries]), st.sampled_from([one.id for one in memories]))
        labels = data.draw(st.lists(pairs, max_size=5, unique_by=lambda one: (one.qid, one.memory_id, one.judge)))
    done, parsed, _ = through(form, DataSet(memories, queries=queries, judgments=labels))
    assert (parsed.memories, parsed.queries, parsed.errors) == (tuple(memories), tuple(queries), ())
    assert all("judgments" in line for line in done.not_kept)
    grades = {}
    for one in labels:
        grades.setdefault((one.qid, one.memory_id), set()).add(one.grade)
    back = {(one.qid, one.memory_id): one.grade for one in parsed.judgments}
    assert all(grades[pair] == {grade} for pair, grade in back.items())
    missing = {pair for pair in grades if pair not in back}
    assert len(missing) == len(done.left_out)
    for qid, memory_id in missing:  # judges differ, or a line of columns cannot hold the id
        blank = any(name.strip() != name for name in (qid, memory_id))
        assert len(grades[qid, memory_id]) > 1 or blank


@given(memories=SOME_MEMORIES)
def test_no_cell_of_the_memories_is_a_formula(memories):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "m.csv"
        write_dataset("memories-csv", DataSet(memories), path)
        rows = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    for row in rows:
        for cell in row:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r"))
            assert csv_table.guarded(csv_table.restored(cell)) == cell


NAMES = st.sampled_from(["26", "conv-1", "a/b", "é 1", "x.2"])
DAYS = st.integers(1, 28)
BROKEN = st.sampled_from([{}, "text", None, {"speaker": "Ann"}, {"role": "user", "content": " "}, {"content": "x"}])

CLOCKS = st.builds(
    "{}:{:02d} {} on {} {}, {}".format,
    st.integers(1, 12),
    st.integers(0, 59),
    st.sampled_from(["am", "pm"]),
    DAYS,
    st.sampled_from(["May", "june"]),
    st.integers(1990, 2030),
)


@st.composite
def locomo(draw):
    """A conversation as LoCoMo has it, with broken turns and questions among the others."""
    sessions, ids = {}, []
    for number in draw(st.lists(st.integers(1, 40), min_size=1, max_size=3, unique=True)):
        turns = []
        for place in range(1, draw(st.integers(1, 4)) + 1):
            ids.append(f"D{number}:{place}")
            turn = {"speaker": draw(st.sampled_from(["Ann", "Bo: x", "é"])), "dia_id": ids[-1], "text": draw(WORDS)}
            if draw(st.booleans()):
                turn["blip_caption"] = draw(WORDS)
            turns.append(turn)
            turns += draw(st.lists(BROKEN, max_size=1))
        sessions[f"session_{number}"] = turns
        sessions[f"session_{number}_date_time"] = draw(CLOCKS | st.just("once"))
    evidence = st.lists(st.sampled_from([*ids, "D99:1", "D"]), max_size=3)
    asked = st.fixed_dictionaries({"question": WORDS, "evidence": evidence, "category": st.integers(0, 6)})
    qa = draw(st.lists(asked | BROKEN, max_size=4))
    return {"sample_id": draw(NAMES), "conversation": sessions, "qa": qa}


DATES = st.builds(
    "{:04d}/{:02d}/{:02d} (Sat) {:02d}:{:02d}".format,
    st.integers(1990, 2030),
    st.integers(1, 12),
    DAYS,
    st.integers(0, 23),
    st.integers(0, 59),
)


@st.composite
def longmemeval(draw):
    """A question with its haystack, with broken turns and repeated sessions in it."""
    turn = st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"]), "content": WORDS}, optional={"has_answer": st.booleans()}
    )
    sessions = draw(st.lists(st.lists(turn | BROKEN, min_size=1, max_size=3), max_size=3))
    return {
        "question_id": draw(NAMES) + draw(st.sampled_from(["", "_abs"])),
        "question": draw(WORDS),
        "question_type": draw(st.none() | WORDS),
        "question_date": draw(DATES | st.just("once")),
        "haystack_session_ids": draw(st.lists(st.sampled_from(["s1", "s1.2", "a/1"]), max_size=3)),
        "haystack_dates": draw(st.lists(DATES | st.just(""), max_size=3)),
        "haystack_sessions": sessions,
    }


@st.composite
def beam(draw):
    """A conversation as BEAM has it, with ids that repeat, and broken turns and questions."""
    anchors = st.builds("{}-{}-{}".format, st.sampled_from(["March", "June"]), DAYS, st.integers(1990, 2030))
    numbers = st.integers(-1, 4)
    turn = st.fixed_dictionaries(
        {
            "id": numbers,
            "role": st.sampled_from(["user", "assistant"]),
            "content": WORDS | st.sampled_from(["x ->-> 1,1", "x ->-> 1 ->-> 2", " ->-> 3"]),
        },
        optional={"time_anchor": anchors},
    )
    item = st.fixed_dictionaries({"question": WORDS, "source_chat_ids": st.lists(numbers, max_size=2)})
    abilities = st.sampled_from(["event_ordering", "a-1", "é x"])
    return {
        "conversation_id": draw(NAMES),
        "chat": [{"turns": [draw(st.lists(turn | BROKEN, max_size=6))]}],
        "probing_questions": draw(st.dictionaries(abilities, st.lists(item | BROKEN, max_size=3), max_size=2)),
    }


DOCUMENTS = {"locomo": locomo(), "longmemeval": longmemeval(), "beam": beam()}
NAMED = {"locomo": "sample_id", "longmemeval": "question_id", "beam": "conversation_id"}


def parsed_from(form, document):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "file.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return read(path, form)


def through_conversations(form, dataset):
    """What was said of the writing, and what is read again."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "file.json"
        done = write_dataset(form, dataset, path)
        assert detect(path) == form
        return done, read(path)


def by_key(parsed):
    return (
        {one.id: one for one in parsed.memories},
        {one.qid: one for one in parsed.queries},
        set(parsed.judgments),
    )


@pytest.mark.parametrize("form", DOCUMENTS)
@given(data=st.data())
def test_what_is_read_of_a_document_is_written_and_read_again(form, data):
    rows = data.draw(st.lists(DOCUMENTS[form], min_size=1, max_size=2, unique_by=lambda row: row[NAMED[form]]))
    first = parsed_from(form, rows)
    dataset = DataSet(first.memories, len(first.memories), (), first.queries, first.judgments)
    try:
        done, second = through_conversations(form, dataset)
    except InputError as error:  # nothing good was in it
        assert "no conversation to write" in str(error)
        assert not first.memories
        return
    assert by_key(second)[0] == by_key(first)[0]
    assert by_key(second)[1] == {qid: one for qid, one in by_key(first)[1].items() if qid not in str(done.left_out)}
    assert by_key(second)[2] == {one for one in first.judgments if one.qid in by_key(second)[1]}
    assert done.not_kept == ()


PROJECT = {"locomo": "locomo/{}", "longmemeval": "longmemeval/{}", "beam": "beam/{}"}


@st.composite
def stored(draw, form):
    """Memories and questions that look like a conversation's, or not, as a store may have them after edits."""
    name = draw(NAMES)
    memories, queries = [], []
    for number in draw(st.lists(st.integers(0, 12), max_size=5, unique=True)):
        base = draw(MEMORIES)
        author = draw(st.sampled_from(["user", "Ann", None]))
        session = {"locomo": f"{name}/session_{number % 3}", "longmemeval": f"{name}/s{number % 2}", "beam": None}[form]
        place = {"locomo": f"{name}/D1:{number}", "longmemeval": f"{session}/{number}", "beam": f"{name}/{number}"}[
            form
        ]
        ours = draw(st.sampled_from([True, True, False]))
        memories.append(
            replace(
                base,
                id=place if ours else base.id,
                content=f"{author}: {base.content}" if draw(st.booleans()) else base.content,
                author=author,
                session=session,
                project=PROJECT[form].format(name) if ours else base.project,
                created_at=draw(TIMES),
            )
        )
    for number in draw(st.lists(st.integers(0, 5), max_size=2, unique=True)):
        qid = {"locomo": f"{name}/q{number:03d}", "longmemeval": name, "beam": f"{name}/ability-{number}"}[form]
        asked = draw(QUERIES)
        project = PROJECT[form].format(name)
        ours = draw(st.sampled_from([True, True, False]))
        queries.append(replace(asked, qid=qid if ours else asked.qid, project=project if ours else asked.project))
    queries = list({one.qid: one for one in queries}.values())
    memories = list({one.id: one for one in memories}.values())
    labels = []
    if memories and queries:
        pair = judgments(st.sampled_from([one.qid for one in queries]), st.sampled_from([one.id for one in memories]))
        labels = draw(st.lists(pair, max_size=4, unique_by=lambda one: (one.qid, one.memory_id)))
    return DataSet(memories, len(memories), (), queries, labels)


@pytest.mark.parametrize("form", DOCUMENTS)
@given(data=st.data())
def test_whatever_does_not_come_back_as_it_was_is_named(form, data):
    dataset = data.draw(stored(form))
    try:
        done, back = through_conversations(form, dataset)
    except InputError as error:
        assert "no conversation to write" in str(error)
        return
    memories, queries, labels = by_key(back)
    labels = {(one.qid, one.memory_id): one for one in labels}
    given_memories = {one.id: one for one in dataset.memories}
    assert memories.keys() <= given_memories.keys()
    pairs = [
        *((one, memories.get(one.id), "memories", one.id) for one in given_memories.values()),
        *((one, queries.get(one.qid), "queries", one.qid) for one in dataset.queries),
        *((one, labels.get((one.qid, one.memory_id)), "judgments", "") for one in dataset.judgments),
    ]
    changed = {}
    for before, after, kind, name in pairs:
        if after is None:
            assert any(line.startswith(f"{name}: ") or kind == "judgments" for line in done.left_out)
            continue
        if isinstance(before, Memory):
            assert after.content == before.content
        for one in fields(before):
            if getattr(before, one.name) != getattr(after, one.name):
                changed[kind, one.name] = changed.get((kind, one.name), 0) + 1
    assert len(done.left_out) == sum(after is None for _, after, _, _ in pairs)
    assert {line.split(", e.g.")[0] for line in done.not_kept} == {
        f"{name} of {count} {kind}" for (kind, name), count in changed.items()
    }
    assert done.rows == {"memories": len(memories), "queries": len(queries), "judgments": len(labels)}


@given(name=IDS, text=WORDS)
def test_a_memory_that_is_no_turn_is_refused_with_the_reason(name, text):
    for form in DOCUMENTS:
        with tempfile.TemporaryDirectory() as home, pytest.raises(InputError, match="no conversation to write"):
            write_dataset(form, DataSet([Memory(name, text)]), Path(home) / "file.json")
