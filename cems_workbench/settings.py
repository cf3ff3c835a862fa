"""Settings of the app itself, from `CEMS_WORKBENCH_*` environment variables or a `.env` file; the pipeline has none here."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

OLLAMA = "ollama:"


class Settings(BaseSettings):
    """Where the store is and which models and servers to use."""

    model_config = SettingsConfigDict(env_prefix="CEMS_WORKBENCH_", env_file=".env", extra="ignore")

    store: Path = Field(Path(".workbench/store"), description="Directory of the store")
    chroma_url: str | None = Field(None, description="URL of a Chroma server; empty runs Chroma embedded")
    preset: str = Field("workbench", description="Preset the app opens with")
    embedder: str = Field(
        "sentence-transformers/all-MiniLM-L6-v2", description="Embedding model: path, hub id, or ollama:MODEL"
    )
    cross_encoder: str = Field("cross-encoder/ms-marco-MiniLM-L6-v2", description="Cross-encoder: path or hub id")
    llama_server_url: str = Field("http://localhost:8080", description="URL of a llama.cpp server")
    ollama_url: str = Field("http://localhost:11434", description="URL of an Ollama server")
    llm_url: str | None = Field(None, description="Base URL of an OpenAI-compatible server; empty uses Ollama")
    llm_model: str | None = Field(None, description="Chat model for query understanding and expansion; empty: no LLM")
    llm_key: str | None = Field(None, description="API key of the OpenAI-compatible server")

    @property
    def ollama_embedder(self) -> str | None:
        """The model that Ollama embeds with; None when the embedder is loaded here."""
        return self.embedder.removeprefix(OLLAMA).strip() if self.embedder.startswith(OLLAMA) else None
