"""The query side through a language model: each function asks one question of `prompts` and returns what was read.

Each raises ModelError in one line when the model cannot be reached or its reply cannot be used; the caller falls back to
what needs no model and says so. To cache, ask for the `Question` in `prompts`, whose `cache_key` names what a reply
depends on, keep the reply of `reply(chat, question)`, and read it again with `question.read`.

Source: PIPELINE.md, "query" and "expansion".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from cems_workbench.models import prompts
from cems_workbench.models.chat import Chat
from cems_workbench.models.prompts import Kind, Question, Understanding

T = TypeVar("T")


def reply(chat: Chat, question: Question[T]) -> str:
    """The model's own words; `question.read` reads them. Raises ModelError when the call fails."""
    return chat.ask(question.system, question.user)


def understand(chat: Chat, query: str) -> Understanding:
    """Intent, complexity (simple, moderate, complex), whether reasoning is needed, domains in lower case."""
    return _ask(chat, prompts.understanding(query))


def expand(chat: Chat, query: str, kind: Kind = "general", profile: Sequence[str] = ()) -> list[str]:
    """Search terms, none of them the query: 1 to 5 for preference, to 4 for temporal, to 3 for general."""
    return _ask(chat, prompts.expansion(query, kind, profile))


def hypothesize(chat: Chat, query: str, kind: Kind = "general", profile: Sequence[str] = (), as_of: str = "") -> str:
    """A hypothetical memory that would answer the query (HyDE), at most 2,000 characters."""
    return _ask(chat, prompts.hypothesis(query, kind, profile, as_of))


def decompose(chat: Chat, query: str, most: int = 3) -> list[str]:
    """At most `most` sub-questions, none of them the query; empty when the query asks one thing only."""
    return _ask(chat, prompts.decomposition(query, most)) if most > 0 else []


def is_misspelling(chat: Chat, typed: str, corrected: str) -> bool:
    """Does the model take `typed` for a misspelling of `corrected`?"""
    return _ask(chat, prompts.correction(typed, corrected))


def _ask(chat: Chat, question: Question[T]) -> T:
    return question.read(reply(chat, question))
