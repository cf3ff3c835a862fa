"""What a format is: a name, a way to recognise its files, a way to read one, and ways to write one where there are any.

Each format is a module of `cems_workbench.formats` that declares `FORMAT = Format(...)`, or a tuple of several, or an entry point of
another package in the group `cems_workbench.formats` that names such a thing. Nothing lists them: FORMATS finds them.

Written records read back unchanged. Rows are written as they come, so that a store of any size goes through; each is read as it
will be read from the file before it is written, and what a form cannot hold is found by comparing the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any, TypeVar

from cems_workbench import extensions
from cems_workbench.errors import InputError, suggestion
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import OBJECTS, Sample, data_beside
from cems_workbench.formats.base.records import TracesReader
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, Relation

Record = TypeVar("Record", Memory, Query, Judgment, Relation)
Line = Callable[[Record], tuple[str, Record]]
"""The line of a record, without its end, and the record it is read as; raises FieldError when it is none."""
KINDS = {Memory: "memories", Query: "queries", Judgment: "judgments", Relation: "relations"}


@dataclass
class Losses:
    """What is left out of a file as a whole, a line each, and which fields are not kept of how many records."""

    left_out: list[str] = field(default_factory=list)
    _changed: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Say that a record is not in the file."""
        self.left_out.append(f"{name}: {reason}")

    def compare(self, name: str, before: Record, after: Record) -> None:
        """Count the fields of a record that are read back otherwise."""
        if before == after:
            return
        for compared in dataclass_fields(before):
            if getattr(before, compared.name) != getattr(after, compared.name):
                key = (KINDS[type(before)], compared.name)
                count, example = self._changed.get(key, (0, name))
                self._changed[key] = (count + 1, example)

    def not_kept(self) -> tuple[str, ...]:
        """A line for each field that does not come back, with the number of records and one of them."""
        order = list(KINDS.values())
        most_first: Sequence[tuple[tuple[str, str], tuple[int, str]]] = sorted(
            self._changed.items(), key=lambda item: (order.index(item[0][0]), -item[1][0], item[0][1])
        )
        return tuple(f"{name} of {count} {kind}, e.g. {example}" for (kind, name), (count, example) in most_first)


def judged(judgment: Judgment) -> str:
    """A judgment's name in a message."""
    return f"{judgment.qid} {judgment.memory_id} by {judgment.judge}"


@dataclass(frozen=True, slots=True)
class DataSet:
    """Memories with the queries and judgments about them. `memories` is gone through once; `total` is how many there
    are. `validity` is False where no memory has a `valid_from` or `valid_until`: a table then needs no column for
    them."""

    memories: Iterable[Memory]
    total: int = 0
    relations: Iterable[Relation] = ()
    queries: Sequence[Query] = ()
    judgments: Sequence[Judgment] = ()
    validity: bool = True

    def counted(self, progress: Progress, name: str) -> Iterator[Memory]:
        """The memories, with progress."""
        number = 0
        for number, memory in enumerate(self.memories, start=1):
            if number % 1_000 == 1:
                progress(f"writing {name}", number - 1, max(self.total, number))
            yield memory
        progress(f"writing {name}", number, number)


@dataclass(frozen=True, slots=True)
class Exported:
    """How many rows of each kind were written, what was left out and what of the rest does not come back when it is read."""

    rows: dict[str, int]
    left_out: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, rows: dict[str, int], losses: Losses, *notes: str) -> Exported:
        """The outcome with these losses."""
        return cls(rows, tuple(losses.left_out), losses.not_kept(), notes)


def json_line(row: dict[str, Any]) -> str:
    """A row as one line of JSON."""
    return json.dumps(row, ensure_ascii=False)


def put_rows(records: Iterable[Record], line: Line[Record], losses: Losses, path: Path, header: str = "") -> int:
    """Write the records whose rows are read back as them, and count them; no file when there are none."""
    count = 0
    with path.open("wb") as file:
        file.write(header.encode())
        for record in records:
            try:
                text, back = line(record)
                raw = f"{text}\n".encode()
            except (FieldError, UnicodeEncodeError) as error:
                losses.leave_out(_name(record), str(error))
                continue
            if _key(back) != _key(record):
                losses.leave_out(_name(record), "would be read back under another id or with another text")
                continue
            losses.compare(_name(record), record, back)
            file.write(raw)
            count += 1
    if not count:
        path.unlink()
    return count


def write_rows(records: Iterable[Record], line: Line[Record], kind: str, path: Path, header: str = "") -> Exported:
    """Write one file of such rows; raises InputError when there is nothing that can be written."""
    losses = Losses()
    with output_path(path) as place:
        count = put_rows(records, line, losses, place, header)
        if not count:
            raise nothing_to_write(path, kind, losses)
    return Exported.of({kind: count}, losses)


def nothing_to_write(path: Path, kind: str, losses: Losses) -> InputError:
    """The error for a file without a row, with the first reason there is."""
    why = f", e.g. {losses.left_out[0]}" if losses.left_out else ""
    return InputError(f"{path}: there are no {kind} to write{why}")


def _name(record: Memory | Query | Judgment | Relation) -> str:
    if isinstance(record, Judgment):
        return judged(record)
    if isinstance(record, Relation):
        return f"{record.source_id} {record.target_id}"
    return record.id if isinstance(record, Memory) else record.qid


def _key(record: Memory | Query | Judgment | Relation) -> tuple[object, ...]:
    if isinstance(record, Judgment):
        return record.qid, record.memory_id, record.grade
    if isinstance(record, Relation):
        return record.source_id, record.target_id, record.kind
    return (record.id, record.content) if isinstance(record, Memory) else (record.qid, record.query)


