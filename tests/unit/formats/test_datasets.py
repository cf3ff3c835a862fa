"""Writing data sets by example: what stands in the files, what is refused, and the shared data read, written and read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, DataSet, dataset_writers, judgment_writers, read, read_path, write_dataset
from cems_workbench.progress import Cancelled
from cems_workbench.records import Judgment, Memory, Query

SHARED = Path(__file__).parents[4] / "shared" / "data"
SAID = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


def turn(number: int, **more: object) -> Memory:
    at = SAID + timedelta(seconds=number)
    return Memory(
        **{
            "id": f"7/D1:{number}",
            "content": f"Ann: words {number}",
            "project": "locomo/7",
            "session": "7/session_1",
            "author": "Ann",
            "created_at": at,
            "last_accessed": at,
            "source_ref": f"locomo:7:D1:{number}",
            **more,
        }
    )  # type: ignore[arg-type]


ASKED = Query("7/q001", "When?", "locomo/7", SAID, "temporal")


def test_beir_is_a_folder_whose_metadata_holds_what_it_has_no_field_for(tmp_path):
    memories = [Memory("4983", "A text.", "A title"), Memory("m", "x", tags=("a",), project="p", created_at=SAID)]
    queries = [Query("1", "why?", type="beir"), Query("2", "who?", "p", SAID, "temporal")]
    labels = [Judgment("1", "4983", 2), Judgment("2", "m", 0, "Ann", note="no")]
    done = write_dataset("beir", DataSet(memories, 2, (), queries, labels), tmp_path / "set")
    rows = [json.loads(line) for line in (tmp_path / "set" / "corpus.jsonl").read_text().splitlines()]
    more = {"project": "p", "tags": ["a"], "created_at": "2023-05-08T13:56:00+00:00"}
    assert rows == [
        {"_id": "4983", "title": "A title", "text": "A text."},
        {"_id": "m", "title": "", "text": "x", "metadata": {"cems_workbench": more}},
    ]
    asked = (tmp_path / "set" / "queries.jsonl").read_text().splitlines()
    assert json.loads(asked[0]) == {"_id": "1", "text": "why?"}
    assert (tmp_path / "set" / "qrels" / "test.tsv").read_text() == "query-id\tcorpus-id\tscore\n1\t4983\t2\n2\tm\t0\n"
    assert done.rows == {"memories": 2, "queries": 2, "judgments": 2}
    assert done.not_kept == ("judge of 1 judgments, e.g. 2 m by Ann", "note of 1 judgments, e.g. 2 m by Ann")
    (parsed,) = read_path(tmp_path / "set")
    assert (parsed.memories, parsed.queries) == (tuple(memories), tuple(queries))


def test_what_is_wrong_with_our_fields_in_beirs_metadata_costs_that_row_alone(write):
    bad = {"_id": "a", "text": "x", "metadata": {"cems_workbench": {"priority": 9}, "url": "u"}}
    parsed = read(
        write("corpus.jsonl", bad, {**bad, "_id": "b", "metadata": {"cems_workbench": 1}}, {"_id": "c", "text": "x"})
    )
    assert [memory.id for memory in parsed.memories] == ["c"]
    assert [(error.row, error.field) for error in parsed.errors] == [(1, "priority"), (2, "metadata.cems_workbench")]


def test_metadata_of_others_is_not_taken_for_ours_and_is_noted(write):
    parsed = read(write("corpus.jsonl", {"_id": "a", "title": "T", "text": "x", "metadata": {"project": "theirs"}}))
    assert parsed.memories == (Memory("a", "x", "T"),)
    assert parsed.notes == ("field 'metadata' is not known and was left out (1 rows)",)


def test_locomo_is_written_in_the_published_form(tmp_path):
    look = turn(2, content="Bo: Look [shared image: a duck]", author="Bo")
    labels = [Judgment("7/q001", "7/D1:2", 1)]
    write_dataset("locomo", DataSet([turn(1), look], 2, (), [ASKED], labels), tmp_path / "7.json")
    assert json.loads((tmp_path / "7.json").read_text()) == [
        {
            "sample_id": "7",
            "conversation": {
                "speaker_a": "Ann",
                "speaker_b": "Bo",
                "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_1": [
                    {"speaker": "Ann", "dia_id": "D1:1", "text": "words 1"},
                    {"speaker": "Bo", "dia_id": "D1:2", "blip_caption": "a duck", "text": "Look"},
                ],
            },
            "qa": [{"question": "When?", "evidence": ["D1:2"], "category": 2}],
        }
    ]


def test_labels_and_edits_that_locomo_cannot_hold_are_named(tmp_path):
    labels = [
        Judgment("7/q001", "7/D1:1", 3, "Ann"),
        Judgment("7/q001", "7/D1:3", 0),
        Judgment("7/q001", "m", 1),
        Judgment("7/q001", "7/D1:4", 1, "Ann"),
        Judgment("7/q001", "7/D1:4", 0, "Bo"),
    ]
    memories = [turn(1), turn(3, tags=("a",), pinned=True), turn(4), Memory("m", "x")]
    done = write_dataset("locomo", DataSet(memories, 4, (), [ASKED], labels), tmp_path / "7.json")
    assert done.left_out == (
        "m: is no turn of a LoCoMo conversation (project locomo/NAME, session NAME/session_N)",
        "7/q001 7/D1:4: Ann 1, Bo 0; the format has one grade per pair: adjudicate, or choose a judge",
        "7/q001 7/D1:3 by human: grade 0 is no evidence, and the form has nothing else",
        "7/q001 m by human: is not of a question and a turn of one conversation",
    )
    assert done.not_kept == (
        "pinned of 1 memories, e.g. 7/D1:3",
        "tags of 1 memories, e.g. 7/D1:3",
        "grade of 1 judgments, e.g. 7/q001 7/D1:1 by Ann",
        "judge of 1 judgments, e.g. 7/q001 7/D1:1 by Ann",
    )
    assert done.notes == ("1 places are held by empty turns or questions, which reading reports",)
    parsed = read(tmp_path / "7.json")
    assert [memory.created_at for memory in parsed.memories] == [turn(n).created_at for n in (1, 3, 4)]
    assert [error.field for error in parsed.errors] == ["7 session_1[2].dia_id"]


def test_a_deleted_turn_of_a_haystack_leaves_the_others_their_ids(tmp_path):
    def said(place: int) -> Memory:
        at = SAID + timedelta(seconds=place)
        name = f"q/s/{place}"
        return Memory(
            name,
            f"user: {place}",
            project="longmemeval/q",
            session="q/s",
            author="user",
            created_at=at,
            last_accessed=at,
            source_ref=f"longmemeval:{name}",
        )

    memories, query = (said(2), said(4)), Query("q", "what?", "longmemeval/q", SAID, "multi-session")
    label = Judgment("q", "q/s/4", 1)
    done = write_dataset("longmemeval", DataSet(memories, 2, (), [query], [label]), tmp_path / "x.json")
    (row,) = json.loads((tmp_path / "x.json").read_text())
    assert row["haystack_dates"] == ["2023/05/08 (Mon) 13:56"]
    assert [one["content"] for one in row["haystack_sessions"][0]] == ["", "2", "", "4"]
    assert row["haystack_sessions"][0][3]["has_answer"] is True
    parsed = read(tmp_path / "x.json")
    assert (parsed.memories, parsed.queries, parsed.judgments) == (memories, (query,), (label,))
    assert (done.left_out, done.not_kept) == ((), ())


def test_a_haystack_without_its_question_is_left_out(tmp_path):
    memory = Memory("q/s/1", "user: x", project="longmemeval/q", session="q/s", author="user")
    other = Query("r", "what?", "longmemeval/r")
    done = write_dataset("longmemeval", DataSet([memory], 1, (), [other]), tmp_path / "x.json")
    assert done.left_out == ("q/s/1: its question is not here",)
    assert [query.qid for query in read(tmp_path / "x.json").queries] == ["r"]


def test_a_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "m.jsonl").write_text("mine")

    def stop(label: str, done: int, total: int) -> None:
        raise Cancelled

    with pytest.raises(Cancelled):
        write_dataset("memories-jsonl", DataSet([Memory("m", "x")], 1), tmp_path / "m.jsonl", stop)
    with pytest.raises(InputError, match="no memories to write"):
        write_dataset("memories-jsonl", DataSet([]), tmp_path / "m.jsonl")
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("m.jsonl", "mine")]


@pytest.mark.parametrize(
    ("form", "name", "part"),
    [
        ("beir", "full", "new or an empty directory"),
        ("locomo", "full", "is a directory"),
        ("memories-csv", "none/m.csv", "cannot be written"),
        ("memories_csv", "m.csv", "did you mean memories-csv"),
        ("qrels", "q.txt", "judgments --format qrels"),
    ],
)
def test_what_cannot_be_written_is_one_line(tmp_path, form, name, part):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("x")
    with pytest.raises(InputError, match=part) as said:
        write_dataset(form, DataSet([turn(1)], 1, (), [ASKED]), tmp_path / name)
    assert "\n" not in str(said.value)
    assert (tmp_path / "full" / "kept").read_text() == "x"


def test_memories_are_gone_through_once_and_not_gathered(tmp_path):
    alive = 0
    most = 0

    class Counted(str):
        def __new__(cls, text):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)
            return super().__new__(cls, text)

        def __del__(self):
            nonlocal alive
            alive -= 1

    memories = (Memory(f"m{n}", Counted(f"text {n}")) for n in range(3_000))
    assert write_dataset("memories-jsonl", DataSet(memories, 3_000), tmp_path / "m.jsonl").rows == {"memories": 3_000}
    assert most < 10


def test_a_long_text_comes_back(tmp_path):
    text = 'é"\n,' * 250_000
    for form in ("memories-jsonl", "memories-csv", "beir"):
        path = tmp_path / (form if form == "beir" else f"{form}.{form[-3:]}")
        write_dataset(form, DataSet([Memory("m", text)], 1), path)
        assert read(path, form).memories == (Memory("m", text),)


NOT_WRITTEN = {
    "queries-csv",
    "facts-jsonl",
    "messages-jsonl",
    "cems-export",
    "convomem",
    "markdown-notes",
    "mcp-memory-server",
    "memory-records",
    "memoryagentbench",
    "quepid-json",
    "ltr-text",
    "cems-hook-events",
    "openinference-spans",
    "openinference-traces",
    "query-log",
    "rag-samples",
    "expected-ids",
    "observations",
}
"""They become memories, and leave as memories, because their rows say less than a memory does; or they are logs of another system, or
queries with judgments, which have other writers."""


def test_every_form_that_is_read_is_written_but_those_that_only_make_memories_and_logs():
    assert set(FORMATS) == set(dataset_writers()) | set(judgment_writers()) | NOT_WRITTEN
    assert not set(dataset_writers()) & set(judgment_writers())


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data are not here")
@pytest.mark.parametrize(
    ("name", "form", "counts"),
    [
        ("locomo/26.json", "locomo", (419, 199, 251)),
        ("locomo/42.json", "locomo", (629, 260, 373)),
        ("scifact", "beir", (5183, 1409, 339)),
    ],
)
def test_the_shared_data_are_read_written_and_read_again(tmp_path, name, form, counts):
    (first,) = read_path(SHARED / name)
    dataset = DataSet(first.memories, len(first.memories), (), first.queries, first.judgments)
    done = write_dataset(form, dataset, tmp_path / Path(name).name)
    (second,) = read_path(tmp_path / Path(name).name)
    assert (done.left_out, done.not_kept, done.notes) == ((), (), ())
    assert tuple(done.rows.values()) == counts == (len(second.memories), len(second.queries), len(second.judgments))
    assert (second.memories, second.queries, second.judgments) == (first.memories, first.queries, first.judgments)


@pytest.mark.parametrize("form", ["memories-jsonl", "memories-csv"])
def test_validity_comes_back_and_takes_no_place_where_no_memory_has_it(tmp_path, form):
    plain, bounded = (
        Memory("p", "always"),
        Memory("b", "for a day", valid_from=SAID, valid_until=SAID + timedelta(days=1)),
    )
    write_dataset(form, DataSet([plain, bounded], 2), tmp_path / "both")
    assert read(tmp_path / "both", form).memories == (plain, bounded)
    done = write_dataset(form, DataSet([plain], 1, validity=False), tmp_path / "plain")
    assert "valid" not in (tmp_path / "plain").read_text() and not done.not_kept
