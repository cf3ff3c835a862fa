"""Pieces of a memory that other systems embed or index instead of its text as searched.

    plain_text  the text as searched without Markdown signs (the memory agent's messages)
    object      the title, or the content of a memory without one
    fact        “author category object.”, with the content as evidence if the object is the title (the memory agent's facts)

Source: docs/internals/specification.md, "lists".

Vectors of a piece of each memory, for a vector list that embeds something else than the text as searched.

They are made at the first search and kept in a file of the store by the digest of their text, so that only new texts are embedded.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cems_workbench.models.protocol import Float32
from cems_workbench.pipeline.resources import Resources
from cems_workbench.platform.atomic_write import write_atomically
from cems_workbench.records import Memory
from cems_workbench.store import text_rule
from cems_workbench.store.search.entries import ChunkHits
from cems_workbench.store.text_rule import searched_text

_FENCED, _LINK = re.compile(r"```.*?```", re.DOTALL), re.compile(r"\[([^\]]*)\]\([^)]*\)")
_QUOTED = re.compile(r"^\s*>\s?", re.MULTILINE)


def without_markdown(text: str) -> str:
    """The text without fenced code, link targets, the signs ` * _ ~~, and > before a quoted line; blanks collapsed."""
    text = _LINK.sub(r"\1", _QUOTED.sub("", _FENCED.sub(" ", text))).replace("~~", "")
    return " ".join(re.sub(r"[`*_]", "", text).split())


def fact(memory: Memory) -> str:
    """A memory as the memory agent writes a fact."""
    relation = re.sub("[_-]", " ", memory.category or "").lower()
    said = " ".join(word for word in (memory.author, relation, memory.title or memory.content) if word)
    said = said if said.endswith(".") else f"{said}."
    evidence = f"{memory.author}: {memory.content}" if memory.author else memory.content
    return f"{said} Evidence: {evidence}" if memory.title else said


def _stored(read: Callable[[Memory], str]) -> Callable[[Memory, str], str | None]:
    return lambda memory, text: read(memory) or None


PIECES: Mapping[str, Callable[[Memory, str], str | None]] = {
    "text": lambda memory, text: text,
    "plain_text": lambda memory, text: without_markdown(text),
    "object": lambda memory, text: memory.title or memory.content,
    "fact": lambda memory, text: fact(memory),
    **{name: _stored(read) for name, read in text_rule.PIECES.items()},
}
"""Each piece by name, made of a memory and its text as searched."""
OF_TEXT = frozenset({"text", "plain_text"})
"""Pieces that a chunk has; the others are of the whole memory."""


@dataclass(frozen=True, slots=True)
class PieceVectors:
    """Unit vectors, a row per memory, in the order of the ids; memories that lack the piece are absent."""

    ids: tuple[str, ...]
    vectors: Float32

    def nearest(self, query: Float32) -> ChunkHits:
        """(id, cosine, None) of every memory, best first, ties by id; exact."""
        cosines = (self.vectors @ query).tolist() if self.ids else []
        return [(key, score, None) for score, key in sorted(zip(cosines, self.ids, strict=True), key=_best_first)]


def _best_first(pair: tuple[float, str]) -> tuple[float, str]:
    return -pair[0], pair[1]


def piece_vectors(resources: Resources, piece: str) -> PieceVectors:
    """The vectors of a piece (`PIECES`) of every memory in the store, by its embedder. Raises ModelError."""
    return resources.derived(("piece vectors", piece, resources.embedder.model_id), lambda: _made(resources, piece))


def _made(resources: Resources, piece: str) -> PieceVectors:
    memories = resources.store.memories.read()
    rule = resources.store.texts.rule
    texts = {key: PIECES[piece](memory, searched_text(memory, rule)) for key, memory in memories.items()}
    digests = {key: hashlib.sha256(text.encode()).hexdigest() for key, text in texts.items() if text}
    model = hashlib.sha256(resources.embedder.model_id.encode()).hexdigest()[:12]
    file = resources.store.path / f"vectors_{piece}_{model}.npz"
    kept = _read(file)
    missing = {digest: texts[key] or "" for key, digest in digests.items() if digest not in kept}
    if missing:
        kept |= dict(zip(missing, resources.embedder.encode(list(missing.values())), strict=True))
        kept = {digest: kept[digest] for digest in dict.fromkeys(digests.values())}
        with suppress(OSError), write_atomically(file) as part, part.open("wb") as place:
            np.savez(place, digests=np.array(list(kept)), vectors=np.stack(list(kept.values())))
    ids = tuple(sorted(digests))
    vectors = np.stack([kept[digests[key]] for key in ids]) if ids else np.zeros((0, 1), np.float32)
    return PieceVectors(ids, vectors)


def _read(file: Path) -> dict[str, Float32]:
    """Digest → vector; empty if there is no readable file."""
    try:
        with np.load(file, allow_pickle=False) as kept:
            return dict(zip(kept["digests"].tolist(), kept["vectors"].astype(np.float32), strict=True))
    except (OSError, ValueError, KeyError, EOFError):
        return {}
