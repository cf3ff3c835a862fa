"""Kinds of sources: one registry, and nothing beside it that lists them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cems_workbench import extensions
from cems_workbench.errors import InputError
from cems_workbench.sources import address, connect
from cems_workbench.sources.address import SOURCE_KINDS, parse, redact_address
from cems_workbench.sources.source import SourceError
from tests.planted_source import Planted
from tests.strangers import install, with_source_kinds

ROOT = Path(__file__).resolve().parents[3]


STRANGER = """
from cems_workbench.sources.address import SourceKind
from tests.planted_source import Planted


def opened(where, mapping, timeout):
    if where.path == "broken":
        raise ZeroDivisionError("division")
    return Planted(address=where.plain)


PLANTED = SourceKind("planted", "Planted", ("planted:/FILE",), "a test", ("planted", "chroma"), opened)
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds, with one of a stranger's package."""
    install(tmp_path, "plugin", {extensions.SOURCES: {"planted": "stranger:PLANTED"}})
    (tmp_path / "stranger.py").write_text(STRANGER)
    with_source_kinds(tmp_path, monkeypatch)


def test_every_scheme_is_of_one_kind() -> None:
    schemes = [scheme for kind in SOURCE_KINDS.values() for scheme in kind.schemes]
    assert len(schemes) == len(set(schemes))
    assert {"postgresql", "chroma", "qdrant", "cems"} <= set(SOURCE_KINDS)
    for kind in SOURCE_KINDS.values():
        for form in kind.addresses:
            assert form.partition(":")[0] in kind.schemes


def test_kinds_are_listed_without_a_driver() -> None:
    code = (
        "import sys; from cems_workbench.sources.address import parse; parse('chroma:/a/b');"
        "print(*{'chromadb', 'psycopg', 'qdrant_client', 'lancedb', 'faiss'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_kind_of_another_package_opens_its_addresses(plugin: None) -> None:
    source = connect.open_source(parse("planted:/notes", {}))
    assert source.address == "planted:/notes"
    assert "planted:/FILE" in address.address_forms()
    assert address.display_name("planted") == "Planted"


def test_a_scheme_of_ours_stays_ours(plugin: None) -> None:
    kind = address.kind_of("chroma")
    assert kind is not None and kind.name == "chroma"


def test_a_failure_of_another_package_names_it(plugin: None) -> None:
    with pytest.raises(SourceError, match=r"planted of plugin 0\.1 failed: ZeroDivisionError: division"):
        connect.open_source(parse("planted://host/broken", {}))


def test_an_error_within_a_source_of_another_package_names_it(plugin: None, monkeypatch: pytest.MonkeyPatch) -> None:
    source = connect.open_source(parse("planted:/notes", {}))
    with source.snapshot() as snapshot:
        assert snapshot.total == 0 and [batch.seen for batch in snapshot.batches(lambda ids, markers: ids)] == [[]]

    def fail(*_: object) -> None:
        raise KeyError("vector")

    for name, call in {
        "probe": source.probe,
        "batches": lambda: list(snapshot.batches(lambda ids, markers: ids)),
        "search": lambda: source.search(None),  # type: ignore[arg-type]
    }.items():
        monkeypatch.setattr(Planted, name, fail)
        with pytest.raises(SourceError, match=r"planted of plugin 0\.1 failed: KeyError: 'vector'"):
            call()


def test_an_unknown_kind_is_one_line_with_the_known_ones() -> None:
    with pytest.raises(
        InputError, match=r"'mysql'; it should be one of postgresql://.*, chroma:.*, qdrant:.* or env:NAME"
    ):
        parse("mysql://me@host/db", {})
    saved = address.Address("mysql", "mysql://me@host/db")
    with pytest.raises(InputError, match="mysql://me@host/db begins with 'mysql'"):
        connect.open_source(saved)
    assert redact_address("mysql://me@host/db: host is down", saved.plain) == "…: … is down"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"psycopg is not installed; pip install 'cems-workbench\[postgres\]'"):
        connect.open_source(parse("postgresql://host/db", {}))


def test_display_names_are_those_of_the_products() -> None:
    names = {kind: address.display_name(kind) for kind in ("cems", "mem0", "chroma", "qdrant", "table", "mysql")}
    assert names == {
        "cems": "CEMS",
        "mem0": "mem0",
        "chroma": "Chroma",
        "qdrant": "Qdrant",
        "table": None,
        "mysql": None,
    }
