"""Settings of the app itself, from `CEMS_WORKBENCH_*` environment variables or a `.env` file; the pipeline has none here."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, PositiveInt, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.errors import InputError

Server = Literal["ollama", "openai"]
SERVERS: tuple[Server, ...] = get_args(Server)


class Settings(BaseSettings):
    """Where the store is and which models and servers to use; docs/reference_pages/settings.json says what each means."""

    model_config = SettingsConfigDict(
        env_prefix="CEMS_WORKBENCH_", env_file=".env", env_ignore_empty=True, extra="ignore"
    )

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

    @property
    def served_embedder(self) -> tuple[Server, str] | None:
        """Kind of server and model of an embedder on a server; None when it is loaded here."""
        for server in SERVERS:
            if self.embedder.startswith(f"{server}:"):
                return server, self.embedder.removeprefix(f"{server}:").strip()
        return None


def settings_for(store: Path | None = None) -> Settings:
    """The settings of this environment, with another store where one is named. Raises InputError for a variable that does not fit."""
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = "; ".join(f"CEMS_WORKBENCH_{one['loc'][0]}".upper() + f": {one['msg']}" for one in error.errors())
        raise InputError(wrong) from None
    except ValueError as error:  # not UTF-8
        raise InputError(f".env or CEMS_WORKBENCH_* variables: {error}") from None
    return settings.model_copy(update={"store": store}) if store is not None else settings
