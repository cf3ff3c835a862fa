"""What the reranker and the judge read of candidates, and their scores of it, from the cache or the model.

Which scores a config misses is read off a trace (`wanted_scores`); `pipeline/gather.py:gather_scores` asks for them. Scores are cached in
the store by model, query and exact text, a few batches at a time, so that a cancelled job resumes where it stopped; failures never.

The judge's scores are a relevance judgment of each result and no part of the ranking. The judge reads the text that the reranker reads, or
the first `judge.max_chars` characters of a memory, and the query as searched. Its backend `auto` is the configured cross-encoder, or,
without a warning, the packaged one.

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

Source: ACE, cross-encoder relevance threshold; CEMS plan, `select_best_chunk`; docs/internals/specification.md, "rerank" and "judge".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from cems_workbench.config import PipelineConfig
from cems_workbench.config.sections import RerankConfig
from cems_workbench.errors import ModelError, counted
from cems_workbench.models.late_interaction import LateInteraction
from cems_workbench.models.minilm_judge import MiniLMJudge
from cems_workbench.models.protocol import PairScore, PairScorer
from cems_workbench.models.resolve import locate
from cems_workbench.pipeline.evidence import QUESTIONS, Evidence, ModelScore
from cems_workbench.pipeline.replay import Trace
from cems_workbench.pipeline.rerankers import ScorerRequest, score_with
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import ABSTAIN, JUDGE, RERANK
from cems_workbench.pipeline.stages.rerank import FAILED, GOOD, model_key, unscored
from cems_workbench.progress import Progress, silent
from cems_workbench.records import ENGLISH, Chunk, Memory, titled
from cems_workbench.store.caches import PairScores
from cems_workbench.store.memories import MAX_KEPT
from cems_workbench.store.search.tokenizer import tokenize
from cems_workbench.store.text_rule import field_lines

RERANKING = "reranking"
"""Name of the progress while a reranker scores, after each batch; the scores of the batch are in the cache by then."""

PENDING_BATCHES = 4
"""Batches of a query whose scores are written to the cache together: a transaction takes as long as reading a pair."""

Reader = Literal["rerank", "judge"]
"""What reads candidates, by its stage: the reranker or the judge."""


def wanted_scores(trace: Trace, reader: Reader, also: Collection[str] = ()) -> list[str]:
    """The candidates whose scores a trace misses: those that its reranker reads next, or the results that its judge has
    not read. A function of the trace alone. `also` are candidates that the reranker is to read too, whether or not they
    are in its head."""
    if trace.external and reader == "rerank":
        return []
    if reader == "judge":
        name = None if trace.external else trace.stage(JUDGE).fields.model
        known = trace.evidence.judge_scores.get(name, {}) if name else {}
        # A judgment of another passage is no judgment of this one.
        texts = judge_texts(trace) if known else dict.fromkeys(_to_judge(trace), "")
        return [key for key, text in texts.items() if key not in known or known[key].chunk != text]
    return _unread(trace, trace.evidence.model_scores.get(model_key(trace.config.rerank), {}), also)


def _unread(trace: Trace, scores: Mapping[str, ModelScore], also: Collection[str] = ()) -> list[str]:
    """The candidates that the reranker of a trace is to read next, if it has these scores; then those of `also` without one."""
    ids, table = trace.table.ids[0], unscored(trace.table.shape)
    for c, memory_id in enumerate(ids):
        if (score := scores.get(memory_id)) is not None:
            table.raw[0, c], table.state[0, c] = (score.raw, GOOD) if score.good else (np.nan, FAILED)
    wanted = [ids[c] for c in np.flatnonzero(trace.run.of(RERANK).wanted(table)[0]).tolist()]
    return list(dict.fromkeys([*wanted, *(key for key in also if key not in scores)]))


def scored(
    reader: Reader,
    evidence: Evidence,
    trace: Trace,
    resources: Resources,
    progress: Progress = silent,
    cached_only: bool = False,
    also: Collection[str] = (),
    followed: bool = False,
) -> Evidence:
    """The evidence with the scores of a reader that a trace of it misses (`wanted_scores`). `cached_only` calls no
    reranker: candidates outside the cache stay unscored. With `followed`, what was read is in the cache when `progress`
    is called; else up to `PENDING_BATCHES` are pending until the end, or an error."""
    if reader == "judge":
        return _judged(evidence, trace, resources, progress)
    return _reranked(evidence, trace, resources, progress, cached_only, also, followed)


def _reranked(
    evidence: Evidence,
    trace: Trace,
    resources: Resources,
    progress: Progress,
    cached_only: bool,
    also: Collection[str],
    followed: bool,
) -> Evidence:
    """The evidence with the scores that the reranker of a trace of it misses, and what it wants having these."""
    config = trace.config
    key = model_key(config.rerank)
    there = evidence.model_scores.get(key, {})
    health = trace.stage(RERANK).fields.health
    most = 0 if health is None else health.head
    evidence = with_questions(evidence, config, resources)
    reading = Reading.of(evidence, config)
    query = config.rerank.query or reading.query
    warnings: list[str] = []
    # Without a reachable model the configured name is all there is to report.
    label: str = config.rerank.backend

    def ask(scorer: PairScorer) -> dict[str, ModelScore]:
        nonlocal label
        label = scorer.label
        found: dict[str, ModelScore] = {}
        known: dict[str, ModelScore] = {}  # passages that several memories share are scored once
        cache = resources.store.scores.of(scorer.cache_model(query), query)
        with cache.together(0 if followed else PENDING_BATCHES * scorer.batch):
            while wanted := _unread(trace, {**there, **found}, also):
                texts = {memory_id: reading.by_reranker(memory_id) for memory_id in wanted}
                fresh = {text: text for read in texts.values() for text in read if text not in known}
                counted = partial(_counted, progress, len(known), most)
                known |= cached_or_scored(scorer, query, fresh, resources, counted, cached_only, cache)
                found |= {
                    one: _best([known[text] for text in read])
                    for one, read in texts.items()
                    if known.keys() >= set(read)
                }
                if not found.keys() >= texts.keys():  # what is cached ends here
                    break
        return found

    try:
        request = ScorerRequest(config.rerank.model, config.rerank, resources, progress)
        _, instead, scores = score_with(config.rerank.backend, request, ask)
        warnings += [instead] if instead else []
    except ModelError as error:
        scores = {}
        # A cached-only pass leaves them missing, so that a later pass may still ask the model.
        while not cached_only and (wanted := _unread(trace, {**there, **scores}, also)):
            scores |= {one: ModelScore(None, reading.by_reranker(one)[0], str(error)) for one in wanted}
    merged = {**evidence.model_scores, key: {**there, **scores}}
    if cut := _having("truncated", scores):
        warnings.append(f"cut off at what the model reads: the ends of {counted(cut, 'texts')}")
    warnings += _inexact(scores)
    cached = _having("cached", scores)
    counts = {"scored": len(scores) - cached, "cached": cached}
    notes = with_warnings(evidence.notes, "rerank", warnings)
    notes |= {"models": {**notes.get("models", {}), "reranker": label}, "rerank_scores": counts}
    notes |= {"rerankers": {**notes.get("rerankers", {}), key: label}}  # of every config tried on this evidence
    return replace(evidence, model_scores=merged, notes=notes)


def _having(mark: str, scores: Mapping[str, ModelScore]) -> int:
    return sum(bool(score.detail and score.detail.get(mark)) for score in scores.values())


def _inexact(scores: Mapping[str, ModelScore]) -> list[str]:
    """A line if scores are of a processor that computes the packaged cross-encoder differently."""
    count = _having("inexact", scores)
    said = f"{counted(count, 'scores')} off: the processor computes other numbers than those recorded, see doctor"
    return [said] if count else []


def _counted(progress: Progress, before: int, most: int, label: str, done: int, total: int) -> None:
    """Progress of a round of batches `before` which others were read; how many rounds follow is unknown, so `most` is the total."""
    progress(label, before + done, max(before + total, most))


@dataclass(frozen=True, slots=True)
class Reading:
    """What the reranker and the judge of a config read of the candidates of evidence."""

    query: str
    """The query as typed, with typos corrected."""
    terms: frozenset[str]
    """The words of what the reranker reads as the query, once for all candidates."""
    config: PipelineConfig
    """The config by which candidates are read, `as_read`."""
    language: str
    memories: Mapping[str, Memory]
    questions: Mapping[str, str]
    chunks: Mapping[str, Chunk]
    """Those that are read instead of the whole memory, `given_chunks`."""

    @classmethod
    def of(cls, evidence: Evidence, config: PipelineConfig) -> Reading:
        """The reading of this evidence."""
        chunks = given_chunks(evidence, config)
        read, query, language = as_read(config, evidence), evidence.corrected, evidence.language
        questions = evidence.questions
        terms = frozenset(tokenize(config.rerank.query or query, language))
        return cls(query, terms, read, language, evidence.memories, questions, chunks)

    def by_reranker(self, memory_id: str) -> tuple[str, ...]:
        """The texts that the reranker reads of a candidate; the best of their scores is the memory's."""
        memory = self.memories[memory_id]
        question = self.questions.get(memory_id, "")
        text = self._text(memory)
        return texts_for_reranker(text, self.query, self.config, self.language, question, memory, self.terms)

    def by_judge(self, memory_id: str) -> str:
        """The text that the judge reads of a candidate."""
        memory = self.memories[memory_id]
        text = self._text(memory)
        return text_for_judge(
            memory.content, text, self.query, self.config, self.language, record=memory, terms=self.terms
        )

    def _text(self, memory: Memory) -> str:
        return self.chunks[memory.id].text if memory.id in self.chunks else memory.content


