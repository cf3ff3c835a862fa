"""Lines of a file, which are read in blocks: the same as one by one, whatever bytes they have."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.errors import InputError
from cems_workbench.formats.base import files
from cems_workbench.records import RowError

LINES = st.lists(
    st.sampled_from(
        [b"", b" ", b"\xa0", "ä\u2028x".encode(), b"\xff", b"a\r", b"\xef\xbb\xbf", b"\x0b", b"a\x85b", b"plain", b"\r"]
    ),
    max_size=8,
).map(b"\n".join)


@given(raw=LINES, block=st.integers(1, 12), end=st.sampled_from([b"", b"\n", b"\r\n"]))
def test_a_block_of_lines_is_read_as_each_line_alone(raw: bytes, block: int, end: bytes) -> None:
    raw += end
    expected, wrong = [], []
    for number, line in enumerate(raw.removeprefix(files.BOM).split(b"\n"), 1):
        try:
            text = line.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            wrong.append(number)
            continue
        if text.strip():
            expected.append((number, text))
    errors: list[RowError] = []
    with tempfile.TemporaryDirectory() as home, patch.object(files, "BLOCK_BYTES", block):
        path = Path(home) / "file"
        path.write_bytes(raw)
        try:
            found = list(files.read_lines(path, errors))
        except InputError as error:
            assert "is empty" in str(error) and not expected and not wrong
            return
    assert (found, [error.row for error in errors]) == (expected, wrong)
