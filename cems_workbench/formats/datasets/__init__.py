"""Writing memories, queries and judgments together, in the forms that `import` reads them in.

What is written is read again as it was. Every writer reads back what it writes: what does not come back as the same record is left
out with a line for each, and fields a form has no place for are counted by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cems_workbench.errors import InputError, nearest
from cems_workbench.formats import beir, memories_csv, memories_jsonl, queries_jsonl, relations_jsonl
from cems_workbench.formats.datasets import beam, conversations, lines, locomo, longmemeval
from cems_workbench.formats.datasets.dataset import DataSet, Exported
from cems_workbench.formats.writing import FORMS
from cems_workbench.progress import Progress, silent

__all__ = ["DATASETS", "DataSet", "Exported", "Writer", "write_dataset"]


@dataclass(frozen=True, slots=True)
class Writer:
    """A form that a data set can be written in, and the kinds of rows it has a place for."""

    write: Callable[[DataSet, Path, Progress], Exported]
    kinds: tuple[str, ...]


def _conversations(form: conversations.Form) -> Writer:
    def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
        return conversations.write(form, dataset, path, progress)

    return Writer(write, ("memories", "queries", "judgments"))


DATASETS: dict[str, Writer] = {
    memories_jsonl.NAME: Writer(lines.write_memories, ("memories",)),
    memories_csv.NAME: Writer(lines.write_memories_csv, ("memories",)),
    relations_jsonl.NAME: Writer(lines.write_relations, ("relations",)),
    queries_jsonl.NAME: Writer(lines.write_queries, ("queries",)),
    beir.NAME: Writer(lines.write_beir, ("memories", "queries", "judgments")),
    locomo.NAME: _conversations(locomo.FORM),
    longmemeval.NAME: _conversations(longmemeval.FORM),
    beam.NAME: _conversations(beam.FORM),
}
"""The forms by the name they are imported with; those of judgments alone are `writing.FORMS`."""


def write_dataset(format: str, dataset: DataSet, path: Path, progress: Progress = silent) -> Exported:
    """Write to a file, or a new folder, in a form of DATASETS.

    Raises InputError for another form, when there is nothing the form can hold, or when `path` cannot be written; it then has
    what it had.
    """
    if format not in DATASETS:
        if format in FORMS:
            raise InputError(f"format: {format!r} holds judgments alone; `judgments --to {format}` writes them")
        near = nearest(format, DATASETS)
        hint = f"; did you mean {near}?" if near else ""
        raise InputError(f"format: {format!r} is not one of {', '.join(DATASETS)}{hint}")
    return DATASETS[format].write(dataset, Path(path), progress)
