"""Asking the language model of the settings, through the store's cache of its replies.

A reply is kept by model, prompt version and the very words that were sent; one that cannot be read is not kept. Without a model
the caller takes what needs none and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from cems_workbench.errors import ModelError
from cems_workbench.models.chat import Chat, OllamaChat, OpenAiChat
from cems_workbench.models.ollama import digest
from cems_workbench.models.prompts import Question
from cems_workbench.pipeline.resources import Resources

T = TypeVar("T")

SECONDS = 60.0
NONE = "no LLM is set (CEMS_WORKBENCH_LLM_MODEL)"


@dataclass
class Asker:
    """One query's conversation with the model: `calls` were answered by it, `cached` came out of the cache."""

    chat: Chat
    resources: Resources
    calls: int = 0
    cached: int = 0
    problems: list[str] = field(default_factory=list)

    def ask(self, question: Question[T]) -> T:
        """What the model's reply says. Raises ModelError when it cannot be reached or read; then it is not asked again."""
        key = question.cache_key(self.chat.model_id)
        kept = self.resources.store.cached_reply(key)
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
        self.resources.store.keep_reply(key, said)
        return result

    def or_none(self, question: Question[T], instead: str, say: Callable[[str], None]) -> T | None:
        """The answer, or None after saying why there is none and what is done instead."""
        try:
            return self.ask(question)
        except ModelError as error:
            say(f"{self.chat.label}, asked for the {question.name}: {error}; {instead}")
            return None


def asker(resources: Resources) -> Asker | None:
    """The model of the settings, ready to be asked about one query; None when none is set."""
    if not resources.servers.llm_model:
        return None
    return Asker(chat(resources, resources.servers.llm_model, SECONDS), resources)


def chat(resources: Resources, model: str, timeout_s: float) -> Chat:
    """A chat model on the server of the settings: the OpenAI-compatible one where it is set, else Ollama."""
    servers, reach = resources.servers, resources.reach
    if servers.llm_url:
        return OpenAiChat(servers.llm_url, model, servers.llm_key, timeout_s, reach=reach)
    return OllamaChat(servers.ollama_url, model, timeout_s, revision=revision(resources, model), reach=reach)


def revision(resources: Resources, model: str) -> str:
    """The digest of an Ollama model, so that one pulled anew is asked anew; empty when the server cannot say."""
    try:
        return digest(resources.servers.ollama_url, model, reach=resources.reach)
    except ModelError:
        return ""
