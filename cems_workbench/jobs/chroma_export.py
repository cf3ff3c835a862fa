"""A store's memories with their vectors as a collection of Chroma, in a new folder that any client of the same version opens."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cems_workbench.errors import InputError, counted
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Report
from cems_workbench.store import Store
from cems_workbench.store.rows import portions
from cems_workbench.store.search import chroma
from cems_workbench.store.search.entries import key_of

if TYPE_CHECKING:
    from cems_workbench.models.protocol import QueryEmbedder

COLLECTION = "memories"
BATCH_MEMORIES = 1_000


def export_chroma(store: Store, embedder: QueryEmbedder, folder: Path, progress: Progress = silent) -> Report:
    """Write the collection; `folder` appears when it is complete. Raises InputError if it is neither new nor empty, or
    if a memory of the store has no vector of this embedder, and StoreError."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"--chroma {folder}: must be a new or empty folder")
    ids = store.memories.ids()
    if not ids:
        raise InputError("the store has no memories to export")
    late = [state for state in store.indexes.states(embedder.model_id) if not state.fresh and state.name != "lexical"]
    if late:
        raise InputError(f"the store has no current vectors of {embedder.model_id} ({late[0].note}): search makes them")
    vectors, written = store.indexes.open(embedder).vectors, 0
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        client: Any = chroma.connect(part, None)
        try:
            collection = chroma.create_collection(client, COLLECTION, embedder.model_id)
            for some in portions(ids, BATCH_MEMORIES):
                progress("writing vectors to Chroma", written, len(vectors))
                by_memory = vectors.chunk_embeddings(some)
                keys = [(memory_id, seq) for memory_id, of in by_memory.items() for seq in of]
                rows = store.indexes.chroma_records(keys)
                for batch in portions(rows, chroma.BATCH_SIZE):
                    own, texts = [key_of(key) for key, _, _ in batch], [text for _, text, _ in batch]
                    about: Any = [{name: each for name, each in of.items() if each is not None} for _, _, of in batch]
                    found = np.stack([by_memory[memory_id][seq] for (memory_id, seq), _, _ in batch])
                    with chroma.store_errors(chroma.WRITE_FAILED):
                        collection.add(ids=own, documents=texts, metadatas=about, embeddings=found)
                written += len(rows)
        finally:
            client.close()
        if folder.exists():
            folder.rmdir()
        os.replace(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    made = f"{counted(len(ids), 'memories')} with {counted(written, 'vectors')}"
    lines = [f"{made} are in {folder}, collection {COLLECTION}"]
    notes = ["queries, judgments and labels are not in it: the commands dataset and judgments write them"]
    values = {"folder": str(folder), "collection": COLLECTION, "memories": len(ids), "vectors": written}
    return Report(lines=lines, notes=notes, values={**values, "embedder": embedder.model_id})
