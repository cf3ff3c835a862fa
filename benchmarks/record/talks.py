"""Have a memory system write down a conversation of LoCoMo with a small language model, and keep what it wrote.

    python -m benchmarks.record.talks mem0 --talk 30.json --folder mem0-30 --embeddings URL --chat URL
    python -m benchmarks.record.talks langmem --talk 30.json --folder langmem-30 --embeddings URL --chat URL

Run with the Python that has the system (mem0ai 2.2.1; langmem 0.0.30 with langchain-openai and langgraph-checkpoint-sqlite 3.1.2), beside
`benchmarks.record.embeddings` and `benchmarks.record.language_model`. The folder is the system's own store: Qdrant in local mode for
mem0, a file of LangGraph's SqliteStore for LangMem; a second run goes on where the first ended, and `memories.json`
is what it gives out of it (`get_all`, the items of `search`), as `import` reads it. Nothing is written but by the system:

    mem0      Memory.add(turns, user_id, run_id, prompt=MEM0_SAYS), a run for each add; its time is the metadata created_at
    langmem   create_memory_store_manager(instructions=LANGMEM_SAYS).invoke(turns), a namespace for each; its time is that of the run

A few turns are added at a time. The model sees the last PROMPT_END characters of mem0's system prompt of 35,000, as a server with a short
context that drops the beginning. A grammar holds it to the system's own form of answer, with texts that begin with a speaker's name.
What it then writes is often wrong, which is what the stores are for.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sqlite3
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.record.mem0 import plain_config
from benchmarks.record.recording import Row, embedded, with_vectors

TURNS = {"mem0": 10, "langmem": 6}
"""Turns of one add."""
LONGEST = 120
"""Characters of a text after its name."""
PROMPT_END = 1500
TIMEOUT_S = 600
ALL = 10_000
Add = Callable[[str, datetime, list[Row]], int]
"""Adds turns of a session said at a time; returns how many memories were written."""
Written = Callable[[], Any]
SAID_AT = "%I:%M %p on %d %B, %Y"
MEM0_SAYS = "Each text repeats one fact from New Messages: who did what, when, where and why."
LANGMEM_SAYS = "List the facts that the speakers tell about themselves, one short sentence each, beginning with the speaker's name."


def sessions(talk: Row) -> Iterator[tuple[str, datetime, list[Row]]]:
    """The sessions of a conversation of LoCoMo in order: name, time (UTC), turns."""
    numbers = sorted(int(name[8:]) for name in talk if name.startswith("session_") and name[8:].isdecimal())
    for number in numbers:
        at = datetime.strptime(talk[f"session_{number}_date_time"], SAID_AT)
        yield f"session_{number}", at.replace(tzinfo=timezone.utc), talk[f"session_{number}"]  # noqa: UP017


def part_name(session: str, turns: list[Row]) -> str:
    """A separate run or namespace for each add, so that no earlier turns or memories lengthen the prompt."""
    return f"{session}-{turns[0]['dia_id'].partition(':')[2]}"


def answer_of(chat: str, messages: Sequence[Row], field: str, texts: str, starts: Sequence[str], count: str) -> str:
    """What the model answers: an object whose field is a list of objects, each with a text that begins with one of the starts, and as many
    as `count` says in the form of a grammar ("{2,3}" after the first)."""
    begins = " | ".join(json.dumps(start) for start in starts)
    grammar = rf'''root ::= "{{\"{field}\": [" one (", " one){count} "]}}"
one ::= "{{\"{texts}\": \"" ({begins}) [^"\\\n]{{8,{LONGEST}}} "\"}}"'''
    body = {"messages": messages, "grammar": grammar, "temperature": 0, "repeat_penalty": 1.1, "max_tokens": 300}
    request = urllib.request.Request(
        f"{chat.rstrip('/')}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


class ShortContext:
    """A language model of mem0 that sees the end of the system prompt alone."""

    def __init__(self, chat: str, names: Sequence[str]) -> None:
        self.chat, self.names = chat, names

    def generate_response(self, messages: Sequence[Row], **named: Any) -> str:
        """mem0's request; the form that it names is the one of its prompt."""
        seen = [
            {**one, "content": one["content"][-PROMPT_END:]} if one["role"] == "system" else one for one in messages
        ]
        return answer_of(self.chat, seen, "memory", "text", [f"{name}: " for name in self.names], "{2}")


