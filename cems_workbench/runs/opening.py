"""Opening what the settings name: the store and the embedder. The one place where settings meet the library."""

from __future__ import annotations

from dataclasses import fields

from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.settings import Settings
from cems_workbench.store import Store


def open_resources(settings: Settings, *, create: bool = True) -> Resources:
    """Open the store and prepare the embedder (its weights load when first used).

    Raises StoreLockedError when another process holds the store, StoreError when it cannot be opened.
    """
    store = Store.open(settings.store, create=create, chroma_url=settings.chroma_url)
    return Resources(store, embedder(for_store(settings, store)), servers(settings))


def for_store(settings: Settings, store: Store) -> Settings:
    """The settings with the embedder that made the vectors of the store's source, where none was chosen otherwise."""
    made_by = [source.embedder for source in store.sources.read() if source.embedder and source.memories]
    if not made_by or "embedder" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"embedder": made_by[0]})


def embedder(settings: Settings) -> QueryEmbedder:
    """The embedder that the settings name; nothing is loaded and no server is asked yet."""
    if settings.ollama_embedder is None:
        return SentenceTransformerEmbedder(settings.embedder)
    from cems_workbench.models.ollama import OllamaEmbedder

    return OllamaEmbedder(settings.ollama_url, settings.ollama_embedder, revision=None)


def servers(settings: Settings) -> Servers:
    """The model servers that the settings name."""
    return Servers(**{field.name: getattr(settings, field.name) for field in fields(Servers)})
