"""Scorer: `score(config, queries) -> (queries, measures)` over a labelled batch, each score computed once.

The queries are split into parts at random (seeded), so that the first part is representative and a search can prune a config after it.
Parts are scored sequentially: with two threads the wall time was the same and the processor time half as much again, because the
arrays of a part are small and the threads wait for the interpreter.

Score cache: the scores of a search in a file next to the evidence, so that an interrupted search resumes, in any process.

The key of a score is the digest of its config, without the name, and the number of its part of the queries. A file belongs to one search:
its name and its header identify evidence, grades, measures, seed and queries. So page and command resume each other's search, and no
other search reads or overwrites the file. The scores of the last few searches on an evidence file are kept.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.yaml_form import portable_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.metrics import MEASURES, Measure
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.platform.atomic_write import write_atomically
from cems_workbench.tuning.objective import Scored

KnownScores = dict[tuple[str, int], Floats]
"""(Qp, M) scores by digest of the config and number of the part."""
SUFFIX = ".scores.npz"
MAX_SEARCHES = 8
"""Searches on one evidence file whose scores are kept."""


def search_marks(evidence_hash: str, batch: LabelledBatch, measures: Sequence[object], seed: int) -> list[str]:
    """The identity of a search: evidence, grades, measures, seed and queries."""
    # Sorted, because the order of the judgments must not change the identity.
    grades = [sorted(given.items()) for given in batch.grades]
    mark = hashlib.sha256(json.dumps(grades).encode()).hexdigest()
    return [evidence_hash, mark, *map(str, measures), str(seed), *batch.qids]


def config_digest(config: PipelineConfig) -> str:
    """SHA-256, in hex, of every parameter without the name."""
    # A renamed config scores the same.
    values = {key: value for key, value in portable_values(config).items() if key != "name"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ScoreCache:
    """The file of one search, and the identity of that search."""

    path: Path
    marks: tuple[str, ...]

    @classmethod
    def beside(cls, evidence: Path, marks: Sequence[str]) -> ScoreCache:
        """The cache of the search with these marks on an evidence file."""
        digest = hashlib.sha256(json.dumps(list(marks)).encode()).hexdigest()[:12]
        return cls(evidence.with_name(f"{evidence.stem}.{digest}{SUFFIX}"), tuple(marks))

    def read(self) -> KnownScores:
        """The scores in the file; none if it is absent, unreadable, or of another search."""
        try:
            # A pickle in a file from elsewhere would run code.
            with np.load(self.path, allow_pickle=False) as file:
                # The file's name has only a part of the digest.
                if tuple(file["belongs_to"].tolist()) != self.marks:
                    return {}
                keys = [name.rpartition(":") for name in file["names"].tolist()]
                return {(key, int(part)): file[f"scores{i}"] for i, (key, _, part) in enumerate(keys)}
        # It is a cache: a damaged file costs a recomputation, never the search.
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}

    def write(self, known: Mapping[tuple[str, int], Floats]) -> None:
        """Write the scores atomically, and delete the oldest files of other searches. Raises OSError."""
        names = np.array([f"{key}:{part}" for key, part in known], dtype=str)
        columns = {f"scores{i}": values for i, values in enumerate(known.values())}
        with write_atomically(self.path) as part, part.open("wb") as file:
            np.savez(file, belongs_to=np.array(self.marks, dtype=str), names=names, **columns)  # type: ignore[arg-type]
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        stem = self.path.name.removesuffix(SUFFIX).rpartition(".")[0]
        with suppress(OSError):  # another process deletes them too
            files = [
                file
                for file in self.path.parent.glob(f"*{SUFFIX}")
                if file.name.removesuffix(SUFFIX).rpartition(".")[0] == stem
            ]
            for file in sorted(files, key=lambda file: -file.stat().st_mtime_ns)[MAX_SEARCHES:]:
                file.unlink(missing_ok=True)


PART_QUERIES = 512


class Score(Protocol):
    """Scores configs on queries, for a search."""

    @property
    def parts(self) -> Sequence[Ints]:
        """The rows of all queries, in the parts in which they are scored."""

    def __call__(self, config: PipelineConfig, queries: Ints) -> Floats:
        """(len(queries), M) the measures of these rows under a config, larger is better; NaN if a measure is not defined for a query."""


def config_key(config: PipelineConfig) -> PipelineConfig:
    """The config without its name: configs that rank alike have the same key."""
    return config if config.name == "trial" else config.model_copy(update={"name": "trial"})


class BatchScorer:
    """Scores configs on the queries of a labelled batch, each part of each config at most once."""

    def __init__(
        self,
        batch: LabelledBatch,
        measures: Sequence[Scored],
        seed: int = 0,
        part: int = PART_QUERIES,
        ranks_as: Callable[[PipelineConfig], PipelineConfig] | None = None,
    ) -> None:
        """Every query must have a measure that is defined for it (see `measurable`). `ranks_as` maps a config to the
        one whose ranking is measured."""
        self.batch, self.measures = batch, tuple(measures)
        self._ranks_as = ranks_as or (lambda config: config)
        self.evaluations = 0
        """Number of parts scored, without those that were known."""
        self.seconds = 0.0
        """Time that scoring them took."""
        rows = np.random.default_rng(seed).permutation(len(batch.queries))
        count = max(1, round(len(rows) / part))
        # Random parts: the first one decides about pruning and must represent all.
        self.parts = [np.sort(piece) for piece in np.array_split(rows, count)]
        self._batches = [_of_rows(batch, piece) for piece in self.parts]
        self._place = np.empty(len(rows), dtype=np.int64)
        self._part = np.empty(len(rows), dtype=np.int64)
        for number, piece in enumerate(self.parts):
            self._part[piece], self._place[piece] = number, np.arange(len(piece))
        self._known: dict[tuple[PipelineConfig, int], Floats] = {}
        self._recalled: KnownScores = {}

    def __call__(self, config: PipelineConfig, queries: Ints) -> Floats:
        """(len(queries), M) scores."""
        key = config_key(self._ranks_as(config))
        of_part = self._part[queries]
        wanted = [int(number) for number in np.unique(of_part)]
        missing = self._not_recalled(key, [number for number in wanted if (key, number) not in self._known])
        self.evaluations += len(missing)
        began = time.monotonic()
        for number in missing:
            rankings = self._batches[number].rankings(key)
            self._known[key, number] = np.stack(
                [
                    measure.direction
                    * (measure.values(rankings.graded) if isinstance(measure, Measure) else rankings.sent.astype(float))
                    for measure in self.measures
                ],
                axis=1,
            )
        self.seconds += time.monotonic() - began
        out = np.empty((len(queries), len(self.measures)))
        for number in wanted:
            inside = of_part == number
            out[inside] = self._known[key, number][self._place[queries[inside]]]
        return out

    @property
    def seconds_per_config(self) -> float | None:
        """Time that a config took on all queries, as measured so far."""
        return self.seconds * len(self.parts) / self.evaluations if self.evaluations else None

    def _not_recalled(self, key: PipelineConfig, missing: Sequence[int]) -> Sequence[int]:
        """The missing parts that no earlier job has scored; the others become known."""
        if not self._recalled:
            return missing
        name = config_digest(key)
        self._known |= {(key, n): self._recalled[name, n] for n in missing if (name, n) in self._recalled}
        return [number for number in missing if (key, number) not in self._known]

    def recall(self, known: KnownScores) -> None:
        """Reuse the scores of an earlier job of the same search; those of another shape are left out."""
        self._recalled = {
            (name, number): values
            for (name, number), values in known.items()
            if number < len(self.parts) and values.shape == (len(self.parts[number]), len(self.measures))
        }

    def known(self) -> KnownScores:
        """All scores so far, for a later job."""
        known = dict(self._known)  # a copy, since another thread may add to it
        return self._recalled | {(config_digest(key), number): values for (key, number), values in known.items()}


def measurable(batch: LabelledBatch, measures: Sequence[Scored]) -> LabelledBatch:
    """The batch without queries that no measure is defined for: those without a relevant memory, except those known to have no answer
    if a measure covers them."""
    scored = [measure for measure in measures if isinstance(measure, Measure)]
    kinds = {MEASURES[measure.family].needs_no_answer for measure in scored}
    least = max((measure.grade for measure in scored), default=1)
    answerable = (batch.ideal >= least).any(axis=1)
    keep = np.flatnonzero(answerable & (kinds != {True}) | batch.without_answer(least) & (True in kinds))
    return batch if len(keep) == len(batch.queries) else _of_rows(batch, keep)


def _of_rows(batch: LabelledBatch, rows: Ints) -> LabelledBatch:
    chosen = [batch.queries[q] for q in rows.tolist()]
    evidences = {batch.queries[q].qid: batch.evidences[q] for q in rows.tolist()}
    return LabelledBatch(chosen, evidences, {batch.queries[q].qid: batch.grades[q] for q in rows.tolist()})
