"""Caches of model output: the tables `score_cache` and `reply_cache`.

A score's key is model (with revision and prompt version), query and exact text. Failed and non-finite scores are not cached.
A reply's key is model, prompt version and digest of the prompt text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from cems_workbench.models.protocol import PairScore
from cems_workbench.store.database import Database
from cems_workbench.store.rows import text_sha

ReplyKey = tuple[str, str, str]
"""(model, prompt version, digest of the prompt text)"""


class ScoreCache:
    """Cached scores of (query, text) pairs in an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, model: str, query: str, texts: Sequence[str]) -> list[PairScore | None]:
        """The cached scores of exactly these texts, None if missing; `model` includes its revision and prompt version."""
        keys = [text_sha(text) for text in texts]
        with self._database.reading() as cursor:  # earlier versions cached 0.5, "uncertain", for an empty reply
            rows = cursor.execute(
                "SELECT text_sha, score, detail FROM score_cache "
                "WHERE model = ? AND query = ? AND text_sha IN (SELECT unnest(?)) "
                'AND coalesce(detail NOT LIKE \'%"outcome": "uncertain"%\', true)',
                [model, query, keys],
            ).fetchall()
        scores = {
            key: PairScore(score, detail=None if detail is None else json.loads(detail)) for key, score, detail in rows
        }
        return [scores.get(key) for key in keys]

    def write(self, model: str, query: str, scored: Sequence[tuple[str, PairScore]]) -> None:
        """Cache (text, score) pairs; earlier scores of the same texts are replaced, failures skipped."""
        # A failed score is left out, so that it is computed again.
        usable = {text_sha(text): score for text, score in scored if _is_usable(score)}
        if not usable:
            return
        details = [None if score.detail is None else json.dumps(dict(score.detail)) for score in usable.values()]
        # Lists, not an Arrow table: every search of new texts writes scores, and pyarrow, which imports pandas, takes long to load.
        with self._database.transaction(of_tables=False) as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO score_cache (model, query, text_sha, score, detail) "
                "SELECT ?, ?, unnest(?), unnest(?), unnest(?::VARCHAR[])",
                [model, query, list(usable), [score.raw for score in usable.values()], details],
            )


class ReplyCache:
    """Cached language model replies in an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, key: ReplyKey) -> str | None:
        """The cached reply of a key, or None."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                "SELECT reply FROM reply_cache WHERE model = ? AND prompt = ? AND sent = ?", list(key)
            ).fetchall()
        return str(rows[0][0]) if rows else None

    def write(self, key: ReplyKey, reply: str) -> None:
        """Cache a reply; an earlier one is replaced."""
        with self._database.transaction(of_tables=False) as cursor:
            cursor.execute("INSERT OR REPLACE INTO reply_cache VALUES (?, ?, ?, ?)", [*key, reply])


def _is_usable(score: PairScore) -> bool:
    return score.raw is not None and score.error is None and math.isfinite(score.raw)
