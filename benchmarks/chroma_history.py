"""Random sequences of import, edit, delete, restore, undo and catch-up, killed at random moments: they end with Chroma equal to DuckDB.

    python -m benchmarks.kills --kills 200 chroma

Every step is a fork of this process, which has loaded what it needs; four in ten are killed (SIGKILL) at a random moment. At the end the
store is opened again, refreshed and caught up with, which must report nothing, and every record of the collection is compared with what
the memories, read from DuckDB, make of it: ids, texts, metadata, and the vectors of a fresh embedding.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.errors import InputError
from cems_workbench.records import Chunk, Memory, ParsedInput
from cems_workbench.store import Store
from cems_workbench.store.search import chroma_collection
from tests.small_store import HashEmbedder

STEPS = 12
KILLED = 0.4
MOST_DELAY_S = 0.35
"""A step takes about this long."""
WRITE_ROWS = 8
"""Few, so that a write has several batches."""
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]


def memory(rng: random.Random, number: int) -> Memory:
    """A memory with random text and metadata."""
    return Memory(
        f"m{number:02}",
        " ".join(rng.choices(WORDS, k=4)),
        title=rng.choice((None, "Title")),
        project=rng.choice((None, "p1", "p2")),
        session=rng.choice((None, "s1", "s2")),
        author=rng.choice((None, "mira")),
        tags=tuple(rng.sample(WORDS, rng.choice((0, 0, 1, 2)))),
        created_at=rng.choice((None, datetime(2026, 1, rng.randint(1, 28), tzinfo=UTC))),
    )


def change(store: Store, rng: random.Random) -> None:
    """One random step."""
    known = store.memories.ids()
    kind = rng.choice(("import", "import", "edit", "edit", "tags", "delete", "restore", "undo", "catch up"))
    if kind == "import" or not known:
        numbers = rng.sample(range(40), rng.randint(1, 30))
        chunks = [
            Chunk(f"m{n:02}", seq, f"{rng.choice(WORDS)} part {seq}") for n in numbers if n % 5 == 0 for seq in (0, 1)
        ]
        store.add(ParsedInput("in", "test", tuple(memory(rng, n) for n in numbers), chunks=tuple(chunks)))
    elif kind in ("edit", "tags"):
        one = store.memories.read()[rng.choice(known)]
        new = memory(rng, 0)
        store.memories.update(
            replace(one, content=new.content, project=new.project)
            if kind == "edit"
            else replace(one, tags=new.tags, author=new.author)
        )
    elif kind == "delete":
        store.memories.delete(rng.choice(known))
    elif kind == "restore":
        for gone in store.memories.deleted(5)[0]:
            store.memories.restore(gone.memory.id)
    elif kind == "undo":
        with suppress(InputError):
            store.imports.undo()
    # An edit leaves Chroma to a later step, as the command of one does.
    if kind in ("import", "undo", "catch up"):
        embedder = HashEmbedder()
        store.indexes.refresh(embedder)
        if said := store.indexes.catch_up_chroma(embedder.model_id):
            raise RuntimeError(said)


def compare(store: Store) -> None:
    """Raises RuntimeError where the collection is not what the memories make."""
    embedder = HashEmbedder()
    store.indexes.refresh(embedder)
    if said := store.indexes.catch_up_chroma(embedder.model_id):
        raise RuntimeError(said)
    state = store.indexes.chroma_state(embedder.model_id)
    found: Any = store.indexes.graph(embedder).get(include=["documents", "metadatas", "embeddings"])
    held = {
        key: rest
        for key, *rest in zip(*(found[name] for name in ("ids", "documents", "metadatas", "embeddings")), strict=True)
    }
    memories = store.memories.read()
    wanted: dict[str, tuple[str, dict[str, Any]]] = {}
    for memory_id, texts in store.indexes.texts(list(memories)).items():
        one = memories[memory_id]
        for seq, text in texts.items():
            created = one.created_at.strftime("%Y-%m-%dT%H:%M:%SZ") if one.created_at else None
            values = {
                "memory": memory_id,
                "title": one.title,
                "chunk": seq,
                "project": one.project,
                "scope": one.scope,
                "session": one.session,
                "author": one.author,
                "created_at": created,
                "tags": list(one.tags) or None,
            }
            key = memory_id if seq is None else f"{memory_id}\x1f{seq}"
            wanted[key] = text, values
    if held.keys() != wanted.keys() or state.records != len(wanted) or state.outstanding:
        raise RuntimeError(f"{sorted(held.keys() ^ wanted.keys())} differ; {state}")
    for key, (text, metadata) in wanted.items():
        same = held[key][0] == text and all(held[key][1].get(name) == value for name, value in metadata.items())
        if not same or not np.allclose(held[key][2], embedder.encode([text])[0], atol=1e-6):
            raise RuntimeError(f"{key}: {held[key]} is not {text!r}, {metadata}")


def forked(folder: Path, work: Any, *arguments: Any, kill_after: float | None = None) -> str:
    """Do something with the store in a fork; how it ended: empty, "killed", or what it raised."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        said = ""
        try:
            batch = chroma_collection.ChromaCollection.write
            chroma_collection.ChromaCollection.write = lambda *given: batch(*given[:-1], WRITE_ROWS)  # type: ignore[method-assign, call-arg]
            with Store.open(folder) as store:
                work(store, *arguments)
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode()[:4_000])
        os._exit(0)
    os.close(write)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    return "killed" if os.WIFSIGNALED(os.waitpid(pid, 0)[1]) else said


def sequence(seed: int, folder: Path) -> tuple[str, Counter[str]]:
    """One sequence: what was wrong, empty if nothing was, and how its steps ended."""
    rng, ended = random.Random(seed), Counter[str]()
    for _ in range(STEPS):
        after = rng.random() * MOST_DELAY_S if rng.random() < KILLED else None
        said = forked(folder, change, random.Random(rng.random()), kill_after=after)
        ended["killed" if said == "killed" else "done"] += 1
        if said not in ("", "killed"):
            return f"sequence {seed}: {said}", ended
    said = forked(folder, compare)
    return said and f"sequence {seed}: {said}", ended


def run(count: int, seed: int, home: Path) -> list[str]:
    """Run so many sequences; prints a line, and returns what was wrong."""
    import chromadb  # noqa: F401 (before the forks)

    wrong, ended = list[str](), Counter[str]()
    for number in range(seed, seed + count):
        said, steps = sequence(number, home / "store")
        shutil.rmtree(home / "store", ignore_errors=True)
        ended += steps
        if said:
            wrong.append(said)
            print(said, flush=True)
    print(f"chroma   {count} sequences of {STEPS} steps, {ended['killed']} killed, {len(wrong)} wrong", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(bool(run(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
