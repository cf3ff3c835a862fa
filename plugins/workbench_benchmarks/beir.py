"""BEIR: a folder with corpus.jsonl, queries.jsonl and qrels/test.tsv (Thakur et al., 2021), or one of these files; and MTEB's folder.

`{_id, title, text}` of the corpus is a memory, `{_id, text}` a query of type "beir", a line `query-id corpus-id score`
a judgment. Ids are unchanged. Of a folder's qrels one split is read: test, or else dev, or else train. In MTEB's folders a table is a
folder of Parquet or JSON lines, a file per split (below), and an id may be called id. What BEIR has no field for
is in `metadata: {"cems_workbench": {…}}`, if the workbench wrote it; other metadata is not used.

The folder that `mteb` and `datasets` load is read as `beir` and written as `mteb`: qrels/test.jsonl has `{"query-id", "corpus-id",
"score"}`, and README.md the `configs` of the data set, default (the qrels), corpus and queries. The loader makes a column of each field, of
one type in every row: what only the workbench knows is JSON text in `metadata`, in every row. A column whose texts are all dates is read as
moments there: a note says so of ids. Source: mteb 2.26.24 (abstasks/retrieval_dataset_loaders.py), which was run.

Where a data set lies in its folder: its corpus, its queries and the judgments of each split, as BEIR, MTEB and the hub publish them.

corpus.jsonl, queries.jsonl, qrels/test.tsv                            BEIR; MTEB has qrels/test.jsonl
corpus/test-00000-of-00001.parquet, queries/…, qrels/… or data/…       a folder per table with a file, or several, per split
python-corpus/…, python-queries/…, python-qrels/…                      the same for one of several data sets
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import dropwhile
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats import judgments, memories, queries
from cems_workbench.formats.base import fields, format
from cems_workbench.formats.base.files import (
    Sample,
    as_object,
    is_comment,
    read_lines,
    read_records,
    take_sample,
    unpacked,
)
from cems_workbench.formats.base.judgments import one_grade_each
from cems_workbench.formats.base.names import names_judgments, renamed
from cems_workbench.formats.base.records import collect, collect_judgments, graded
from cems_workbench.platform.atomic_write import output_path, write_text
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, RowError

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
    return tuple(dict.fromkeys(_published_columns(file)))


def _published_columns(file: Path) -> Iterator[str]:
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


NAME = "beir"
TYPE, OURS = "beir", "cems_workbench"
FIELDS = {"qid": "query-id", "memory_id": "corpus-id", "grade": "score"}
"""What the fields of a judgment are called in the file."""
MAX_HEADER_CHARS = 200
TREC_COLUMNS = 4
HEADER = ["query-id", "corpus-id", "score"]
CONFIGS = {
    "default": ("test", "qrels/test.jsonl"),
    "corpus": ("corpus", "corpus.jsonl"),
    "queries": ("queries", "queries.jsonl"),
}
"""The split and the file of each config of MTEB's folder."""
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?Z?)?")


def parse_memory(row: dict[str, Any]) -> Memory:
    """One document of a corpus; raises FieldError."""
    name, title = fields.identifier(row, "_id"), fields.text(row, "title")
    content = fields.text(row, "text") or title or fields.required_text(row, "text")
    more = _more(row, memories.KNOWN)
    if not more:
        return Memory(name, content, title)
    return memories.parse_memory({"title": title, **more, "id": name, "content": content})


def parse_query(row: dict[str, Any]) -> Query:
    """One query; raises FieldError."""
    given: dict[str, Any] = {
        "qid": fields.identifier(row, "_id"),
        "query": fields.required_text(row, "text"),
        "type": TYPE,
    }
    return queries.parse_query({**given, **_more(row, queries.KNOWN[2:])})


