"""Chunks: the pieces in which a long memory is searched, by one of five rules.

    whole      none: a memory is searched as one text, and an embedder does not read what is past its limit
    embedder   of a memory that is longer than the embedder reads: windows that it reads whole, each with the memory's title
               before it, overlapping by 15 %, cut between words; for one on a server, cl100k tokens stand for its own, and two thirds
               of its limit are used, or of 256 where it says none
    cems       of every memory: 800 cl100k tokens of its content, a step of 680 while the start is inside the text; one chunk when it fits
    qmd        of every memory: about 900 tokens with an overlap of 135, cut at the best markdown break of the last 200, title before it
    openclaw   of a memory of more than 1,600 characters: whole lines up to that many, the last lines of up to 320 again in the next piece

A chunk's text is a part of the memory's content, and `start` where it begins there, in characters. Under `cems` a chunk may begin or end
within a character, whose place U+FFFD then takes, as in CEMS.

QMD estimates 3 characters a token first (2,700 characters, overlap 405, window 600) and splits again what still has more than 900 tokens
of its embedder; cl100k counts stand for that embedder's here. A break scores base * (1 - 0.7 * (distance / window)²), the best one wins.

OpenClaw's pieces are of the content with a line end after it; a longer line is parted at 1,600 characters, and a piece that has the end of
one part and the next has a line end between them. It counts characters of Chinese, Japanese and Korean more than once, and cuts entries of
MEMORY.md apart, which is not done here.

Source: CEMS 0.9.3, src/cems/chunking.py; OpenClaw 2026.9.6 of npm (400 tokens of 4 characters, overlap 80);
QMD (github tobi/qmd at dbfd0b4, MIT), src/store.ts: scanBreakPoints, findBestCutoff and
chunkDocumentByTokens, without its cuts along the syntax tree of source files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from cems_workbench.models import tokens
from cems_workbench.models.protocol import Embedder
from cems_workbench.records import ChunkRule, titled

VERSION = "1"
"""Raise it when a rule's chunks change: stores are then chunked again at their next refresh."""

CEMS_TOKENS, CEMS_STEP = 800, 680
QMD_TOKENS = 900
QMD_CHARS, QMD_OVERLAP, QMD_WINDOW = QMD_TOKENS * 3, 135 * 3, 200 * 3
QMD_DECAY = 0.7
OPENCLAW_CHARS, OPENCLAW_OVERLAP = 1600, 320
OVERLAP_SHARE = 0.15
"""Of a window, what the next one has of it too."""

DEFAULT_TOKEN_LIMIT = 256
"""Assumed token limit of an embedder that does not report one: that of all-MiniLM-L6-v2; others in use have no lower one."""
CL100K_SHARE = 2 / 3
"""Of a limit, the cl100k tokens that fit where the embedder's own are not known: of 3,000 windows of 170, in prose and code, 3 had more
than 254 wordpieces of all-MiniLM-L6-v2."""
NO_LIMIT = (
    f"the embedder does not say how much of a text it reads: {DEFAULT_TOKEN_LIMIT} tokens are assumed "
    "(CEMS_WORKBENCH_EMBEDDING_LIMIT is for an openai: embedder that reads more)"
)
_NO_END = 2**62
MAX_UTF8_BYTES = 4
"""Of a character in UTF-8, at most; a token has one of them at least."""

Span = tuple[int, int]
"""Where a piece of a text begins and ends, in characters."""


@runtime_checkable
class LimitedEmbedder(Protocol):
    """An embedder that says how much of a text it reads."""

    @property
    def room(self) -> int:
        """How many tokens of a text it reads; special ones are not among them."""
        ...

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Character offsets of each token of each text, in order; texts are not truncated."""
        ...

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether it has more tokens than `room`."""
        ...


@runtime_checkable
class StatesLimit(Protocol):
    """An embedder on a server that may say how much of a text it reads, but not where its tokens are."""

    def token_limit(self) -> int | None:
        """Its token limit; None if the server does not report one. Raises ModelError if the request fails."""
        ...


