"""cl100k tokens, by which CEMS cuts documents into chunks and fills its answer; of candidates only where a config asks for them.

The ranks travel with the package (weights/cl100k_base), so that nothing asks the network. Text that looks like a special token, such as
"<|endoftext|>", is ordinary text here; CEMS 0.9.3 refuses such a document, because tiktoken's `encode` raises for it.

Source: tiktoken (OpenAI), encoding cl100k_base; CEMS 0.9.3, src/cems/chunking.py.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cems_workbench.records import Chunk, Memory

if TYPE_CHECKING:
    from tiktoken import Encoding


RANKS = Path(__file__).parent / "weights" / "cl100k_base" / "cl100k_base.tiktoken"
CACHE_SIZE = 20_000
"""Number of cached counts: the same memories are candidates of many queries."""
_PATTERN = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"


def encode(text: str) -> list[int]:
    # `encode` raises for text that looks like a special token.
    return _encoding().encode_ordinary(text)


def decode(tokens: Sequence[int]) -> str:
    """The text of cl100k tokens; a character of which they hold only some of the bytes is U+FFFD, as in CEMS."""
    return _encoding().decode(tokens)


@lru_cache(CACHE_SIZE)
def count(text: str) -> int:
    return len(encode(text))


def lengths(tokens: Sequence[int]) -> list[int]:
    """The bytes of UTF-8 that each token stands for."""
    return [len(each) for each in _encoding().decode_tokens_bytes(tokens)]


def spans(text: str) -> list[tuple[int, int]]:
    """(begin, end) in characters of each token, without leading white space. Tokens that share a character both include
    it."""
    # A lone surrogate has no UTF-8; the question mark keeps the number of characters.
    sound = text.encode("utf-8", "replace")
    ends = np.cumsum([0, *lengths(encode(sound.decode()))])
    # The bytes that begin a character: those up to a byte, less one, are the number of the character it belongs to.
    begun = np.cumsum((np.frombuffer(sound, np.uint8) & 0xC0) != 0x80)
    places = [(int(begun[begin]) - 1, int(begun[end - 1])) for begin, end in pairwise(ends)]
    return [(end - len(text[begin:end].lstrip()), end) for begin, end in places]


@cache
def _encoding() -> Encoding:
    from tiktoken import Encoding

    words = RANKS.read_bytes().split()
    ranks = dict(zip(map(binascii.a2b_base64, words[::2]), map(int, words[1::2]), strict=True))
    return Encoding("cl100k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={})


class TokenCounts(Mapping[str, tuple[int, ...]]):
    """By memory id the cl100k tokens of its content, then of each of its chunks. It is pickled as a dict of the counts."""

    def __init__(self, memories: Mapping[str, Memory], chunks: Mapping[str, Sequence[Chunk]]) -> None:
        self._memories, self._chunks = memories, chunks

    def __getitem__(self, memory_id: str) -> tuple[int, ...]:
        texts = (self._memories[memory_id].content, *(chunk.text for chunk in self._chunks.get(memory_id, ())))
        return tuple(map(count, texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self._memories)

    def __len__(self) -> int:
        return len(self._memories)

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type, tuple[dict[str, tuple[int, ...]]]]:
        return dict, (dict(self),)