def with_questions(evidence: Evidence, config: PipelineConfig, resources: Resources) -> Evidence:
    """The evidence with the questions that its candidates follow, where this config's reranker reads them; looked up once."""
    if not config.rerank.prepend_question or QUESTIONS in evidence.notes:
        return evidence
    return replace(evidence, notes={**evidence.notes, QUESTIONS: questions_of(evidence.memories.values(), resources)})


def questions_of(memories: Iterable[Memory], resources: Resources, edited: Memory | None = None) -> dict[str, str]:
    """By id the question that a memory follows in its session; absent if it follows none. `edited` as in `Memories.before`."""
    if edited is not None:
        before = resources.store.memories.before(memories, edited)
        return {key: question for key, text in before.items() if (question := question_at_end(text))}
    found: dict[Memory, str] = resources.derived("questions", dict)
    memories = list(memories)
    # Another thread may clear what is kept.
    known = {memory: kept for memory in memories if (kept := found.get(memory)) is not None}
    if fresh := [memory for memory in memories if memory not in known]:
        before = resources.store.memories.before(fresh)
        known |= {memory: question_at_end(before.get(memory.id, "")) for memory in fresh}
        if len(found) > MAX_KEPT:
            found.clear()
        found |= known
    return {memory.id: question for memory in memories if (question := known[memory])}


