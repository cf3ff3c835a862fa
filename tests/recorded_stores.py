"""Stores that memory libraries wrote themselves, with those libraries' own answers (tests/recordings/stores).

    vectors.npy, texts.json     every embedding, shape (texts, dimension), and its text, once for all stores
    NAME/store.bin              the store as the library left it, byte by byte: a dump of PostgreSQL (store.sql), files or folders
    NAME/answers.json           library, versions, how to connect, what its own get and search return; "@12" is the text 12

A store.bin is what is left of the files when vectors and texts, in the forms that libraries write them in, are taken out.
`python -m tests.recorded_stores FOLDER [NAME …]` packs a folder of stores, whose texts.json and vectors.npy become those here.
"""

from __future__ import annotations

import json
import lzma
import struct
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RECORDINGS = Path(__file__).parent / "recordings" / "stores"
BLOCK = 32
"""Bytes of the shortest part that is found in the dictionary."""
NOT_STORE = ("answers.json", "store.bin")
TEXT = "@"


def names() -> list[str]:
    """The recorded stores, sorted."""
    return sorted(each.parent.name for each in RECORDINGS.glob("*/answers.json"))


@cache
def texts() -> tuple[str, ...]:
    """All texts that were embedded."""
    return tuple(json.loads((RECORDINGS / "texts.json").read_text("utf-8")))


@cache
def vectors() -> NDArray[np.float32]:
    """Their embeddings, shape (texts, dimension)."""
    return np.asarray(np.load(RECORDINGS / "vectors.npy"), np.float32)


def vector(text: str) -> NDArray[np.float32]:
    """The embedding of a text, shape (dimension,). Raises ValueError if it was not embedded."""
    return vectors()[texts().index(text)]


@cache
def answers(name: str) -> dict[str, Any]:
    """What the library answered, with its texts."""
    answer: dict[str, Any] = _with_texts(json.loads((RECORDINGS / name / "answers.json").read_text("utf-8")))
    return answer


def restore(name: str, folder: Path) -> Path:
    """Write the store's files below a folder; returns it."""
    for path, content in unpacked((RECORDINGS / name / "store.bin").read_bytes()).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def _with_texts(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(TEXT) and value[1:].isdecimal():
        return texts()[int(value[1:])]
    if isinstance(value, dict):
        return {key: _with_texts(each) for key, each in value.items()}
    return [_with_texts(each) for each in value] if isinstance(value, list) else value


def _without_texts(value: Any, places: Mapping[str, int]) -> Any:
    if isinstance(value, str) and value in places:
        return f"{TEXT}{places[value]}"
    if isinstance(value, dict):
        return {key: _without_texts(each, places) for key, each in value.items()}
    return [_without_texts(each, places) for each in value] if isinstance(value, list) else value


@cache
def _dictionary() -> bytes:
    """Vectors as float32, as a pickled list of doubles, and as text of pgvector; then the texts."""
    rows = vectors()
    pickled = np.empty((rows.size, 9), np.uint8)
    pickled[:, 0] = ord("G")
    pickled[:, 1:] = rows.reshape(-1, 1).astype(">f8").view(np.uint8)
    written = ["[" + ",".join(map(str, row)) + "]" for row in rows]
    return b"".join([rows.tobytes(), pickled.tobytes(), *map(str.encode, written), "\0".join(texts()).encode()])


def packed(files: Mapping[str, bytes]) -> bytes:
    """Files as parts of the dictionary and the rest of their bytes, compressed."""
    known = _dictionary()
    places = {known[start : start + BLOCK]: start for start in range(0, len(known) - BLOCK, 4)}
    heads, rests = [], []
    for path, content in files.items():
        parts, rest = [], []
        done = at = 0
        while at <= len(content) - BLOCK:
            start = places.get(content[at : at + BLOCK])
            if start is None or not any(content[at : at + BLOCK]):
                at += 1
                continue
            length = BLOCK
            while (
                at + length < len(content)
                and start + length < len(known)
                and content[at + length] == known[start + length]
            ):
                length += 1
            parts += [at - done, start, length]
            rest.append(content[done:at])
            done = at = at + length
        rests += [*rest, content[done:]]
        heads.append([path, len(content), parts])
    head = json.dumps(heads).encode()
    return lzma.compress(struct.pack("<I", len(head)) + head + b"".join(rests), preset=9 | lzma.PRESET_EXTREME)


def unpacked(content: bytes) -> dict[str, bytes]:
    """The files of `packed`."""
    content = lzma.decompress(content)
    (size,) = struct.unpack_from("<I", content)
    at, known, files = 4 + size, _dictionary(), {}
    for path, length, parts in json.loads(content[4:at]):
        made = bytearray()
        for rest, start, copied in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            made += content[at : at + rest] + known[start : start + copied]
            at += rest
        left = length - len(made)
        files[path] = bytes(made) + content[at : at + left]
        at += left
    return files


def _files(store: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.name not in NOT_STORE and not path.name.startswith("make."):
            yield path.relative_to(store).as_posix(), path.read_bytes()


def pack(folder: Path, chosen: list[str]) -> None:
    """Record stores of a folder here."""
    RECORDINGS.mkdir(parents=True, exist_ok=True)
    (RECORDINGS / "texts.json").write_bytes((folder / "texts.json").read_bytes())
    (RECORDINGS / "vectors.npy").write_bytes((folder / "vectors.npy").read_bytes())
    places = {text: place for place, text in enumerate(texts())}
    for path in sorted(folder.glob("*/answers.json")):
        if chosen and path.parent.name not in chosen:
            continue
        target = RECORDINGS / path.parent.name
        target.mkdir(exist_ok=True)
        files = dict(_files(path.parent))
        content = packed(files)
        assert unpacked(content) == files
        (target / "store.bin").write_bytes(content)
        answer = json.dumps(
            _without_texts(json.loads(path.read_text("utf-8")), places), ensure_ascii=False, separators=(",", ":")
        )
        (target / "answers.json").write_text(answer + "\n", "utf-8")
        print(path.parent.name, sum(map(len, files.values())), "->", len(content), len(answer))


if __name__ == "__main__":
    pack(Path(sys.argv[1]), sys.argv[2:])
