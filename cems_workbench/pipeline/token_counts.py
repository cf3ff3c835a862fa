"""cl100k tokens of candidates, counted when a config asks for them: most count characters, and the encoding takes long to load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cems_workbench.records import Chunk, Memory


class TokenCounts(Mapping[str, tuple[int, ...]]):
    """By memory id the cl100k tokens of its content, then of each of its chunks. It is pickled as a dict of the counts."""

    def __init__(self, memories: Mapping[str, Memory], chunks: Mapping[str, Sequence[Chunk]]) -> None:
        self._memories, self._chunks = memories, chunks

    def __getitem__(self, memory_id: str) -> tuple[int, ...]:
        from cems_workbench.models import tokens

        texts = (self._memories[memory_id].content, *(chunk.text for chunk in self._chunks.get(memory_id, ())))
        return tuple(map(tokens.count, texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self._memories)

    def __len__(self) -> int:
        return len(self._memories)

    def __eq__(self, other: object) -> bool:
        return dict(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[type, tuple[dict[str, tuple[int, ...]]]]:
        return dict, (dict(self),)