def _best(scores: Sequence[ModelScore]) -> ModelScore:
    """The highest score of a memory's passages, or its first failure; with the number of passages, if several were read."""
    best = max((score for score in scores if score.good), key=lambda score: score.raw or 0.0, default=scores[0])
    if len(scores) == 1:
        return best
    return replace(best, detail={**(best.detail or {}), "passages": sum(score.good for score in scores)})


def given_chunks(evidence: Evidence, config: PipelineConfig) -> dict[str, Chunk]:
    """By memory id the best-ranked chunk of any list, for a reranker that reads it instead of the whole memory (`rerank.text_source`).

    Of several lists with equal ranks of a memory's chunks the earlier one counts. Lists that a config has switched off count
    too, because a score serves every config. Memories that were found whole, or whose best rank is not a chunk's, are absent.
    """
    if config.rerank.text_source == "memory" or not evidence.chunks:
        return {}
    best: dict[str, tuple[int, int | None]] = {}
    for ranked in evidence.lists:
        if ranked.variant is None:
            continue
        seen: set[str] = set()
        for hit in ranked.hits:
            if hit.memory_id not in seen:
                seen.add(hit.memory_id)
                # Strictly less: of equal ranks the earlier list keeps its chunk.
                if hit.memory_id not in best or len(seen) < best[hit.memory_id][0]:
                    best[hit.memory_id] = len(seen), hit.chunk
    known = {key: {chunk.seq: chunk for chunk in chunks} for key, chunks in evidence.chunks.items()}
    return {
        key: known[key][chunk] for key, (_, chunk) in best.items() if chunk is not None and chunk in known.get(key, {})
    }


def with_warnings(notes: Mapping[str, Any], stage: str, added: Sequence[str]) -> dict[str, Any]:
    """The notes with these lines among a stage's warnings, each once."""
    warnings = notes.get("warnings", {})
    # A set would lose the order of the warnings.
    lines = list(dict.fromkeys([*warnings.get(stage, ()), *added]))
    return {**notes, "warnings": {**warnings, stage: lines}} if lines else dict(notes)


