"""A natural language inference cross-encoder: the probability that one text contradicts another.

Any sentence-transformers CrossEncoder with an output called "contradiction" fits, such as cross-encoder/nli-deberta-v3-base. Its outputs
are turned into probabilities by softmax; the order of the outputs is read from the model.

Source: Bowman et al. 2015 (SNLI), Williams et al. 2018 (MultiNLI).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from cems_workbench.errors import ModelError
from cems_workbench.models.cross_encoder import find_weights, load_cross_encoder
from cems_workbench.models.resolve import Resolved

CONTRADICTION = "contradiction"


class ContradictionScorer:
    """Scores pairs of texts; the weights load on first use. Raises ModelError if `asked`, a path or hub id, is neither
    a folder nor in the local cache nor on a reachable hub."""

    batch = 32

    def __init__(self, asked: str) -> None:
        self.resolved: Resolved = find_weights(asked, f"contradiction model {asked}")
        self._lock = threading.Lock()

    @property
    def label(self) -> str:
        """What scores, in words."""
        return f"contradiction model {self.resolved.line}"

    @cached_property
    def _model(self) -> tuple[Any, int]:
        """The CrossEncoder and the column of the contradiction. Raises ModelError in one line."""
        named = f"contradiction model {self.resolved.asked}"
        model = load_cross_encoder(self.resolved, named)
        names = {int(place): str(name).lower() for place, name in model.config.id2label.items()}
        place = next((place for place, name in names.items() if name == CONTRADICTION), None)
        if place is None:
            known = ", ".join(names[place] for place in sorted(names))
            raise ModelError(f"{named} has the outputs {known}; one must be {CONTRADICTION}")
        return model, place

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """The probability, 0..1, that the second text of each pair contradicts the first. Raises ModelError."""
        if not pairs:
            return []
        with self._lock:
            model, place = self._model
            logits = model.predict(
                list(pairs), batch_size=self.batch, show_progress_bar=False, apply_softmax=True, convert_to_numpy=True
            )
        return [float(row[place]) for row in logits]
