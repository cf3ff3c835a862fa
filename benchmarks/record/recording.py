"""What the recorders share: memories and queries in, vectors from an address, a recording out.

Vectors come from an address in the form of OpenAI (`POST …/embeddings`), so that a recorder needs no model;
`benchmarks.record.embeddings` serves those of the workbench. What is embedded is the content alone, as the recorded systems do it.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BATCH = 32
TIMEOUT_S = 120


def arguments(description: str) -> argparse.ArgumentParser:
    """A parser with what every recorder takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with memories.jsonl and queries.jsonl")
    parser.add_argument("--out", type=Path, required=True, help="the recording that is written")
    parser.add_argument("--first", type=int, default=None, metavar="N", help="only the first N queries")
    return parser


def with_vectors(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser with the address of the vectors."""
    parser.add_argument("--embeddings", default="http://127.0.0.1:8766/v1", help="an address in the form of OpenAI")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="the name of the embedder there")
    return parser


def rows(path: Path) -> list[Row]:
    """The objects of a JSONL file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def memories_of(data: Path) -> list[Row]:
    """The memories of a folder in order of creation, equal ones as in the file: systems that number rows have them in that order."""
    return sorted(rows(data / "memories.jsonl"), key=lambda row: row.get("created_at") or "")


def queries_of(data: Path, first: int | None) -> list[Row]:
    """The queries of a folder, or the first of them."""
    return rows(data / "queries.jsonl")[:first]


def milliseconds(moment: str | None, otherwise: datetime) -> int:
    """A moment as milliseconds since 1970; one without a zone is UTC."""
    when = otherwise if moment is None else datetime.fromisoformat(moment.replace("Z", "+00:00"))
    return int((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)  # noqa: UP017


def embedded(texts: Sequence[str], address: str, model: str) -> list[list[float]]:
    """The vectors of texts, in their order."""
    found: list[list[float]] = []
    for start in range(0, len(texts), BATCH):
        body = json.dumps({"model": model, "input": list(texts[start : start + BATCH])}).encode()
        request = urllib.request.Request(
            f"{address.rstrip('/')}/embeddings",
            body,
            {"Content-Type": "application/json", "Authorization": "Bearer none"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            data = json.load(answer)["data"]
        found += [row["embedding"] for row in sorted(data, key=lambda row: row["index"])]
    return found


def result(memory_id: str, score: float | None) -> Row:
    """A row of an answer or a list."""
    return {"id": memory_id} if score is None or not math.isfinite(score) else {"id": memory_id, "score": score}


def written(
    out: Path,
    engine: str,
    config: Row,
    answers: Iterator[Row],
    embedder: str | None = None,
    clock: Callable[[], float] = time.time,
) -> int:
    """Write a recording and return the number of its answers; the moment is that of the first question."""
    begun = datetime.fromtimestamp(clock(), timezone.utc)  # noqa: UP017
    document = {
        "engine": engine,
        "embedder": embedder,
        "config": config,
        "answered_at": begun.isoformat(),
        "answers": list(answers),
    }
    out.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return len(document["answers"] or ())


def asked(query: Row, **found: Any) -> Row:
    """An answer to a query of a folder."""
    kept = {name: query[name] for name in ("qid", "query", "project", "as_of") if query.get(name) is not None}
    return kept | found
