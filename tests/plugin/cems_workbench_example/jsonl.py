"""A file of JSON lines, a memory a line: {"id": "a", "text": "Run make ship.", "vector": [0.6, 0.8], "title": "Deploy"}.

    jsonl:/FOLDER/FILE.jsonl

Further fields are recognised by name, or mapped with `--mapping` (`payload`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.formats.base.memory_fields import SHARED_WORDS
from cems_workbench.formats.base.payload import Payload
from cems_workbench.sources.address import Address, SourceKind
from cems_workbench.sources.collection import ClientHit, ClientQuery, CollectionClient, CollectionSource, Row
from cems_workbench.sources.connect import check_options
from cems_workbench.sources.source import Source, SourceError, SourceInfo


class JsonLines(CollectionClient):
    """The rows of a file, read for each request: the file may change."""

    def __init__(self, address: Address, timeout: float) -> None:
        """Raises InputError if there is no such file."""
        self._path = Path(address.path)
        if not self._path.is_file():
            raise InputError(f"{address.plain}: no such file")

    def reason(self, error: Exception) -> str | None:
        """A file that cannot be read, or a line that is not as above."""
        known = isinstance(error, OSError | ValueError | KeyError | TypeError)
        return f"not a file of memories: {error!r}" if known else None

    def describe(self) -> SourceInfo:
        """Counts, and the dimension of the first vector."""
        rows = self._rows()
        dimension = rows[0].vector.size if rows and rows[0].vector is not None else None
        return SourceInfo("jsonl", "JSON lines", memories=len(rows), vectors=len(rows), dimension=dimension)

    def sample(self, rows: int) -> Sequence[Row]:
        """The first rows."""
        return self._rows()[:rows]

    def list_rows(self, names: Sequence[str]) -> Iterator[Sequence[tuple[str, Payload]]]:
        """All rows in one page."""
        yield [(row.id, row.payload) for row in self._rows()]

    def take(self, ids: Sequence[str]) -> Sequence[Row]:
        """The rows with these ids."""
        wanted = set(ids)
        return [row for row in self._rows() if row.id in wanted]

    def search(self, query: ClientQuery) -> Sequence[ClientHit]:
        """All rows by cosine, as the vectors are compared without an index."""
        if query.trial.settings:
            raise SourceError(f"{self._path}: a file has no settings of a search")
        rows = [row for row in self._rows() if self._in_scope(row, query)]
        if not rows:
            return []
        vectors = np.array([row.vector for row in rows])
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query.vector)
        scores = vectors @ query.vector / np.maximum(lengths, 1e-12)
        best = np.argsort(-scores, kind="stable")[: query.rows]
        return [ClientHit(rows[i].id, rows[i].payload, float(scores[i])) for i in best]

    def _in_scope(self, row: Row, query: ClientQuery) -> bool:
        shared = row.payload.get(query.scope_field) in SHARED_WORDS
        return query.scope is None or shared == (query.scope == "shared")

    def _rows(self) -> list[Row]:
        rows = []
        with self._path.open(encoding="utf-8") as lines:
            for line in lines:
                fields = json.loads(line)
                vector = np.asarray(fields.pop("vector"), np.float32)
                rows.append(Row(str(fields.pop("id")), fields, fields.pop("text"), vector))
        return rows


def open_file(address: Address, mapping: Mapping[str, Any] | None, timeout: float) -> Source:
    """Open the file. Raises InputError, also for an option: this kind has none."""
    check_options(address, ())
    return CollectionSource(address, mapping, timeout, JsonLines)


SOURCE = SourceKind(
    name="jsonl",
    title="JSON lines",
    addresses=("jsonl:/FOLDER/FILE.jsonl",),
    description="a file with a memory and its vector in each line",
    schemes=("jsonl",),
    open=open_file,
)