def mem0_writer(given: Any, names: Sequence[str]) -> tuple[Add, Written]:
    """What adds turns to mem0, and what it then has."""
    os.environ.setdefault("MEM0_DIR", str(given.folder))  # read when mem0 is imported
    os.environ.setdefault("MEM0_TELEMETRY", "False")
    config = plain_config(str(given.folder), "qdrant", given.embeddings, given.model)
    memory = importlib.import_module("mem0").Memory.from_config(config)
    memory.llm = ShortContext(given.chat, names)

    def written() -> Any:
        return memory.get_all(filters={"user_id": given.talk.stem}, top_k=ALL)

    def add(session: str, at: datetime, turns: list[Row]) -> int:
        said = [{"role": "user", "content": f"{turn['speaker']}: {turn['text']}"} for turn in turns]
        about = {"created_at": at.isoformat(), "turns": [turn["dia_id"] for turn in turns]}
        found = memory.add(
            said, user_id=given.talk.stem, run_id=part_name(session, turns), metadata=about, prompt=MEM0_SAYS
        )
        return len(found["results"])

    return add, written


def langmem_writer(given: Any, names: Sequence[str]) -> tuple[Add, Written]:
    """What adds turns to LangMem, and what its store then has."""
    if not hasattr(sqlite3.Connection, "enable_load_extension"):
        sys.modules["sqlite3"] = sys.modules["sqlite3.dbapi2"] = importlib.import_module("pysqlite3")
    width = len(embedded(["width"], given.embeddings, given.model)[0])
    index = {
        "dims": width,
        "embed": lambda texts: embedded(texts, given.embeddings, given.model),
        "text_fields": ["content.content"],
    }
    connection = sys.modules["sqlite3"].connect(
        str(given.folder / "store.db"), isolation_level=None, check_same_thread=False
    )
    store = importlib.import_module("langgraph.store.sqlite").SqliteStore(connection, index=index)
    store.setup()
    messages = importlib.import_module("langchain_core.messages")
    runnables = importlib.import_module("langchain_core.runnables")
    models = importlib.import_module("langchain_core.language_models.fake_chat_models")

    class Grammar(models.GenericFakeChatModel):  # type: ignore[name-defined, misc]
        """A chat model whose tool calls are the texts that the grammar gave: the template of this model knows no tools."""

        def bind_tools(self, tools: Sequence[Any], **named: Any) -> Any:
            name = tools[0].__name__ if isinstance(tools[0], type) else "Memory"
            return runnables.RunnableLambda(lambda asked: called(name, asked))

    def called(name: str, asked: Any) -> Any:
        roles = {"human": "user", "system": "system", "ai": "assistant"}
        sent = [{"role": roles[one.type], "content": one.content} for one in _messages(asked)]
        rows = json.loads(answer_of(given.chat, sent, "calls", "content", [f"{name}: " for name in names], "{1}"))[
            "calls"
        ]
        calls = [{"name": name, "args": row, "id": f"call_{i}"} for i, row in enumerate(rows)]
        return messages.AIMessage(content="", tool_calls=calls)

    def _messages(asked: Any) -> list[Any]:
        return list(messages.convert_to_messages(asked.to_messages() if hasattr(asked, "to_messages") else asked))

    def add(session: str, at: datetime, turns: list[Row]) -> int:
        manager = importlib.import_module("langmem").create_memory_store_manager(
            Grammar(messages=iter(())),
            instructions=LANGMEM_SAYS,
            namespace=("memories", given.talk.stem, part_name(session, turns)),
            store=store,
        )
        said = [{"role": "user", "content": f"{turn['speaker']}: {turn['text']}"} for turn in turns]
        return len(manager.invoke({"messages": said}))

    def written() -> Any:
        return sorted(
            (item.dict() for item in store.search(("memories",), limit=ALL)), key=lambda row: row["created_at"]
        )

    return add, written


def main() -> None:
    """Add what is not added yet, and say how far it is."""
    parser = with_vectors(
        argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    )
    parser.add_argument("system", choices=("mem0", "langmem"))
    parser.add_argument("--talk", type=Path, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sessions", type=int, default=None, metavar="N", help="only the first N sessions")
    parser.add_argument("--chat", default="http://127.0.0.1:8767/v1")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    talk = json.loads(given.talk.read_text("utf-8"))
    names = [talk["speaker_a"], talk["speaker_b"]]
    add, written = (mem0_writer if given.system == "mem0" else langmem_writer)(given, names)
    log = given.folder / "added.txt"
    done = log.read_text("utf-8").split() if log.exists() else []
    for session, at, turns in list(sessions(talk))[: given.sessions]:
        for start in range(0, len(turns), TURNS[given.system]):
            part = turns[start : start + TURNS[given.system]]
            if part[0]["dia_id"] in done:
                continue
            begun = time.perf_counter()
            count = add(session, at, part)
            with log.open("a", encoding="utf-8") as file:
                file.write(f"{part[0]['dia_id']}\n")
            print(f"{session} {part[0]['dia_id']}: {count} memories, {time.perf_counter() - begun:.0f} s", flush=True)
    (given.folder / "memories.json").write_text(
        json.dumps(written(), ensure_ascii=False, indent=0, default=str) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
