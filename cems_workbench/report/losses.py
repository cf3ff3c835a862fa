"""The section of a report that shows where relevant memories are lost: a funnel for each config, and the memories behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cems_workbench.analysis.losses_of_set import Losses, LossMap, LostMemory, Rows
from cems_workbench.report.page import Texts


@dataclass(frozen=True, slots=True)
class _Step:
    """A row of the funnel, in percent of the relevant memories: those that pass, and those that leave here, right of them."""

    label: str
    passed: float
    left: float
    words: str


@dataclass(frozen=True, slots=True)
class _Row:
    qid: str
    query: str
    memory_id: str
    grade: int
    words: str


@dataclass(frozen=True, slots=True)
class _Group:
    """The memories behind a branch, the first of `count`."""

    title: str
    count: int
    rows: tuple[_Row, ...]


@dataclass(frozen=True, slots=True)
class _Map:
    name: str
    sentence: str
    steps: tuple[_Step, ...]
    idle: str
    """The stages that lose none, in words; empty if each loses some."""
    by_type: Rows | None
    by_project: Rows | None
    groups: tuple[_Group, ...]


@dataclass(frozen=True, slots=True)
class LossSection:
    """What the template draws."""

    sentences: tuple[str, ...]
    k: int
    maps: tuple[_Map, ...]
    table: Rows
    changes: tuple[_Group, ...]
    remarks: tuple[str, ...]


def loss_section(losses: Losses, texts: Texts) -> LossSection:
    """The section of these losses; in a redacted report queries are left out, and ids stay."""
    changes = [
        _group(f"{word} by {change.after}", sum(counts.values()), rows, texts)
        for change in losses.differences
        for word, counts, rows in (
            ("saved", change.saved, change.saved_rows),
            ("broken", change.broken, change.broken_rows),
        )
    ]
    return LossSection(
        (*losses.sentences, *losses.mistakes),
        losses.maps[0].k,
        tuple(_map(one, texts) for one in losses.maps),
        losses.table(),
        tuple(group for group in changes if group.count),
        tuple(line for line in losses.remarks if not line.startswith("warning")),  # those are the report's own
    )


def _map(found: LossMap, texts: Texts) -> _Map:
    idle = [stage for stage in found.after if not found.at(stage)]
    return _Map(
        found.config_name,
        found.sentence(),
        _steps(found),
        ", ".join(idle),
        found.groups("type") if len(found.by_type) > 1 else None,
        found.groups("project") if len(found.by_project) > 1 else None,
        tuple(
            _group(branch.words(found.k), count, found.rows_of(branch), texts)
            for branch, count in found.branches.items()
        ),
    )


def _steps(found: LossMap) -> tuple[_Step, ...]:
    """A row for all relevant memories, one for each branch, and one for those that are returned."""

    def share(count: int) -> float:
        return round(100 * count / found.relevant, 2)

    rows = [_Step("relevant memories", 100.0, 0.0, str(found.relevant))]
    left = found.relevant
    for branch, count in found.branches.items():
        left -= count
        rows.append(_Step(branch.words(found.k), share(left), share(count), f"{count} lost, {left} pass"))
    return (*rows, _Step(f"returned in the first {found.k}", share(left), 0.0, str(left)))


def _group(title: str, count: int, rows: Sequence[LostMemory], texts: Texts) -> _Group:
    shown = tuple(_Row(row.qid, texts.line(row.query), row.memory_id, row.grade, row.words) for row in rows)
    return _Group(title, count, shown)
