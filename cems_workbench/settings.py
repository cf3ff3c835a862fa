"""Settings of the app itself, from `CEMS_WORKBENCH_*` environment variables or a `.env` file; the pipeline has none here."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Where the store is and which models and servers to use."""

    model_config = SettingsConfigDict(env_prefix="CEMS_WORKBENCH_", env_file=".env", extra="ignore")

    store: Path = Field(Path(".workbench/store"), description="Directory of the store")
    chroma_url: str | None = Field(None, description="URL of a Chroma server; empty runs Chroma embedded")
    embedder: str = Field("sentence-transformers/all-MiniLM-L6-v2", description="Embedding model: path or hub id")
