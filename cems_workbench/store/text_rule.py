"""The text rule of a store: which text of a memory is embedded and searched.

    field: value                    a line for each of `fields` that the memory has
    title. content                  the content alone without `title`, or when the title opens it
    the first N cl100k tokens of that

A chunk that is searched with the title before it (chunking.py) has the lines before it too; chunks are cut from the content that is left of
the first N tokens. The default is title and content, whole.

Source: systems differ in this more than in any formula: mem0, engram and ACE embed the content alone, QMD and Hindsight a title or context
with it, the memory agent a sentence made of fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cems_workbench.errors import InputError, did_you_mean
from cems_workbench.models import tokens
from cems_workbench.records import DEFAULT_TEXT_RULE, TEXT_FIELDS, Memory, TextRule, titled
from cems_workbench.store.rows import read_meta

if TYPE_CHECKING:
    import duckdb

TEXT_RULE = "text_rule"
"""The meta key of the rule, as JSON; a store without it has the default."""
MAX_FIRST_TOKENS = 1_000_000

PIECES: Mapping[str, Callable[[Memory], str]] = {
    "content": lambda memory: memory.content,
    "title": lambda memory: memory.title or "",
    "tags": lambda memory: " ".join(memory.tags),
    "category": lambda memory: memory.category or "",
    "project": lambda memory: memory.project or "",
    "author": lambda memory: memory.author or "",
}
"""The pieces of a memory that a lexical engine may search as fields or columns."""
_VALUES: Mapping[str, Callable[[Memory], str]] = {
    **PIECES,
    "tags": lambda memory: ", ".join(memory.tags),
    "session": lambda memory: memory.session or "",
    "importance": lambda memory: memory.importance,
    "scope": lambda memory: memory.scope,
    "created_at": lambda memory: memory.created_at.isoformat() if memory.created_at else "",
}


def searched_text(memory: Memory, rule: TextRule = DEFAULT_TEXT_RULE) -> str:
    """The text of a memory that is embedded and searched under a rule, if it has no chunks."""
    whole = _whole(memory, rule)
    return whole if rule.first_tokens is None else _first_tokens(whole, rule.first_tokens)


def chunk_text(memory: Memory, chunk: str, rule: TextRule = DEFAULT_TEXT_RULE) -> str:
    """The text of a chunk that is searched with lines and title of its memory before it."""
    return field_lines(memory, rule.fields) + titled(memory.title if rule.title else None, chunk)


def parts_to_cut(memory: Memory, rule: TextRule = DEFAULT_TEXT_RULE) -> tuple[str | None, str]:
    """What a cutter gets of a memory: what each chunk has before it, and the content that is searched."""
    head = field_lines(memory, rule.fields) + ((memory.title or "") if rule.title else "")
    if rule.first_tokens is None:
        return head or None, memory.content
    before = len(_whole(memory, rule)) - len(memory.content)
    return head or None, searched_text(memory, rule)[before:]


def field_lines(memory: Memory, names: Sequence[str]) -> str:
    """A line "name: value" for each of these fields that the memory has."""
    return "".join(f"{name}: {value}\n" for name in names if (value := _VALUES[name](memory))) if names else ""


def _whole(memory: Memory, rule: TextRule) -> str:
    return chunk_text(memory, memory.content, rule)


def _first_tokens(text: str, most: int) -> str:
    if len(text.encode("utf-8", "replace")) <= most:  # a token has a byte at least
        return text
    spans = tokens.spans(text)
    return text if len(spans) <= most else text[: spans[most - 1][1]]


def text_rule(cursor: duckdb.DuckDBPyConnection) -> TextRule:
    kept = read_meta(cursor, TEXT_RULE)
    if kept is None:
        return DEFAULT_TEXT_RULE
    values = json.loads(kept)
    return TextRule(values["title"], tuple(values["fields"]), values["first_tokens"])


def known_text_rule(title: bool, fields: Sequence[str], first_tokens: int | None) -> TextRule:
    """The rule with these settings. Raises InputError for an unknown or repeated field, or a number of tokens below 1."""
    for name in fields:
        if name not in TEXT_FIELDS:
            hint = did_you_mean(name, TEXT_FIELDS)
            raise InputError(f"text field: {name!r} is not one of {', '.join(TEXT_FIELDS)}{hint}")
    if len(set(fields)) < len(fields):
        raise InputError(f"text field: {max(fields, key=list(fields).count)} is there twice")
    if first_tokens is not None and not 1 <= first_tokens <= MAX_FIRST_TOKENS:
        raise InputError(f"first tokens: {first_tokens} is not in 1 to {MAX_FIRST_TOKENS:,}")
    return TextRule(title, tuple(fields), first_tokens)


def rule_suffix(rule: TextRule) -> str:
    """What a label of chunks has at its end under a rule: nothing under the default, so that labels from before it stay."""
    return "" if rule == DEFAULT_TEXT_RULE else f"; text: {rule}"
