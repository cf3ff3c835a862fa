"""`score(config, queries) -> (queries, measures)`: what a search asks, over a labelled batch, each answer computed once.

The queries are dealt into parts at random (seeded), so that the first part already speaks for the whole and a search can give up on
a config after it. Parts are scored one after the other: two threads took half as much processor time again and were no sooner done,
since the arrays of a part are small and the threads wait for the interpreter.

The scores of a search in a file, so that a search that was cut off goes on in another process.

Scores are kept under a hash of the config; the file names the evidence, measures and seed it belongs to, and is not used for others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.yaml_form import nested
from cems_workbench.evaluation.batch import LabelledBatch, Rankings
from cems_workbench.evaluation.metrics import Measure
from cems_workbench.pipeline.table import Floats, Ints
from cems_workbench.tuning.objective import Scored

Known = dict[tuple[str, int], Floats]
"""(Qp, M) scores by digest of the config and number of the part."""


def search_marks(evidence_hash: str, batch: LabelledBatch, measures: Sequence[object], seed: int) -> list[str]:
    """What kept scores belong to: the evidence, the grades, the measures, the seed and the queries."""
    grades = [sorted(given.items()) for given in batch.grades]
    mark = hashlib.sha256(json.dumps(grades).encode()).hexdigest()
    return [evidence_hash, mark, *map(str, measures), str(seed), *batch.qids]


def digest(config: PipelineConfig) -> str:
    """SHA-256, in hex, of every parameter; the name is no parameter."""
    values = {key: value for key, value in nested(config).items() if key != "name"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def write_scores(path: Path, belongs_to: Sequence[str], known: Mapping[tuple[str, int], Floats]) -> None:
    """Write the scores; the file appears whole or not at all. Raises OSError."""
    partial = path.with_name(path.name + ".partial")
    names = np.array([f"{key}:{part}" for key, part in known], dtype=str)
    columns = {f"scores{i}": values for i, values in enumerate(known.values())}
    with partial.open("wb") as file:
        np.savez(file, belongs_to=np.array(list(belongs_to), dtype=str), names=names, **columns)  # type: ignore[arg-type]
    partial.replace(path)


def read_scores(path: Path, belongs_to: Sequence[str]) -> Known:
    """The scores of a file; none when it is not there, not readable, or belongs to another search."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if file["belongs_to"].tolist() != list(belongs_to):
                return {}
            keys = [name.rpartition(":") for name in file["names"].tolist()]
            return {(key, int(part)): file[f"scores{i}"] for i, (key, _, part) in enumerate(keys)}
    except (OSError, ValueError, KeyError, EOFError):
        return {}


PART = 512


class Score(Protocol):
    """What a search needs to know of the queries."""

    @property
    def parts(self) -> Sequence[Ints]:
        """The rows of all queries, in the parts in which they are scored."""

    def __call__(self, config: PipelineConfig, queries: Ints) -> Floats:
        """(len(queries), M) the measures of each of these rows under a config, larger is better, never NaN."""


def config_key(config: PipelineConfig) -> PipelineConfig:
    """What two configs that rank alike share: everything but the name."""
    return config if config.name == "trial" else config.model_copy(update={"name": "trial"})


class BatchScorer:
    """Scores of some queries of a labelled batch, each part of each config at most once."""

    def __init__(self, batch: LabelledBatch, measures: Sequence[Scored], seed: int = 0, part: int = PART) -> None:
        """Every measure must be defined for every query; `answerable` says which are."""
        self.measures = tuple(measures)
        self.evaluations = 0
        """Parts that were scored, not those that were known."""
        rows = np.random.default_rng(seed).permutation(len(batch.queries))
        count = max(1, round(len(rows) / part))
        self.parts = [np.sort(piece) for piece in np.array_split(rows, count)]
        self._batches = [_of_rows(batch, piece) for piece in self.parts]
        self._place = np.empty(len(rows), dtype=np.int64)
        self._part = np.empty(len(rows), dtype=np.int64)
        for number, piece in enumerate(self.parts):
            self._part[piece], self._place[piece] = number, np.arange(len(piece))
        self._known: dict[tuple[PipelineConfig, int], Floats] = {}
        self._recalled: Known = {}

    def __call__(self, config: PipelineConfig, queries: Ints) -> Floats:
        """(len(queries), M) scores."""
        key = config_key(config)
        of_part = self._part[queries]
        wanted = [int(number) for number in np.unique(of_part)]
        self._score(key, [number for number in wanted if (key, number) not in self._known])
        out = np.empty((len(queries), len(self.measures)))
        for number in wanted:
            inside = of_part == number
            out[inside] = self._known[key, number][self._place[queries[inside]]]
        return out

    def _score(self, key: PipelineConfig, missing: Sequence[int]) -> None:
        if self._recalled:
            name = digest(key)
            for number in missing:
                if (name, number) in self._recalled:
                    self._known[key, number] = self._recalled[name, number]
            missing = [number for number in missing if (key, number) not in self._known]

        self.evaluations += len(missing)
        for number in missing:
            found = self._batches[number].rankings(key)
            self._known[key, number] = np.stack([_values(measure, found) for measure in self.measures], axis=1)

    def recall(self, known: Known) -> None:
        """Take scores of an earlier run of the same search as known; those of another shape are left out."""
        self._recalled = {
            (name, number): values
            for (name, number), values in known.items()
            if number < len(self.parts) and values.shape == (len(self.parts[number]), len(self.measures))
        }

    def known(self) -> Known:
        """Every score there is, for a later run."""
        return self._recalled | {(digest(key), number): values for (key, number), values in self._known.items()}


def _values(measure: Scored, found: Rankings) -> Floats:
    """(Qp) larger is better."""
    return measure.values(found.graded) if isinstance(measure, Measure) else -found.sent.astype(np.float64)


def answerable(batch: LabelledBatch, measures: Sequence[Scored]) -> LabelledBatch:
    """The batch without the queries for which some measure is not defined: those without any relevant memory."""
    least = max((measure.grade for measure in measures if isinstance(measure, Measure)), default=1)
    keep = np.flatnonzero((batch.ideal >= least).any(axis=1))
    return batch if len(keep) == len(batch.queries) else _of_rows(batch, keep)


def _of_rows(batch: LabelledBatch, rows: Ints) -> LabelledBatch:
    chosen = [batch.queries[q] for q in rows.tolist()]
    evidences = {batch.queries[q].qid: batch.evidences[q] for q in rows.tolist()}
    return LabelledBatch(chosen, evidences, {batch.queries[q].qid: batch.grades[q] for q in rows.tolist()})
