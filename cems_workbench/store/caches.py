"""What models said, kept so that nobody waits for the same answer twice: scores and replies.

Scores stand in `score_cache` by model (with revision and prompt version), query and exact text; failed and non-finite ones are
never kept: what is neutral today may be a number tomorrow. Replies of language models stand in `reply_cache` by model, prompt
version and digest of the words that were sent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from cems_workbench.models.protocol import PairScore
from cems_workbench.store.database import Database
from cems_workbench.store.rows import staged, text_sha

ReplyKey = tuple[str, str, str]
"""(model, prompt version, digest of what was sent)"""


class ScoreCache:
    """The scores of pairs of query and text in an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, model: str, query: str, texts: Sequence[str]) -> list[PairScore | None]:
        """The scores kept for exactly these texts, None where there is none; `model` has its revision and prompt version."""
        keys = [text_sha(text) for text in texts]
        with (
            self._database.reading() as cursor
        ):  # earlier versions kept 0.5, "uncertain", for a reply that says nothing
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
        """Keep (text, score) pairs, in place of earlier scores of the same texts; failures are left out."""
        import pyarrow as pa

        usable = {text_sha(text): score for text, score in scored if _is_usable(score)}
        if not usable:
            return
        details = [None if score.detail is None else json.dumps(dict(score.detail)) for score in usable.values()]
        table = pa.table(
            {
                "text_sha": list(usable),
                "score": [score.raw for score in usable.values()],
                "detail": pa.array(details, pa.string()),
            }
        )
        with self._database.transaction() as cursor, staged(cursor, "staged_scores", table):
            cursor.execute(
                "INSERT OR REPLACE INTO score_cache (model, query, text_sha, score, detail) "
                "SELECT ?, ?, text_sha, score, detail FROM staged_scores",
                [model, query],
            )


class ReplyCache:
    """The replies of language models in an open store; methods may be called from any thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, key: ReplyKey) -> str | None:
        """The reply kept for a key, None when there is none."""
        with self._database.reading() as cursor:
            rows = cursor.execute(
                "SELECT reply FROM reply_cache WHERE model = ? AND prompt = ? AND sent = ?", list(key)
            ).fetchall()
        return str(rows[0][0]) if rows else None

    def write(self, key: ReplyKey, reply: str) -> None:
        """Keep a reply, in place of an earlier one."""
        with self._database.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO reply_cache VALUES (?, ?, ?, ?)", [*key, reply])


def _is_usable(score: PairScore) -> bool:
    return score.raw is not None and score.error is None and math.isfinite(score.raw)
