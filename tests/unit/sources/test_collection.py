"""What libraries store: directories read from a copy, texts as they were embedded, sparse vectors."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cems_workbench.errors import InputError
from cems_workbench.formats.base.payload import ANY_NAMES
from cems_workbench.records import EmbeddedText
from cems_workbench.sources import server_or_directory
from cems_workbench.sources.address import parse
from cems_workbench.sources.connect import open_source
from cems_workbench.sources.rows import (
    HAYSTACK,
    LLAMA_INDEX,
    date_note,
    embedded_texts,
    filled,
    llama_index_text,
    usable_vector,
)
from cems_workbench.sources.source import SourceError
from tests.lazily import Lazy
from workbench_stores.mapping import embedded_text

bm25 = Lazy("workbench_stores.qdrant")
ADDRESS = parse("chroma:/somewhere/notes", {})


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "db" / "inner").mkdir(parents=True)
    (tmp_path / "db" / "chroma.sqlite3").write_bytes(b"1")
    (tmp_path / "db" / "inner" / "data.bin").write_bytes(b"22")
    return tmp_path / "db"


def test_a_copy_has_every_file_may_be_written_and_is_deleted(directory) -> None:
    (directory / "chroma.sqlite3").chmod(0o400)
    with server_or_directory.temporary_copy(ADDRESS, directory) as copy:
        assert (copy / "inner" / "data.bin").read_bytes() == b"22"
        assert (copy / "chroma.sqlite3").stat().st_mode & 0o200
        (copy / "chroma.sqlite3").write_bytes(b"changed")
    assert not copy.exists() and (directory / "chroma.sqlite3").read_bytes() == b"1"


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_directory_that_is_written_to_meanwhile_is_copied_again(directory, monkeypatch, writes) -> None:
    state, looked = server_or_directory._state, []

    def write_and_look(place: Path) -> object:
        if 0 < len(looked) <= writes:  # after the first look, so that each copy is older than the directory
            (directory / "inner" / "data.bin").write_bytes(b"x" * (len(looked) + 5))
        looked.append(place)
        return state(place)

    monkeypatch.setattr(server_or_directory, "_state", write_and_look)
    if writes >= server_or_directory.MAX_COPIES:
        with (
            pytest.raises(
                SourceError, match=r"^chroma:/somewhere/notes: it is written to all the time; connect to its server"
            ),
            server_or_directory.temporary_copy(ADDRESS, directory),
        ):
            raise AssertionError("there is no copy")
        return
    with server_or_directory.temporary_copy(ADDRESS, directory) as copy:
        assert (copy / "inner" / "data.bin").read_bytes() == b"x" * (writes + 5)


def test_a_copy_that_does_not_fit_the_disk_is_not_begun(directory, monkeypatch) -> None:
    monkeypatch.setattr(server_or_directory.shutil, "disk_usage", lambda place: SimpleNamespace(free=1))
    with (
        pytest.raises(SourceError, match=r"a copy of its 0\.0 GB is read, and"),
        server_or_directory.temporary_copy(ADDRESS, directory),
    ):
        raise AssertionError("there is no copy")


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ("chroma://host/notes?usr=ann", "usr is no option of this address; it may be tenant, database, user"),
        ("qdrant://host/notes?name=x", "name is no option of this address; it may be vector"),
    ],
)
def test_an_option_that_is_none_is_refused_before_anything_is_asked(address, line) -> None:
    with pytest.raises(InputError, match=line):
        open_source(parse(address, {}))


@pytest.mark.parametrize(
    ("dimension", "lines"), [(None, []), (2, ["is missing: the row can be read and not found by its vector"])]
)
def test_only_a_source_with_vectors_lacks_one(dimension, lines) -> None:
    """A source without vectors said so of every row, and `connect` ended with 2 (a reader of extending.md, 29 November 2026)."""
    problems = []
    assert usable_vector("a", "vector", None, dimension, problems) is None
    assert [problem.reason for problem in problems] == lines


@pytest.mark.parametrize(
    ("created_at", "other", "proposed"),
    [
        ("2026-11-30T10:00:0{}Z", "created", True),
        (None, "metadata.event_date", True),
        ("2026-11-2{}T10:00:00Z", "created", False),
        ("2026-11-30T10:00:0{}Z", "expires", False),
        ("2026-11-30T10:00:0{}Z", "colour", False),
    ],
)
def test_dates_beside_those_of_one_import_are_proposed_with_the_mapping(created_at, other, proposed) -> None:
    rows: list[dict[str, object]] = [
        {} if created_at is None else {"created_at": created_at.format(i)} for i in range(4)
    ]
    for i, row in enumerate(rows):
        outer, dot, inner = other.partition(".")
        row[outer] = {inner: f"2025-0{i + 1}-10"} if dot else f"2025-0{i + 1}-10"
    note = date_note(rows, ANY_NAMES, [other])
    assert (note is not None and f"{other}, not read, has dates from 2025-01-10 to 2025-04-10" in note) == proposed
    assert not proposed or f"--mapping '{{created_at: {other}}}'" in str(note)


METADATA = {"title": "Ship {it}", "n": 3, "share": 1 / 7, "none": None, "yes": True, "tags": ["a", "b"], "wörd": "ä\nb"}
FORMS = {
    "defaults": {},
    "excluded keys": {"excluded_embed_metadata_keys": ["n", "tags"], "excluded_llm_metadata_keys": ["title"]},
    "own templates": {"metadata_template": "<{key}>={value}", "metadata_separator": " | "},
    "content first": {"text_template": "{content}\n-- {{braces}}\n{metadata_str}  "},
    "no metadata left": {"excluded_embed_metadata_keys": list(METADATA)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", ["Run make ship.", "  spaces and {braces}\n\n"])
def test_the_text_of_llama_index_is_what_the_library_embeds(form: str, content: str) -> None:
    from llama_index.core.schema import MetadataMode, TextNode
    from llama_index.core.vector_stores.utils import node_to_metadata_dict

    node = TextNode(text=content, metadata=METADATA, **FORMS[form])
    stored = node_to_metadata_dict(node, remove_text=True)["_node_content"]
    made = llama_index_text(stored) or EmbeddedText()
    assert made.of(content) == node.get_content(MetadataMode.EMBED)
    # The same with an edited content, as the library would embed that.
    node.text = "Another text."
    assert made.of("Another text.") == node.get_content(MetadataMode.EMBED)


@pytest.mark.parametrize("template", ["{key.__class__}", "{key:>9999999999}", "{key!r}", "{other}", "{", "{0}"])
def test_a_template_of_a_store_can_only_name_its_values(template: str) -> None:
    assert filled(template, {"key": "k"}) is None
    node = json.dumps({"metadata": {"k": "v"}, "metadata_template": template})
    assert llama_index_text(node) is None


def test_a_payload_has_the_texts_of_its_library() -> None:
    assert embedded_texts({"data": "a", "user_id": "b"}, "a") == {}
    assert embedded_texts({"_node_content": "no json"}, "a") == {}
    node = {"_node_content": json.dumps({"metadata": {"k": "v"}})}
    assert embedded_texts(node, "a")[LLAMA_INDEX].of("a") == "k: v\n\na"
    haystack = embedded_texts({"content": "a", "meta": {"title": "T", "n": 1, "by": "B"}}, "a")
    assert {name: text.of("a") for name, text in haystack.items()} == {
        HAYSTACK.format(fields="title"): "T\na",
        HAYSTACK.format(fields="by"): "B\na",
        HAYSTACK.format(fields="title and by"): "T\nB\na",
    }


VALUE = {
    "b": "two",
    "a": 1,
    "flag": True,
    "none": None,
    "notes": [{"text": "x"}, {"text": "y"}],
    "one": [{"text": "z"}],
    "o": {"k": "v"},
}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b", "two"),
        ("a", "1"),
        ("flag", "True"),
        ("none", None),
        ("o", '{"k": "v"}'),
        ("o.k", "v"),
        ("notes[*].text.1", "y"),
        ("notes[*].text.2", None),
        ("notes[-1].text", "y"),
        ("one[*].text", "z"),
        ("one[*].text.0", None),
        ("{b,o.k}.1", "v"),
        ("o.*", "v"),
        ("missing", None),
        (
            "$",
            '{"a": 1, "b": "two", "flag": true, "none": null, "notes": [{"text": "x"}, {"text": "y"}], "o": {"k": "v"}, '
            '"one": [{"text": "z"}]}',
        ),
    ],
)
def test_text_at_a_field_name(name: str, text: str | None) -> None:
    assert embedded_text(VALUE, name) == text


RECORDED = json.loads((Path(__file__).parents[2] / "recordings" / "fastembed_bm25.json").read_text("utf-8"))["texts"]


def test_vectors_are_those_that_fastembed_made(subtests: pytest.Subtests) -> None:
    for each in RECORDED:
        with subtests.test(text=each["text"]):
            made = {int(number): weight for number, weight in each["document"].items()}
            assert bm25.document_vector(each["text"]) == pytest.approx(made, rel=1e-12)
            assert bm25.query_vector(each["text"], "one") == dict.fromkeys(each["query"], 1.0)
            assert bm25.query_vector(each["text"], "document") == bm25.document_vector(each["text"])


def test_stored_vectors_count_as_reproduced_if_every_one_has_the_words_of_its_text() -> None:
    stored = [(each["text"], bm25.document_vector(each["text"])) for each in RECORDED]
    found = bm25.reproduced(stored)
    count = sum(1 for each in RECORDED if each["document"])
    assert 0 < count < len(RECORDED)  # of some texts no word is left
    assert found.known and (found.compared, found.words, found.weights) == (count, count, count)
    heavier = [(text, {number: 2 * weight for number, weight in vector.items()}) for text, vector in stored]
    assert bm25.reproduced(heavier).known and bm25.reproduced(heavier).weights == 0
    assert not bm25.reproduced([*stored, ("another text", {7: 1.0})]).known
    assert not bm25.reproduced([]).known
