"""A bundle without its texts that replays with the same numbers.

Replaced: contents, titles, tags, sources, queries and variants, what a model read (word by word, see `Pseudonyms`); the names of
projects, sessions, authors and memories (numbered; memories in the order of their ids, which settles ties; a project still begins with
the query's where it did); vectors, by coordinates with the same angles between them, in which no text can be looked up.

Kept, because replay reads it: dates and counts; importance and priority; categories, to which half-lives are given by name; the words
of the query that a detector looks for, in their place; scores and the names of models; the gather parameters, which are compared
with the config's. Of live lists: the kind of system, the time of the request and the number of rows. Of messages
and of a model's further output only what is not in the texts. Notes that replay does not know are left out.

Words replaced by others of the same length, the same for the same word, so that what is counted in a text stays the same.

A word is what the diversity of `assembly` compares: a run of [a-z0-9] in the lower-cased text. Its pseudonym is drawn by SHAKE-256
from a secret key and the word, and drawn again until no other word has it and no word of the texts reads so. Letters of other
alphabets become Greek ones; everything else (spaces, punctuation, emoji) stays, and so does the length of the text.

Pseudonyms of four characters and more have no vowel, so that none of them contains a word that the detectors look for.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import shake_256
from itertools import chain, count, product
from typing import Any

import numpy as np

from cems_workbench.config.sections import Detectors
from cems_workbench.pipeline.evidence import GRAPH, QUESTIONS, Evidence, ModelScore, RankedList
from cems_workbench.pipeline.list_sources import SOURCES, without_source
from cems_workbench.pipeline.missing_evidence import LEFT_OUT
from cems_workbench.pipeline.recorded import NOT_RETURNED, RECORDED
from cems_workbench.pipeline.stages.query import cuts_a_word, detect
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.pipeline.table import Floats
from cems_workbench.records import PROJECT_REFERENCE, Chunk, Memory, RecordedList, RecordedStages, Relation, Scored

EVERY = "abcdefghijklmnopqrstuvwxyz0123456789"
NO_VOWELS = "bcdfghjklmnpqrstvwxz0123456789"
GREEK = "βγδζθκλμνξπρτφχψ"
MIN_TELLING_CHARS = 4
"""From this length on a word says something; shorter ones are replaced too, but may come to read like another of the texts."""

_DOTTED = "\u0130"  # İ, the one letter whose lower case is two characters: an i, which ends the word, and a dot above
_ASCII = "A-Za-z0-9\u212a"  # the Kelvin sign is a k in lower case
RUN = re.compile(rf"[{_ASCII}]*{_DOTTED}|[{_ASCII}]+|(?:(?![{_ASCII}{_DOTTED}])[^\W_])+")


class Pseudonyms:
    """The pseudonyms of every word in some texts."""

    def __init__(self, key: bytes, texts: Iterable[str]) -> None:
        """`texts` are all that will be replaced; the words cannot be recovered without the key."""
        self._key = key
        self._short: dict[int, list[str]] = {}
        dotted: set[str] = set()
        self.words: set[str] = set()
        for text in texts:
            for run in RUN.findall(text):
                self.words.add(_word(run))
                if run.endswith(_DOTTED):
                    dotted.add(_word(run))
        self._taken: set[str] = set()
        self._of = {word: self._drawn(word, "i") for word in sorted(dotted)}
        self._of |= {word: self._drawn(word) for word in sorted(self.words - dotted)}

    def text(self, text: str) -> str:
        """The text with every word replaced; of the same length, with the same words in common with other texts."""
        return RUN.sub(lambda found: self._replaced(found[0]), text)

    def message(self, text: str) -> str:
        """The text with the meaningful words of the texts replaced; for messages of this program."""
        known = self._of
        return RUN.sub(
            lambda found: known.get(_word(found[0]), found[0]) if len(found[0]) >= MIN_TELLING_CHARS else found[0], text
        )

    def fragment(self, text: str) -> str:
        """A piece of a word, replaced regardless of the words that contain it."""
        return RUN.sub(lambda found: self._letters(found[0], 0, NO_VOWELS if _is_ascii(found[0]) else GREEK), text)

    def _replaced(self, run: str) -> str:
        pseudonym = self._of[_word(run)]
        return pseudonym[:-1] + _DOTTED if run.endswith(_DOTTED) else pseudonym

    def _drawn(self, word: str, last: str = "") -> str:
        """The first candidate that nothing else reads; for a word of one letter perhaps the word itself, when all are taken."""
        for candidate in self._candidates(word, last):
            taken = candidate in self._taken or (len(word) >= MIN_TELLING_CHARS and candidate in self.words)
            if not taken and (candidate != word or len(word) < 2):
                self._taken.add(candidate)
                return candidate
        self._taken.add(word)
        return word

    def _candidates(self, word: str, last: str) -> Iterator[str]:
        length = len(word) - len(last)
        if not _is_ascii(word):
            yield from (self._letters(word, turn, GREEK) for turn in count())
        elif length <= 2:
            yield from (candidate + last for candidate in self._shuffled(length))
        else:
            alphabet = NO_VOWELS if len(word) >= MIN_TELLING_CHARS else EVERY
            yield from (self._letters(word[:length], turn, alphabet) + last for turn in count())

    def _shuffled(self, length: int) -> list[str]:
        """Every string of one or two characters (or none), in an order that the key decides; words take them in turn."""
        if length not in self._short:
            every = ("".join(letters) for letters in product(EVERY, repeat=length))
            self._short[length] = sorted(every, key=lambda candidate: self._digest(candidate, 8))
        return self._short[length]

    def _letters(self, word: str, turn: int, alphabet: str) -> str:
        return "".join(alphabet[byte % len(alphabet)] for byte in self._digest(f"{turn} {word}", len(word)))

    def _digest(self, text: str, length: int) -> bytes:
        return shake_256(self._key + text.encode("utf-8", "surrogatepass")).digest(length)


def _word(run: str) -> str:
    """The word that a run reads as in the lower-cased text. Other alphabets stay case-sensitive, because nothing compares them."""
    return run[:-1].lower() + "i" if run.endswith(_DOTTED) else run.lower() if _is_ascii(run) else run


def _is_ascii(run: str) -> bool:
    return run[0].isascii() or run[0] in ("\u212a", _DOTTED)


KEPT_NOTES = ("gathered", "models", "rerankers", "judges", "rerank_scores", "llm", "content_version", "language")

NAMES = frozenset({"route", "complexity", "scale", "backend", "outcome"})
"""Notes with one of a few names of this program."""
MESSAGES = frozenset({"route_reason"})
"""Notes with a message of this program."""

_MODES = tuple(
    Detectors(enabled=True, matching=matching, words=words)
    for words in ("cems", "guide")
    for matching in ("substring", "word")
)
"""The first one's matches include those of all others."""
_NAME = re.compile(r"[a-z]+(_[a-z]+)*")
_LIST_NAME = re.compile(rf"({'|'.join(SOURCES)})(:[0-9]+)?")