def _more(row: dict[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """What a row's metadata says in fields of ours; anybody else's metadata is left alone. Raises FieldError."""
    given = row.get(OURS)
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise fields.FieldError(f"metadata.{OURS}", "must be an object")
    return {name: given[name] for name in known if name in given}


def memory_row(memory: Memory) -> dict[str, Any]:
    """A memory as a document of a corpus, with what only we know of it in its metadata."""
    row = {"_id": memory.id, "title": memory.title or "", "text": memory.content}
    more = memories.as_row(replace(memory, title=None))
    return _with(row, {name: value for name, value in more.items() if name not in ("id", "content")})


def query_row(query: Query) -> dict[str, Any]:
    """A query, with what only we know of it in its metadata."""
    given = queries.as_row(replace(query, type=None))
    more: dict[str, Any] = {name: given[name] for name in ("project", "as_of", "answerable", "answer") if name in given}
    return _with(
        {"_id": query.qid, "text": query.query}, {**more, **({"type": query.type} if query.type != TYPE else {})}
    )


def _with(row: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    return {**row, "metadata": {OURS: more}} if more else row


def parse_judgment(line: str) -> Judgment:
    """One line of qrels; raises FieldError."""
    columns = _columns(line)
    if len(columns) != 3:
        raise fields.FieldError("", f"must have the 3 columns {' '.join(HEADER)}, found {len(columns)}")
    row = dict(zip(HEADER, columns, strict=True))
    qid, document = fields.identifier(row, "query-id"), fields.identifier(row, "corpus-id")
    return graded("score", row["score"], lambda grade: Judgment(qid, document, grade))


def _columns(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().split("\t")] if "\t" in line.strip() else line.split()


def _is_header(line: str) -> bool:
    return len(line) < MAX_HEADER_CHARS and [name.lower() for name in _columns(line)] == HEADER


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a BEIR folder or one file of it; raises InputError when it is neither."""
    if path.is_dir():
        return _read_folder(path, progress)
    role, note = _role(path)
    parsed = {"corpus": _read_corpus, "queries": _read_queries, "qrels": _read_qrels}[role](path, progress)
    return replace(parsed, notes=(note, *parsed.notes)) if note else parsed


ROLES = {"corpus": ("corpus", "documents", "docs", "passages"), "queries": ("quer", "topics", "questions")}
"""Words in a file's name that say which file of a folder it is."""


def _role(path: Path) -> tuple[str, str]:
    """Which file of a folder this is, and a note if only its name says so. Raises InputError when nothing says it. A
    header of qrels decides, else the name, as the queries of some data sets have titles too, else most titles."""
    sample = take_sample(path)
    if _is_header(sample.header):
        return "qrels", ""
    titled = sample.mostly(lambda row: bool(row.get("title")) and row["title"] != row.get("text"))
    name = path.stem.lower()
    for role, words in ROLES.items():
        if any(word in name for word in words):
            note = f"_id and text may be a corpus or queries; its name decided for {role}"
            return role, "" if titled and role == "corpus" else note
    if titled:
        return "corpus", ""
    raise InputError(
        f"{path}: _id and text without titles of their own may be a corpus (memories) or queries: put corpus or queries into its name, "
        "or call the fields id and content, or qid and query"
    )


def _read_corpus(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    rows, known = _objects(path, errors, progress), ("_id", "title", "text", OURS)
    collected = collect(str(path), rows, parse_memory, lambda memory: memory.id, "_id", known, errors)
    return collected.parsed(path, NAME, "memories", errors)


def _read_queries(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    rows, known = _objects(path, errors, progress), ("_id", "text", OURS)
    collected = collect(str(path), rows, parse_query, lambda query: query.qid, "_id", known, errors)
    return collected.parsed(path, NAME, "queries", errors)


def _objects(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, the metadata of ours beside their fields; `metadata` with nothing else is not worth a note."""
    for number, row in read_records(path, errors, progress):
        if "_id" not in row and "id" in row:  # as MTEB writes its tables now
            row = {**row, "_id": row["id"]}
            del row["id"]
        metadata = row.get("metadata")
        if isinstance(metadata, str) and OURS in metadata:  # as `mteb` writes it
            row = {**row, "metadata": (metadata := dict(as_object(metadata)) or metadata)}
        if isinstance(metadata, dict) and OURS in metadata:
            row = {**row, OURS: metadata[OURS], "metadata": {key: metadata[key] for key in metadata if key != OURS}}
        yield number, {name: value for name, value in row.items() if value or name != "metadata"}


def _read_qrels(path: Path, progress: Progress) -> ParsedInput:
    errors: list[RowError] = []
    lines = read_lines(path, errors, progress)
    lines = dropwhile(lambda line: is_comment(line[1]), lines)
    below = (line for n, line in enumerate(lines) if n > 0 or not _is_header(line[1]))
    collected = collect_judgments(str(path), below, parse_judgment, errors)
    return collected.parsed(path, NAME, "judgments", errors, fields=FIELDS)


def _read_folder(path: Path, progress: Progress) -> ParsedInput:
    found = published(path)
    if found is None:
        several = configs(path)
        if several:
            first = several[0]
            raise InputError(
                f"{path} holds {len(several)} data sets, {', '.join(several)}: put the folders of one ({first}-corpus, {first}-queries, …) "
                "into a folder and import that"
            )
        raise InputError(f"{path} is a directory, but not BEIR's: it has no corpus.jsonl whose rows have an _id")
    split = next(iter(found.judgments), "")
    parts = [
        *(_read_plain(_read_corpus, file, progress) for file in found.corpus),
        *(_read_plain(_read_queries, file, progress) for file in found.queries),
        *(_read_plain(_read_judgments, file, progress) for file in found.judgments.get(split, ())),
    ]
    noted = [f"{Path(part.source).name}: {note}" for part in parts for note in part.notes]
    rows: dict[str, list[int]] = {}
    for part in parts:
        for kind, numbers in part.extra["rows"].items():
            rows.setdefault(kind, []).extend(numbers)
    kinds = ("memories", "queries", "judgments", "errors", "ungraded")
    together: dict[str, Any] = {kind: tuple(one for part in parts for one in getattr(part, kind)) for kind in kinds}
    sources = {kind: part.source for part in parts for kind in part.extra["rows"]}
    whole = ParsedInput(str(path), NAME, **together, extra={"rows": rows, "sources": sources, "fields": FIELDS})
    splits = {name: str(files[0].relative_to(path)) for name, files in found.judgments.items()}
    return replace(whole, notes=(*noted, *found.notes, *_split_notes([*splits.values()], whole)))


def _read_plain(read: Callable[[Path, Progress], ParsedInput], file: Path, progress: Progress) -> ParsedInput:
    with unpacked(file) as plain:
        parsed = read(plain, progress)
    errors = tuple(replace(error, source=str(file)) for error in parsed.errors)
    return replace(parsed, source=str(file), errors=errors)


def _read_judgments(path: Path, progress: Progress) -> ParsedInput:
    """BEIR's qrels as .tsv, MTEB's as .jsonl or Parquet; tables with other names of the columns, and TREC's four columns."""
    if path.suffix not in (".tsv", ".csv"):
        return judgments.read_json(path, progress)
    sample = take_sample(path)
    if not _is_header(sample.header):
        if judgments.sniff_csv(sample):
            return judgments.read_csv(path, progress)
        if len(_columns(sample.header)) == TREC_COLUMNS:
            return judgments.read_qrels(path, progress)
    return _read_qrels(path, progress)


def _split_notes(files: list[str], whole: ParsedInput) -> Iterator[str]:
    if not files:
        yield "there are no judgments: qrels has none of test, dev and train as .tsv or .jsonl"
        return
    others = " and ".join(files[1:])
    yield f"the judgments are those of {files[0]}" + (f"; import {others} by name" if others else "")
    unjudged = len({query.qid for query in whole.queries} - {judgment.qid for judgment in whole.judgments})
    if unjudged:
        yield f"{unjudged} of {len(whole.queries)} queries have no judgment in {files[0]}"


def _write(dataset: format.DataSet, path: Path, progress: Progress, mteb: bool) -> format.Exported:
    """Write the folder of BEIR, or that of MTEB with its card; raises InputError when no memory can be written."""
    losses = format.Losses()
    ids: dict[str, list[str]] = {"memories": [], "queries": []}
    """Of each kind the first id, and the first that is no date."""

    def line(kind: str, name: str, row: dict[str, Any]) -> str:
        if len(ids[kind]) < 2 and (not ids[kind] or _DATE.fullmatch(name) is None):
            ids[kind].append(name)
        more = row.get("metadata")
        return format.json_line(
            {**row, "metadata": json.dumps(more, ensure_ascii=False) if more else ""} if mteb else row
        )

    def document(memory: Memory) -> tuple[str, Memory]:
        row = memory_row(memory)
        return line("memories", memory.id, row), parse_memory(_with_ours(row))

    def question(query: Query) -> tuple[str, Query]:
        row = query_row(query)
        return line("queries", query.qid, row), parse_query(_with_ours(row))

    with output_path(path, directory=True) as place:
        corpus = format.put_rows(dataset.counted(progress, path.name), document, losses, place / "corpus.jsonl")
        if not corpus:
            raise format.nothing_to_write(path, "memories", losses)
        queries = format.put_rows(dataset.queries, question, losses, place / "queries.jsonl")
        (place / "qrels").mkdir()
        labels = one_grade_each(dataset.judgments, losses.left_out)
        if mteb:
            judgments = format.put_rows(labels, _json_grade, losses, place / CONFIGS["default"][1])
        else:
            judgments = format.put_rows(labels, _grade, losses, place / "qrels" / "test.tsv", "\t".join(HEADER) + "\n")
        if not judgments:
            (place / "qrels").rmdir()
        if mteb:
            counts = {"default": judgments, "corpus": corpus, "queries": queries}
            write_text(place / "README.md", _card(name for name, count in counts.items() if count))
    done = format.Exported.of({"memories": corpus, "queries": queries, "judgments": judgments}, losses)
    dates = [
        f"every id of the {kind} is a date, such as {seen[0]}: mteb reads it as a moment, with its time"
        for kind, seen in ids.items()
        if mteb and len(seen) == 1 and _DATE.fullmatch(seen[0])
    ]
    return replace(done, notes=(*done.notes, *dates))


def _with_ours(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, OURS: row.get("metadata", {}).get(OURS)}


def _grade(judgment: Judgment) -> tuple[str, Judgment]:
    """A line of qrels; judge, time and note have no place in it."""
    line = f"{judgment.qid}\t{judgment.memory_id}\t{judgment.grade}"
    return line, parse_judgment(line)


def _json_grade(judgment: Judgment) -> tuple[str, Judgment]:
    row = dict(zip(HEADER, (judgment.qid, judgment.memory_id, judgment.grade), strict=True))
    return format.json_line(row), judgments.parse_judgment(renamed(row))


def _card(configs: Iterable[str]) -> str:
    named = [
        f"- config_name: {name}\n  data_files:\n  - split: {split}\n    path: {path}\n"
        for name, (split, path) in CONFIGS.items()
        if name in configs
    ]
    return f"---\nconfigs:\n{''.join(named)}---\n"


def folder(directory: Path) -> frozenset[str]:
    """The entries of a BEIR folder: one in which corpus.jsonl, or a table of that name, has rows with an _id. None of any other."""
    found = published(directory)
    if found is not None:
        return found.names
    return frozenset(f"{name}-{table}" for name in configs(directory) for table in ("corpus", "queries", "qrels"))


def sniff(sample: Sample) -> bool:
    """Objects with _id and text, or the header of BEIR's qrels."""
    return _is_header(sample.header) or sample.mostly(lambda row: "_id" in row and "text" in row)


BEIR = format.described(
    __file__,
    NAME,
    sniff,
    read,
    folder=folder,
    dataset=format.DatasetWriter(partial(_write, mteb=False), ("memories", "queries", "judgments"), place=5),
)
MTEB = format.described(
    __file__,
    "mteb",
    lambda sample: False,
    lambda path, progress: replace(read(path, progress), format="mteb"),
    dataset=format.DatasetWriter(partial(_write, mteb=True), ("memories", "queries", "judgments"), place=6),
)
