"""What a form cannot hold, found by reading back what is written of a record and comparing it with the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from typing import TypeVar

from cems_workbench.records import Judgment, Memory, Query, Relation

Record = TypeVar("Record", Memory, Query, Judgment, Relation)
KINDS = {Memory: "memories", Query: "queries", Judgment: "judgments", Relation: "relations"}


@dataclass
class Losses:
    """What is left out of a file as a whole, a line each, and which fields are not kept of how many records."""

    left_out: list[str] = field(default_factory=list)
    held: int = 0
    """Places that are held by empty turns or questions, so that those after them keep their ids and times."""
    _changed: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Say that a record is not in the file."""
        self.left_out.append(f"{name}: {reason}")

    def compare(self, name: str, before: Record, after: Record) -> None:
        """Count the fields of a record that are read back otherwise."""
        if before == after:
            return
        for one in dataclass_fields(before):
            if getattr(before, one.name) != getattr(after, one.name):
                key = (KINDS[type(before)], one.name)
                count, example = self._changed.get(key, (0, name))
                self._changed[key] = (count + 1, example)

    def not_kept(self) -> tuple[str, ...]:
        """A line for each field that does not come back, with the number of records and one of them."""
        order = list(KINDS.values())
        ranked: Sequence[tuple[tuple[str, str], tuple[int, str]]] = sorted(
            self._changed.items(), key=lambda item: (order.index(item[0][0]), -item[1][0], item[0][1])
        )
        return tuple(f"{name} of {count} {kind}, e.g. {example}" for (kind, name), (count, example) in ranked)


def judged(judgment: Judgment) -> str:
    """A judgment's name in a message."""
    return f"{judgment.qid} {judgment.memory_id} by {judgment.judge}"