@dataclass(frozen=True, slots=True)
class CountedByCl100k:
    """`LimitedEmbedder` for an embedder with an unknown tokenizer."""

    room: int

    def spans(self, texts: Sequence[str]) -> list[list[Span]]:
        """Character offsets of each cl100k token of each text."""
        return [tokens.spans(text) for text in texts]

    def truncated(self, texts: Sequence[str]) -> list[bool]:
        """For each text, whether it has more cl100k tokens than `room`."""
        return [len(tokens.encode(text)) > self.room for text in texts]


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk of a text: where it begins there, and its own text."""

    start: int
    text: str


@dataclass(frozen=True, slots=True)
class Cutter:
    """A rule, ready to cut.

    `label` names all that its chunks depend on; chunks of another label are made again. A memory of `over` characters or fewer, its title
    with them, has none. `titled` says whether a chunk is searched with the
    memory's title before it. `cut` gives the chunks of (title, content): none when the memory is searched whole. `note` says what it
    cannot do.
    """

    rule: ChunkRule
    label: str
    over: int
    titled: bool
    cut: Callable[[Sequence[tuple[str | None, str]]], list[list[Piece]]]
    note: str = ""


def cutter(rule: ChunkRule, embedder: Embedder) -> Cutter:
    """The rule for memories that `embedder` will embed."""
    if rule == "cems":
        return Cutter(rule, f"cems/{VERSION}", 0, False, lambda texts: [cems_pieces(content) for _, content in texts])
    if rule == "qmd":
        return Cutter(rule, f"qmd/{VERSION}", 0, True, lambda texts: [qmd_pieces(content) for _, content in texts])
    if rule == "openclaw":
        return Cutter(
            rule,
            f"openclaw/{VERSION}",
            OPENCLAW_CHARS - 2,
            False,
            lambda texts: [openclaw_pieces(content) for _, content in texts],
        )
    if rule == "whole":
        return Cutter(rule, "whole", _NO_END, False, lambda texts: [[] for _ in texts])
    if isinstance(embedder, LimitedEmbedder):
        return _by_tokens(embedder, embedder.model_id, embedder.room)
    stated = embedder.token_limit() if isinstance(embedder, StatesLimit) else None
    counted = CountedByCl100k(int((stated or DEFAULT_TOKEN_LIMIT) * CL100K_SHARE))
    return _by_tokens(counted, embedder.model_id, counted.room // MAX_UTF8_BYTES, "" if stated else NO_LIMIT)


def _by_tokens(limited: LimitedEmbedder, model_id: str, over: int, note: str = "") -> Cutter:
    label = f"embedder/{VERSION}: {model_id}, {limited.room}"
    return Cutter("embedder", label, over, True, lambda texts: embedder_pieces(texts, limited), note)


def cems_pieces(content: str) -> list[Piece]:
    """The chunks CEMS makes of a document; none of a blank one."""
    if not content.strip():
        return []
    ids = tokens.encode(content)
    if len(ids) <= CEMS_TOKENS:
        return [Piece(0, content)]
    ends = np.cumsum([0, *tokens.lengths(ids)])
    # The bytes that begin a character: those before and at a byte, less one, are the number of the character it belongs to.
    begins = np.cumsum((np.frombuffer(content.encode("utf-8", "replace"), np.uint8) & 0xC0) != 0x80)
    return [
        Piece(int(begins[ends[at]]) - 1, tokens.decode(ids[at : at + CEMS_TOKENS]))
        for at in range(0, len(ids), CEMS_STEP)
    ]


def embedder_pieces(texts: Sequence[tuple[str | None, str]], embedder: LimitedEmbedder) -> list[list[Piece]]:
    """Per (title, content) the windows that fit the embedder together with the title; none where it reads the whole."""
    found: list[list[Piece]] = [[] for _ in texts]
    room = embedder.room
    wholes = [titled(title, content) for title, content in texts]
    # A token has a byte at least, so a text of no more bytes than that fits.
    long = [i for i, whole in enumerate(wholes) if len(whole.encode("utf-8", "replace")) > room]
    # All at once: a tokenizer shares a list among the cores.
    for i, cut in zip(long, embedder.truncated([wholes[i] for i in long]), strict=True):
        if cut:
            title, content = texts[i]
            (inside,) = embedder.spans([content])
            head = len(embedder.spans([titled(title, "")])[0]) if title else 0
            # A title that would take more than half is truncated; content is always embedded in full.
            found[i] = list(_windows(content, inside, room - min(head, room // 2), embedder))
    return found


def _windows(content: str, spans: Sequence[Span], room: int, embedder: LimitedEmbedder) -> Iterator[Piece]:
    """Windows of at most `room` tokens, each token in one at least; they begin and end between words where that is near."""
    overlap = int(room * OVERLAP_SHARE)
    first = 0
    while True:
        last = _break_before(spans, min(first + room, len(spans)), first + room // 2)
        while True:
            begin = spans[first][0] if first else 0
            end = max(spans[last][0], spans[last - 1][1]) if last < len(spans) else len(content)
            # A word may be tokenized differently when it is cut out of its text.
            excess = len(embedder.spans([content[begin:end]])[0]) - room
            if excess <= 0 or last - first <= 1:
                break
            last = max(first + 1, last - excess)
        yield Piece(begin, content[begin:end])
        if last >= len(spans):
            return
        first = max(first + 1, _break_before(spans, max(first + 1, last - overlap), first + 1))


def _break_before(spans: Sequence[Span], place: int, least: int) -> int:
    """The last place from `place` back to `least` that has white space before it; `place` itself when there is none, or at the end."""
    if place >= len(spans):
        return len(spans)
    for at in range(place, max(least, 1) - 1, -1):
        if spans[at][0] > spans[at - 1][1]:
            return at
    return place


_BREAKS: tuple[tuple[re.Pattern[str], int], ...] = (
    *((re.compile(rf"\n#{{{level}}}(?!#)"), 110 - 10 * level) for level in range(1, 7)),
    (re.compile(r"\n```"), 80),
    (re.compile(r"\n(?:---|\*\*\*|___)\s*\n"), 60),
    (re.compile(r"\n\n+"), 20),
    (re.compile(r"\n[-*]\s"), 5),
    (re.compile(r"\n\d+\.\s"), 5),
    (re.compile(r"\n"), 1),
)


def qmd_pieces(content: str) -> list[Piece]:
    """The chunks QMD makes of a document, by cl100k counts; none of a blank one."""
    if not content.strip():
        return []
    rough = _qmd_spans(content, QMD_CHARS, QMD_OVERLAP, QMD_WINDOW)
    return [Piece(*piece) for start, end in rough for piece in _within_tokens(content, start, end)]


def openclaw_pieces(content: str) -> list[Piece]:
    """The pieces OpenClaw makes of a note; none where it is one piece."""
    found: list[list[Span]] = [[]]  # the lines, or parts of one, of each piece
    for at, line in _lines(content if content.endswith("\n") else content + "\n"):
        own = found[-1]
        if own and sum(end - start + 1 for start, end in own) + line + 1 > OPENCLAW_CHARS:
            found.append(own := _last_lines(own, min(OPENCLAW_OVERLAP, max(0, OPENCLAW_CHARS - line - 1))))
        own.append((at, at + line))
    pieces = [Piece(own[0][0], "\n".join(content[start:end] for start, end in own).removesuffix("\n")) for own in found]
    return pieces if len(found) > 1 else []


def _lines(text: str) -> Iterator[tuple[int, int]]:
    """(start, length) of each line, of a long one of each part."""
    at = 0
    for line in text.split("\n"):
        for start in range(0, max(1, len(line)), OPENCLAW_CHARS):
            yield at + start, len(line[start : start + OPENCLAW_CHARS])
        at += len(line) + 1


def _last_lines(lines: Sequence[Span], most: int) -> list[Span]:
    """The last of these lines that have `most` characters with their line ends; the end of the very last where it alone is longer."""
    kept: list[Span] = []
    for start, end in reversed(lines):
        if end - start + 1 > most:
            return kept if kept or most < 2 else [(end - (most - 1), end)]
        kept.insert(0, (start, end))
        most -= end - start + 1
        if most <= 0:
            break
    return kept


def _within_tokens(content: str, start: int, end: int) -> Iterator[tuple[int, str]]:
    """The part itself, or smaller parts of it, none of more than QMD_TOKENS tokens."""
    text = content[start:end]
    size = len(tokens.encode(text))
    if size <= QMD_TOKENS or len(text) <= 1:
        yield start, text
        return
    per_token = len(text) / size
    most = max(1, min(len(text) - 1, int(QMD_TOKENS * per_token * 0.95)))
    overlap = min(most - 1, int(QMD_OVERLAP * per_token / 2))
    parts = _qmd_spans(text, most, max(0, overlap), int(QMD_WINDOW * per_token / 2))
    if len(parts) <= 1 or parts[0] == (0, len(text)):
        parts = _qmd_spans(text, max(1, len(text) // 2), 0, 0)
    for begin, stop in parts:
        yield from _within_tokens(content, start + begin, start + stop)


def _qmd_spans(text: str, most: int, overlap: int, window: int) -> list[Span]:
    """Parts of at most `most` characters, each cut at the best break of its last `window` characters."""
    if len(text) <= most:
        return [(0, len(text))]
    breaks, fences = _breaks(text), _fences(text)
    spans: list[Span] = []
    start = 0
    while True:
        end = min(start + most, len(text))
        if end < len(text):
            cut = _cutoff(breaks, fences, end, window)
            end = cut if start < cut <= end else end
        spans.append((start, end))
        if end >= len(text):
            return spans
        start = end - overlap if end - overlap > start else end


def _breaks(text: str) -> list[tuple[int, int]]:
    """(position, score) of every place where markdown breaks, by position; of several at one place the best."""
    # The best one comes last, and stays.
    found = ((match.start(), score) for pattern, score in reversed(_BREAKS) for match in pattern.finditer(text))
    return sorted(dict(found).items())


def _fences(text: str) -> list[Span]:
    """The code blocks between ``` marks; an unclosed one extends to the end."""
    marks = [match.span() for match in re.finditer(r"\n```", text)]
    closed = [(marks[i][0], marks[i + 1][1]) for i in range(0, len(marks) - 1, 2)]
    return [*closed, (marks[-1][0], len(text))] if len(marks) % 2 else closed


def _cutoff(breaks: Sequence[tuple[int, int]], fences: Sequence[Span], target: int, window: int) -> int:
    """The best break of the `window` characters before `target`, outside code blocks; `target` when there is none."""
    best, place = -1.0, target
    for position, score in breaks:
        if target - window <= position <= target and not any(low < position < high for low, high in fences):
            distance = (target - position) / window if window else 0.0
            value = score * (1 - QMD_DECAY * distance * distance)
            if value > best:
                best, place = value, position
    return place
