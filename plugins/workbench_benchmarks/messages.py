"""Messages as turns: what chat APIs, agents and people keep of a conversation. Each is a memory "speaker: text" without a project.

    OpenAI, Anthropic   {role, content}, content a text or blocks: a list, {messages: [...]}, whatever else it has, or JSON lines of either
    LangChain           the same with `type` human or ai, as `model_dump`, `messages_to_dict` and `dumps` write it; {values: {messages}}
    LangGraph           the SQLite file of langgraph-checkpoint-sqlite: each message of a thread, with the time of its first checkpoint
    Claude Code         a session: {type, message, uuid, sessionId, timestamp} a line
    OpenClaw            a session: a header {type: session, id}, then {type: message, id, timestamp, message} a line
    plain text          `[time] speaker: text` lines; `# session` headings, or else blank lines, between sessions

An id is the message's own, or SESSION:N, the N-th message of its session; a session without a name has that of the file. Left out and
counted is what nobody said: tool calls and results, system prompts, what a program put in (Claude Code's isMeta, sidechains, summaries),
parts that are no text. A checkpoint is decoded as plain data: no class is loaded, and a pickled one is not read.

Checked with files that langgraph-checkpoint-sqlite 3.1.2, langchain-core 1.8.3, Claude Code 2.1.197 and OpenClaw 2026.9.6 (the entries of
its SessionManager) wrote.
"""

from __future__ import annotations

import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import (
    Sample,
    open_file,
    parse_json,
    read_lines,
    read_records,
    take_sample,
    type_name,
)
from cems_workbench.formats.base.format import described
from cems_workbench.platform import sqlite_copy
from cems_workbench.progress import Progress
from cems_workbench.records import Memory, ParsedInput
from workbench_benchmarks.conversations import TIME_FORMS, TIMES, Reading, an_object, is_said, name_of, said_at

NAME = "messages"
COPY_S = 10.0
"""How long a program that writes all the time is waited for."""
SPEAKERS = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "model": "assistant"}
PROMPTS = ("system", "developer", "custom")
TOOLS = ("tool", "function", "toolresult", "bashexecution", "function_call", "function_call_output")
ROLES = (*SPEAKERS, *PROMPTS, *TOOLS)
TEXTS = ("text", "input_text", "output_text")
NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isApiErrorMessage")
SESSIONS = ("sessionId", "session_id", "thread_id", "conversation_id", "session", "id")
OTHERS = {"qa", "qa_pairs", "question", "questions", "query", "results", "haystack_sessions", "probing_questions"}
"""Fields of rows that have messages and are more than these."""
PYDANTIC = (4, 5)
"""Of a checkpoint's extension types those of models: (module, class, fields, method)."""
AS_JSON = 'json.dump([m.model_dump() for m in graph.get_state(config).values["messages"]], file) writes what is read'
_TURN = re.compile(r"(?:\[(?P<time>[^\]]+)\]\s*)?(?P<who>[^\W\d_][^:\[\]{}\"=<>|/]{0,39}):\s+(?P<said>\S.*)")
_HEADING = re.compile(r"#+\s*(?:\[(?P<time>[^\]]+)\])?\s*(?P<name>.*)")
FEWEST_TURNS, TURNS_OF_ONE = 4, 2
"""Of lines of text that are taken for a conversation: how many, and how many a speaker has on average."""


