"""Reading files: a JSON document, a text line by line, a JSON list item by item, so that a bad row costs only itself; and packed files.

Nothing here raises anything but InputError, and that only when a whole file is unusable; a bad row becomes a RowError.

Of gzip, bzip2, xz, a zip of one file, and Parquet, as data sets are published, a plain copy lies in a temporary folder while the file is
read, so that every format reads it. Of Parquet it has a JSON object a row.
"""

from __future__ import annotations

import ast
import base64
import bz2
import gzip
import json
import lzma
import re
import stat
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import IO, Any

from cems_workbench.errors import InputError, one_line
from cems_workbench.platform.parsing import MAX_FILE_BYTES, is_duckdb
from cems_workbench.progress import Progress, silent
from cems_workbench.records import RowError

OBJECTS, TABLES = (".jsonl", ".ndjson", ".json"), (".csv", ".tsv")
"""Endings of files with an object a row, and of tables."""
BOM = b"\xef\xbb\xbf"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
SAMPLE_LINES = 50
MAX_LITERAL = 1_000_000
"""Characters of a text that is read as Python; its reader takes some hundred times as many bytes."""
BLOCK_BYTES = 250_000
"""Of lines that are read and decoded together."""
_EXCEL = re.compile(r'"?sep=.?"?', re.IGNORECASE)
_DECODER = json.JSONDecoder(object_pairs_hook=lambda pairs: _object(pairs))


@cache
def data_beside(module: str, name: str) -> dict[str, Any]:
    """The object of a JSON file beside the file of a module, its lists as tuples."""
    return {
        key: _as_tuples(value) for key, value in json.loads(Path(module).with_name(name).read_text("utf-8")).items()
    }


def _as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_tuples(each) for key, each in value.items()}
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a file, for recognising it: its first lines that are not empty, and the JSON in it. `objects`
    are the lines that are JSON objects; `document` is the whole file when its name ends in .json."""

    path: Path
    lines: tuple[str, ...] = ()
    objects: tuple[dict[str, Any], ...] = ()
    document: Any = None

    @property
    def header(self) -> str:
        """The first line that is no comment; empty if there is none, or it is JSON."""
        first = next((line for line in self.lines if not is_comment(line)), "")
        return "" if first.lstrip().startswith(("{", "[")) else first

    def mostly(self, fits: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether at least half of the first objects fit, and one does."""
        good = sum(map(fits, self.rows))
        return good > 0 and good * 2 >= len(self.rows)

    @property
    def rows(self) -> tuple[dict[str, Any], ...]:
        """The first objects of the file, be they lines, the items of a list, or the one object of a document."""
        items = self.document if isinstance(self.document, list) else [self.document]
        return self.objects or tuple(item for item in items[:SAMPLE_LINES] if isinstance(item, dict))


def is_comment(line: str) -> bool:
    """Whether a line above a header is a comment, or Excel's `sep=;`: it begins with #, and not with a column called so."""
    text = line.strip()
    return (text.startswith("#") and text[1:2] not in (",", ";", "\t")) or _EXCEL.fullmatch(text) is not None


