"""relations.jsonl: one edge between two memories a line, `{source_id, target_id, kind?, weight?, author?}`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields
from cems_workbench.formats.base.dataset import DataSet, Exported, json_line, write_rows
from cems_workbench.formats.base.files import Sample, read_records
from cems_workbench.formats.base.format import DatasetWriter, Format
from cems_workbench.formats.base.records import collect
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Relation, RowError

NAME = "relations-jsonl"
KNOWN = ("source_id", "target_id", "kind", "weight", "author")


def parse_relation(row: dict[str, Any]) -> Relation:
    """One relation; raises FieldError."""
    source, target = fields.identifier(row, "source_id"), fields.identifier(row, "target_id")
    if source == target:
        raise fields.FieldError("target_id", "must not be the source itself")
    return Relation(
        source,
        target,
        kind=fields.text(row, "kind") or "related",
        weight=fields.number(row, "weight", 0.0, 1.0, 1.0),
        author=fields.text(row, "author"),
    )


def as_row(relation: Relation) -> dict[str, Any]:
    """The fields of an edge as JSON values, its author only if it has one."""
    row = {name: getattr(relation, name) for name in KNOWN}
    return row if relation.author else {name: value for name, value in row.items() if name != "author"}


def _key(relation: Relation) -> tuple[str, str, str]:
    return relation.source_id, relation.target_id, relation.kind


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the relations of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    objects = read_records(path, errors, progress)
    collected = collect(str(path), objects, parse_relation, _key, "source_id, target_id, kind", KNOWN, errors)
    return collected.parsed(path, NAME, "relations", errors)


def write(dataset: DataSet, path: Path, progress: Progress) -> Exported:
    """Write relations.jsonl; raises InputError when there are none."""
    return write_rows(dataset.relations, _line, "relations", path)


def _line(relation: Relation) -> tuple[str, Relation]:
    row = as_row(relation)
    return json_line(row), parse_relation(row)


def sniff(sample: Sample) -> bool:
    """Objects with two ends."""
    return sample.mostly(lambda row: row.keys() >= {"source_id", "target_id"})


FORMAT = Format(
    NAME,
    "one edge a line: {source_id, target_id, kind?, weight?, author?}",
    order=1,
    sniff=sniff,
    read=read,
    suffixes=(".jsonl", ".ndjson", ".json"),
    dataset=DatasetWriter(write, ("relations",), place=3),
    place=18,
    shape="objects with source_id and target_id",
    needs=(("source_id",), ("target_id",)),
)
