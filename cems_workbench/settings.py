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
    """Where the store is and which models and servers to use."""

    model_config = SettingsConfigDict(
        env_prefix="CEMS_WORKBENCH_", env_file=".env", env_ignore_empty=True, extra="ignore"
    )

    store: Path = Field(Path(".workbench/store"), description="Directory of the store")
    chroma_url: str | None = Field(
        None, description="URL of a Chroma server that gets a copy of the vectors; empty for none"
    )
    team: str | None = Field(
        None,
        repr=False,
        description="PostgreSQL with a team's labels, query sets, configs and looks; empty: the store's own",
    )
    preset: str = Field(DEFAULT_PRESET, description="Preset the app opens with, and a command uses where none is named")
    gather_ahead: bool = Field(
        True,
        description="Search the judged queries in the background, so that tools find them, and look for the fix of a query that fails",
    )
    embedder: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2",
        description="Embedding model: path, hub id, ollama:MODEL, or openai:MODEL on an OpenAI-compatible server",
    )
    embedding_url: str | None = Field(None, description="Base URL of the OpenAI-compatible server that embeds")
    embedding_key: str | None = Field(None, repr=False, description="API key of that server")
    embedding_dimension: PositiveInt | None = Field(
        None, description="Length of vectors to ask that server for; empty: the model's own"
    )
    embedding_limit: PositiveInt | None = Field(
        None, description="Tokens of a text that the server reads, where it does not say"
    )
    embedding_text_prefix: str = Field(
        "", description="Words before each text that a server embeds, such as 'passage: '"
    )
    embedding_query_prefix: str = Field(
        "", description="Words before each query that a server embeds, such as 'query: '"
    )
    embedding_query_model: str = Field("", description="Name of the model for queries, where the server has another")
    embedding_same_as: str = Field("", description="Embedder of the store's vectors that the embedder is the same as")
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        "auto",
        description="Where models of torch run: auto (CUDA or Apple's MPS where there is one), cpu, cuda or mps",
    )
    cross_encoder: str = Field("cross-encoder/ms-marco-MiniLM-L6-v2", description="Cross-encoder: path or hub id")
    llama_server_url: str = Field("http://localhost:8080", description="URL of a llama.cpp server")
    ollama_url: str = Field("http://localhost:11434", description="URL of an Ollama server")
    llm_url: str | None = Field(None, description="Base URL of an OpenAI-compatible server; empty uses Ollama")
    llm_model: str | None = Field(None, description="Chat model for query understanding and expansion; empty: no LLM")
    llm_key: str | None = Field(None, repr=False, description="API key of the OpenAI-compatible server")

    serve: Literal["on", "off"] = Field(
        "on",
        description="Whether a search leaves a process behind that answers the next commands; where CI is set only if on is given",
    )
    folders: str = Field(
        "",
        description="Folders, with commas between, that pages may open stores and files from; the store's own is one",
    )
    mcp_token: str | None = Field(
        None, repr=False, description="Token that the MCP server asks for over HTTP; empty: none"
    )
    role_claim: str = Field(
        "", description="Claim of a signed-in identity that names its role; empty: everybody is a reviewer"
    )
    operators: str = Field("", description="Addresses, with commas between, of signed-in people who are operators")

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
