"""Notes in one text file: a heading `# ID` a note, its words below; what stands before the first heading is nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cems_workbench.formats import DataSet, DatasetWriter, Exported, Format, Sample
from cems_workbench.formats.base.fields import FieldError, identifier, required_text
from cems_workbench.formats.base.files import read_lines
from cems_workbench.formats.base.format import write_rows
from cems_workbench.formats.base.records import collect
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, ParsedInput, RowError

NAME = "headed-notes"


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the notes of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    rows = _notes(read_lines(path, errors, progress))
    collected = collect(str(path), rows, _memory, lambda memory: memory.id, "id", ("id", "content"), errors)
    return collected.parsed(path, NAME, "memories", errors)


def _notes(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, dict[str, str]]]:
    """(line of the heading, note) of each note."""
    begun, note = 0, {"id": "", "content": ""}
    for number, line in lines:
        if line.startswith("# "):
            if begun:
                yield begun, note
            begun, note = number, {"id": line[2:].strip(), "content": ""}
        elif begun:
            note["content"] = f"{note['content']}\n{line}".strip()
    if begun:
        yield begun, note


def _memory(note: dict[str, str]) -> Memory:
    return Memory(identifier(note, "id"), required_text(note, "content"))


def _text(memory: Memory) -> tuple[str, Memory]:
    if any(not line.strip() or line.startswith("# ") for line in memory.content.split("\n")):
        raise FieldError("content", "has a blank line or a heading in it")
    return f"# {memory.id}\n{memory.content}", Memory(memory.id.strip(), memory.content.strip())


def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write the memories as notes; raises InputError when none can be written."""
    return write_rows(dataset.counted(progress, path.name), _text, "memories", path)


def sniff(sample: Sample) -> bool:
    """A text whose first line is a heading."""
    return sample.path.suffix == ".notes" and bool(sample.lines) and sample.lines[0].startswith("# ")


FORMAT = Format(
    NAME,
    "notes under headings in a text file",
    order=0,
    sniff=sniff,
    read=read,
    suffixes=(".notes",),
    dataset=DatasetWriter(write, ("memories",)),
)
