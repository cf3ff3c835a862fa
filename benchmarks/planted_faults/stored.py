"""Faults of what is stored or asked: the config is well, a memory, an edge or the query is not."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted_faults import Fault, Pair, Planted, Right
from benchmarks.planted_faults.parameters import PLAIN

ROOT = Path(__file__).parents[2]
COUNTED = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen".split()  # noqa: SIM905
Rows = list[dict[str, Any]]


def pairs_of_sample(healthy: Path) -> list[Pair]:
    """Judged pairs that the plain config has among the first three, of different memories."""
    import cems_workbench as workbench
    from benchmarks.planted import configured, judged_pairs, rank_of

    found: dict[str, Pair] = {}
    config = configured("workbench", PLAIN)
    with workbench.open_store(healthy) as store:
        for query, memory_id in judged_pairs(healthy):
            rank = rank_of(store, query, memory_id, config)
            if rank and rank <= 3 and memory_id not in found and len(query.split()) >= 4:
                found[memory_id] = (query, memory_id)
            if len(found) == 9:
                break
    return list(found.values())[::3]


def memory(memory_id: str) -> dict[str, Any]:
    """A memory of the sample, as its file has it."""
    lines = (ROOT / "sample_data" / "memories.jsonl").read_text().splitlines()
    return next(row for row in map(json.loads, lines) if row["id"] == memory_id)


def imported(healthy: Path, folder: Path, files: dict[str, Rows]) -> tuple[Path, str]:
    """A copy of the healthy store into which these files were imported, and what the imports printed."""
    import shutil

    from benchmarks.planted import command

    store, said = folder / "store", ""
    shutil.copytree(healthy, store)
    for name, rows in files.items():
        path = folder / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        code, out, error = command(store, "import", str(path), "--replace")
        if code:
            raise SystemExit(f"{name}: {error}")
        said += out + error
    return store, said


def of_memories(change: Callable[[Pair], dict[str, Rows]], **planted: Any) -> Callable[[Path, Path], Planted]:
    """A plant that imports what `change` makes of each pair."""

    def plant(healthy: Path, folder: Path) -> Planted:
        pairs = pairs_of_sample(healthy)
        files: dict[str, Rows] = {}
        for pair in pairs:
            for name, rows in change(pair).items():
                files.setdefault(name, []).extend(rows)
        store, said = imported(healthy, folder, files)
        return Planted(store, "workbench", pairs=pairs, said=said, **planted)

    return plant


def changed(**values: Any) -> Callable[[Pair], dict[str, Rows]]:
    """The memory with other values."""
    return lambda pair: {"memories.jsonl": [{**memory(pair[1]), **values}]}


def superseded(pair: Pair) -> dict[str, Rows]:
    """A later memory that only repeats the question, with an edge to the right one."""
    new = {
        "id": f"later-{pair[1]}",
        "content": f"Asked again in the retrospective: {pair[0]}? That was put on the list for the next one.",
        "created_at": "2026-08-20T08:00:00Z",
    }
    edge = {"source_id": new["id"], "target_id": pair[1], "kind": "supersedes", "weight": 1.0}
    return {"memories.jsonl": [new], "relations.jsonl": [edge]}


def copies(pair: Pair) -> dict[str, Rows]:
    """Fourteen copies of one text that repeats the question."""
    text = f"Somebody asked: {pair[0]}? Nobody had an answer that day, and the thread was closed."
    return {
        "memories.jsonl": [
            {"id": f"copy-{pair[1]}-{n}", "content": f"{text} ({n})", "created_at": "2026-05-01T08:00:00Z"}
            for n in range(14)
        ]
    }


def flood(pair: Pair) -> dict[str, Rows]:
    """Fourteen pieces of one long note, each of which speaks of the question."""
    return {
        "memories.jsonl": [
            {
                "id": f"note-{pair[1]}-{n}",
                "content": f"Minutes, part {n}. {pair[0]}: {extra}",
                "title": f"Minutes of the {pair[1]} meeting",
                "session": f"minutes-{pair[1]}",
                "metadata": {"source": f"minutes-{pair[1]}.md", "chunk": n},
                "created_at": "2026-05-01T08:00:00Z",
            }
            for n, extra in enumerate(
                f"point {word} was put off until the next round and nobody took it" for word in COUNTED
            )
        ]
    }


def typo(query: str) -> str:
    """The longest two words with two letters swapped or doubled."""
    words = query.split()
    for place in sorted(range(len(words)), key=lambda place: -len(words[place]))[:3]:
        word = words[place]
        middle = len(word) // 2
        words[place] = word[: middle - 1] + word[middle] + word[middle - 1] + word[middle] + word[middle + 1 :]
    return " ".join(words)


def enveloped(query: str) -> str:
    """The query inside the message that an agent received."""
    head = "Conversation info (untrusted metadata): {'channel': 'ops-mobile', 'sender': 'bridge-7', 'message_kind': 'inbound text'} "
    return (
        head
        + "Sender: bridge relay of the mobile operations channel, forwarded without changes to the assistant. "
        + query
    )


def set_right(**values: Any) -> Right:
    """`Right` with a list of stages in words."""
    stages: Sequence[str] = values.pop("stages").split()
    return Right(frozenset("" if stage == "-" else stage for stage in stages), **values)


def asked(change: Callable[[str], str]) -> Callable[[Path, Path], Planted]:
    """A plant that changes the query alone."""
    return lambda healthy, folder: Planted(healthy, query=change)


FAULTS = [
    Fault(
        "expired",
        "a wrong end of validity",
        set_right(stages="supersession", words=r"expired|valid"),
        of_memories(changed(valid_until="2026-03-01T00:00:00Z"), changes={"supersession.expired": "drop"}),
        PLAIN,
    ),
    Fault(
        "valid-later",
        "a start of validity in the future",
        set_right(stages="supersession", words=r"not valid before|valid from|not yet valid"),
        of_memories(changed(valid_from="2027-03-01T00:00:00Z"), changes={"supersession.expired": "drop"}),
        PLAIN,
    ),
    Fault(
        "wrong-edge",
        "an edge says that another memory supersedes it",
        set_right(stages="supersession", words=r"superseded by later-m"),
        of_memories(superseded, changes={"supersession.mode": "drop"}),
        PLAIN,
    ),
    Fault(
        "wrong-project",
        "it was written into another project than that of the query",
        set_right(stages="-", words=r"project"),
        of_memories(changed(project="lab/other"), options=("--project", "harbor/api", "--only-project")),
        PLAIN,
    ),
    Fault(
        "copies",
        "copies of one text fill the results",
        set_right(stages="lists fusion -", words=r"copies|near.duplicate|same text|dedup|mmr"),
        of_memories(copies),
        PLAIN,
    ),
    Fault(
        "chunk-flood",
        "the pieces of one note fill the results",
        set_right(
            stages="lists fusion",
            words=r"(chunks|pieces|memories|results|of the first \d+)[^\n]{0,60}(of|from|share)[^\n]{0,40}minutes|dedup|mmr",
        ),
        of_memories(flood),
        PLAIN,
    ),
    Fault(
        "typo",
        "the query has three misspelt words",
        set_right(stages="- lists fusion", words=r"typo|misspel|spell|no memory has|in no memory|occurs? nowhere"),
        asked(typo),
        {**PLAIN, "lists.vector.enabled": False},
    ),
    Fault(
        "envelope",
        "the query carries the envelope of its message",
        set_right(
            stages="",
            words=r"last sentence|envelope|metadata|untrusted|--searched|first \d+ characters|words of the query that",
        ),
        asked(enveloped),
        PLAIN,
    ),
]
