"""Files that are packed: gzip, bzip2, xz, a zip of one file, and Parquet, as data sets are published. They are read from a plain copy.

The copy lies in a temporary folder while the file is read, so that every format reads it, and a bad row costs only itself. Of Parquet it
has a JSON object a row.
"""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from cems_workbench.errors import InputError, one_line
from cems_workbench.formats.base.files import open_file
from cems_workbench.platform.parsing import MAX_FILE_BYTES

STREAMS: dict[bytes, Callable[[Path], IO[bytes]]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}  # type: ignore[dict-item]
ZIP, PARQUET, ZSTD = b"PK\x03\x04", b"PAR1", b"\x28\xb5\x2f\xfd"
ENDINGS = (".gz", ".gzip", ".bz2", ".xz", ".zip", ".parquet")
ROWS_AT_ONCE = 1_000
BROKEN = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)


def is_packed(path: Path) -> bool:
    """Whether a file has to be unpacked before it is read, by its first bytes. Raises InputError when it cannot be read."""
    return _head(path).startswith((*STREAMS, ZIP, PARQUET, ZSTD))


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The file itself, or within the block a plain copy of what is packed in it. Raises InputError for one that cannot be unpacked."""
    if not is_packed(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="cems-unpacked-") as folder:
        name = path.name[: -len(path.suffix)] if path.suffix.lower() in ENDINGS else path.name
        try:
            plain = _unpack(path, Path(folder) / name)
        except BROKEN as error:
            raise InputError(f"{path}: cannot be unpacked: {one_line(str(error)) or type(error).__name__}") from None
        try:
            yield plain
        except InputError as error:
            raise InputError(str(error).replace(str(plain), str(path))) from None


def _head(path: Path) -> bytes:
    with open_file(path).open("rb") as file:
        return file.read(8)


def _unpack(path: Path, plain: Path) -> Path:
    head = _head(path)
    if head.startswith(PARQUET):
        return _rows(path, plain.with_suffix(".jsonl"))
    if head.startswith(ZIP):
        return _member(path, plain)
    if head.startswith(ZSTD):
        raise InputError(f"{path}: is packed with zstd, which is not read; unpack it with zstd -d")
    for mark, opened in STREAMS.items():
        if head.startswith(mark):
            with opened(path) as file:
                _copy(path, file, plain)
    with plain.open("rb") as file:
        if plain.suffix == ".tar" or file.read(262)[257:] == b"ustar":
            raise InputError(f"{path}: is an archive of files; unpack it and import the folder")
    return plain


def _copy(path: Path, file: IO[bytes], plain: Path) -> None:
    with plain.open("wb") as copy:
        while part := file.read(1 << 20):
            _within(path, copy.tell() + len(part))
            copy.write(part)


def _within(path: Path, size: int) -> None:
    if size > MAX_FILE_BYTES:
        raise InputError(f"{path}: unpacks to more than {MAX_FILE_BYTES / 1e6:,.0f} MB; split it")


def _member(path: Path, plain: Path) -> Path:
    """The one file of a zip."""
    with zipfile.ZipFile(path) as archive:
        names = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
        if any(one.filename == "[Content_Types].xml" for one in names):
            raise InputError(f"{path}: is a document of an office program; save the table in it as CSV")
        if len(names) != 1:
            raise InputError(f"{path}: is a zip of {len(names)} files; unpack it and import the folder")
        plain = plain.with_name(Path(names[0].filename).name or plain.name)
        with archive.open(names[0]) as file:
            _copy(path, file, plain)
    return plain


def _rows(path: Path, plain: Path) -> Path:
    """The rows of Parquet as JSON lines, a thousand in memory at a time."""
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file, plain.open("w", encoding="utf-8") as lines:
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
            for row in batch.to_pylist():
                lines.write(f"{json.dumps(row, ensure_ascii=False, default=_as_json)}\n")
            _within(path, lines.tell())
    return plain


def _as_json(value: Any) -> str:
    """Times as ISO 8601, bytes in base64, anything else as its text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
