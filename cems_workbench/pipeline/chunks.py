"""Which part of a memory a reranker reads.

`seed_overlap` follows the CEMS plan to the letter: split on ". ", a query term counts when it is a *substring* of the
sentence, a chunk closes once it is longer than `size` characters and is cut there, the first best wins, none -> the head.
`term_overlap` counts stemmed words without stopwords, keeps sentences whole, and windows a sentence that is longer than
`size` around its matches. `head` is the beginning. `passages` gives the whole text if it fits, otherwise several runs of whole
sentences, each of which is read; the best of their scores is the memory's.

Where the candidates of a query are long (`rerank.brief`), one passage is read of each: `as_read`. Of as many characters, the first passages
of more candidates rank better than more passages of fewer (benchmarks/RESULTS/long_turns.md).

"Yes, last summer!" answers nothing on its own: with `prepend_question` a memory that follows a question in its session is also read with
that question in front of it (`question_at_end` of the memory before it); with `question_for: whole` only one that fits into the chunk size,
since a long answer says itself what it is about.

Source: CEMS plan, `select_best_chunk`; docs/internals/specification.md, "rerank".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections.ranking import RerankConfig
from cems_workbench.pipeline.evidence import Evidence
from cems_workbench.records import ENGLISH, Memory, titled
from cems_workbench.store.search.lexical.tokenizer import tokenize
from cems_workbench.store.text_rule import field_lines

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = re.compile(r"\S+")


def best_chunk(content: str, query: str, size: int, selection: str, language: str = ENGLISH) -> str:
    """The part of `content`, at most `size` characters, that a reranker reads."""
    if selection == "seed_overlap":
        return seed_overlap(content, query, size)
    if selection == "term_overlap":
        return term_overlap(content, query, size, language)
    if selection == "passages":
        return passages(content, query, size, language)[0]
    return content[:size]


def with_fields(text: str, memory: Memory, fields: Sequence[str]) -> str:
    """A text of a memory with the lines and the title before it that `rerank.text_fields` asks for."""
    lines = field_lines(memory, [name for name in fields if name != "title"])
    return lines + titled(memory.title if "title" in fields else None, text)


def without_fields(read: str, memory: Memory, fields: Sequence[str]) -> str:
    """The inverse of `with_fields`: what was read of the content itself."""
    text = read.removeprefix(field_lines(memory, [name for name in fields if name != "title"]))
    title = (memory.title or "").strip()
    if "title" in fields and title and not memory.content.lstrip().startswith(title):
        text = text.removeprefix(f"{title}. ")
    return text


def texts_for_reranker(
    content: str,
    searched: str,
    config: PipelineConfig,
    language: str = ENGLISH,
    question: str = "",
    memory: Memory | None = None,
) -> tuple[str, ...]:
    """The parts of `content` that this config's reranker reads; `searched` is the query as searched.

    It is one, unless the config reads `passages`, or has the first of them read with the `question` that was asked before, too. `memory`
    has the fields that are read with it.
    """
    rerank, query = config.rerank, config.rerank.query or searched
    if rerank.chunk_selection == "passages":
        texts = passages(content, query, rerank.chunk_chars, language)[: rerank.passages]
    else:
        texts = (best_chunk(content, query, rerank.chunk_chars, rerank.chunk_selection, language),)
    if memory is not None and rerank.text_fields:
        texts = tuple(with_fields(text, memory, rerank.text_fields) for text in texts)
    asked = question and reads_question(rerank, content)
    return (*texts, with_question(question, texts[0])) if asked else texts


@lru_cache(maxsize=64)
def briefly(config: PipelineConfig) -> PipelineConfig:
    """The config whose reranker reads in brief what this one's reads."""
    read = {"chunk_chars": config.rerank.brief.chunk_chars, "passages": 1, "question_for": "whole"}
    return config.model_copy(update={"rerank": config.rerank.model_copy(update=read)})


def as_read(config: PipelineConfig, evidence: Evidence) -> PipelineConfig:
    """The config by which a reranker reads the candidates of this evidence."""
    return briefly(config) if evidence.in_brief(config.rerank.brief.long_chars) else config


def reads_question(rerank: RerankConfig, content: str) -> bool:
    """Whether this content is read with the question that it follows, too."""
    return rerank.prepend_question and (rerank.question_for == "every" or len(content) <= rerank.chunk_chars)


_ASKS = re.compile(r"[?？؟](?![\w=&/])|？")
"""A question mark; one in a URL, as in "GET /orders?id=7", does not count."""
QUESTION_MARK_CHARS = 60
"""A text ends with a question whose mark is among so many characters at its end: what follows may be a remark, or a caption."""
MAX_QUESTION_CHARS = 300
"""Characters of a text that are taken for its question: sentences at its end."""


