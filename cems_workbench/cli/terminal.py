"""Output of the command line: the only place that writes to a terminal, and it writes plain text only.

Control characters move a cursor, set a title or hide a line; directional overrides show a text in another order than it has. Each is
shown as a replacement character, in JSON as its escape, so that values are unchanged.

Progress as plain lines, for output that is no terminal: a log, a file, a coding agent. What to type next: the last line of a command's
text output, with ids of this store, as one command for a shell; JSON, or a document such as a config, ends without it.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cems_workbench.builtin import SAMPLE_QUERY
from cems_workbench.command_words import asked_options, command_line
from cems_workbench.command_words import words_of as words_of
from cems_workbench.platform.bidi import REPLACEMENT
from cems_workbench.platform.waiting import WAITING
from cems_workbench.progress import Progress

if TYPE_CHECKING:
    from cems_workbench.pipeline.gather import Request
    from cems_workbench.records import Query
    from cems_workbench.store import Store


_SHAPES_WORDS = "\u200c\u200d\u200e\u200f"
"""Zero-width joiners, within words of several scripts and within emoji, and the marks next to right-to-left words."""
_SUSPECT = re.compile(r"[^\n\t -~\u00a0-\u00ac\u00ae-\u024f]")


def literal(text: str) -> str:
    """The text with a replacement character for each that acts on a terminal; line breaks and tabs stay."""
    return _SUSPECT.sub(lambda match: REPLACEMENT if _is_control(match[0]) else match[0], text)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line of words."""
    typer.echo(literal(text), err=err)


def say_wrapped(text: str, *, err: bool = False) -> None:
    """Print words, wrapped at words to fit the terminal; ids and numbers stay whole."""
    width = shutil.get_terminal_size().columns
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        say(line, err=err)


def put(text: str) -> None:
    """Print a document, such as a config: unmodified to a file or a pipe, as `say` does to a terminal."""
    typer.echo(literal(text) if sys.stdout.isatty() else text, nl=False)


def put_json(values: Any) -> None:
    """Print plain values as JSON that any reader accepts (no NaN)."""
    text = json.dumps(values, ensure_ascii=False, indent=1, allow_nan=False)
    typer.echo(_SUSPECT.sub(lambda match: json.dumps(match[0])[1:-1] if _is_control(match[0]) else match[0], text))


def _is_control(character: str) -> bool:
    """Whether a character does something other than being shown: controls, formats, half a surrogate pair, other line ends."""
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") and character not in _SHAPES_WORDS


FIRST_AFTER_S = 3.0
"""Seconds until the first line: what is done sooner says nothing."""
EVERY_S = 10.0
"""Seconds between two lines."""


class ProgressLines:
    """The lines about work that calls `report`: label, count, rate and what is left. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun: dict[str, tuple[int, float]] = {}
        """By label what was done at which moment when it began, so that resumed work does not count as fast."""
        self._now: dict[str, tuple[int, int]] = {}
        """By label what is done, and of how much; the outermost work first."""
        self._reported, self._latest = set[str](), ""
        """Since the last line, and at all."""
        self._lock = threading.Lock()

    def report(self, label: str, done: int, total: int) -> None:
        """A `Progress`: what the work under this label stands at."""
        if label.startswith(WAITING):  # said by NOTICES
            return
        with self._lock:
            if done < self._now.get(label, (done + 1, 0))[0]:  # new, or the same work for another config begins again
                self._now.pop(label, None)
                self._begun[label] = done, self._clock()
            self._now[label] = done, total
            self._reported.add(label)
            self._latest = label

    def line(self) -> str | None:
        """A line about the outermost unfinished work that was reported since the last line; None without any."""
        with self._lock:
            self._now = {label: at for label, at in self._now.items() if not at[0] >= at[1] > 0}
            label = next((label for label in self._now if label in (self._reported or {self._latest})), None)
            self._reported = set()
            if label is None:
                return None
            (done, total), (base, since) = self._now[label], self._begun[label]
            counted, seconds = f"{label}: {done:,} of {total:,}", self._clock() - since
            if not total:
                return f"{label} …"
            if done == base or seconds <= 0:
                return counted
            pace = (done - base) / seconds
            rate = f"one every {1 / pace:.0f} s" if pace < 0.1 else f"{pace:,.{int(pace < 10)}f} a second"
            left = (total - done) / pace
            return f"{counted}, {rate}, about {f'{left:.0f} s' if left < 120 else f'{left / 60:.0f} min'} left"


@contextmanager
def progress_lines(
    say: Callable[[str], None], first_after_s: float = FIRST_AFTER_S, every_s: float = EVERY_S
) -> Iterator[Progress]:
    """A `Progress` whose state a thread says: a batch of a model may last longer than a line may be late."""
    lines, ended = ProgressLines(), threading.Event()

    def speak() -> None:
        wait_s = first_after_s
        while not ended.wait(wait_s):
            line = lines.line()
            if line is not None:
                say(line)
                wait_s = every_s

    thread = threading.Thread(target=speak, name="progress", daemon=True)
    thread.start()
    try:
        yield lines.report
    finally:
        ended.set()
        thread.join()


MOST = 2
"""Commands that are proposed: more would be a menu."""
MAX_QUERY_CHARS = 80
"""A longer query of the store is not proposed where a shorter one is available."""
WORDS_OF_A_MEMORY = 6


def say_next(*commands: Sequence[str] | None) -> None:
    """Print up to two commands to type next, a line each; each is a list of words, as `words_of` makes them, None is
    left out. A command is left out too if a terminal could not show it as it is typed: a text of the store may hold
    control characters."""
    shown = [line for words in commands if words and _typable(line := command_line(words))]
    for line in shown[:MOST]:
        say(f"next: {line}")


def request_options(request: Request, without: Sequence[int] = ()) -> list[str]:
    """The options of `search` and `why` that make this request again; `without` are the variants that are left out."""
    values = {field.name: getattr(request, field.name) for field in fields(request) if field.name != "query"}
    return asked_options(**values, without=without)


def repeated(*further: str) -> list[str]:
    """This very command, with more options."""
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *further, *words[end:]]


def unused(name: str) -> str:
    """A file name for --out that overwrites nothing: this one, or one with a number."""
    path, number = Path(name), 2
    while path.exists():
        path, number = Path(name).with_stem(f"{Path(name).stem}-{number}"), number + 1
    return str(path)


def flat(options: Iterable[tuple[str, str]]) -> list[str]:
    """Options with their values as words."""
    return [word for option in dict.fromkeys(options) for word in option]


def first_search(store: Store, options: Iterable[str] = (), query_set: str | None = None) -> list[str] | None:
    """A search to begin with: a judged query of the set (None: of any), else any query, else words of a memory; None
    without memories. It is asked as of now and without its project, as a newcomer types it."""
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