@dataclass
class _Turns:
    """The turns of a file; `session` is that of the rows that name none, `rows` the row of each turn by its id,
    `given` the ids of messages with their sessions."""

    reading: Reading
    stem: str
    session: str
    counts: Counter[str] = field(default_factory=Counter)
    rows: dict[str, int] = field(default_factory=dict)
    given: set[tuple[str, str]] = field(default_factory=set)

    def add(self, row: int, session: str, given: Any, outer: Mapping[str, Any] | None = None) -> None:
        """Add a message, in which `outer` was around it, or count why it is none. Raises FieldError."""
        self.counts[session] += 1
        message = _plain(given)
        outer = outer or message
        role = str(message.get("role") or message.get("type")).lower()
        counted = self.reading.counted
        if role not in ROLES:
            raise FieldError("role", f"must be user, assistant, system or tool, or human or ai, found {role[:40]!r}")
        if role in TOOLS or role in PROMPTS or any(outer.get(name) for name in NOT_SAID):
            counted["tools" if role in TOOLS else "prompts"].append(role)
            return
        texts, tools, parts = _content(message.get("content"))
        calls = message.get("tool_calls")
        tools = max(tools, len(calls) if isinstance(calls, list) else 0) + bool(message.get("function_call"))
        counted["tools"] += [role] * tools
        counted["parts"] += parts
        if not (text := "\n".join(texts).strip()):
            if tools or parts:
                return
            raise FieldError("content", "has no text")
        own = next((one for one in (outer.get("uuid"), outer.get("id"), message.get("id")) if isinstance(one, str)), "")
        times = [each[name] for each in (outer, message) for name in (*TIMES, "created_at") if is_said(each.get(name))]
        self.say(row, session, name_of(own, ""), name_of(message.get("name"), SPEAKERS[role]), text, *times[:1])

    def say(self, row: int, session: str, name: str, speaker: str, text: str, time: Any = None) -> None:
        """Add what was said; a time that cannot be read costs the time. Raises FieldError for an id that its session has already."""
        text = fields.required_text({"content": text}, "content")
        if (session, name) in self.given:
            raise FieldError("id", f"{name!r} stands already in this session")
        self.given |= {(session, name)} if name else set()
        if not name or name in self.rows:  # an id may be one of its session alone
            name = fields.identifier({"id": f"{session}:{self.counts[session]}"}, "id")
        if name in self.rows:
            raise FieldError("id", f"{name!r} stands already in row {self.rows[name]}")
        self.rows[name] = row
        when = said_at(time)
        if when is None:
            self.reading.counted["undated"].append(name)
        if when is None and is_said(time):
            self.reading.report(row, f"{name} time", f"must be a time such as {TIME_FORMS}, found {str(time)[:40]!r}")
        more: dict[str, Any] = {"created_at": when, "last_accessed": when, "source_ref": f"{NAME}:{name}"}
        self.reading.memories.append(Memory(name, f"{speaker}: {text}", session=session, author=speaker, **more))

    def read_row(self, number: int, row: dict[str, Any]) -> None:
        """Read a row of JSON. Raises FieldError for one that is neither a message, nor messages, nor an event of a session."""
        found = _messages(row)
        if found is not None:
            named = next((row[name] for name in SESSIONS if row.get(name)), None)
            session = name_of(named, f"{self.stem}/{number}")
            for place, message in enumerate(found, start=1):
                with self.reading.reporting(number, f"message {place}"):
                    self.add(number, session, message)
            return
        session = name_of(next((row[name] for name in SESSIONS[:-1] if row.get(name)), None), self.session)
        if row.get("type") == "session" and "message" not in row:
            self.session = name_of(row.get("id"), session)
        elif isinstance(row.get("message"), dict):
            self.add(number, session, row["message"], row)
        elif "role" in row or _is_message(row):
            self.add(number, session, row)
        elif "type" in row:
            self.reading.counted["events"].append(f"{str(row['type'])[:40]} in row {number}")
        else:
            raise FieldError("role", "is missing, and so is messages")


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read one file; raises InputError when it has no message."""
    turns = _Turns(Reading(NAME, str(path)), path.stem, path.stem)
    if _is_sqlite(path):
        _read_checkpoints(path, turns)
    elif take_sample(path).rows:
        for number, row in read_records(path, turns.reading.errors, progress):
            with turns.reading.reporting(number, ""):
                turns.read_row(number, row)
    else:
        _read_text(path, turns, progress)
    if not turns.counts and not turns.reading.errors:
        raise InputError(f"{path}: has no message")
    return turns.reading.parsed().with_rows(memories=zip(turns.rows.values(), turns.reading.memories, strict=True))


def _plain(given: Any) -> dict[str, Any]:
    """A message with its fields at the top. Raises FieldError for what is none."""
    if isinstance(given, list | tuple) and len(given) == 2:  # as a graph takes it: ("user", "text")
        return {"role": given[0], "content": given[1]}
    row = an_object(given)
    inner = [row[name] for name in ("data", "kwargs") if isinstance(row.get(name), dict) and "content" in row[name]]
    return inner[0] if inner else row


def _messages(row: dict[str, Any]) -> list[Any] | None:
    """The messages of a row that is a conversation, or the state of a graph."""
    for each in (row, row.get("values")):
        if isinstance(each, dict) and isinstance(each.get("messages"), list):
            return list(each["messages"])
    return None


def _is_message(row: Any) -> bool:
    """Whether something is a message of a chat API or of LangChain, and not one of named people."""
    if not isinstance(row, dict):
        return False
    row = _plain(row)
    return str(row.get("role") or row.get("type")).lower() in ROLES and ("content" in row or "tool_calls" in row)


def _content(content: Any) -> tuple[list[str], int, list[str]]:
    """The texts of a content, its tool calls and results, and the kinds of its other parts. Raises FieldError."""
    if not isinstance(content, str | list | None):
        raise FieldError("content", f"must be a text or a list of blocks, found {type_name(content)}")
    texts, parts, tools = list[str](), list[str](), 0
    for block in [content] if isinstance(content, str) else content or ():
        kind = str(block.get("type")) if isinstance(block, dict) else type_name(block)
        if isinstance(block, str):
            texts.append(block)
        elif kind in TEXTS and isinstance(block.get("text"), str):
            texts.append(block["text"])
        elif "tool" in kind.lower():
            tools += 1
        else:
            parts.append(kind)
    return texts, tools, parts


def _is_sqlite(path: Path) -> bool:
    with open_file(path).open("rb") as file:
        return file.read(15) == b"SQLite format 3"


def _checkpoints(path: Path) -> Iterator[tuple[str, str, bytes]]:
    """(thread, type, checkpoint) of each checkpoint of a graph itself, the oldest of a thread first. Raises sqlite3.Error."""
    with tempfile.TemporaryDirectory(prefix="cems-checkpoints-") as folder:
        # Of a copy, as opening the file itself would leave files beside it.
        if problem := sqlite_copy.copy(str(path), folder, COPY_S).get("problem"):
            raise sqlite3.OperationalError(f"it is {problem}")
        with closing(sqlite3.connect(Path(folder) / "copy.db")) as database:
            yield from database.execute(
                "SELECT CAST(thread_id AS TEXT), type, checkpoint FROM checkpoints "
                "WHERE checkpoint_ns = '' ORDER BY thread_id, checkpoint_id"
            )


def _read_checkpoints(path: Path, turns: _Turns) -> None:
    """Add the messages of a file of checkpoints. Raises InputError without the package that decodes them."""
    try:
        import msgpack
    except ImportError:
        raise InputError(f"{path}: checkpoints need the package msgpack: pip install msgpack; or {AS_JSON}") from None

    def decoded(data: bytes) -> Any:
        return msgpack.unpackb(data, ext_hook=fields_of, strict_map_key=False)

    def fields_of(code: int, data: bytes) -> Any:
        return decoded(data)[2] if code in PYDANTIC else None

    readers = {"msgpack": decoded, "json": parse_json}
    seen: set[tuple[str, str]] = set()
    try:
        for number, (thread, kind, data) in enumerate(_checkpoints(path), start=1):
            with turns.reading.reporting(number, f"checkpoint of {thread}"):
                if kind not in readers:
                    raise FieldError("type", f"must be {' or '.join(readers)}, found {kind!r}; {AS_JSON}")
                try:
                    state = an_object(readers[kind](data))
                except (ValueError, LookupError, TypeError, RecursionError, msgpack.UnpackException) as error:
                    raise FieldError("", f"cannot be decoded: {error or type(error).__name__}") from None
                for messages in an_object(state.get("channel_values")).values():
                    for place, message in enumerate(messages if isinstance(messages, list) else ()):
                        known = (thread, str(_plain(message).get("id") or place)) if _is_message(message) else None
                        if known and known not in seen:
                            seen.add(known)
                            with turns.reading.reporting(number, f"message {known[1]} of {thread}"):
                                turns.add(number, thread, message, {**_plain(message), "timestamp": state.get("ts")})
    except sqlite3.Error as error:
        raise InputError(f"{path}: has no checkpoints of LangGraph that can be read: {error}") from None


def _read_text(path: Path, turns: _Turns, progress: Progress) -> None:
    """Add the turns of lines of text; a line that begins none goes on with the one above."""
    errors = turns.reading.errors
    lines = list(read_lines(path, errors, progress))
    above = {0, *(number for number, _ in lines), *(error.row for error in errors)}
    begins = {number for number, _ in lines if number - 1 not in above}
    headed = any(line.startswith("#") for _, line in lines)
    if headed or len(begins) >= len(lines) - 1:  # where each turn stands alone, blank lines mean nothing
        begins = set()
    session, when, part = f"{turns.stem}/1" if begins else turns.stem, None, 0 if headed else 1
    said: list[tuple[int, str, str, list[str], str | None]] = []
    for number, line in lines:
        heading, turn = _HEADING.fullmatch(line), _TURN.fullmatch(line.strip())
        if heading or number in begins:
            part += 1
            name = name_of(heading["name"], "") if heading else ""
            when = (heading["time"] or (name if said_at(name) else None)) if heading else None
            session = f"{turns.stem}/{name or part}"
        if turn:
            said.append((number, session, turn["who"].strip(), [turn["said"]], turn["time"] or when))
        elif not heading and said and said[-1][1] == session:
            said[-1][3].append(line.strip())
        elif not heading:
            turns.reading.report(number, "", "must be `speaker: text`, and no turn stands above it")
    for number, session, speaker, texts, time in said:
        with turns.reading.reporting(number, ""):
            turns.counts[session] += 1
            turns.say(number, session, "", speaker, "\n".join(texts), time)


def _spoken(sample: Sample) -> Counter[str]:
    """How many turns each speaker of a text has in its beginning."""
    lines = [] if sample.rows or sample.document is not None or sample.path.suffix.lower() != ".txt" else sample.lines
    found = Counter(match["who"].strip() for line in lines if (match := _TURN.fullmatch(line.strip())))
    return found if found.total() * 2 >= len(lines) else Counter()


def sniff(sample: Sample) -> bool:
    """Conversations of messages, events of sessions, bare messages that say nothing else, checkpoints, lines of several speakers."""
    rows = sample.rows
    if not rows:
        spoken = _spoken(sample)
        return _has_checkpoints(sample.path) or (
            spoken.total() >= FEWEST_TURNS and spoken.total() >= TURNS_OF_ONE * len(spoken) >= 2 * TURNS_OF_ONE
        )
    if any(map(_is_event, rows)) or sample.mostly(lambda row: not row.keys() & OTHERS and _talks(_messages(row))):
        return True
    bare = all(row.keys() <= {"role", "content", "name"} for row in rows)
    return sample.mostly(_is_message) and (bare or any(map(_is_of_api, rows)))


def _has_checkpoints(path: Path) -> bool:
    """Whether a database has the table, by its file alone; one that is being written may have it in its log only."""
    if not _is_sqlite(path):
        return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'checkpoints'").fetchone():
                return True
        return path.with_name(f"{path.name}-wal").exists() and next(_checkpoints(path), None) is not None
    except sqlite3.Error:
        return False


def _is_event(row: dict[str, Any]) -> bool:
    return isinstance(row.get("type"), str) and _is_message(row.get("message")) and "role" in row["message"]


def _talks(messages: list[Any] | None) -> bool:
    return any(map(_is_message, (messages or ())[:5]))


def _is_of_api(row: dict[str, Any]) -> bool:
    """Whether a message has what no plain list of messages has: blocks, tools, or a type for a role."""
    plain = _plain(row)
    blocks = isinstance(plain.get("content"), list) and all(isinstance(each, dict) for each in plain["content"])
    return blocks or "role" not in plain or "tool_calls" in plain or str(plain["role"]).lower() in TOOLS


def doubt(sample: Sample) -> str:
    """What a text of a few turns may be."""
    return "may be a conversation of `speaker: text` lines, or notes" if _spoken(sample).total() > 1 else ""


FORMAT = described(__file__, NAME, sniff, read, doubt=doubt)
