"""The part of a memory's text that matches a query: the chunk by which it was found or read, and where its text has search terms.

The chunk that a memory was found by is the one with the best score if the config counts the text that scored best (`assembly.text:
version`), else the one with the best rank in a list that takes part; a reranker reads the one with the best rank in any list, since its
scores serve every config.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log

from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.list_sources import LIST_SOURCES, list_label, ordinal
from cems_workbench.pipeline.scoring import given_chunks
from cems_workbench.pipeline.stages import RERANK
from cems_workbench.pipeline.stages.lists import LISTS, ListEntry
from cems_workbench.records import ENGLISH, Chunk
from cems_workbench.store.search.tokenizer import Language, chunks, normalised, tokenize


def idf(df: int, documents: int) -> float:
    """ln(1 + (N - df + 0.5) / (df + 0.5)): how rare a term is among N memories."""
    return log(1 + (documents - df + 0.5) / (df + 0.5))


@dataclass(frozen=True, slots=True)
class Match:
    """A stretch text[start:end] that yields these search terms."""

    start: int
    end: int
    terms: tuple[str, ...]


def matches(text: str, terms: Collection[str], language: Language = ENGLISH) -> list[Match]:
    """Occurrences of `terms` in `text`, in order, without overlaps: the words and identifiers that yield them. A text
    that NFKC changes is cut at its spaces instead, so that positions are those of the original text."""
    wanted = set(terms)
    pieces: Sequence[str] = chunks(text) if normalised(text) == text else text.split()
    found, at = [], 0
    for piece in pieces:
        start = text.index(piece, at)
        at = start + len(piece)
        met = tuple(dict.fromkeys(term for term in tokenize(piece, language) if term in wanted))
        if met:
            found.append(Match(start, at, met))
    return found


_BY_NAME = {source.name: source for source in LIST_SOURCES}


@dataclass(frozen=True, slots=True)
class FoundChunk:
    """The chunk, of how many, and which list it was found in; `others` are lists that found another one, by its `seq`."""

    chunk: Chunk
    count: int
    list: str
    others: tuple[tuple[str, int], ...] = ()

    @property
    def words(self) -> str:
        """ "2nd of 3 chunks"."""
        return numbered(self.chunk.seq, self.count)

    @property
    def meaning(self) -> str:
        """What the words mean."""
        others = "".join(f"; {list_label(name)} by the {ordinal(seq + 1)}" for name, seq in self.others)
        return f"The memory is searched in {self.count} chunks; {list_label(self.list)} found it by this one{others}"


def found_chunk(trace: Trace, memory_id: str) -> FoundChunk | None:
    """The chunk by which a candidate was found; None for one that was found as a whole, or is in no list that takes part."""
    row = trace.stage(LISTS).by_id.get(memory_id)
    chunks = {chunk.seq: chunk for chunk in trace.evidence.chunks.get(memory_id, ())}
    entries = (
        [entry for entry in row.lists if entry.kept and _finds(entry, trace)] if row is not None and chunks else []
    )
    if not entries:
        return None
    if trace.config.assembly.text == "version":
        best = max(entries, key=lambda entry: entry.normalized or 0.0)
    else:
        best = min(entries, key=lambda entry: entry.rank)
    chunk = None if best.chunk is None else chunks.get(best.chunk)
    if chunk is None:
        return None
    others = tuple(
        (entry.list, entry.chunk) for entry in entries if entry.chunk is not None and entry.chunk != best.chunk
    )
    return FoundChunk(chunk, len(chunks), best.list, others)


def chunks_read(trace: Trace) -> dict[str, int | None]:
    """By id, of the memories with chunks that the reranker scored, the `seq` of the chunk that it read; None for the whole memory."""
    chunks = trace.evidence.chunks
    if not chunks:
        return {}
    given = given_chunks(trace.evidence, trace.config)
    scored = [row.memory_id for row in trace.stage(RERANK).rows if row.outcome == "scored" and row.memory_id in chunks]
    return {memory_id: given[memory_id].seq if memory_id in given else None for memory_id in scored}


def _finds(entry: ListEntry, trace: Trace) -> bool:
    source = _BY_NAME[entry.list.partition(":")[0]]
    version = trace.config.assembly.text == "version" and trace.config.fusion.blend_with == "all"
    return source.relevance if version else source.per_variant


def numbered(seq: int, count: int) -> str:
    """ "2nd of 3 chunks"."""
    return f"{ordinal(seq + 1)} of {count} chunk{'s' if count != 1 else ''}"


def chunk_words(evidence: Evidence, memory_id: str, seq: int | None) -> str:
    """ "2nd of 3 chunks"; empty for a memory that was found as a whole."""
    return "" if seq is None else numbered(seq, max(len(evidence.chunks.get(memory_id, ())), seq + 1))


def chunk_span(content: str, chunk: Chunk) -> tuple[int, int] | None:
    """(start, end) of the chunk in the content, in characters; None if the content does not contain it verbatim."""
    start = chunk.start if chunk.start is not None else content.find(chunk.text)
    end = start + len(chunk.text)
    return (start, end) if start >= 0 and content[start:end] == chunk.text else None
