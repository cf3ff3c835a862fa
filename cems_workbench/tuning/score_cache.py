"""The scores of a search in a file beside the evidence, so that a search that was cut off goes on, in another process or elsewhere.

A score is kept under a digest of its config, whatever the config is called, and the number of the part of the queries it is of. The
file belongs to one search: its name and its head say which evidence, grades, measures, seed and queries it is of, so that whoever
searches for the same on the same evidence, page or command line, goes on with it, and no other search uses it or writes over it. Of one
evidence file the scores of the last few searches are kept.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.forms.yaml_form import nested
from cems_workbench.config.renamed import original_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline.table import Floats
from cems_workbench.platform.atomic_write import write_atomically

KnownScores = dict[tuple[str, int], Floats]
"""(Qp, M) scores by digest of the config and number of the part."""
SUFFIX = ".scores.npz"
MAX_SEARCHES = 8
"""Searches of one evidence file whose scores are kept."""


def search_marks(evidence_hash: str, batch: LabelledBatch, measures: Sequence[object], seed: int) -> list[str]:
    """What kept scores belong to: the evidence, the grades, the measures, the seed and the queries."""
    grades = [sorted(given.items()) for given in batch.grades]
    mark = hashlib.sha256(json.dumps(grades).encode()).hexdigest()
    return [evidence_hash, mark, *map(str, measures), str(seed), *batch.qids]


def config_digest(config: PipelineConfig) -> str:
    """SHA-256, in hex, of every parameter; the name is no parameter."""
    values = {key: value for key, value in original_values(nested(config)).items() if key != "name"}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ScoreCache:
    """The file of one search: where it is, and what its scores belong to."""

    path: Path
    marks: tuple[str, ...]

    @classmethod
    def beside(cls, evidence: Path, marks: Sequence[str]) -> ScoreCache:
        """The scores of the search with these marks on an evidence file."""
        digest = hashlib.sha256(json.dumps(list(marks)).encode()).hexdigest()[:12]
        return cls(evidence.with_name(f"{evidence.stem}.{digest}{SUFFIX}"), tuple(marks))

    def read(self) -> KnownScores:
        """The scores in the file; none when it is not there, not readable, or belongs to another search."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                if tuple(file["belongs_to"].tolist()) != self.marks:
                    return {}
                keys = [name.rpartition(":") for name in file["names"].tolist()]
                return {(key, int(part)): file[f"scores{i}"] for i, (key, _, part) in enumerate(keys)}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return {}

    def write(self, known: Mapping[tuple[str, int], Floats]) -> None:
        """Write the scores; the file appears whole or not at all. The oldest of other searches goes. Raises OSError."""
        names = np.array([f"{key}:{part}" for key, part in known], dtype=str)
        columns = {f"scores{i}": values for i, values in enumerate(known.values())}
        with write_atomically(self.path) as part, part.open("wb") as file:
            np.savez(file, belongs_to=np.array(self.marks, dtype=str), names=names, **columns)  # type: ignore[arg-type]
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        stem = self.path.name.removesuffix(SUFFIX).rpartition(".")[0]
        with suppress(OSError):  # another process forgets them too
            files = [file for file in self.path.parent.iterdir() if _is_of(file.name, stem)]
            for file in sorted(files, key=lambda file: -file.stat().st_mtime_ns)[MAX_SEARCHES:]:
                file.unlink(missing_ok=True)


def _is_of(name: str, stem: str) -> bool:
    """Is this the name of scores of the evidence file that is called so?"""
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX).rpartition(".")[0] == stem
