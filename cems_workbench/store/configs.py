"""What is saved of configs: configs with their evidence cards, and how often the sealed queries of a query set were scored under any.

Configs are of three kinds, each numbered from 1: the history has the configs in use over time, with author and reason; experiments are
comparisons of the Evaluate page, saved with the config measured last; watch entries are the repeated measurements of `watch`. Entries are
append-only; only name and reason of a history entry can be edited.

Looks at hold-outs are counted per query; a hold-out has the maximum of its queries. So the count persists when evidence is gathered
again, the set grows, or another seed puts some of the queries into another hold-out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from cems_workbench.errors import InputError, StoreError
from cems_workbench.store.rows import check_name, to_naive
from cems_workbench.store.team import TeamTables, persistent, rows_of

Kind = Literal["history", "experiment", "watched"]

LONGEST_REASON = 2000
_COLUMNS = "id, name, config_yaml, base, author, saved_at, why, card"


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A saved config. `id` numbers the configs of one kind."""

    id: int
    name: str
    config_yaml: str
    base: str | None
    """The preset or config it is based on."""
    author: str
    """Who saved it; empty for an experiment."""
    saved_at: datetime
    why: str
    """The reason for saving it; the note of an experiment."""
    card: Mapping[str, Any] | None
    """The evidence card as JSON values; None for a config that was never measured."""


