"""Local embedder: the packaged model on onnxruntime, and on a device for many texts; any other on sentence-transformers."""

from __future__ import annotations

from collections.abc import Sequence

from cems_workbench.models.device import Choice, possible, require_driver
from cems_workbench.models.embedder import SentenceTransformerEmbedder, TokenEmbedder
from cems_workbench.models.minilm_embedder import MiniLMEmbedder, is_packaged_model
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import PACKAGED_ID, Resolved, resolve
from cems_workbench.progress import Progress, silent

FEW = 8
"""Up to so many texts, such as the variants of a query, are read on the processor, which takes milliseconds each."""
WORTH_LOADING = 1_000
"""So many texts take the processor longer than torch takes to be imported."""


class MiniLMOnDevice(MiniLMEmbedder):
    """The packaged embedder, whose weights torch reads too, on a device, once a process has many texts for it."""

    def __init__(self, resolved: Resolved, same_as: str = "", device: Choice = "auto") -> None:
        """`device` cuda or mps: from the first texts on."""
        super().__init__(resolved, same_as)
        self.on_device = SentenceTransformerEmbedder(resolved, same_as, device)
        self.torch = self.on_device.torch
        self._counted = 0

    @property
    def place(self) -> str:
        """The device it runs on, in words."""
        return f"{super().place}; a single query on the processor"

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors, as the base class; a cosine of 0.9999 or more between device and processor is checked by `doctor`."""
        return self.on_device.encode(texts, progress) if self._worth(len(texts)) else super().encode(texts, progress)

    def token_vectors(self, texts: Sequence[str]) -> list[tuple[list[int], Float32]]:
        """Token vectors, as the base class."""
        return self.on_device.token_vectors(texts) if self._worth(len(texts)) else super().token_vectors(texts)

    def _worth(self, count: int) -> bool:
        """Whether so many texts more go to the device. Raises ModelError for a device that is not there."""
        self._counted += count
        model = self.on_device.torch
        require_driver(model.choice)
        wanted = model.loaded or model.choice != "auto" or self._counted >= WORTH_LOADING
        return count > FEW and wanted and model.device != "cpu"


def local_embedder(asked: str, same_as: str = "", device: Choice = "auto") -> TokenEmbedder:
    """The embedder `asked`, a path or hub id; nothing is loaded yet. `same_as`: another id for vectors of the same model."""
    resolved = resolve(asked)
    if not is_packaged_model(resolved):
        return SentenceTransformerEmbedder(resolved, same_as, device)
    # In 8 bits it runs on the processor: torch has no such network.
    if possible(device) and resolved.model_id == PACKAGED_ID:
        return MiniLMOnDevice(resolved, same_as, device)
    return MiniLMEmbedder(resolved, same_as)
