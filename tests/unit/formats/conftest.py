"""Writing a file in a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.small_store import empty_store, store

__all__ = ["empty_store", "store"]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """`write(name, *rows)`: each row a line; bytes and text as they are, anything else as JSON."""

    def write_rows(name: str, *rows: Any) -> Path:
        lines = [
            row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else json.dumps(row).encode()
            for row in rows
        ]
        path = tmp_path / name
        path.write_bytes(b"\n".join(lines))
        return path

    return write_rows
