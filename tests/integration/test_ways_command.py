"""`transcript` and `ways`: the place of each question, on a conversation written for it, with the packaged models."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from streamlit.testing.v1 import AppTest

from cems_workbench.mcp.protocol import ServedStore
from workbench_transcripts.tool import CoverageOf, coverage

if TYPE_CHECKING:
    from conftest import Command

SAID = {
    "D1:1": ("Mira", "I signed the lease for the flat in Pankow, the rent is 940 euros."),
    "D1:2": ("Jo", "Congratulations! My knee surgery is at the Charité on 12 June."),
    "D1:3": ("Mira", "My brother Elias works as a baker in Flensburg now."),
    "D1:4": ("Jo", "I adopted a greyhound named Pixel from the shelter."),
    "D1:5": ("Mira", "My piano teacher is called Zoltan and he lives above the pharmacy."),
    "D1:6": ("Jo", "The wifi password of the cabin is heron47."),
}
ASKED = [
    ("What is the rent of Mira's flat?", "940 euros", "D1:1"),
    ("Where is Jo's knee surgery?", "Charité", "D1:2"),
    ("What does Elias work as?", "baker", "D1:3"),
    ("What is the name of Jo's greyhound?", "Pixel", "D1:4"),
    ("Who is Mira's piano teacher?", "Zoltan", "D1:5"),
    ("What is the wifi password of the cabin?", "heron47", "D1:6"),
]
MEMORIES = [
    {"id": "m1", "content": "Mira signed the lease for the flat in Pankow, the rent is 490 euros."},
    {
        "id": "m3",
        "content": "Mira's brother Elias works as a baker in Flensburg.",
        "valid_until": "2023-06-01T00:00:00Z",
    },
    {"id": "m4", "content": "Jo adopted a greyhound named Pixel from the shelter."},
    {"id": "m5", "content": "Mira's piano teacher is called Zoltan and he lives above the pharmacy."},
    {"id": "m6", "content": "The wifi password of Jo's cabin is heron47."},
    *({"id": f"x{i}", "content": f"Mira and Jo talked about lunch number {i}."} for i in range(3)),
]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, module_command: Command) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    turns = [{"speaker": who, "dia_id": one, "text": text} for one, (who, text) in SAID.items()]
    asked = [
        {"question": question, "answer": answer, "evidence": [turn], "category": 4} for question, answer, turn in ASKED
    ]
    talk = {
        "speaker_a": "Mira",
        "speaker_b": "Jo",
        "session_1": turns,
        "session_1_date_time": "10:00 am on 4 May, 2026",
    }
    (folder / "talk.json").write_text(json.dumps({**talk, "qa": asked}), "utf-8")
    (folder / "memories.jsonl").write_text("\n".join(map(json.dumps, MEMORIES)), "utf-8")
    assert module_command("import", folder / "memories.jsonl", "--store", folder / "s").code == 0
    assert module_command("transcript", folder / "talk.json", "--store", folder / "s").code == 0
    return folder


@pytest.fixture
def store(imported: Path, tmp_path: Path) -> Path:
    """A copy of the imported store, beside the files that it is from."""
    shutil.copytree(imported, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s"


def ways(command: Command, store: Path, *options: object) -> dict[str, Any]:
    found = json.loads(command("ways", "talk", "--store", store, "--json", *options).out)
    return {way["answer"]: way for way in found["ways"]}


def test_each_question_leaves_at_one_place(command: Command, store: Path, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    said = {"Pixel": "Pixel.", "Zoltan": "I do not know.", "heron47": "It is heron47."}
    rows = [{"question": question, "answer": said[answer]} for question, answer, _ in ASKED if answer in said]
    answers.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    found = ways(command, store, "--answers", answers, "--set", "supersession.expired=drop")
    assert {answer: way["place"] for answer, way in found.items()} == {
        "940 euros": "written wrongly",
        "Charité": "not written",
        "baker": "gone",
        "Pixel": "returned",
        "Zoltan": "not used",
        "heron47": "returned",
    }
    assert {turn["provenance"] for way in found.values() for turn in way["turns"]} == {"inferred"}
    swapped = [found[answer] for answer in ("940 euros", "Charité")]
    assert all(way["proven"] and way["would_be"] == 1 for way in swapped)


def test_what_the_system_had_read_counts_where_it_is_recorded(command: Command, store: Path, tmp_path: Path) -> None:
    contents = {memory["id"]: memory["content"] for memory in MEMORIES}
    given = {"Pixel": [contents["m4"]], "heron47": ["Mira and Jo talked about lunch."]}
    rows = [
        {
            "questionId": "",
            "question": question,
            "hypothesis": "I do not know.",
            "searchResults": [{"memory": one} for one in given[answer]],
        }
        for question, answer, _ in ASKED
        if answer in given
    ]
    (tmp_path / "report.json").write_text(json.dumps({"provider": "mem0", "evaluations": rows}), "utf-8")
    found = ways(command, store, "--answers", tmp_path / "report.json")
    assert found["Pixel"]["place"] == "not used"
    assert (found["heron47"]["place"], found["heron47"]["stage"]) == ("lost", "context")


def test_two_stores_of_a_transcript_are_compared_and_raw_turns_name_theirs(
    command: Command, store: Path, tmp_path: Path
) -> None:
    raw = tmp_path / "raw"
    assert command("import", tmp_path / "talk.json", "--store", raw).code == 0
    found = json.loads(command("ways", "talk", "--store", store, "--against", raw, "--json").out)
    places = {(one["a"], one["b"]): one["questions"] for one in found["places"]}
    assert places["not written", "returned"] == places["written wrongly", "returned"] == 1
    assert {turn["provenance"] for way in found["b"]["ways"] for turn in way["turns"]} == {"recorded"}
    out = command("ways", "talk", "--store", store, "--against", raw).out
    assert "lost in A, though B has them: not written 1, written wrongly 1" in out


def test_a_fact_that_the_pipeline_cuts_off_is_lost_there(command: Command, store: Path) -> None:
    found = ways(command, store, "--set", "threshold.mode=fixed", "--set", "threshold.fixed=5")["Zoltan"]
    assert (found["place"], found["stage"]) == ("lost", "threshold")


def test_a_store_without_a_transcript_says_how_to_import_one(command: Command, tmp_path: Path) -> None:
    (tmp_path / "memories.jsonl").write_text("\n".join(map(json.dumps, MEMORIES)), "utf-8")
    command("import", tmp_path / "memories.jsonl", "--store", tmp_path / "s")
    done = command("ways", "all", "--store", tmp_path / "s")
    assert done.code == 2
    assert "has no transcript; `transcript FILE` imports one" in done.err


def test_what_cannot_be_followed_is_one_line(command: Command, store: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(
        "\n".join(
            json.dumps({"id": f"o{i}", "content": f"Release {i} of the parser fixes unicode."}) for i in range(5)
        ),
        "utf-8",
    )
    assert command("import", tmp_path / "other.jsonl", "--store", tmp_path / "o").code == 0
    assert command("transcript", tmp_path / "talk.json", "--store", tmp_path / "o").code == 0
    notes = json.loads(command("ways", "talk", "--store", tmp_path / "o", "--json").out)["notes"]
    assert any("fits none of the memories, which are near 0 of 6 turns: other people" in one for one in notes), notes
    for name, content, line in (
        ("unasked.csv", "qid,answer\nzz,hello\n", "no row has one of qid,"),
        ("empty.csv", "", "empty.csv is empty"),
        ("empty.json", "", "empty.json is empty"),
    ):
        (tmp_path / name).write_text(content, "utf-8")
        done = command("ways", "talk", "--answers", tmp_path / name, "--store", store)
        assert done.code == 2 and line in done.err and done.err.count("\n") == 1


def draw_view(store: str) -> None:
    """The script of a page that has only this view."""
    import threading
    from contextlib import closing
    from pathlib import Path

    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.settings import Settings
    from workbench_transcripts.page import BackgroundWays, draw

    with closing(open_resources(Settings(store=Path(store)))) as resources:
        try:
            draw(resources)
        finally:
            for thread in threading.enumerate():
                if thread.name == BackgroundWays.THREAD:
                    thread.join(60)


def test_the_view_shows_each_place_and_its_questions_also_against_another_store(store: Path) -> None:
    page = AppTest.from_function(draw_view, args=(str(store),), default_timeout=120).run()
    page.text_input(key="evaluate:ways:other").input(str(store / "transcript"))
    page.button(key="evaluate:ways:go").click().run()
    page = AppTest.from_function(draw_view, args=(str(store),), default_timeout=120).run()  # another tab
    page.text_input(key="evaluate:ways:other").input(str(store / "transcript")).run()
    assert not page.exception
    assert any("of 6 facts come through" in one.value for one in page.markdown)
    assert any("lost in A" in one.value for one in page.markdown), [one.value for one in page.markdown]
    places = page.get("button_group")[0].proto.options
    assert [one.content.split(" · ")[0] for one in places] == ["not written", "written wrongly", "returned"]


def test_messages_are_a_transcript_before_there_are_memories_and_once(command: Command, tmp_path: Path) -> None:
    lines = [
        "Mira: I signed the lease for the flat in Pankow, the rent is 940 euros.",
        "Jo: That is a lot.",
        "",
        "Mira: I move in May.",
        "Jo: Congratulations!",
    ]
    (tmp_path / "talk.txt").write_text("\n".join(lines), "utf-8")
    options = ("--store", tmp_path / "s")
    first, again = (command("transcript", tmp_path / "talk.txt", *options) for _ in range(2))
    assert (first.code, again.code) == (0, 0)
    assert "it has no questions: import a query set whose queries have an `answer`" in first.out
    assert re.search(r"memories +0 +0 +4", again.out)
    asked = {"qid": "q1", "query": "What is the rent of Mira's flat?", "answer": "940 euros"}
    unsaid = {"qid": "q2", "query": "What is the name of Jo's sister?", "answer": "Ottilie"}
    (tmp_path / "asked.jsonl").write_text(json.dumps(asked), "utf-8")
    (tmp_path / "unsaid.jsonl").write_text(json.dumps(unsaid), "utf-8")
    (tmp_path / "memories.jsonl").write_text("\n".join(map(json.dumps, MEMORIES[1:])), "utf-8")
    for name in ("memories.jsonl", "asked.jsonl", "unsaid.jsonl"):
        assert command("import", tmp_path / name, *options).code == 0
    found = json.loads(command("ways", "asked", *options, "--json").out)["ways"]
    assert [(way["place"], [turn["turn"] for turn in way["turns"]]) for way in found] == [("not written", ["talk/1:1"])]
    out = command("ways", "unsaid", *options).out
    assert "never said 1" in out
    line = next(line for line in out.splitlines() if line.startswith("next:"))
    words = shlex.split(line[line.index(" search ") :])
    assert words[1] == "What is the name of Jo's sister? Ottilie"
    assert "Mira: I move in May." in command(*words).out, "the nearest turns"


def draw_coverage(store: str) -> None:
    """The script of a page that has only the view Coverage."""
    from contextlib import closing
    from pathlib import Path

    import streamlit as st

    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.settings import Settings
    from workbench_transcripts.coverage_view import draw

    with closing(open_resources(Settings(store=Path(store)))) as resources:
        draw(resources, st.empty())


def test_coverage_is_the_same_as_json_in_words_and_on_the_page(command: Command, store: Path, tmp_path: Path) -> None:
    found = json.loads(command("coverage", "--store", store, "--json").out)
    verdicts = {one["id"]: one["verdict"] for one in found["memories"]}
    assert (verdicts["m1"], verdicts["m4"]) == ("says otherwise", "supported")
    assert [turn["verdict"] for turn in found["turns"] if turn["id"] == "talk/D1:2"] == ["nothing covers"]
    words, ids = command("coverage", "--store", store), command("coverage", "--store", store, "--ids")
    assert "My knee surgery is at the Charité" in words.out and "talk/D1:2" not in words.out and "talk/D1:2" in ids.out
    served = ServedStore(store)
    (row,) = coverage(served, CoverageOf(rows="nothing covers"))["rows"]
    assert row["turn"] == "talk/D1:2" and "knee surgery" in row["untrusted"]["said"]
    other = coverage(served, CoverageOf(rows="says otherwise"))["rows"]
    assert [(one["memory_id"], one["untrusted"]["reason"]) for one in other] == [("m1", "“940” there, “490” here")]
    served.close()
    page = AppTest.from_function(draw_coverage, args=(str(store),), default_timeout=120).run()
    page = page.button(key="memories:coverage:go").click().run()
    assert not page.exception
    gaps = [one.content for one in page.get("button_group")[0].proto.options]
    assert "nothing covers · 1" in gaps and "says otherwise · 2" in gaps
    page.session_state["memories:coverage:picked"] = "mm1"
    drawn = "".join(one.proto.body for one in page.run().get("html"))
    assert '<mark class="wb-cov-other">940</mark>' in drawn and '<mark class="wb-cov-other">490</mark>' in drawn


def test_the_coverage_view_without_a_transcript_opens_the_import(command: Command, tmp_path: Path) -> None:
    (tmp_path / "memories.jsonl").write_text("\n".join(map(json.dumps, MEMORIES)), "utf-8")
    command("import", tmp_path / "memories.jsonl", "--store", tmp_path / "s")
    page = AppTest.from_function(draw_coverage, args=(str(tmp_path / "s"),), default_timeout=120).run()
    page = page.button(key="memories:coverage:import").click().run()
    assert page.session_state["memories:view"] == "Import"
