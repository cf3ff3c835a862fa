"""What the pipeline and the store ask of a model; each model file implements one of these and nothing else knows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cems_workbench.progress import Progress, silent

Float32 = NDArray[np.float32]


class Embedder(Protocol):
    """Maps texts to unit vectors whose dot product is the cosine similarity."""

    @property
    def model_id(self) -> str:
        """Stable identity of model and revision; indexes built with another one are stale."""
        ...

    @property
    def dimension(self) -> int:
        """Length of one vector."""
        ...

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Return an array of shape (len(texts), dimension), float32, every row of length 1."""
        ...