def cached_or_scored(
    scorer: PairScorer,
    query: str,
    chunks: Mapping[str, str],
    resources: Resources,
    progress: Progress,
    cached_only: bool = False,
    cache: PairScores | None = None,
) -> dict[str, ModelScore]:
    """The score of each chunk, from the cache if it has one; new scores are cached batch by batch. `cache`: that of query and scorer."""
    cache = cache or resources.store.scores.of(scorer.cache_model(query), query)
    texts = list(dict.fromkeys(chunks.values()))

    def cached(texts: Sequence[str]) -> dict[str, PairScore]:
        return {text: score for text, score in zip(texts, cache.read(texts), strict=True) if score is not None}

    known = cached(texts)
    if cached_only:
        return {key: _score(chunk, known[chunk], cached=True) for key, chunk in chunks.items() if chunk in known}
    todo = [text for text in texts if text not in known]
    fresh: dict[str, PairScore] = {}
    for start in range(0, len(todo), scorer.batch):
        batch = todo[start : start + scorer.batch]
        with resources.scoring:
            known |= cached(batch)  # another job may have scored them in the meantime
            rest = [text for text in batch if text not in known]
            scores = dict(zip(rest, scorer.score(query, rest), strict=True)) if rest else {}
            # Written batch by batch, so that a cancelled job resumes here.
            cache.write(list(scores.items()))
        fresh |= scores
        if scores and all((score.error or "").startswith("refused") for score in scores.values()):
            fresh |= dict.fromkeys(todo[start + scorer.batch :], next(iter(scores.values())))  # nobody is there
            break
        progress(RERANKING, min(start + scorer.batch, len(todo)), len(todo))
    return {
        key: _score(chunk, fresh[chunk]) if chunk in fresh else _score(chunk, known[chunk], cached=True)
        for key, chunk in chunks.items()
    }


def _score(chunk: str, pair: PairScore, *, cached: bool = False) -> ModelScore:
    detail = {**(pair.detail or {}), **({"cached": True} if cached else {})}
    return ModelScore(pair.raw, chunk, pair.error, detail or None)


def without_failures(evidence: Evidence, key: str) -> Evidence:
    """The evidence without the failed scores of `model_scores[key]`, so that `scored` asks for them again."""
    # A failure counts as answered; only an absent score is asked for.
    good = {memory_id: score for memory_id, score in evidence.model_scores.get(key, {}).items() if score.good}
    return replace(evidence, model_scores={**evidence.model_scores, key: good})


def _judged(evidence: Evidence, trace: Trace, resources: Resources, progress: Progress) -> Evidence:
    """The evidence with a judgment of every result of a trace of it; the same one when none is missing."""
    config, reading = trace.config, Reading.of(trace.evidence, trace.config)
    texts = judge_texts(trace, reading)

    def ask(model: PairScorer) -> tuple[dict[str, ModelScore], dict[str, Any]]:
        known = evidence.judge_scores.get(_name(config, model), {})
        missing = {key: text for key, text in texts.items() if key not in known or known[key].chunk != text}
        if not missing:
            return {}, {}
        return {**known, **cached_or_scored(model, reading.query, missing, resources, progress)}, _about(model)

    backend = "cross_encoder" if config.judge.backend == "auto" else config.judge.backend
    try:
        request = ScorerRequest(config.judge.model, config.rerank, resources, progress)
        model, instead, (scores, about) = score_with(backend, request, ask)
    except ModelError as error:
        return replace(evidence, notes=with_warnings(evidence.notes, "judge", [str(error)]))
    if not about:
        return evidence
    name = _name(config, model)
    warnings = [instead] if instead and not as_meant(config, model, resources) else []
    notes = with_warnings(evidence.notes, "judge", warnings + _inexact(scores))
    notes |= {"models": {**notes.get("models", {}), "judge": model.label}}
    notes |= {"judges": {**notes.get("judges", {}), name: about}}  # of every config tried on this evidence
    return replace(evidence, judge_scores={**evidence.judge_scores, name: scores}, notes=notes)


def _about(model: PairScorer) -> dict[str, Any]:
    scale = model.scale
    read = {} if scale is None else {"threshold": scale.threshold, "bands": list(scale.bands)}
    return {"label": model.label, **read}


def judge_texts(trace: Trace, reading: Reading | None = None) -> dict[str, str]:
    """What the judge reads under this config, by memory id: of each result, and of the candidates that decide whether
    there are results. Of several passages of a memory it is the one with the score that counts. `reading` is that of
    the trace, if the caller has it."""
    reading = reading or Reading.of(trace.evidence, trace.config)
    reranked = trace.evidence.model_scores.get(model_key(trace.config.rerank), {})
    texts = {memory_id: reading.by_judge(memory_id) for memory_id in _to_judge(trace)}
    if trace.config.judge.max_chars is None:
        # The judge rates the passage whose score placed the memory.
        for memory_id in texts.keys() & reranked.keys():
            best = reranked[memory_id].chunk
            if best is not None and best in reading.by_reranker(memory_id):
                texts[memory_id] = best
    return texts


