"""Factory: store, embedder and model servers from the settings. Only this module turns settings into objects of the library."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import fields
from typing import TYPE_CHECKING

from cems_workbench.errors import NoMemoriesError
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import QueryEmbedder
from cems_workbench.pipeline.resources import Resources, Servers
from cems_workbench.settings import Settings
from cems_workbench.store import Store

if TYPE_CHECKING:
    from cems_workbench.models.server_embedder import OpenAiEmbedder, Wording

EMBED_TIMEOUT_S = 60.0


def open_resources(settings: Settings, *, create: bool = True) -> Resources:
    """Open the store and prepare the embedder (its weights load when first used).

    Raises StoreLockedError when another process holds the store, StoreError when it cannot be opened.
    """
    store = Store.open(settings.store, create=create, chroma_url=settings.chroma_url, team=settings.team)
    return Resources(store, embedder(for_store(settings, store)), servers(settings))


def open_filled(settings: Settings) -> Resources:
    """As `open_resources`, for an existing store with memories. Raises StoreError for another."""
    with ExitStack() as unless_filled:
        resources = unless_filled.enter_context(closing(open_resources(settings, create=False)))
        if not resources.store.memories.count():
            raise NoMemoriesError(f"the store {resources.store.path} is empty; import something first")
        unless_filled.pop_all()
    return resources


def for_store(settings: Settings, store: Store) -> Settings:
    """The settings with the embedder of the store's source, unless the user chose another."""
    made_by = [source.embedder for source in store.sources.with_memories() if source.embedder]
    if not made_by or "embedder" in settings.model_fields_set:
        return settings
    return settings.model_copy(update={"embedder": made_by[0]})


def embedder(settings: Settings) -> QueryEmbedder:
    """The embedder that the settings name; nothing is loaded and no server is called yet.

    A missing setting is an error on first use, so that a store can be inspected without an embedder.
    """
    same_as = settings.embedding_same_as.strip()
    if settings.served_embedder is None:
        return local_embedder(settings.embedder, same_as, settings.device)
    server, model = settings.served_embedder
    if server == "ollama":
        from cems_workbench.models.ollama import OllamaEmbedder

        return OllamaEmbedder(settings.ollama_url, model, same_as=same_as, revision=None, wording=wording(settings))
    return openai_embedder(settings)


def openai_embedder(settings: Settings, timeout_s: float = EMBED_TIMEOUT_S, tries: int = 3) -> OpenAiEmbedder:
    """The embedder on the OpenAI-compatible server that the settings name."""
    from cems_workbench.models.server_embedder import OpenAiEmbedder

    _, model = settings.served_embedder or ("openai", "")
    return OpenAiEmbedder(
        settings.embedding_url or "",
        model,
        settings.embedding_key,
        settings.embedding_dimension,
        settings.embedding_limit,
        settings.embedding_same_as.strip(),
        timeout_s,
        wording=wording(settings),
        tries=tries,
    )


def wording(settings: Settings) -> Wording:
    """The prefixes of texts and queries for the embedder on a server."""
    from cems_workbench.models.server_embedder import Wording

    return Wording(
        settings.embedding_text_prefix, settings.embedding_query_prefix, settings.embedding_query_model.strip()
    )


def servers(settings: Settings) -> Servers:
    """The model servers that the settings name."""
    return Servers(**{field.name: getattr(settings, field.name) for field in fields(Servers)})
