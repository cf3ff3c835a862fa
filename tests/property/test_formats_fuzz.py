"""No file, however broken, makes a reader raise anything but InputError, and no good row is lost among bad ones."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats import FORMATS, detect, read

_NAMES = """
    id content title tags priority pinned importance created_at access_count scope qid query as_of type source_id
    target_id weight kind session_1 session_1_date_time qa evidence question conversation sample_id dia_id speaker text
"""
FIELDS = _NAMES.split()
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(["D1:1", "2024-01-01"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=12,
)
ROWS = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), VALUES, max_size=8)
JSON_LINES = (ROWS | VALUES).map(lambda value: json.dumps(value).encode())
GARBAGE = st.one_of(
    st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b" ")),
    JSON_LINES,
    JSON_LINES.map(lambda line: line[: len(line) // 2]),
    st.sampled_from([b"", b"[" * 50_000, b'{"a":' * 50_000, b'{"id": "\\ud800", "content": "x"}']),
    st.sampled_from([b"q 0 d 1", b"q 0 d x"]),
)
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read_bytes(raw: bytes, format: str, suffix: str = ".jsonl"):
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / f"file{suffix}"
        path.write_bytes(raw)
        if format == "detect":
            return detect(path)
        return read(path, format)


@pytest.mark.parametrize("format", ["detect", "auto", *FORMATS])
@quick
@given(
    raw=st.binary(max_size=200) | st.lists(GARBAGE, max_size=8).map(b"\n".join),
    suffix=st.sampled_from([".jsonl", ".json"]),
)
def test_a_reader_raises_nothing_but_input_errors(format, raw, suffix):
    try:
        read_bytes(raw, format, suffix)
    except InputError as error:
        assert "\n" not in str(error)


@quick
@given(document=VALUES | ROWS | st.fixed_dictionaries({"session_1": st.lists(ROWS, min_size=1), "qa": VALUES}))
def test_locomo_reads_any_json_document_or_says_why_not(document):
    try:
        read_bytes(json.dumps(document).encode(), "locomo", ".json")
    except InputError as error:
        assert "\n" not in str(error)


GOOD = {
    "memories-jsonl": (lambda n: json.dumps({"id": f"good-{n}", "content": "kept"}), "memories"),
    "queries-jsonl": (lambda n: json.dumps({"qid": f"good-{n}", "query": "kept"}), "queries"),
    "relations-jsonl": (lambda n: json.dumps({"source_id": f"good-{n}", "target_id": "b"}), "relations"),
    "qrels": (lambda n: f"good-{n} 0 d 1", "judgments"),
}


@pytest.mark.parametrize("format", GOOD)
@quick
@given(garbage=st.lists(GARBAGE, min_size=1, max_size=8))
def test_good_rows_among_garbage_are_all_kept_and_no_row_disappears(format, garbage):
    make, kind = GOOD[format]
    lines = [line for n, bad in enumerate(garbage) for line in (bad, make(n).encode())]
    parsed = read_bytes(b"\n".join(lines), format)
    rows = getattr(parsed, kind)
    names = {getattr(row, "id", None) or getattr(row, "qid", None) or getattr(row, "source_id", None) for row in rows}
    assert {f"good-{n}" for n in range(len(garbage))} <= names
    reported = {error.row for error in parsed.errors}
    kept = set(parsed.extra["rows"][kind])
    blank = {n for n, line in enumerate(lines, start=1) if is_blank(line, first=n == 1)}
    repeated = {n for n, line in enumerate(lines, start=1) if format == "qrels" and line in lines[: n - 1]}
    assert reported | kept | blank | repeated >= set(range(1, len(lines) + 1))
    assert not reported & kept


def is_blank(line: bytes, first: bool) -> bool:
    try:
        return not (line.removeprefix(b"\xef\xbb\xbf") if first else line).decode().strip()
    except UnicodeDecodeError:
        return False