def redacted(evidence: Evidence, key: bytes | None = None) -> Evidence:
    """The evidence without its texts. `key` decides the pseudonyms; None draws one that is not stored. Every number
    that replay makes of it, under any config, is the one it makes of `evidence` (vectors to 1e-12)."""
    key = secrets.token_bytes(32) if key is None else key
    for turn in count():
        words = Pseudonyms(key + bytes([turn % 256]), _texts(evidence))
        query = _query(evidence.query, words)
        if _signals(query) == _signals(evidence.query):  # else two short words came to read like a signal: draw again
            return _Redaction(evidence, words, query).evidence()
    raise AssertionError("unreachable")


class _Redaction:
    """The parts of one evidence, replaced."""

    def __init__(self, evidence: Evidence, words: Pseudonyms, query: str) -> None:
        self.source, self.words, self.query = evidence, words, query
        scored = (rows for models in (evidence.model_scores, evidence.judge_scores) for rows in models.values())
        self.ids = numbered(sorted({*evidence.memories, *evidence.embeddings, *chain.from_iterable(scored)}), "m")
        memories = evidence.memories.values()
        self.sessions = numbered(_distinct(memory.session for memory in memories), "s")
        self.authors = numbered(_distinct(memory.author for memory in memories), "a")
        references = [memory.source_ref or "" for memory in memories]
        referred = [text.removeprefix(PROJECT_REFERENCE) for text in references if text.startswith(PROJECT_REFERENCE)]
        self.projects = _projects(evidence.project, _distinct([*(memory.project for memory in memories), *referred]))

    def evidence(self) -> Evidence:
        source = self.source
        return Evidence(
            query=self.query,
            memories={self.ids[key]: self.memory(memory) for key, memory in source.memories.items()},
            variants=tuple(replace(variant, text=self.searched(variant.text)) for variant in source.variants),
            lists=tuple(self.ranked(i, ranked) for i, ranked in enumerate(source.lists)),
            as_of=source.as_of,
            project=None if source.project is None else self.projects[source.project],
            model_scores=self.scores(source.model_scores),
            judge_scores=self.scores(source.judge_scores),
            embeddings=self.embeddings(),
            chunks={self.ids[key]: tuple(map(self.chunk, chunks)) for key, chunks in source.chunks.items()},
            relations=tuple(map(self.relation, source.relations)),
            tokens={self.ids[key]: counts for key, counts in source.tokens.items()},
            notes=self.notes(),
        )

    def memory(self, memory: Memory) -> Memory:
        return replace(
            memory,
            id=self.ids[memory.id],
            content=self.words.text(memory.content),
            title=None if memory.title is None else self.words.text(memory.title),
            project=None if memory.project is None else self.projects[memory.project],
            session=None if memory.session is None else self.sessions[memory.session],
            author=None if memory.author is None else self.authors[memory.author],
            tags=tuple(self.words.text(tag) for tag in memory.tags),
            importance="high" if memory.importance == "high" else "normal",
            scope="shared" if memory.scope == "shared" else "personal",
            source_ref=self.reference(memory.source_ref),
        )

    def reference(self, text: str | None) -> str | None:
        """A source reference; one to a project keeps its form, and begins with the query's project where it did."""
        if text is not None and text.startswith(PROJECT_REFERENCE):
            return PROJECT_REFERENCE + self.projects[text.removeprefix(PROJECT_REFERENCE)]
        return None if text is None else self.words.text(text)

    def chunk(self, chunk: Chunk) -> Chunk:
        return replace(chunk, memory_id=self.ids[chunk.memory_id], text=self.words.text(chunk.text))

    def relation(self, relation: Relation) -> Relation:
        source, target = self.ids[relation.source_id], self.ids[relation.target_id]
        return replace(relation, source_id=source, target_id=target, kind=self.words.text(relation.kind))

    def searched(self, text: str) -> str:
        return self.query if text == self.source.query else self.words.text(text)

    def ranked(self, i: int, ranked: RankedList) -> RankedList:
        name = ranked.name if _LIST_NAME.fullmatch(ranked.name) else f"{ranked.source}-{i}"
        return replace(
            ranked, name=name, hits=tuple(replace(hit, memory_id=self.ids[hit.memory_id]) for hit in ranked.hits)
        )

    def scores(self, models: Mapping[str, Mapping[str, ModelScore]]) -> dict[str, dict[str, ModelScore]]:
        return {
            model: {self.ids[key]: self.score(score) for key, score in rows.items()} for model, rows in models.items()
        }

    def score(self, score: ModelScore) -> ModelScore:
        detail = {
            name: self.note(name, value)
            for name, value in (score.detail or {}).items()
            # Strings of a model's output may repeat the text; only known names pass.
            if isinstance(value, int | float) or value is None or (name in NAMES and isinstance(value, str))
        }
        return ModelScore(
            raw=score.raw,
            chunk=None if score.chunk is None else self.words.text(score.chunk),
            error=None if score.error is None else self.words.message(score.error),
            detail=detail or None,
        )

    def embeddings(self) -> dict[str, list[float]]:
        """Coordinates in the space that the vectors span: X = R'Q' of a QR decomposition, of which R' is kept."""
        source = self.source.embeddings
        if not source:
            return {}
        ids = sorted(source)
        # R alone keeps every dot product, thus every cosine, without the axes that an embedder's vectors share.
        triangle: Floats = np.linalg.qr(np.array([source[key] for key in ids], dtype=np.float64).T, mode="r")  # type: ignore[assignment]
        return {self.ids[key]: triangle[:, i].tolist() for i, key in enumerate(ids)}

    def notes(self) -> dict[str, Any]:
        source = self.source.notes
        kept: dict[str, Any] = {name: source[name] for name in KEPT_NOTES if name in source}
        if "gathered" in kept:
            kept["gathered"] = {path: value for path, value in kept["gathered"].items() if path not in LEFT_OUT}
        kept |= {name: self.note(name, source[name]) for name in ("query", "expansion") if name in source}
        if self.source.questions:
            questions = self.source.questions.items()
            kept[QUESTIONS] = {self.ids[key]: self.words.text(text) for key, text in questions if key in self.ids}
        for name, own in source.get(GRAPH, {}).items():
            ranks = {self.ids[key]: rank for key, rank in own.items() if key in self.ids}
            kept.setdefault(GRAPH, {})[name] = ranks
        if SUPERSEDED in source:
            # Without the people who accepted edges.
            kept[SUPERSEDED] = {
                self.ids[key]: [replace(one, memory_id=self.ids[one.memory_id], author=None).to_json() for one in own]
                for key, own in self.source.superseded.items()
            }
        if self.source.recorded is not None:
            kept[RECORDED] = self.recorded(self.source.recorded).to_json()
        if "engine" in source:
            kept["engine"] = without_source(source["engine"])
        if "warnings" in source:
            kept["warnings"] = {
                stage: [self.words.message(str(line)) for line in lines] for stage, lines in source["warnings"].items()
            }
        return kept

    def recorded(self, recorded: RecordedStages) -> RecordedStages:
        """The recorded stages with the new ids; names of lists, of stages and reasons are texts of the traced pipeline."""

        def scored(hits: Scored) -> Scored:
            return tuple((self.ids[key], score) for key, score in hits)

        lists = tuple(RecordedList(f"list-{i}", scored(one.hits)) for i, one in enumerate(recorded.lists))
        stages = tuple(
            replace(
                stage,
                name=f"{stage.kind}-{i}",
                output=scored(stage.output),
                input=None if stage.input is None else scored(stage.input),
                dropped={self.ids[key]: (NOT_RETURNED, cut) for key, (_, cut) in stage.dropped.items()},
            )
            for i, stage in enumerate(recorded.stages)
        )
        kept = None if recorded.kept is None else frozenset(self.ids[key] for key in recorded.kept)
        return RecordedStages(lists, stages, kept)

    def note(self, name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self.note(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.note(name, item) for item in value]
        if not isinstance(value, str) or (name in NAMES and _NAME.fullmatch(value)):
            return value
        return self.words.message(value) if name in NAMES | MESSAGES else self.searched(value)


def numbered(names: list[str], prefix: str) -> dict[str, str]:
    """Each name as the prefix and its place, in as many digits as keep the order."""
    # Equal widths keep the order of the ids as strings, which settles ties in replay.
    digits = max(3, len(str(len(names))))
    return {name: f"{prefix}-{place:0{digits}d}" for place, name in enumerate(names, start=1)}


def _distinct(names: Iterable[str | None]) -> list[str]:
    return sorted({name for name in names if name is not None})


def _projects(own: str | None, names: list[str]) -> dict[str, str]:
    """`p` is the query's, `p-n` begins with its name, `o-n` does not; "" is no project and stays empty."""
    begins = [name for name in names if own and name.startswith(own) and name != own]
    others = [name for name in names if name and name != own and name not in begins]
    known = numbered(begins, "p") | numbered(others, "o") | {"": ""}
    return {**known, own: "p"} if own else known


def _query(query: str, words: Pseudonyms) -> str:
    """The query with every word replaced, but for the characters that a detector reads."""
    kept = [(match.start, match.end) for match in detect(query, _MODES[0])]
    if not kept:
        return words.text(query)
    whole = words.text(query)
    read = {place for start, end in kept for place in range(start, end)}
    touched = [place in read for place in range(len(query))]
    parts = []
    for found in re.finditer(r"[^\W_]+|[\W_]+", query):
        start, end = found.span()
        if not any(touched[start:end]):
            parts.append(whole[start:end])
            continue
        for piece in _pieces(touched, start, end):
            text = query[piece.start : piece.stop]
            parts.append(text if touched[piece.start] else words.fragment(text))
    return "".join(parts)


def _pieces(touched: list[bool], start: int, end: int) -> Iterator[range]:
    """The longest ranges of start..end that are read throughout, or not at all."""
    first = start
    for place in range(start + 1, end + 1):
        if place == end or touched[place] != touched[first]:
            yield range(first, place)
            first = place


def _signals(query: str) -> list[tuple[Any, ...]]:
    """What the detectors find in either mode of matching, and where."""
    return [
        (match.detector, match.signal, match.start, match.end, cuts_a_word(query, match))
        for mode in _MODES
        for match in detect(query, mode)
    ]


def _texts(evidence: Evidence) -> Iterator[str]:
    """Every text that is replaced word by word, and the names that are numbered: no pseudonym may read like one of them."""
    yield evidence.query
    yield evidence.project or ""
    yield from (variant.text for variant in evidence.variants)
    for memory in evidence.memories.values():
        yield from (memory.content, memory.title or "", memory.source_ref or "", *memory.tags)
        yield from (memory.id, memory.project or "", memory.session or "", memory.author or "")
    yield from (chunk.text for chunks in evidence.chunks.values() for chunk in chunks)
    yield from (relation.kind for relation in evidence.relations)
    for models in (evidence.model_scores, evidence.judge_scores):
        yield from (score.chunk or "" for rows in models.values() for score in rows.values())
    yield from evidence.questions.values()
    yield from _strings([evidence.notes.get("query"), evidence.notes.get("expansion")])


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(_strings(item) for key, item in value.items() if key not in NAMES | MESSAGES)
    elif isinstance(value, list | tuple):
        yield from chain.from_iterable(_strings(item) for item in value)