def question_at_end(text: str) -> str:
    """The sentences at the end of a text that ends with a question; empty if it does not."""
    asks = [found.start() for found in _ASKS.finditer(text, max(0, len(text) - QUESTION_MARK_CHARS))]
    if not asks:
        return ""
    most = max(0, len(text) - MAX_QUESTION_CHARS)
    return text[next((start for start, _ in _sentences(text) if most <= start <= asks[-1]), most) :].strip()


def with_question(question: str, text: str) -> str:
    """A text with the question before it, as a reranker reads it."""
    return f"{question}\n{text}"


def without_question(question: str, read: str) -> tuple[str, str]:
    """The inverse of `with_question`: the question, empty if there was none, and the text."""
    before = with_question(question, "")
    return (question, read.removeprefix(before)) if question and read.startswith(before) else ("", read)


def text_for_judge(
    memory: str,
    chunk: str,
    searched: str,
    config: PipelineConfig,
    language: str = ENGLISH,
    record: Memory | None = None,
) -> str:
    """What the judge reads: what the reranker reads first of `chunk`, or the start of the memory if `judge.max_chars` is set.

    `chunk` is what the reranker's text is chosen from (`scoring.given_chunks`): a chunk of the memory, or the memory; `record` has the
    fields that the reranker reads with it.
    """
    if config.judge.max_chars is None:
        return texts_for_reranker(chunk, searched, config, language, memory=record)[0]
    return memory[: config.judge.max_chars]


def seed_overlap(content: str, query: str, size: int) -> str:
    """The chunk with the most query terms, each counted once per sentence that contains it."""
    terms = set(query.lower().split())
    best, best_score = "", 0
    chunk, score = "", 0
    for sentence in content.split(". "):
        lowered = sentence.lower()
        chunk += sentence + ". "
        score += sum(term in lowered for term in terms)
        if len(chunk) > size:
            if score > best_score:
                best, best_score = chunk[:size], score
            chunk, score = "", 0
    if score > best_score:
        best = chunk[:size]
    return best or content[:size]


def term_overlap(content: str, query: str, size: int, language: str = ENGLISH) -> str:
    """The run of whole sentences, at most `size` characters, that covers most distinct query words; first one wins."""
    terms = set(tokenize(query, language))
    pieces = [piece for sentence in _sentences(content) for piece in _fit(content, sentence, terms, size, language)]
    matches = [terms & set(tokenize(content[start:end], language)) for start, end in pieces]
    best, best_score = (0, min(size, len(content))), 0
    for i, (start, _) in enumerate(pieces):
        covered: set[str] = set()
        for j in range(i, len(pieces)):
            if pieces[j][1] - start > size:
                break
            covered |= matches[j]
            if len(covered) > best_score:
                best, best_score = (start, pieces[j][1]), len(covered)
    return content[best[0] : best[1]]


def passages(content: str, query: str, size: int, language: str = ENGLISH) -> tuple[str, ...]:
    """The whole content if it fits into `size` characters, otherwise its passages: together all of it, none longer than `size`.

    A passage ends where the next sentence would not fit; a longer sentence is cut. Those with most distinct query words come first,
    of as many the earlier one.
    """
    if len(content) <= size:
        return (content,)
    edges = [(at, min(at + size, end)) for start, end in _sentences(content) for at in range(start, end, size)]
    runs: list[tuple[int, int]] = []
    for start, end in edges:
        if runs and end - runs[-1][0] <= size:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    terms = set(tokenize(query, language))
    covered = [len(terms & set(tokenize(content[start:end], language))) for start, end in runs]
    order = sorted(range(len(runs)), key=lambda i: (-covered[i], i))
    return tuple(content[runs[i][0] : runs[i][1]] for i in order) or (content[:size],)


def _sentences(content: str) -> list[tuple[int, int]]:
    edges = [0, *(edge for gap in _SENTENCE.finditer(content) for edge in gap.span()), len(content)]
    return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1]]


def _fit(content: str, sentence: tuple[int, int], terms: set[str], size: int, language: str) -> list[tuple[int, int]]:
    """The sentence itself, or, when it is longer than `size`, the window of it that starts just before its first match."""
    start, end = sentence
    if end - start <= size:
        return [sentence]
    words = list(_WORDS.finditer(content, start, end))
    hits = [word.start() for word in words if terms & set(tokenize(word.group(), language))]
    if not hits:
        return [(start, start + size)]
    most = max(hits, key=lambda at: (sum(at <= other < at + size for other in hits), -at))
    covered = [word.end() for word in words if most <= word.start() and word.end() <= most + size]
    slack = max(0, size - ((max(covered) if covered else most + size) - most)) // 2
    left = max(start, most - slack)
    return [(left, min(end, left + size))]
