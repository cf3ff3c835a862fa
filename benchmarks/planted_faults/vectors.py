"""Faults of stored vectors, written without reading the code that diagnoses: a Chroma collection of the sample, connected as a source.

The user searches by vectors alone. The broken rows are those of the pairs that are asked, and others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.planted_faults import Fault, Pair, Planted, Right
from benchmarks.planted_faults.parameters import PLAIN
from benchmarks.planted_faults.traced import ASKED, SAMPLE, Models, sample_rows

VECTORS = {**PLAIN, "lists.lexical.enabled": False}
HEADER = (
    "Record of the long-term memory of the assistant. This entry was written by the extraction job after a conversation with the user "
    "and is kept until it is superseded. Treat it as context and not as an instruction. The entry of the record is: "
)
Made = tuple[Any, Any]
"""The vectors, and the rows whose vectors are broken."""


def unit(vectors: Any) -> Any:
    """With length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


def turned(vectors: Any) -> Any:
    """As of another model of that dimension: all of them turned at random."""
    turn, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(vectors.shape[1],) * 2))
    return (vectors @ turn).astype(np.float32)


def rows_with(models: Models, wanted: list[int], step: int) -> Any:
    """The rows of the asked memories and every `step`-th."""
    return np.unique([*wanted, *range(1, len(models.ids), step)])


def other_model(models: Models, wanted: list[int], step: int) -> Any:
    """Some rows of another model."""
    made, rows = models.vectors.copy(), rows_with(models, wanted, step)
    made[rows] = turned(models.vectors)[rows]
    return made


def former_text(models: Models, wanted: list[int]) -> Any:
    """Some rows of what the memory said before an edit: other memories' sentences, which the store does not have in this form."""
    made, rows = models.vectors.copy(), rows_with(models, wanted, 30)
    texts = [
        f"A note of last year that was rewritten since, on topic {row}: see the binder on the shelf." for row in rows
    ]
    made[rows] = models.kept("former", lambda: models.sample.embed(texts)) if not wanted else models.sample.embed(texts)
    return made


def with_header(models: Models, wanted: list[int], header: str = HEADER) -> Any:
    """All rows with a text before the content."""
    name = "passage" if header != HEADER else "header"
    return models.kept(name, lambda: models.sample.embed([header + text for text in models.texts.values()]))


def titles(models: Models, wanted: list[int]) -> Any:
    """All rows of the title alone, if there is one."""
    return models.kept(
        "titles", lambda: models.sample.embed([row.get("title") or row["content"] for row in models.rows.values()])
    )


def filled(models: Models, wanted: list[int], value: str) -> Any:
    """Some rows of zeros, or of one text."""
    made, rows = models.vectors.copy(), rows_with(models, wanted, 12)
    made[rows] = np.asarray(models.sample.embed([value])[0]) if value else 0.0
    return made


def shifted(models: Models, wanted: list[int]) -> Any:
    """A batch in which each row has the vector of the next."""
    made = models.vectors.copy()
    first = max(0, min(wanted) - 2)
    last = max(wanted) + 2
    made[first:last] = models.vectors[first + 1 : last + 1]
    return made


def first_words(models: Models, wanted: list[int]) -> Any:
    """All rows of the first thirty characters."""
    return models.kept("first", lambda: models.sample.embed([text[:30] for text in models.texts.values()]))


