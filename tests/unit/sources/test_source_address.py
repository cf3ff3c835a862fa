"""Addresses of sources: every part read, and no secret in anything that may be written."""

from __future__ import annotations

import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.sources.address import parse, redact_address, short_name


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
