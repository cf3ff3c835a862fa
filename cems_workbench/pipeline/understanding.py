"""Intent of a query, from its words alone, and its route under `auto`.

    simple and no reasoning -> vector;   everything else -> hybrid            (CEMS, route_to_strategy)

CEMS asks an LLM for complexity, reasoning and domains. Without one they come from features: a query of at most three words without
a signal is simple, one of more than twelve words or of several clauses is complex; temporal and aggregation signals, and
words that ask for a reason or a comparison, need reasoning. Routing a bare identifier to vectors alone is a known
mistake of that rule, and is shown as such.

Source: CEMS retrieval guide (retrieval.py:1129); docs/internals/specification.md, "query".

Asking the language model of the settings, through the store's cache of its replies.

A reply is kept by model, prompt version and the very words that were sent; one that cannot be read is not kept. Without a model
the caller uses an alternative without one and reports it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from cems_workbench.config.sections.understanding import QueryConfig
from cems_workbench.errors import ModelError
from cems_workbench.models import prompts
from cems_workbench.models.chat import Chat, OllamaChat, OpenAiChat
from cems_workbench.models.ollama import digest
from cems_workbench.models.prompts import Question
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages.query import detect
from cems_workbench.records import ENGLISH

T = TypeVar("T")

TIMEOUT_S = 60.0
NO_LLM = "no LLM is set (CEMS_WORKBENCH_LLM_MODEL)"


@dataclass
class Asker:
    """One query's conversation with the model: `calls` were answered by it, `cached` by the cache."""

    chat: Chat
    resources: Resources
    calls: int = 0
    cached: int = 0
    problems: list[str] = field(default_factory=list)

    def ask(self, question: Question[T]) -> T:
        """The parsed reply. Raises ModelError if the model is unreachable or its reply unreadable; it is then not called again."""
        key = question.cache_key(self.chat.model_id)
        kept = self.resources.store.replies.read(key)
        if kept is not None:
            self.cached += 1
            return question.read(kept)
        if self.problems:
            raise ModelError(self.problems[0])
        try:
            said = self.chat.ask(question.system, question.user)
        except ModelError as error:
            self.problems.append(str(error))
            raise
        self.calls += 1
        result = question.read(said)
        self.resources.store.replies.write(key, said)
        return result

    def or_none(self, question: Question[T], instead: str, say: Callable[[str], None]) -> T | None:
        """The answer, or None after reporting the reason and the alternative."""
        try:
            return self.ask(question)
        except ModelError as error:
            say(f"{self.chat.label}, asked for the {question.name}: {error}; {instead}")
            return None


def asker(resources: Resources) -> Asker | None:
    """The model of the settings, for one query; None if none is set."""
    if not resources.servers.llm_model:
        return None
    return Asker(chat(resources, resources.servers.llm_model, TIMEOUT_S), resources)


def chat(resources: Resources, model: str, timeout_s: float) -> Chat:
    """A chat model on the server of the settings: the OpenAI-compatible one if it is set, otherwise Ollama."""
    servers, breaker = resources.servers, resources.breaker
    if servers.llm_url:
        return OpenAiChat(servers.llm_url, model, servers.llm_key, timeout_s, breaker=breaker)
    return OllamaChat(servers.ollama_url, model, timeout_s, revision=revision(resources, model), breaker=breaker)


def revision(resources: Resources, model: str) -> str:
    """The digest of an Ollama model, so that cached replies of an earlier pull do not count; empty if the server does not report it."""
    try:
        return digest(resources.servers.ollama_url, model, breaker=resources.breaker)
    except ModelError:
        return ""


MAX_SIMPLE_WORDS = 3
MIN_COMPLEX_WORDS = 12
_CLAUSE = re.compile(r"[;:]|,\s|\b(?:and|or|but|because|while|whereas)\b", re.IGNORECASE)
_REASONING = re.compile(r"\b(?:why|how|compare|compared|versus|vs|difference|which|whether|instead)\b", re.IGNORECASE)

Complexity = Literal["simple", "moderate", "complex"]


@dataclass(frozen=True, slots=True)
class Intent:
    """Complexity, whether reasoning is needed, the route, and why, in words."""

    complexity: Complexity
    reasoning: bool
    route: Literal["vector", "hybrid"]
    reason: str


def understand(
    query: str, config: QueryConfig, llm: Asker | None = None, language: str = ENGLISH
) -> tuple[Intent, list[str]]:
    """The intent of a query, its route under `query.mode`, and warnings; only `auto` calls the LLM."""
    complexity, reasoning = _complexity(query), _reasoning(query, config, language)
    if config.mode != "auto":
        return Intent(complexity, reasoning, config.mode, f"mode is {config.mode}"), []
    said: list[str] = []
    told = llm.or_none(prompts.understanding(query), "the intent comes from the words", said.append) if llm else None
    if told is None:
        only = "" if language == ENGLISH else "' number alone, as those looked for are English"
        return _routed(complexity, reasoning, f"from the words{only}, no LLM was asked"), said
    return _routed(told.complexity, told.reasoning, f"says {llm.chat.label}" if llm else "", told.domains), said


def _routed(complexity: Complexity, reasoning: bool, source: str, domains: Sequence[str] = ()) -> Intent:
    """Simple and no reasoning goes to vector, everything else to hybrid: more than two domains too, as CEMS has it."""
    about = f", {len(domains)} domains" if domains else ""
    reason = f"{complexity}, {'reasoning' if reasoning else 'no reasoning'}{about}; {source}"
    if complexity == "simple" and not reasoning:
        return Intent(complexity, reasoning, "vector", reason)
    return Intent(complexity, reasoning, "hybrid", reason)


def _complexity(query: str) -> Complexity:
    words = len(query.split())
    if words > MIN_COMPLEX_WORDS or len(_CLAUSE.findall(query)) > 1:
        return "complex"
    return "simple" if words <= MAX_SIMPLE_WORDS and not _CLAUSE.search(query) else "moderate"


def _reasoning(query: str, config: QueryConfig, language: str) -> bool:
    if language != ENGLISH:
        return False
    signals = {match.detector for match in detect(query, config.detectors)}
    return bool(signals & {"temporal", "aggregation"}) or bool(_REASONING.search(query))
