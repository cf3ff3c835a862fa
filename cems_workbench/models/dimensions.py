"""Which models make vectors of a dimension, to name candidates for vectors that came without their model's name.

A dimension proves nothing: other models make it too, and some models make shorter vectors on request. Only comparing vectors does
(`jobs/embedder_match.py`).

Source: the models' cards and their makers' pages, read 2026-11.
"""

from __future__ import annotations

from collections.abc import Mapping

PACKAGED_DIMENSION = 384
"""Of all-MiniLM-L6-v2, in both forms that ship with the workbench."""
KNOWN_MODELS: Mapping[int, tuple[str, ...]] = {
    256: ("model2vec's potion-base-8M",),
    384: ("all-MiniLM-L6-v2", "bge-small-en-v1.5", "multilingual-e5-small"),
    512: ("distiluse-base-multilingual-cased-v2", "potion-retrieval-32M"),
    768: ("nomic-embed-text", "all-mpnet-base-v2", "bge-base-en-v1.5", "embeddinggemma"),
    1024: ("bge-m3", "mxbai-embed-large", "multilingual-e5-large", "qwen3-embedding:0.6b"),
    1536: ("OpenAI's text-embedding-3-small", "OpenAI's text-embedding-ada-002"),
    2560: ("qwen3-embedding:4b",),
    3072: ("OpenAI's text-embedding-3-large", "Google's gemini-embedding-001"),
    4096: ("qwen3-embedding:8b",),
}


def candidates(dimension: int) -> str:
    """A sentence about the models of a dimension, and that no packaged one makes it if so."""
    known = KNOWN_MODELS.get(dimension, ())
    packaged = "" if dimension == PACKAGED_DIMENSION else f"no packaged embedder makes {dimension:,} numbers"
    named = f"{', '.join(known)} do, among others" if known else "no common model is known to make them"
    if not packaged:
        return f"models that make {dimension:,} numbers: {', '.join(known)}, among others"
    return f"{packaged}; {named}"
