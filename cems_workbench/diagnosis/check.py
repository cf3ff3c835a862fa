"""One thing that `doctor` looked at, and the small questions its checks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cems_workbench.settings import Settings

Status = Literal["ok", "warning", "failed"]
OTHER_EMBEDDER = "unset CEMS_WORKBENCH_EMBEDDER to use the packaged one"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at: what it is, how it stands, what will happen, and how to better it."""

    name: str
    status: Status
    finding: str
    advice: str = ""


def is_set(settings: Settings, name: str) -> bool:
    """Did somebody set this setting to something of their own?"""
    return bool(getattr(settings, name) != Settings.model_fields[name].default)


def among(model: str, had: Sequence[str]) -> bool:
    """Ollama calls a model without a tag NAME:latest."""
    return model in had or f"{model}:latest" in had