def _to_judge(trace: Trace) -> list[str]:
    """The results; and, if a threshold on the judge's score decides whether there are any, the candidates that it applies to."""
    ids = [result.memory_id for result in trace.results]
    if trace.config.abstain.judge is not None:
        limit = trace.config.assembly.limit or len(trace.evidence.memories)
        first = [row for row in trace.stage(ABSTAIN).rows if row.rank_in is not None and row.rank_in <= limit]
        ids = list(dict.fromkeys([*ids, *(row.memory_id for row in first)]))
    return ids


def _name(config: PipelineConfig, model: PairScorer) -> str:
    if config.judge.model or config.judge.backend != "auto":
        return config.judge.model or config.judge.backend
    return "late_interaction" if isinstance(model, LateInteraction) else "cross_encoder"


def as_meant(config: PipelineConfig, model: PairScorer, resources: Resources) -> bool:
    """`auto` is the packaged cross-encoder if there is no other; weights that do not load are a warning."""
    wanted = config.judge.model or resources.servers.cross_encoder
    return config.judge.backend == "auto" and isinstance(model, MiniLMJudge) and locate(wanted) is None


_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_WORDS = re.compile(r"\S+")


def best_chunk(
    content: str, query: str, size: int, selection: str, language: str = ENGLISH, terms: Set[str] | None = None
) -> str:
    """The part of `content`, at most `size` characters, that a reranker reads; `terms` are the query's words, if they are known."""
    if selection == "seed_overlap":
        return seed_overlap(content, query, size)
    if selection == "term_overlap":
        return term_overlap(content, query, size, language, terms)
    if selection == "passages":
        return passages(content, query, size, language, terms)[0]
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
    query: str,
    config: PipelineConfig,
    language: str = ENGLISH,
    question: str = "",
    memory: Memory | None = None,
    terms: Set[str] | None = None,
) -> tuple[str, ...]:
    """The parts of `content` that this config's reranker reads; `query` is the query as typed, with typos corrected.

    It is one, unless the config reads `passages`, or has the first of them read with the `question` that was asked before, too. `memory`
    has the fields that are read with it; `terms` are the words of `rerank.query`, else of the query, if the caller has them.
    """
    rerank, query = config.rerank, config.rerank.query or query
    if rerank.chunk_selection == "passages":
        texts = passages(content, query, rerank.chunk_chars, language, terms)[: rerank.passages]
    else:
        texts = (best_chunk(content, query, rerank.chunk_chars, rerank.chunk_selection, language, terms),)
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
    query: str,
    config: PipelineConfig,
    language: str = ENGLISH,
    record: Memory | None = None,
    terms: Set[str] | None = None,
) -> str:
    """What the judge reads: what the reranker reads first of `chunk`, or the start of the memory if `judge.max_chars`
    is set. `chunk` is what the reranker's text is chosen from (`given_chunks`): a chunk of the memory, or the memory;
    `record` has the fields that the reranker reads with it."""
    if config.judge.max_chars is None:
        return texts_for_reranker(chunk, query, config, language, memory=record, terms=terms)[0]
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


def term_overlap(content: str, query: str, size: int, language: str = ENGLISH, terms: Set[str] | None = None) -> str:
    """The run of whole sentences, at most `size` characters, that covers most distinct query words; first one wins."""
    terms = set(tokenize(query, language)) if terms is None else terms
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


def passages(
    content: str, query: str, size: int, language: str = ENGLISH, terms: Set[str] | None = None
) -> tuple[str, ...]:
    """The whole content if it fits into `size` characters, otherwise its passages: together all of it, none longer than
    `size`. A passage ends where the next sentence would not fit; a longer sentence is cut. Those with most distinct
    query words come first, of as many the earlier one."""
    if len(content) <= size:
        return (content,)
    edges = [(at, min(at + size, end)) for start, end in _sentences(content) for at in range(start, end, size)]
    runs: list[tuple[int, int]] = []
    for start, end in edges:
        if runs and end - runs[-1][0] <= size:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    terms = set(tokenize(query, language)) if terms is None else terms
    covered = [len(terms & set(tokenize(content[start:end], language))) for start, end in runs]
    order = sorted(range(len(runs)), key=lambda i: (-covered[i], i))
    return tuple(content[runs[i][0] : runs[i][1]] for i in order) or (content[:size],)


def _sentences(content: str) -> list[tuple[int, int]]:
    edges = [0, *(edge for gap in _SENTENCE.finditer(content) for edge in gap.span()), len(content)]
    return [(edges[i], edges[i + 1]) for i in range(0, len(edges), 2) if edges[i] < edges[i + 1]]


def _fit(content: str, sentence: tuple[int, int], terms: Set[str], size: int, language: str) -> list[tuple[int, int]]:
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
