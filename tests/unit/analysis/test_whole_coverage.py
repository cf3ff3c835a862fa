"""Coverage of a whole transcript, with the packaged models: gaps, made-up and altered memories, and turns that a memory names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cems_workbench.errors import InputError
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Cancelled
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import Settings
from workbench_transcripts.coverage import Reading, other_value
from workbench_transcripts.coverage_view import marked
from workbench_transcripts.whole import Provenance, coverage_of

SAID = (
    ("Mira", "I signed the lease for the flat in Pankow, the rent is 940 euros a month."),
    ("Jo", "My knee surgery is at the Charité hospital on 12 June, I am rather nervous about the operation."),
    ("Mira", "My brother Elias works as a baker in Flensburg since the spring."),
    ("Jo", "I adopted a greyhound named Pixel from the animal shelter yesterday."),
    ("Mira", "Wow, great!"),
    ("Jo", "The garden shed burned down last night and all our bicycles were inside."),
)
DAY = datetime(2026, 5, 4, 10, tzinfo=UTC)
TURNS = [
    Memory(f"talk/{i}", f"{who}: {text}", session=f"s{i // 4}", author=who, source_ref=f"locomo:talk:D1:{i}")
    for i, (who, text) in enumerate(SAID)
]
MEMORIES = [
    Memory("rent", "Mira signed the lease for the flat in Pankow; the rent is 490 euros a month."),
    Memory("surgery", "Jo is nervous about the knee surgery at the Charité hospital on 12 June."),
    Memory("dog", "Jo has a pet with a funny name.", source_ref="D1:3"),
    Memory("invented", "Quarterly tax declarations of the bookstore were submitted in Lisbon."),
    Memory("baker", "Elias, the brother of Mira, works as a baker in Flensburg."),
]


def opened(path: Path, memories: list[Memory]) -> Resources:
    resources = open_resources(Settings(store=path))
    resources.store.add(ParsedInput("test", "memories", memories=tuple(memories)))
    resources.refresh()
    return resources


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Resources, Resources]]:
    folder = tmp_path_factory.mktemp("coverage")
    with closing(opened(folder / "s", MEMORIES)) as store, closing(opened(folder / "t", TURNS)) as transcript:
        yield store, transcript


def test_gaps_made_up_and_altered_memories_are_told_apart(stores: tuple[Resources, Resources]) -> None:
    found = coverage_of(*stores)
    assert {one.id: one.verdict for one in found.memories} == {
        "rent": "says otherwise",
        "surgery": "supported",
        "dog": "supported",
        "invented": "nothing supports",
        "baker": "supported",
    }
    assert [one.verdict for one in found.turns] == [
        "says otherwise",
        "covered",
        "covered",
        "covered",
        "says little",
        "nothing covers",
    ]
    links = {(link.turn, link.memory): link for link in found.links}
    assert links["talk/0", "rent"].reason == "“940” there, “490” here"
    assert links["talk/3", "dog"].recorded and not links["talk/1", "surgery"].recorded
    assert [one.id for one in found.memories if one.recorded] == ["dog"]
    assert found.sessions[0][0] == "s1", "the session with most gaps comes first"
    assert "6 turns without a time stand in the order of their ids" in found.notes
    assert coverage_of(*stores) is found, "it is kept until the store or the transcript is written"


def test_a_transcript_that_fits_no_memory_says_so_and_a_cancelled_run_keeps_nothing(
    stores: tuple[Resources, Resources], tmp_path: Path
) -> None:
    def cancel(*_: object) -> None:
        raise Cancelled

    foreign = [Memory(f"x{i}", f"Der Zug nach Ulm fährt heute wieder {i} Minuten zu spät ab.") for i in range(6)]
    with (
        closing(opened(tmp_path / "s", foreign)) as store,
        closing(open_resources(Settings(store=tmp_path / "e"))) as none,
    ):
        with pytest.raises(Cancelled):
            coverage_of(store, stores[1], cancel)
        assert any(
            note.startswith("the transcript fits none of the memories") for note in coverage_of(store, stores[1]).notes
        )
        with pytest.raises(InputError, match="has no memories to compare the transcript with"):
            coverage_of(none, stores[1])


def test_turns_with_times_stand_in_their_order(tmp_path: Path, stores: tuple[Resources, Resources]) -> None:
    dated = [replace(turn, created_at=DAY - timedelta(hours=i)) for i, turn in enumerate(TURNS)]
    with closing(opened(tmp_path / "t", dated)) as transcript:
        assert [turn.id for turn in coverage_of(stores[0], transcript).turns] == [
            f"talk/{i}" for i in (5, 4, 3, 2, 1, 0)
        ]


def test_a_memory_names_turns_by_id_reference_and_tag_within_its_project() -> None:
    known = Provenance()
    for i, project in enumerate(("locomo/1", "locomo/2")):
        known.add(i, Memory(f"{i + 1}/D1:3", "", project=project, source_ref=f"locomo:{i + 1}:D1:3"))
    known.add(2, Memory("12", ""))
    assert known.named_by(Memory("m", "", source_ref="D1:3", project="locomo/2")) == [1]
    assert known.named_by(Memory("m", "", source_ref="1:D1:3; 2/D1:3")) == [0, 1]
    assert known.named_by(Memory("m", "", tags=("1/D1:3", "12"))) == [0]
    assert known.named_by(Memory("12", "", source_ref="D1:3")) == [], "two conversations have it; a number names none"


def test_the_words_that_two_texts_share_and_the_values_that_differ_are_marked() -> None:
    reading = Reading(lambda _: 1.0)
    pieces = marked(Memory("t", "The rent is 940 euros."), Memory("m", "Rent: 490 euros"), reading)
    assert [(text, kind) for text, kind in pieces if kind] == [("rent", "same"), ("940", "other"), ("euros", "same")]
    assert "".join(text for text, _ in pieces) == "The rent is 940 euros."
    turn, memory = Memory("t", "We met two friends in May 2025."), Memory("m", "They met 9 friends in May 2026.")
    assert other_value(turn, memory, reading) == ("2", "9")
