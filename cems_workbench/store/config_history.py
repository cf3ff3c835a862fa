"""The `config_history` table: every config that was kept, by whom, when and why, with the evidence for it.

Entries are added and never replaced, so that what was in use on some day can be found again; name and reason may be put better later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cems_workbench.errors import InputError, StoreError
from cems_workbench.store.database import Database
from cems_workbench.store.memory_rows import to_naive
from cems_workbench.store.query_sets import check_name

LONGEST_REASON = 2000
_COLUMNS = "id, name, config_yaml, base, author, saved_at, why, card"


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A config that was kept."""

    id: int
    name: str
    config_yaml: str
    base: str | None
    """The preset or config it was made from."""
    author: str
    saved_at: datetime
    why: str
    card: Mapping[str, Any] | None
    """Its evidence card as JSON values; None for a config that was never measured."""


class ConfigHistory:
    """The configs kept in an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self, name: str, config_yaml: str, *, author: str, why: str = "", base: str | None = None,
        card: Mapping[str, Any] | None = None, when: datetime | None = None,
    ) -> ConfigRecord:  # fmt: skip
        """Keep a config, now or at `when`. Raises InputError for a name, author or reason that cannot be one."""
        check_name(name)
        check_name(author)
        text = None if card is None else json.dumps(card, ensure_ascii=False)
        values = [name, config_yaml, base, author, to_naive(when or datetime.now(UTC)), _reason(why), text]
        with self._database.transaction() as cursor:
            rows = cursor.execute(
                "INSERT INTO config_history (name, config_yaml, base, author, saved_at, why, card) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING {_COLUMNS}",
                values,
            ).fetchall()
        return _record(rows[0])

    def list(self) -> list[ConfigRecord]:
        """Every config that was kept, the latest first."""
        with self._database.reading() as cursor:
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM config_history ORDER BY id DESC").fetchall()
        return [_record(row) for row in rows]

    def get(self, config_id: int) -> ConfigRecord:
        """One of them. Raises StoreError when there is none of that id."""
        with self._database.reading() as cursor:
            rows = cursor.execute(f"SELECT {_COLUMNS} FROM config_history WHERE id = ?", [config_id]).fetchall()
        if not rows:
            raise StoreError(f"no config {config_id} in the history of the store")
        return _record(rows[0])

    def reword(self, config_id: int, *, name: str | None = None, why: str | None = None) -> ConfigRecord:
        """Give a kept config another name or reason; None leaves it as it is. Raises InputError and StoreError."""
        known = self.get(config_id)
        if name is not None:
            check_name(name)
        values = [known.name if name is None else name, known.why if why is None else _reason(why), config_id]
        with self._database.transaction() as cursor:
            cursor.execute("UPDATE config_history SET name = ?, why = ? WHERE id = ?", values)
        return self.get(config_id)


def _reason(why: str) -> str:
    if len(why.strip()) > LONGEST_REASON:
        raise InputError(f"the reason is longer than {LONGEST_REASON} characters")
    return why.strip()


def _record(row: tuple[Any, ...]) -> ConfigRecord:
    id_, name, config_yaml, base, author, saved_at, why, card = row
    evidence = None if card is None else json.loads(card)
    return ConfigRecord(id_, name, config_yaml, base, author, saved_at.replace(tzinfo=UTC), why, evidence)
