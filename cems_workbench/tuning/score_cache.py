"""Score cache: the scores of a search in a file next to the evidence, so that an interrupted search resumes, in any process.

The key of a score is the digest of its config, without the name, and the number of its part of the queries. A file belongs to one search:
its name and its header identify evidence, grades, measures, seed and queries. So page and command resume each other's search, and no
other search reads or overwrites the file. The scores of the last few searches on an evidence file are kept.
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
from cems_workbench.config.forms.yaml_form import portable_values
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.pipeline.table import Floats
from cems_workbench.platform.atomic_write import write_atomically

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
            files = [file for file in self.path.parent.iterdir() if _is_of(file.name, stem)]
            for file in sorted(files, key=lambda file: -file.stat().st_mtime_ns)[MAX_SEARCHES:]:
                file.unlink(missing_ok=True)


def _is_of(name: str, stem: str) -> bool:
    """Whether this is the name of a score file of the evidence file with that stem."""
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX).rpartition(".")[0] == stem