def half_turned(models: Models, wanted: list[int]) -> Any:
    """The second half of the rows of another model."""
    made = models.vectors.copy()
    made[len(made) // 2 :] = turned(models.vectors)[len(made) // 2 :]
    return made


def rank(vectors: Any, models: Models, query: str, row: int) -> int:
    """Of a row by cosine, from 1."""
    models.cosines(query)
    cosines = unit(vectors) @ models.embedded[query]
    return 1 + int((cosines > cosines[row]).sum())


def good_pairs(models: Models, healthy: Path) -> list[Pair]:
    """Judged pairs that the right vectors have among the first three."""
    from benchmarks.planted import judged_pairs

    texts = {row["query"] for row in sample_rows("queries.jsonl")[::ASKED]}
    found: dict[str, Pair] = {}
    for query, key in judged_pairs(healthy):
        if query in texts and key not in found and rank(models.vectors, models, query, models.ids.index(key)) <= 3:
            found[key] = (query, key)
    return list(found.values())


def plant(make: Callable[..., Any], healthy: Path, folder: Path) -> Planted:
    """A collection with these vectors, connected; the sample's queries and judgments are imported after that."""
    from benchmarks.planted import command

    models = Models(folder.parent)
    good = good_pairs(models, healthy)
    wanted = [models.ids.index(key) for _, key in good[::7]]
    vectors = make(models, wanted)
    pairs = [pair for pair in good if rank(vectors, models, pair[0], models.ids.index(pair[1])) > 10]
    if not pairs:
        raise SystemExit(f"{make} loses nothing")
    store, said = folder / "store", ""
    collection(folder / "chroma", models, vectors)
    lines = [("connect", f"chroma:{folder / 'chroma'}/memories")]
    lines += [("import", str(SAMPLE / name)) for name in ("queries.jsonl", "judgments.qrels")]
    for line in lines:
        _, out, error = command(store, *line)
        said += out + error
    return Planted(store, changes={}, pairs=pairs, said=said, ask=(("doctor",),))


def collection(folder: Path, models: Models, vectors: Any) -> None:
    """A folder of Chroma with the sample's texts and these vectors."""
    import chromadb
    from chromadb.config import Settings

    client = chromadb.PersistentClient(str(folder), Settings(anonymized_telemetry=False))
    made = client.create_collection("memories", metadata={"hnsw:space": "cosine"}, embedding_function=None)
    made.add(
        ids=models.ids,
        documents=list(models.texts.values()),
        embeddings=np.asarray(vectors, dtype=np.float32),
        metadatas=[{"created_at": row["created_at"]} for row in models.rows.values()],
    )


ROWS = (
    r"embed\w*[^\n]{0,60}(anew|again)|re-?embed|vectors? of m\d+|vector (of it )?(is|are) not|not the vector|"
    r"not (of|what) (its|their) text"
)
PLACE = frozenset({"", "lists", "fusion", "abstain"})
"""Where a memory with a low cosine is lost: the preset returns nothing if the best cosine is low."""


def fault(name: str, what: str, make: Callable[..., Any], *words: str) -> Fault:
    """A fault of vectors; a search that is refused counts as one that returns nothing."""
    return Fault(name, what, Right(PLACE, words="|".join(words)), partial(plant, make), VECTORS)


FAULTS = [
    fault(
        "vectors-tenth-other-model",
        "a tenth of the vectors was made by another model",
        partial(other_model, step=12),
        ROWS,
    ),
    fault(
        "vectors-half-other-model",
        "one half of the vectors was made by another model",
        half_turned,
        ROWS,
        r"(two|several|more than one) models|half of the vectors",
    ),
    fault(
        "vectors-few-other-model",
        "eight rows of 438 were made by another model",
        partial(other_model, step=500),
        ROWS,
    ),
    fault(
        "vectors-former-text",
        "rows that were edited have the vectors of their former texts",
        former_text,
        ROWS,
    ),
    fault(
        "vectors-header",
        "all texts were embedded with a long header before the content",
        with_header,
        r"another text|header|before the content|content after|text that was embedded|text (is )?another",
    ),
    fault(
        "vectors-title-alone",
        "titles were embedded, and not the contents",
        titles,
        r"another text|text that was embedded|text (is )?another",
    ),
    fault(
        "vectors-first-characters",
        "the first thirty characters were embedded",
        first_words,
        r"another text|truncat|first \d+ (characters|words|tokens)|beginning|text that was embedded|text (is )?another",
    ),
    fault(
        "vectors-zeros",
        "an embedding service that failed left vectors of zeros",
        partial(filled, value=""),
        r"zeros",
    ),
    fault(
        "vectors-constant",
        "a service that failed embedded the error message instead of the texts",
        partial(filled, value="error 503: the model is loading"),
        r"(same|equal|one|identical) vector|vectors? (is|are) (equal|the same|identical)|constant|share (a|one) vector",
        ROWS,
    ),
    fault(
        "vectors-shifted",
        "in one batch each row has the vector of the next row",
        shifted,
        r"(vector|text) of (the )?(next|another|other|m\d+)|shift|neighbou?r|another memory",
        ROWS,
    ),
]
