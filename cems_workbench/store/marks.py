"""Who wrote a row: the marks that imports, edits and live sources leave on memories, relations, chunks, answers, queries and judgments.

A row has the mark of what wrote its values last (`origin`) and first (`added_by`). By them an import can be undone, and an import does not
replace what another one brought. "Another" is a file of another name: a file that was edited and is imported again updates its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

EDITED, FROM_SOURCE = 0, -1
"""The marks of a person's edit and of a live source; those of inputs are `imports.id`, from 1."""
AN_EDIT, NOT_RECORDED = "an edit here", "an import that is not on record"
FOREIGN = "({0}.origin IS NULL OR {0}.origin NOT IN (SELECT unnest(?)))"
"""The condition that a row of an alias was written by none of some inputs."""
TEAM_FOREIGN = "({0}.origin IS NULL OR {0}.origin NOT IN (SELECT unnest(?::text[])))"
"""The same of a team's tables, for the marks of the inputs there."""
BROUGHT_BY = "CASE folder WHEN '' THEN name ELSE folder || '/' || name END"
"""What users read of an input in `imports`."""


@dataclass(frozen=True, slots=True)
class Mark:
    """An input on record, while it is imported.

    `inputs` are those of its event, itself included: what one of them writes over another's rows is no change to undo. `own` are all inputs
    of the same file, whose rows it updates freely. `store` is the store's id, and `when` the moment of the import: together they tell
    inputs apart in a team's tables, also those of copies of a store.
    """

    id: int
    event: int
    inputs: Sequence[int]
    own: Sequence[int]
    store: str
    when: datetime
    folder: str
    name: str

    @property
    def brought_by(self) -> str:
        """The file's name after its folder's."""
        return f"{self.folder}/{self.name}" if self.folder else self.name

    def is_own(self, brought_by: str | None) -> bool:
        """Whether a row that this file brought is this input's own; of an upload only the name is known."""
        if not brought_by:
            return False
        folder, _, name = brought_by.rpartition("/")
        return name == self.name and (not folder or not self.folder or folder == self.folder)

    @property
    def in_team(self) -> str:
        """The mark in a team's tables."""
        return in_team(self.store, self.id, self.when)

    @property
    def inputs_in_team(self) -> list[str]:
        """The marks of the event's inputs in a team's tables."""
        return [in_team(self.store, each, self.when) for each in self.inputs]


def in_team(store: str, number: int, when: datetime) -> str:
    """The mark of a store's input in a team's tables; `when` is UTC without a zone, the same of all inputs of an event."""
    return f"{store}:{number}:{when.isoformat()}"
