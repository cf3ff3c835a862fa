"""What a format is: a name, a way to recognise its files, a way to read one, and ways to write one where there are any.

Each format is a module of `cems_workbench.formats` that declares `FORMAT = Format(...)`, or an entry point of another package in the
group `cems_workbench.formats` that names such a thing. Nothing lists them: FORMATS finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cems_workbench import extensions
from cems_workbench.errors import InputError, nearest
from cems_workbench.formats.base.dataset import DataSet, Exported
from cems_workbench.formats.base.files import Sample
from cems_workbench.formats.base.traces import TracesReader
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput


def _no_folder(directory: Path) -> frozenset[str]:
    return frozenset()


def _holds_all(judgment: Judgment, words: str) -> str:
    return ""


def _no_doubt(sample: Sample) -> str:
    return ""


def _all_fit(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    return list(judgments)


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
    fitting: Callable[[Sequence[Judgment], list[str]], list[Judgment]] = _all_fit
    refused: Callable[[Judgment, str], str] = _holds_all
    place: int = extensions.DEFAULT_PLACE


@dataclass(frozen=True, slots=True)
class DatasetWriter:
    """How memories, queries and judgments are written together in a format, and the kinds of rows it has a place for.

    `write` takes what to write and the file or new folder to write; it raises InputError, and `path` then has what it had.
    """

    write: Callable[[DataSet, Path, Progress], Exported]
    kinds: tuple[str, ...]
    place: int = extensions.DEFAULT_PLACE


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
    suffixes: tuple[str, ...] = field(default=(".jsonl", ".ndjson"))
    breadth: int = 0
    folder: Callable[[Path], frozenset[str]] = _no_folder
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
    doubt: Callable[[Sample], str] = _no_doubt
    """Why a file that may be in it is not taken for it without being told: what else it may be, and what would decide."""


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
    near = nearest(name, known)
    return InputError(
        f"format: {name!r} is not one of {', '.join(known)}" + (f"; did you mean {near}?" if near else "")
    )
