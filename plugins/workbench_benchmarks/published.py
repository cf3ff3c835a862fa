"""Where a data set lies in its folder: its corpus, its queries and the judgments of each split, as BEIR, MTEB and the hub publish them.

corpus.jsonl, queries.jsonl, qrels/test.tsv                            BEIR; MTEB has qrels/test.jsonl
corpus/test-00000-of-00001.parquet, queries/…, qrels/… or data/…       a folder per table with a file, or several, per split
python-corpus/…, python-queries/…, python-qrels/…                      the same for one of several data sets
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import take_sample, unpacked
from cems_workbench.formats.base.names import names_judgments

ENDINGS = (".jsonl", ".ndjson", ".jsonl.gz", ".parquet")
OF_QRELS = (".tsv", ".jsonl", ".ndjson", ".tsv.gz", ".jsonl.gz", ".parquet", ".csv")
"""Of two files of one split the ending that comes first is read."""
SPLITS = ("test", "dev", "validation", "val", "train")
"""The split whose judgments are read is the first of these that is there, or else the first by name."""
QRELS = ("qrels", "default", "data")
UNREAD = {
    "top_ranked": "what a first search found for each query, for rerankers",
    "instruction": "an instruction for each query",
    "instructions": "an instruction for each query",
}
"""Tables of MTEB's reranking and instruction tasks."""
_SHARD = re.compile(r"(.+)-[0-9]{5}-of-[0-9]{5}")
Splits = dict[str, tuple[Path, ...]]


@dataclass(frozen=True, slots=True)
class Published:
    """The files of a data set. `judgments` are by split, the one to read first; `names` are the entries of its folder that it takes."""

    corpus: tuple[Path, ...]
    queries: tuple[Path, ...]
    judgments: Splits
    names: frozenset[str]
    notes: tuple[str, ...] = ()


def configs(directory: Path) -> list[str]:
    """The part before "-corpus" in the names of a directory's folders, each of another data set; none of one that cannot be read."""
    with suppress(OSError):
        return _configs(directory)
    return []


def _configs(directory: Path) -> list[str]:
    names = (entry.name for entry in directory.iterdir() if not entry.name.startswith("."))
    found = (name.removesuffix("-corpus") for name in names if name.endswith("-corpus"))
    return sorted(name for name in found if name and _is_corpus(_splits(directory / f"{name}-corpus", ENDINGS)))


def published(directory: Path) -> Published | None:
    """The data set that a directory is; None for any other, for one of several data sets and for one that cannot be read."""
    with suppress(OSError):
        several = _configs(directory)
        for prefix in ("", *(f"{name}-" for name in several if len(several) == 1)):
            corpus, queries = (_table(directory, f"{prefix}{name}") for name in ("corpus", "queries"))
            if _is_corpus(corpus, with_queries=bool(queries)):
                return _published(directory, prefix, corpus)
    return None


def _published(directory: Path, prefix: str, corpus: Splits) -> Published:
    queries = _table(directory, f"{prefix}queries") or _table(directory, f"{prefix}query")
    folders = (_judgments(directory / f"{prefix}{name}", prefix + name) for name in QRELS)
    judgments = next(filter(None, folders), Splits()) or _beside(directory)
    split = next(iter(judgments), "")
    notes = [
        f"{prefix}{name} is not read: {what}"
        for name, what in UNREAD.items()
        if (directory / f"{prefix}{name}").is_dir()
    ]
    taken = []
    for table, splits in (("corpus", corpus), ("queries", queries)):
        chosen = next((name for name in (split, table, *splits) if name in splits), "")
        taken.append(splits.get(chosen, ()))
        others = [name for name in splits if name != chosen]
        if others:
            notes.append(f"of {prefix}{table} {chosen} is read; import {' and '.join(others)} by name")
    files = (*taken[0], *taken[1], *(file for found in judgments.values() for file in found))
    names = {file.relative_to(directory).parts[0] for file in files}
    names |= {f"{prefix}{name}" for name in UNREAD if (directory / f"{prefix}{name}").is_dir()}
    if (directory / f"{prefix}qrels").is_dir():
        names.add(f"{prefix}qrels")
    return Published(taken[0], taken[1], judgments, frozenset(names), tuple(notes))


def _table(directory: Path, name: str) -> Splits:
    for ending in ENDINGS:
        if (directory / f"{name}{ending}").is_file():
            return {name: (directory / f"{name}{ending}",)}
    return _splits(directory / name, ENDINGS)


def _splits(folder: Path, endings: tuple[str, ...]) -> Splits:
    """The files of each split in a folder, of the first ending that it has, in the order of SPLITS."""
    found: dict[str, dict[str, list[Path]]] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        ending = next((one for one in endings if file.name.lower().endswith(one)), None)
        if ending is None or file.name.startswith(".") or not file.is_file():
            continue
        stem = file.name[: -len(ending)]
        shard = _SHARD.fullmatch(stem)
        found.setdefault(shard[1] if shard else stem, {}).setdefault(ending, []).append(file)
    order = sorted(found, key=lambda name: (SPLITS.index(name) if name in SPLITS else len(SPLITS), name))
    return {name: tuple(found[name][min(found[name], key=endings.index)]) for name in order}


def _judgments(folder: Path, name: str) -> Splits:
    """The splits of a folder of judgments; data and default are that only if their rows are judgments."""
    splits = _splits(folder, OF_QRELS)
    sure = name.endswith("qrels")
    return splits if sure or all(names_judgments(columns(files[0])) for files in splits.values()) else {}


def _beside(directory: Path) -> Splits:
    """The splits that lie beside the corpus, as BEIR's separate repositories of judgments hold them."""
    splits = {name: files for name, files in _splits(directory, OF_QRELS).items() if name in SPLITS}
    return splits if all(names_judgments(columns(files[0])) for files in splits.values()) else {}


def _is_corpus(splits: Splits, with_queries: bool = True) -> bool:
    """Whether a table has BEIR's _id, or beside queries the id and text that MTEB writes now: alone these are anybody's memories."""
    names = next((set(columns(files[0])) for files in splits.values()), set[str]())
    return "_id" in names or (with_queries and {"id", "text"} <= names)


def columns(file: Path) -> tuple[str, ...]:
    """The names of the columns of Parquet, or of the fields in the first rows of a file; none of one that cannot be read."""
    return tuple(dict.fromkeys(_columns(file)))


def _columns(file: Path) -> Iterator[str]:
    try:
        if file.suffix.lower() == ".parquet":
            from pyarrow import parquet

            yield from parquet.read_schema(file).names
            return
        with unpacked(file) as plain:
            sample = take_sample(plain)
        for row in sample.rows:
            yield from row
        yield from sample.header.split("\t")
    except (InputError, OSError, ValueError):
        return