def rows_with(*names: str, without: str = "") -> Callable[[Sample], bool]:
    """Recognises files of whose first objects at least half have all these fields, and not the one that they must not have."""
    return lambda sample: sample.mostly(lambda row: row.keys() >= {*names} and without not in row)


def first_row(fits: Callable[[Any], bool]) -> Callable[[Sample], bool]:
    """Recognises files whose first object fits."""
    return lambda sample: any(map(fits, sample.rows[:1]))


@dataclass(frozen=True, slots=True)
class JudgmentWriter:
    """How judgments are written in a format, and what it can hold of them.

    `write` gives the text of judgments; it gets the words of each query by qid. `by_words` says that a query is named by its words,
    which must be unique; `whole_store` that there is a place for judgments of the whole store; without `judges` there is one grade per
    pair, so judges must agree. `fitting` gives the judgments that the format can hold, and adds a line to its second argument for
    each that cannot; `refused` gives why it cannot hold a judgment of a query with these words, empty if it can. `place` is where it stands
    among the writers.
    """

    write: Callable[[Sequence[Judgment], Mapping[str, str]], str]
    by_words: bool = False
    whole_store: bool = False
    judges: bool = True
    fitting: Callable[[Sequence[Judgment], list[str]], list[Judgment]] = field(
        default=lambda judgments, left_out: list(judgments)
    )
    refused: Callable[[Judgment, str], str] = field(default=lambda judgment, words: "")
    place: int = extensions.DEFAULT_PLACE


@dataclass(frozen=True, slots=True)
class DatasetWriter:
    """How memories, queries and judgments are written together in a format, and the kinds of rows it has a place for.
    `write` takes what to write and the file or new folder to write; it raises InputError, and `path` then has what it
    had."""

    write: Callable[[DataSet, Path, Progress], Exported]
    kinds: tuple[str, ...]
    place: int = extensions.DEFAULT_PLACE


def objects_writer(
    kind: str, row: Callable[[Any], dict[str, Any]], parse: Callable[[dict[str, Any]], Any], place: int
) -> DatasetWriter:
    """The writer of a file with an object a line for each record of one kind."""

    def line(record: Any) -> tuple[str, Any]:
        made = row(record)
        return json_line(made), parse(made)

    def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
        counted = dataset.counted(progress, path.name)
        return write_rows(counted if kind == "memories" else getattr(dataset, kind), line, kind, path)

    return DatasetWriter(write, (kind,), place)


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    `order` says when its rows can be imported: after the formats of lower order they refer to (0 memories, 1 relations, 2 queries,
    3 judgments). `breadth` says how easily `sniff` says yes: the narrower formats are asked first; two as narrow that both say yes are a
    refusal. `place` is its position in a list to choose from. `folder` gives the names in a directory that the format reads as one, none
    when the directory is not such a folder; `read` is then called with the directory. `judgments` and `dataset` write it.

    `read` raises InputError when a whole file is unusable; a row that cannot be used is a RowError in its result.
    """

    name: str
    description: str
    order: int
    sniff: Callable[[Sample], bool]
    read: Callable[[Path, Progress], ParsedInput]
    suffixes: tuple[str, ...] = field(default=OBJECTS)
    breadth: int = 0
    folder: Callable[[Path], frozenset[str]] = field(default=lambda directory: frozenset())
    judgments: JudgmentWriter | None = None
    dataset: DatasetWriter | None = None
    place: int = extensions.DEFAULT_PLACE
    inside: bool = True
    """Whether its files and folders are also read where they lie in a folder of other files."""
    answers: bool = False
    """Whether it is a log: queries that a real system was asked, each with what it answered."""
    traces: TracesReader | None = None
    """Reads the queries of external traces with their stages, which `import` then takes instead of what `read` gives."""
    shape: str = ""
    """What a file in it must have, in words, as a refusal says it: "columns query, docid and rating"."""
    needs: tuple[tuple[str, ...], ...] = ()
    """The names without which no row is in this format, each with others for it: what a refusal says is missing."""
    doubt: Callable[[Sample], str] = field(default=lambda sample: "")
    """Why a file that may be in it is not taken for it without being told: what else it may be, and what would decide."""


def described(
    module: str, name: str, sniff: Callable[[Sample], bool], read: Callable[[Path, Progress], ParsedInput], **how: Any
) -> Format:
    """The format of a name, of which formats.json beside the file of its `module` has what does not run."""
    return Format(name, sniff=sniff, read=read, **data_beside(module, "formats.json")[name], **how)


FORMATS = extensions.Registry(extensions.FORMATS, Format, "cems_workbench.formats", "FORMAT")
"""Every known format by name."""


def judgment_writers() -> dict[str, JudgmentWriter]:
    """The formats that judgments can be written in, by name."""
    writers = {name: form.judgments for name, form in FORMATS.items() if form.judgments is not None}
    return dict(sorted(writers.items(), key=lambda pair: pair[1].place))


def dataset_writers() -> dict[str, DatasetWriter]:
    """The formats that memories, queries and judgments can be written in together, by name; judgments alone have other writers."""
    writers = {name: form.dataset for name, form in FORMATS.items() if form.dataset is not None}
    return dict(sorted(writers.items(), key=lambda pair: pair[1].place))


def unknown(name: str, known: Iterable[str]) -> InputError:
    """The error for a format that is none of `known`, with the nearest of them."""
    known = tuple(known)
    return InputError(f"format: {name!r} is not one of {', '.join(known)}{suggestion(name, known)}")