class Configs:
    """The saved configs of an open store. Thread-safe."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    def add(
        self,
        name: str,
        config_yaml: str,
        *,
        author: str,
        why: str = "",
        base: str | None = None,
        card: Mapping[str, Any] | None = None,
        when: datetime | None = None,
    ) -> ConfigRecord:
        """Add a config to the history, now or at `when`. Raises InputError for an invalid name, author or reason."""
        check_name(name)
        check_name(author)
        record = ConfigRecord(0, name, config_yaml, base, author, when or datetime.now(UTC), _reason(why), card)
        return self._add("history", record)

    def add_experiment(
        self, name: str, config_yaml: str, note: str = "", card: Mapping[str, Any] | None = None, author: str = ""
    ) -> ConfigRecord:
        """Save a config with its card (JSON values) as an experiment; `author` is empty if unknown."""
        return self._add("experiment", ConfigRecord(0, name, config_yaml, None, author, datetime.now(UTC), note, card))

    def add_watched(self, name: str, config_yaml: str, note: str, card: Mapping[str, Any]) -> ConfigRecord:
        return self._add(
            "watched", ConfigRecord(0, name, config_yaml, None, "", datetime.now(UTC), _reason(note), card)
        )

    @persistent
    def _add(self, kind: Kind, record: ConfigRecord) -> ConfigRecord:
        """Save a config under the next id of its kind."""
        card = None if record.card is None else json.dumps(record.card, ensure_ascii=False)
        values = [
            record.name,
            record.config_yaml,
            record.base,
            record.author,
            to_naive(record.saved_at),
            record.why,
            card,
        ]
        with self._team.transaction() as session:
            rows = session.rows(
                f"INSERT INTO configs (kind, {_COLUMNS}) SELECT ?, coalesce(max(id), 0) + 1, ?, ?, ?, ?, ?, ?, ? "
                f"FROM configs WHERE kind = ? RETURNING {_COLUMNS}",
                [kind, *values, kind],
            )
        return _record(rows[0])

    @persistent
    def history(self) -> list[ConfigRecord]:
        """Every config of the history, the latest first."""
        return _read(self._team, "history")

    @persistent
    def experiments(self) -> list[ConfigRecord]:
        """Every experiment, the latest first."""
        return _read(self._team, "experiment")

    @persistent
    def watched(self) -> list[ConfigRecord]:
        """Every measurement of `watch`, the latest first."""
        return _read(self._team, "watched")

    @persistent
    def get(self, config_id: int) -> ConfigRecord:
        """One config of the history. Raises StoreError for an unknown id."""
        rows = rows_of(self._team, f"SELECT {_COLUMNS} FROM configs WHERE kind = 'history' AND id = ?", [config_id])
        if not rows:
            raise StoreError(f"no config {config_id} in the history of the store")
        return _record(rows[0])

    @persistent
    def reword(self, config_id: int, *, name: str | None = None, why: str | None = None) -> ConfigRecord:
        """Change name or reason of a history entry; None keeps it. Raises InputError and StoreError."""
        known = self.get(config_id)
        if name is not None:
            check_name(name)
        values = [known.name if name is None else name, known.why if why is None else _reason(why), config_id]
        with self._team.transaction() as session:
            session.change("UPDATE configs SET name = ?, why = ? WHERE kind = 'history' AND id = ?", values)
        return self.get(config_id)


def _read(team: TeamTables, kind: Kind) -> list[ConfigRecord]:
    latest_first = f"SELECT {_COLUMNS} FROM configs WHERE kind = ? ORDER BY saved_at DESC, id DESC"
    return [_record(row) for row in rows_of(team, latest_first, [kind])]


def _reason(why: str) -> str:
    if len(why.strip()) > LONGEST_REASON:
        raise InputError(f"the reason is longer than {LONGEST_REASON} characters")
    return why.strip()


def _record(row: tuple[Any, ...]) -> ConfigRecord:
    id_, name, config_yaml, base, author, saved_at, why, card = row
    measured = None if card is None else json.loads(card)
    return ConfigRecord(id_, name, config_yaml, base, author, saved_at.replace(tzinfo=UTC), why, measured)


class Holdouts:
    """The look counts of an open store. Thread-safe."""

    def __init__(self, team: TeamTables) -> None:
        self._team = team

    @persistent
    def count(self, query_set: str, qids: Sequence[str]) -> int:
        """The maximum number of looks over these queries of a set."""
        rows = rows_of(self._team, _COUNT, [query_set, list(qids)])
        return int(rows[0][0])

    @persistent
    def by_query(self, query_set: str, qids: Sequence[str]) -> dict[str, int]:
        """Looks per query, of those of these queries that have any."""
        rows = rows_of(
            self._team,
            "SELECT qid, looks FROM holdout_looks WHERE set_name = ? AND qid IN (SELECT unnest(?::text[]))",
            [query_set, list(qids)],
        )
        return {str(qid): int(looks) for qid, looks in rows}

    @persistent
    def lookers(self, query_set: str) -> dict[str, int]:
        """The known people who looked at sealed queries of a set, with their number of looks; most first."""
        rows = rows_of(
            self._team,
            "SELECT who, looks FROM holdout_lookers WHERE set_name = ? ORDER BY looks DESC, who",
            [query_set],
        )
        return {str(who): int(looks) for who, looks in rows}

    @persistent
    def look(self, query_set: str, qids: Sequence[str], who: str = "") -> int:
        """Count a look at these queries and return its number. It is committed before any score is shown."""
        now = to_naive(datetime.now(UTC))
        with self._team.transaction() as session:
            if who:
                session.change(
                    "INSERT INTO holdout_lookers VALUES (?, ?, 1, ?) "
                    "ON CONFLICT (set_name, who) DO UPDATE SET looks = holdout_lookers.looks + 1, last_at = excluded.last_at",
                    [query_set, who, now],
                )
            session.change(
                "INSERT INTO holdout_looks SELECT ?, qid, 1, ? FROM (SELECT unnest(?::text[]) AS qid) AS seen "
                "ON CONFLICT (set_name, qid) DO UPDATE SET looks = holdout_looks.looks + 1, last_at = excluded.last_at",
                [query_set, now, list(dict.fromkeys(qids))],
            )
            rows = session.rows(_COUNT, [query_set, list(qids)])
        return int(rows[0][0])


_COUNT = "SELECT coalesce(max(looks), 0) FROM holdout_looks WHERE set_name = ? AND qid IN (SELECT unnest(?::text[]))"
