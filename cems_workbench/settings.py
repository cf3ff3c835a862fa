"""Settings of the app itself, from `CEMS_WORKBENCH_*` environment variables or a `.env` file; the pipeline has none here."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.errors import InputError
from cems_workbench.platform.atomic_write import write_text

Server = Literal["ollama", "openai"]
SERVERS: tuple[Server, ...] = get_args(Server)
PREFIX = "CEMS_WORKBENCH_"


@dataclass(frozen=True, slots=True)
class SavedTarget:
    """Where a store's memories are used: the target, the preset of its program, and what that has otherwise there, by parameter."""

    target: str
    preset: str
    values: Mapping[str, Any]


def saved_target(store: Path) -> SavedTarget | None:
    """The target that is saved with a store; None without one, or where the file cannot be read."""
    try:
        return SavedTarget(**json.loads((store / TARGET_FILE).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def save_target(store: Path, runs: SavedTarget | None) -> None:
    """Save the target with a store, or that it has none. Raises InputError."""
    if runs is None:
        return (store / TARGET_FILE).unlink(missing_ok=True)
    write_text(store / TARGET_FILE, json.dumps(asdict(runs)))


TARGET_FILE = "target.json"
"""In the directory of a store, so that it is known before the store is opened."""


class Settings(BaseModel):
    """Where the store is and which models and servers to use; docs/reference_pages/settings.json says what each means."""

    model_config = ConfigDict(extra="ignore")

    store: Path = Path(".workbench/store")
    chroma_url: str | None = None
    team: str | None = Field(None, repr=False)
    preset: str = DEFAULT_PRESET
    gather_ahead: bool = True
    embedder: str = "sentence-transformers/all-MiniLM-L6-v2"
    embedding_url: str | None = None
    embedding_key: str | None = Field(None, repr=False)
    embedding_dimension: PositiveInt | None = None
    embedding_limit: PositiveInt | None = None
    embedding_text_prefix: str = ""
    embedding_query_prefix: str = ""
    embedding_query_model: str = ""
    embedding_same_as: str = ""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    cross_encoder: str = "cross-encoder/ms-marco-MiniLM-L6-v2"
    llama_server_url: str = "http://localhost:8080"
    ollama_url: str = "http://localhost:11434"
    llm_url: str | None = None
    llm_model: str | None = None
    llm_key: str | None = Field(None, repr=False)

    serve: Literal["on", "off"] = "on"
    folders: str = ""
    mcp_token: str | None = Field(None, repr=False)
    role_claim: str = ""
    operators: str = ""

    def __init__(self, **given: Any) -> None:
        """What is not given is read, and the preset of the store's target is that of the store. Raises ValidationError, and
        UnicodeDecodeError for a `.env` that is not UTF-8."""
        values = _read() | given
        super().__init__(**values)
        if "preset" not in values and (runs := saved_target(self.store)) is not None:
            self.preset = runs.preset

    @property
    def served_embedder(self) -> tuple[Server, str] | None:
        """Kind of server and model of an embedder on a server; None when it is loaded here."""
        for server in SERVERS:
            if self.embedder.startswith(f"{server}:"):
                return server, self.embedder.removeprefix(f"{server}:").strip()
        return None


def _read() -> dict[str, str]:
    """Values by name: those of the environment, else of `.env`; an empty one counts as none."""
    # pydantic-settings does the same in 40 ms: it imports asyncio and all its other sources.
    of_file: dict[str, str | None] = {}
    if Path(".env").is_file():
        from dotenv import dotenv_values

        of_file = dotenv_values(".env", encoding="utf-8")
    both = [*of_file.items(), *os.environ.items()]
    return {key[len(PREFIX) :].lower(): value for key, value in both if value and key.upper().startswith(PREFIX)}


def settings_for(store: Path | None = None) -> Settings:
    """The settings of this environment, with another store where one is named. Raises InputError for a variable that does not fit."""
    try:
        settings = Settings() if store is None else Settings(store=store)
    except ValidationError as error:
        wrong = "; ".join(f"{PREFIX}{one['loc'][0]}".upper() + f": {one['msg']}" for one in error.errors())
        raise InputError(wrong) from None
    except ValueError as error:  # not UTF-8
        raise InputError(f".env or CEMS_WORKBENCH_* variables: {error}") from None
    return settings
