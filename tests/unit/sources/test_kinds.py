"""Kinds and addresses of sources, layouts of PostgreSQL, and what an engine's scores mean."""

from __future__ import annotations

import importlib
import string
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.score_meanings import PROBES
from cems_workbench import extensions
from cems_workbench.errors import InputError
from cems_workbench.sources import address, connect
from cems_workbench.sources.address import SOURCE_KINDS, parse, redact_address, short_name
from cems_workbench.sources.score_meanings import MEANINGS, differences, meaning_of, recorded
from cems_workbench.sources.source import SourceError
from tests.planted_source import Planted
from tests.strangers import install, with_source_kinds
from workbench_stores.postgres.catalog import Column, Table
from workbench_stores.postgres.connect import LAYOUTS, recognised

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


def table(name: str, **columns: str) -> Table:
    found = {column: Column(column, type, None, True) for column, type in columns.items()}
    return Table(hash(name), "public", name, "r", found)


MEM0 = {"id": "uuid", "vector": "vector", "payload": "jsonb"}
NODE = {"id": "int8", "text": "varchar", "metadata_": "json", "node_id": "varchar", "embedding": "halfvec"}


def test_every_layout_is_a_product_of_postgresql() -> None:
    products = {name: title for name, title in SOURCE_KINDS["postgresql"].products.items() if name != "cems"}
    assert products == {layout.name: layout.title for layout in LAYOUTS}


def test_tables_are_recognised_by_columns_whatever_they_are_called() -> None:
    tables = [
        table("anything", **MEM0),
        table("anything_entities", **MEM0),
        table("mem0migrations", **MEM0),
        table("nodes", **NODE),
        table("other", **{**NODE, "metadata_": "text"}),
    ]
    assert [(layout.name, found.name) for layout, found in recognised(tables)] == [
        ("mem0", "anything"),
        ("llamaindex", "nodes"),
    ]


importlib.import_module("benchmarks.score_meanings.engines")
HERE = [name for name, probe in PROBES.items() if probe.run.__module__.endswith(".engines") and name != "pgvector"]
VECTOR_ROWS = [row for row in MEANINGS if row.group == "vector" and "opposite" in row.seen]


def compared(measured: dict[str, Any]) -> list[str]:
    assert measured
    return differences(measured)


@pytest.mark.parametrize("name", HERE)
def test_engine_that_is_installed_answers_as_the_table_says(name: str) -> None:
    if lacking := PROBES[name].lacking:
        pytest.skip(f"{', '.join(lacking)} not installed")
    assert compared(PROBES[name].run()) == []


def test_differences_name_fact_and_both_values() -> None:
    seen = dict(recorded()["chroma_l2"].seen)
    assert differences({"chroma_l2": seen}) == []
    assert differences({"chroma_l2": {**seen, "orthogonal": 1.4142}}) == [
        "chroma_l2: orthogonal: the table has 2.0, measured 1.4142"
    ]
    assert differences({"nobody": {}}) == ["nobody: was never recorded"]


def test_every_row_was_run_and_everything_that_was_run_has_a_row() -> None:
    assert sorted(row.key for row in MEANINGS) == sorted(recorded())
    assert len({row.key for row in MEANINGS}) == len(MEANINGS)


@pytest.mark.parametrize("row", VECTOR_ROWS, ids=lambda row: row.key)
def test_direction_of_a_row_is_that_of_its_facts(row: Any) -> None:
    equal, opposite = row.seen["equal"], row.seen["opposite"]
    if isinstance(opposite, str):
        pytest.skip("the opposite was not returned")
    # What the row says of two libraries is that their numbers are no relevance.
    assert (equal > opposite) == (row.best == "highest")


@pytest.mark.parametrize(
    ("engine", "distance", "name", "key"),
    [
        ("Chroma 1.5.9", "l2", "vector", "chroma_l2"),
        ("Chroma directory, read by Chroma 1.5.9", "cosine", "vector", "chroma_cosine"),
        ("Qdrant's local mode", "ip", "vector", "qdrant_dot"),
        ("PostgreSQL 18.4, pgvector 0.8.5", "cosine", "vector", "pgvector_cosine"),
        ("PostgreSQL 18.4, pgvector 0.8.5", "cosine", "ts_rank_cd", "postgres_ts_rank_cd"),
        ("a test 1.0", "cosine", "vector", None),
    ],
)
def test_row_of_an_engine_is_found_by_its_description(engine: str, distance: str, name: str, key: str | None) -> None:
    found = meaning_of(engine, distance, name)
    assert (found and found.key) == key


