"""What to type next: the last line of a command's text output, with ids of this store, as one command for a shell.

Only for people: a command that prints JSON, or a document such as a config, ends without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.builtin import SAMPLE_QUERY
from cems_workbench.cli.terminal import literal, say
from cems_workbench.command_words import asked_options, command_line
from cems_workbench.command_words import words_of as words_of
from cems_workbench.renamed import present_arguments

if TYPE_CHECKING:
    from cems_workbench.pipeline.gather import Request
    from cems_workbench.records import Query
    from cems_workbench.store import Store

MOST = 2
"""Commands that are proposed: more would be a menu."""
MAX_QUERY_CHARS = 80
"""A longer query of the store is not proposed where a shorter one is available."""
WORDS_OF_A_MEMORY = 6


def say_next(*commands: Sequence[str] | None) -> None:
    """Print up to two commands to type next, a line each; each is a list of words, as `words_of` makes them, None is left out.

    A command is left out too if a terminal could not show it as it is typed: a text of the store may hold control characters.
    """
    shown = [line for words in commands if words and _typable(line := command_line(words))]
    for line in shown[:MOST]:
        say(f"next: {line}")


def request_options(request: Request, without: Sequence[int] = ()) -> list[str]:
    """The options of `search` and `why` that make this request again; `without` are the variants that are left out."""
    values = {field.name: getattr(request, field.name) for field in fields(request) if field.name != "query"}
    return asked_options(**values, without=without)


def repeated(*further: str) -> list[str]:
    """This very command, with more options."""
    words = present_arguments(sys.argv[1:])
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *further, *words[end:]]


def unused(name: str) -> str:
    """A file name for --out that overwrites nothing: this one, or one with a number."""
    path, number = Path(name), 2
    while path.exists():
        path, number = Path(name).with_stem(f"{Path(name).stem}-{number}"), number + 1
    return str(path)


def config_options(
    files: Iterable[Path] | None, presets: Iterable[str] | None, changes: Iterable[str] | None
) -> list[str]:
    """The options that name several configs, as words."""
    named = [("--config", str(path)) for path in files or ()] + [("--preset", name) for name in presets or ()]
    return flat([*named, *(("--set", text) for text in changes or ())])


def flat(options: Iterable[tuple[str, str]]) -> list[str]:
    """Options with their values as words."""
    return [word for option in dict.fromkeys(options) for word in option]


def first_search(store: Store, options: Iterable[str] = (), query_set: str | None = None) -> list[str] | None:
    """A search to begin with: a judged query of the set (None: of any), else any query, else words of a memory; None without memories.

    It is asked as of now and without its project, as a newcomer types it.
    """
    memory = next(iter(store.memories.iterate()), None)
    if memory is None:
        return None
    queries = store.queries.read() if query_set is None else store.query_sets.queries(query_set)
    chosen = _simple_query(queries, {row.qid for row in store.judgments.read()})
    if chosen is not None:
        return words_of("search", chosen.query, options=options)
    words = literal(memory.title or memory.content).split()[:WORDS_OF_A_MEMORY]
    return words_of("search", " ".join(words), options=options)


def _simple_query(queries: Sequence[Query], judged: set[str]) -> Query | None:
    """A query to begin with: judged, that of the sample, short, several plain words, without a project; the first of the best."""

    def order(query: Query) -> tuple[bool, ...]:
        words = query.query.split()
        return (
            query.qid not in judged,
            query.query != SAMPLE_QUERY,
            len(query.query) > MAX_QUERY_CHARS,
            len(words) < 2 or not "".join(words).rstrip("?").isalpha(),
            query.project is not None,
        )

    typable = [query for query in queries if _typable(query.query) and query.query.strip()]
    return min(typable, key=order, default=None)


def _typable(text: str) -> bool:
    return "\n" not in text and literal(text) == text
