"""The scores of a search in a file, so that a search that was cut off goes on in another process.

Scores are kept under a hash of the config; the file names the evidence, measures and seed it belongs to, and is not used for others.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.yaml_io import nested
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline.table import Floats

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