@pytest.mark.parametrize(
    ("text", "kind", "plain", "host", "port", "user", "path", "options"),
    [
        (
            "postgresql://me@db:5433/cems?user=1&sslmode=require",
            "postgresql",
            "postgresql://me@db:5433/cems?user=1&sslmode=require",
            "db",
            5433,
            "me",
            "cems",
            {"user": "1", "sslmode": "require"},
        ),
        (
            "postgres:///cems?host=/run/pg",
            "postgresql",
            "postgres:///cems?host=%2Frun%2Fpg",
            "",
            None,
            "",
            "cems",
            {"host": "/run/pg"},
        ),
        (
            "chroma://localhost:8000/my%20notes",
            "chroma",
            "chroma://localhost:8000/my%20notes",
            "localhost",
            8000,
            "",
            "my notes",
            {},
        ),
        ("chroma:/var/chroma/notes", "chroma", "chroma:/var/chroma/notes", "", None, "", "/var/chroma/notes", {}),
        ("qdrant://[::1]:6333/c", "qdrant", "qdrant://[::1]:6333/c", "::1", 6333, "", "c", {}),
        ("https://cems.example", "cems", "https://cems.example", "cems.example", None, "", "", {}),
    ],
)
def test_an_address_is_taken_apart(text, kind, plain, host, port, user, path, options) -> None:
    found = parse(text, {})
    assert (found.kind, found.plain, found.host, found.port) == (kind, plain, host, port)
    assert (found.user, found.path, dict(found.options), found.secret) == (user, path, options, None)


SECRETS = st.text(string.ascii_letters + string.digits + "!$&*@:/?#%", min_size=12, max_size=30)


@given(SECRETS, st.sampled_from(["postgresql", "chroma", "qdrant", "https"]))
def test_a_secret_is_kept_and_never_shown(secret: str, scheme: str) -> None:
    for text in (
        f"{scheme}://me:{quote(secret, safe='')}@host:1234/part",
        f"{scheme}://me@host/part?api_key={quote(secret, safe='')}",
    ):
        found = parse(text, {})
        assert found.secret is not None and found.secret.get_secret_value() == secret
        for shown in (found.plain, repr(found), str(found), repr(found.options)):
            assert secret not in shown and quote(secret, safe="") not in shown
        assert found.hidden(f"refused: {secret}!") == "refused: …!"


def test_a_secret_comes_from_the_environment() -> None:
    found = parse("postgresql://me@h/d", {"PGPASSWORD": "from outside"})
    assert found.secret is not None and found.secret.get_secret_value() == "from outside"
    assert found.secret_from == "PGPASSWORD"
    named = parse("env:DATABASE", {"DATABASE": "postgresql://me:inside@h/d"})
    assert named.secret is not None and named.secret.get_secret_value() == "inside"
    assert named.plain == "postgresql://me@h/d" and named.secret_from == "env:DATABASE"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mysql://me:hunter2hunter2@h/d", "begins with 'mysql'"),
        ("localhost/db", "names no kind of source, as sqlite:/FILE does"),
        ("postgresql://me:hunter2hunter2@h:port/d", "is not an address"),
        ("env:NOWHERE", "the variable NOWHERE holds no address"),
    ],
)
def test_what_is_no_address_is_said_without_its_secret(text: str, says: str) -> None:
    with pytest.raises(InputError, match="it should be one of") as error:
        parse(text, {})
    assert says in str(error.value) and "hunter2" not in str(error.value)


def test_an_option_that_counts_tokens_is_no_secret() -> None:
    found = parse("https://cems.example/?max_tokens=900&token=abcdef", {})
    assert (
        dict(found.options) == {"max_tokens": "900"}
        and found.secret is not None
        and found.secret.get_secret_value() == "abcdef"
    )
    assert "900" in found.plain and "abcdef" not in found.plain


@pytest.mark.parametrize(
    ("plain", "name"),
    [
        ("postgresql://me@db.example:5432/cems?sslmode=require", "cems"),
        ("postgresql://me@/cems?host=%2Frun", "cems"),
        ("postgresql://me@db.example", "the source"),
        ("chroma:/var/data/notes", "notes"),
        ("qdrant://[::1]:6333/x", "x"),
        ("http://[", "the source"),
        ("", "the source"),
    ],
)
def test_a_source_is_called_by_its_database_or_collection_and_never_by_where_it_is(plain: str, name: str) -> None:
    assert short_name(plain) == name


@pytest.mark.parametrize(
    ("plain", "said", "told"),
    [
        (
            "postgresql://rd@db.example:5433/cems?host=%2Frun%2Fpg&sslmode=require",
            'postgresql://rd@db.example:5433/cems?host=%2Frun%2Fpg&sslmode=require: "db.example" (10.1.2.3), port 5433; "rd" in /run/pg/.s',
            '…: "…" (…), …; "…" in …/.s',
        ),
        (
            "chroma:/var/data/notes",
            "/var/data: no space at 12:04, 1.5 of 18.3 GB",
            "…: no space at 12:04, 1.5 of 18.3 GB",
        ),
        ("qdrant://[::1]:6333/x", "[::1]:6333 and fe80::2 refuse x; card is no d", "[…]… and … refuse …; card is no d"),
    ],
)
def test_a_line_that_leaves_this_machine_says_nothing_of_where_a_source_is(plain: str, said: str, told: str) -> None:
    assert redact_address(said, plain) == told