def parse_json(text: str | bytes) -> Any:
    """`json.loads` whose every failure is a ValueError with a short message; of a key that stands twice the last one counts."""
    try:
        if isinstance(text, str) and not text.startswith("\ufeff"):
            return _DECODER.decode(text)  # json.loads would make a decoder for every line
        return json.loads(text, object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {_reason(error)} at column {error.colno}") from None
    except ValueError as error:  # A number too long to convert, or bytes that are no UTF.
        raise ValueError(f"cannot be read as JSON: {error}") from None


def as_object(value: Any) -> Mapping[str, Any]:
    """An object, or the one that a text is; empty for anything else."""
    if isinstance(value, str):
        try:
            value = parse_literal(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


def parse_literal(text: str) -> Any:
    """The value that a text is in JSON, or as Python writes it, such as a cell that pandas wrote. Raises ValueError."""
    try:
        return parse_json(text)
    except ValueError:
        if len(text) > MAX_LITERAL:
            raise
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ValueError("is neither JSON nor a literal of Python") from None


def _reason(error: json.JSONDecodeError) -> str:
    return error.msg.removesuffix(" at")  # "Unterminated string starting at"


class Repeating(dict[str, Any]):
    """A JSON object in which, or in an object of which, a key stood twice. `repeated` are those keys."""

    repeated: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) == len(pairs) and Repeating not in set(map(type, values.values())):
        return values
    inner = [key for value in values.values() if type(value) is Repeating for key in value.repeated]
    keys = [key for key, _ in pairs]
    found = Repeating(values)
    found.repeated = tuple(dict.fromkeys([*(key for key, count in Counter(keys).items() if count > 1), *inner]))
    return found


KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def regular_file(path: Path) -> Path:
    """Check that `path` is a regular file, or a link to one, that is small enough to be read; raises InputError otherwise."""
    shown = one_line(str(path), 300)
    try:
        str(path).encode()
        found = path.stat()
    except UnicodeEncodeError:
        raise InputError(f"{shown}: its name is not UTF-8; rename it") from None
    except FileNotFoundError:
        raise InputError(f"{shown} does not exist") from None
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        raise InputError(f"{shown} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISDIR(found.st_mode):
        raise InputError(f"{shown} is a directory, not a file")
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "a device")
        raise InputError(f"{shown} is {kind}; only regular files are read")
    size, most = (f"{count / 1e6:,.0f} MB" for count in (found.st_size, MAX_FILE_BYTES))
    if found.st_size > MAX_FILE_BYTES:
        raise InputError(f"{shown} has {size}; at most {most} are read; split it")
    return path


def open_file(path: Path) -> Path:
    """Check that `path` is a readable regular file with something in it; raises InputError otherwise."""
    try:
        with regular_file(path).open("rb") as file:
            head = file.read(64)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not head:
        raise InputError(f"{path} is empty")
    if head.startswith(LFS_POINTER):
        raise InputError(f"{path} is a pointer of Git LFS and not the file itself: git lfs pull brings it")
    # The mark alone may be a broken first line; text in UTF-16 has zero bytes too.
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0" in head:
        raise InputError(f"{path} is UTF-16; save it as UTF-8")
    return path


def read_whole(path: Path) -> str:
    """The text of a file without its byte order mark; raises InputError, with the line of a byte that is not UTF-8."""
    raw = open_file(path).read_bytes()
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if is_duckdb(raw):
            raise InputError(f"{path} is an evidence file or another DuckDB database, not text") from None
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is not UTF-8 (byte {error.object[error.start]:#04x})") from None


def read_document(path: Path) -> Any:
    """The whole file as one JSON document; raises InputError with line and column when it is none."""
    text = read_whole(path)
    if not text.strip():
        raise InputError(f"{path} is empty")
    try:
        return json.loads(text, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}:{error.lineno}: is not JSON: {_reason(error)} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:
        reason = "is nested too deeply" if isinstance(error, RecursionError) else f"cannot be read as JSON: {error}"
        raise InputError(f"{path}: {reason}") from None


def read_lines(path: Path, errors: list[RowError], progress: Progress = silent) -> Iterator[tuple[int, str]]:
    """(1-based number, text) of each line that is not blank; CRLF and a byte order mark are taken off. A line that is
    not UTF-8 is added to `errors`. Raises InputError when the file cannot be read or is blank."""
    size = open_file(path).stat().st_size
    done = number = 0
    blank = True
    with path.open("rb") as file:
        while lines := file.readlines(BLOCK_BYTES):
            progress(f"reading {path.name}", done, size)
            done += sum(map(len, lines))
            if number == 0:
                lines[0] = lines[0].removeprefix(BOM)
            for text in _decoded(lines, path, number + 1, errors):
                number += 1
                if text is None:
                    blank = False
                elif text and not text.isspace():
                    blank = False
                    yield number, text
    if blank:
        raise InputError(f"{path} is empty")
    progress(f"reading {path.name}", size, size)


def _decoded(lines: list[bytes], path: Path, first: int, errors: list[RowError]) -> Iterable[str | None]:
    """The texts of lines, of which `first` is the number of the first; None for one that is not UTF-8, which is added to `errors`."""
    try:
        texts = b"".join(lines).decode().split("\n")[: len(lines)]
    except UnicodeDecodeError:  # one by one, to find which
        return (_decode(raw, path, number, errors) for number, raw in enumerate(lines, first))
    return [text.rstrip("\r") for text in texts]


def _decode(raw: bytes, path: Path, number: int, errors: list[RowError]) -> str | None:
    try:
        return raw.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 (byte {raw[error.start]:#04x} at position {error.start + 1})"
        errors.append(RowError(str(path), number, reason))
        return None


def read_objects(
    path: Path, errors: list[RowError], progress: Progress = silent
) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of each line of a JSON-lines file that holds a JSON object; others go to `errors`."""
    for number, text in read_lines(path, errors, progress):
        try:
            row = parse_json(text)
        except ValueError as error:
            errors.append(RowError(str(path), number, str(error)))
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            errors.append(RowError(str(path), number, f"must be a JSON object, found {type_name(row)}"))


def read_records(
    path: Path, errors: list[RowError], progress: Progress = silent
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSON-lines file by line number; of a .json file with a list of them, by record number."""
    if not is_document(path):
        yield from read_objects(path, errors, progress)
        return
    document = read_document(path)
    if isinstance(document, dict):
        document = [document]
    if not isinstance(document, list):
        raise InputError(f"{path}: must be a list of objects, found {type_name(document)}")
    if not document:
        raise InputError(f"{path} is an empty list")
    for number, row in enumerate(document, start=1):
        if isinstance(row, dict):
            yield number, row
        else:
            errors.append(RowError(str(path), number, f"must be a JSON object, found {type_name(row)}"))


def is_document(path: Path) -> bool:
    """Whether a file is one JSON document by its name, and not JSON lines under that name, as the MCP memory server calls its own."""
    if path.suffix.lower() != ".json":
        return False
    with open_file(path).open("rb") as file:
        first, second = (next((line for line in file if line.strip()), b"") for _ in range(2))
    if not second.lstrip().startswith(b"{"):
        return True
    try:
        return not isinstance(parse_json(first.removeprefix(BOM)), dict)
    except ValueError:
        return True


def take_sample(path: Path) -> Sample:
    """The beginning of a file, for recognising it; of a .json file all of it, unless its lines are objects. Raises InputError."""
    if is_document(open_file(path)):
        return Sample(path, document=read_document(path))
    ignored: list[RowError] = []
    lines = tuple(line for _, line in islice(read_lines(path, ignored), SAMPLE_LINES))
    objects: list[dict[str, Any]] = []
    for line in lines:
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            objects.append(row)
    return Sample(path, lines, tuple(objects))


def type_name(value: Any) -> str:
    """JSON's name for the type of a parsed value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number"}
    return "null" if value is None else names.get(type(value), "a number")


STREAMS: dict[bytes, Callable[[Path], IO[bytes]]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}  # type: ignore[dict-item]
ZIP, PARQUET, ZSTD = b"PK\x03\x04", b"PAR1", b"\x28\xb5\x2f\xfd"
ENDINGS = (".gz", ".gzip", ".bz2", ".xz", ".zip", ".parquet")
ROWS_AT_ONCE = 1_000
BROKEN = (OSError, EOFError, ValueError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


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
