"""Evidence of any size: one or several files of one query set, read some queries at a time.

A file that is read whole takes some 35 kB of memory a query. Here portions of at most `PORTION_QUERIES` queries are read, each as a
small `EvidenceSet`, and forgotten: memory is that of one portion and of DuckDB's sort (`STREAM_LIMIT`), regardless of the file's size.
Checks and hashes are those of a file that is read whole.

Several files are the evidence of one set that was gathered in parts, perhaps on several machines: they were gathered from the same state
of the same store with the same parameters, and no query was gathered in two of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cems_workbench.errors import InputError, one_line
from cems_workbench.evaluation.evidence_file import EvidenceSet, Header, PortionedFile, mismatch


class EvidenceStream:
    """The files of one set, open; close it, or use it in a `with`."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Raises InputError for a file that is none, and for files that are not parts of one set, naming what differs."""
        if len({path.resolve() for path in paths}) < len(paths):
            raise InputError("an evidence file is named twice")
        self._files: list[PortionedFile] = []
        try:
            for path in paths:
                self._files.append(PortionedFile(path))
            self._elsewhere = self._require_parts()
        except BaseException:
            self.close()
            raise

    @property
    def header(self) -> Header:
        """What the set was gathered with: the header of the first file."""
        return self._files[0].header

    @property
    def path(self) -> Path:
        """The first file."""
        return self._files[0].path

    @property
    def names(self) -> str:
        """The file's name, or the first file's and how many more there are."""
        return self.path.name if len(self._files) == 1 else f"{self.path.name} and {len(self._files) - 1} more"

    @property
    def content_hash(self) -> str:
        """That of the file; of several, a hash of theirs in the order in which they were named."""
        marks = [file.content_hash for file in self._files]
        return marks[0] if len(marks) == 1 else hashlib.sha256("\n".join(marks).encode()).hexdigest()

    @property
    def external(self) -> bool:
        """Whether the queries are external traces."""
        return any(file.external() for file in self._files)

    def qids_of(self, text: str) -> list[str]:
        """The ids of the queries with these words or this id, in the order of the files."""
        return [qid for file in self._files for qid in file.qids_of(text)]

    @property
    def queries(self) -> int:
        """Queries of all files."""
        return sum(file.queries for file in self._files)

    @property
    def seconds_per_query(self) -> float | None:
        """Time that gathering a query took on average; None where nothing was gathered."""
        count = sum(file.gathered for file in self._files)
        return sum(file.seconds for file in self._files) / count if count else None

    @property
    def highest_grade(self) -> int:
        """The highest grade of a judgment in the files."""
        return max(file.highest_grade() for file in self._files)

    def portions(self) -> Iterator[EvidenceSet]:
        """The queries of each file in their order, some at a time. A query that another file has the evidence of is left out.

        Raises InputError for a query that is not as evidence is.
        """
        for file, elsewhere in zip(self._files, self._elsewhere, strict=True):
            for portion in file.portions():
                yield _without(portion, elsewhere)

    def of_queries(self, qids: Collection[str]) -> EvidenceSet:
        """Those of the queries that are among these, as one set in the order of the files. Raises InputError as `portions` does."""
        parts = [
            _without(file.of_queries(qids), elsewhere)
            for file, elsewhere in zip(self._files, self._elsewhere, strict=True)
        ]
        own = [{query.qid for query in part.queries} for part in parts]
        return replace(
            parts[0],
            queries=tuple(query for part in parts for query in part.queries),
            judgments=tuple(
                row for part, listed in zip(parts, own, strict=True) for row in part.judgments if row.qid in listed
            ),
            evidences={qid: found for part in parts for qid, found in part.evidences.items()},
            seconds=sum(part.seconds for part in parts),
        )

    def close(self) -> None:
        """Release the files."""
        for file in self._files:
            file.close()

    def __enter__(self) -> EvidenceStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_parts(self) -> list[set[str]]:
        """Of each file the queries that it does not hold and another does; those that no file holds are of the first that lists them."""
        first = self._files[0]
        for file in self._files[1:]:
            reason = mismatch(file.header, first.header)
            if reason is None and file.header.query_set != first.header.query_set:
                reason = f"it is of the query set {file.header.query_set!r}, not {first.header.query_set!r}"
            if reason is None and file.header.relevant_from != first.header.relevant_from:
                reason = f"it counts grades from {file.header.relevant_from} as relevant, not from {first.header.relevant_from}"
            if reason is not None:
                raise InputError(f"{file.path} is not a part of what {first.path} is: {reason}")
        if len(self._files) == 1:
            return [set()]
        holder: dict[str, int] = {}
        for number, file in enumerate(self._files):
            for qid in file.gathered_qids():
                if qid in holder:
                    raise InputError(
                        f"query {one_line(qid)} was gathered in {self._files[holder[qid]].path} and in {file.path}"
                    )
                holder[qid] = number
        elsewhere: list[set[str]] = []
        for number, file in enumerate(self._files):
            listed = list(file.listed_qids())
            elsewhere.append({qid for qid in listed if holder.setdefault(qid, number) != number})
        return elsewhere


def _without(portion: EvidenceSet, elsewhere: Collection[str]) -> EvidenceSet:
    """The portion less the queries that another file has."""
    if not elsewhere:
        return portion
    return replace(portion, queries=tuple(query for query in portion.queries if query.qid not in elsewhere))
