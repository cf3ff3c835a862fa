"""How much of a memory a model read: where its chunk stands in the whole text, and where its room for tokens ended.

A chunk is a stretch of the content; `seed_overlap` puts a ". " back at its end, which the content may not have there. A model cuts a
text after its last token; the cut is named here as the end of the last whole word before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from cems_workbench.models.embedder import SentenceTransformerEmbedder
from cems_workbench.models.protocol import QueryEmbedder

_WORDS = re.compile(r"\S+")
_JOINT = ". "
"""What `seed_overlap` splits at, and joins with."""


@dataclass(frozen=True, slots=True)
class Room:
    """How many tokens a model reads of a text, and how it counts them."""

    tokens: int
    count: Callable[[str], int]


def embedder_room(embedder: QueryEmbedder) -> Room | None:
    """What the embedder, and late interaction over it, reads of one text; None for one on a server, which does not say."""
    if not isinstance(embedder, SentenceTransformerEmbedder):
        return None
    special = 2  # [CLS] and [SEP] take their room
    return Room(int(embedder.model.max_seq_length) - special, lambda text: len(embedder.wordpieces([text])[0]))


def chunk_place(content: str, chunk: str) -> tuple[int, int] | None:
    """(start, end) of the chunk in the content; None when it is not from this content."""
    for joint in ("", _JOINT[0], _JOINT):
        if chunk.endswith(joint):
            text = chunk[: len(chunk) - len(joint)]
            start = content.find(text)
            if start >= 0:
                return start, start + len(text)
    return None


def read_until(text: str, room: Room) -> int | None:
    """The end of the last whole word that fits the room; None when all of the text does."""
    if room.count(text) <= room.tokens:
        return None
    ends = [word.end() for word in _WORDS.finditer(text)]
    fits, past = 0, len(ends)
    while past - fits > 1:  # the first `fits` words fit, the first `past` do not
        middle = (fits + past) // 2
        if room.count(text[: ends[middle - 1]]) <= room.tokens:
            fits = middle
        else:
            past = middle
    return ends[fits - 1] if fits else 0
