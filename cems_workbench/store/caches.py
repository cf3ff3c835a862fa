"""What is kept of models: their scores and replies (`score_cache`, `reply_cache`), and typo corrections learned from them
(`learned_pairs`).

A score's key is model (with revision and prompt version), query and exact text. Failed and non-finite scores are not cached.
A reply's key is model, prompt version and digest of the prompt text.

Validation accepts or refuses a correction. A typo has one learned correction, the last one accepted. At most `most` learned pairs are
kept; the least recently accepted are evicted. Refused pairs do not count towards the limit, and are not learned again until they are
forgotten.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from cems_workbench.models.protocol import PairScore
from cems_workbench.store.database import Database
from cems_workbench.store.rows import column, text_sha, to_naive

ReplyKey = tuple[str, str, str]
"""(model, prompt version, digest of the prompt text)"""


class ScoreCache:
    """Cached scores of (query, text) pairs in an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def of(self, model: str, query: str) -> PairScores:
        """Those of a query by a model; `model` includes its revision and prompt version."""
        return PairScores(self._database, model, query)


class PairScores:
    """Cached scores of one model and one query, read once and again after a commit; of one thread."""

    def __init__(self, database: Database, model: str, query: str) -> None:
        self._database, self._model, self._query = database, model, query
        self._found: dict[str, PairScore] = {}
        self._read_at: int | None = None
        self._most, self._kept = 0, dict[str, PairScore]()

    def read(self, texts: Sequence[str]) -> list[PairScore | None]:
        """The cached scores of exactly these texts, None if missing."""
        if (now := self._database.commits()) != self._read_at:
            self._read_at, self._found = now, self._cached()
        known = {**self._found, **self._kept}
        return [known.get(text_sha(text)) for text in texts]

    def _cached(self) -> dict[str, PairScore]:
        # Earlier versions cached 0.5, "uncertain", for an empty reply.
        rows = self._database.rows(
            "SELECT text_sha, score, detail FROM score_cache WHERE model = ? AND query = ? "
            'AND coalesce(detail NOT LIKE \'%"outcome": "uncertain"%\', true)',
            [self._model, self._query],
        )
        return {
            key: PairScore(score, detail=None if detail is None else json.loads(detail)) for key, score, detail in rows
        }

    @contextmanager
    def together(self, most: int) -> Iterator[None]:
        """During the block, scores are cached `most` at a time, and the rest at its end, also where that is an error."""
        self._most = most
        try:
            yield
        finally:
            self._most = 0
            self.write(())

    def write(self, scored: Sequence[tuple[str, PairScore]]) -> None:
        """Cache (text, score) pairs; earlier scores of the same texts are replaced, failures skipped."""
        # A failed score is left out, so that it is computed again.
        self._kept |= {
            text_sha(text): score
            for text, score in scored
            if score.error is None and score.raw is not None and math.isfinite(score.raw)
        }
        if not self._kept or len(self._kept) < self._most:
            return
        details = [None if score.detail is None else json.dumps(dict(score.detail)) for score in self._kept.values()]
        # Lists, not an Arrow table: every search of new texts writes scores, and pyarrow, which imports pandas, takes long to load.
        with self._database.transaction(of_tables=False) as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO score_cache (model, query, text_sha, score, detail) "
                "SELECT ?, ?, unnest(?), unnest(?), unnest(?::VARCHAR[])",
                [self._model, self._query, list(self._kept), [score.raw for score in self._kept.values()], details],
            )
        self._kept = {}


class ReplyCache:
    """Cached language model replies in an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self, key: ReplyKey) -> str | None:
        rows = self._database.rows(
            "SELECT reply FROM reply_cache WHERE model = ? AND prompt = ? AND sent = ?", list(key)
        )
        return str(rows[0][0]) if rows else None

    def write(self, key: ReplyKey, reply: str) -> None:
        with self._database.transaction(of_tables=False) as cursor:
            cursor.execute("INSERT OR REPLACE INTO reply_cache VALUES (?, ?, ?, ?)", [*key, reply])


Pair = tuple[str, str]
"""(typo, correction)"""


@dataclass(frozen=True, slots=True)
class LearnedPair:
    """A typo and its correction, both one word in lower case, with how often and when (UTC) it was accepted. `refused`:
    validation rejected the pair at `last_at`, so it is neither used nor learned."""

    typo: str
    correction: str
    count: int
    first_at: datetime
    last_at: datetime
    refused: bool = False


class Corrections:
    """The learned and refused corrections of an open store. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read(self) -> list[LearnedPair]:
        """All pairs, refused ones included, latest first, ties by typo."""
        rows = self._database.rows(
            "SELECT typo, correction, count, first_at, last_at, refused FROM learned_pairs "
            "ORDER BY last_at DESC, typo, correction"
        )
        return [
            LearnedPair(typo, correction, count, first.replace(tzinfo=UTC), last.replace(tzinfo=UTC), refused)
            for typo, correction, count, first, last, refused in rows
        ]

    def learn(self, pairs: Iterable[Pair], most: int, when: datetime | None = None) -> list[Pair]:
        """Count an acceptance (now, or at `when`) of each pair, keep the `most` latest, and return those of `pairs` now
        learned. A typo's earlier correction is replaced. Refused pairs and words "corrected" to themselves are
        skipped."""
        wanted = list(dict.fromkeys(_normal(pair) for pair in pairs))
        moment = to_naive(when or datetime.now(UTC))
        refused = "SELECT refused FROM learned_pairs WHERE typo = ? AND correction = ?"
        with self._database.transaction() as cursor:
            for typo, correction in wanted:
                if not typo or not correction or typo == correction or any(column(cursor, refused, [typo, correction])):
                    continue
                cursor.execute(
                    "DELETE FROM learned_pairs WHERE typo = ? AND correction <> ? AND NOT refused", [typo, correction]
                )
                cursor.execute(
                    "INSERT INTO learned_pairs VALUES (?, ?, 1, ?, ?, FALSE) ON CONFLICT (typo, correction) "
                    "DO UPDATE SET count = count + 1, last_at = greatest(last_at, excluded.last_at)",
                    [typo, correction, moment, moment],
                )
            cursor.execute(
                "DELETE FROM learned_pairs WHERE NOT refused AND (typo, correction) NOT IN (SELECT (typo, correction) "
                "FROM learned_pairs WHERE NOT refused ORDER BY last_at DESC, first_at DESC, typo LIMIT ?)",
                [most],
            )
            rows = cursor.execute("SELECT typo, correction FROM learned_pairs WHERE NOT refused").fetchall()
        learned = set(rows)
        return [pair for pair in wanted if pair in learned]

    def refuse(self, typo: str, correction: str, when: datetime | None = None) -> None:
        """Mark a correction as refused: neither used nor learned until it is forgotten."""
        moment = to_naive(when or datetime.now(UTC))
        with self._database.transaction() as cursor:
            cursor.execute(
                "INSERT INTO learned_pairs VALUES (?, ?, 0, ?, ?, TRUE) ON CONFLICT (typo, correction) "
                "DO UPDATE SET refused = TRUE, last_at = excluded.last_at",
                [*_normal((typo, correction)), moment, moment],
            )

    def forget(self, typo: str, correction: str) -> bool:
        """Delete a correction, learned or refused; False if there was none. It may then be learned again."""
        with self._database.transaction() as cursor:
            removed = cursor.execute(
                "DELETE FROM learned_pairs WHERE typo = ? AND correction = ?", list(_normal((typo, correction)))
            ).fetchall()[0][0]
        return bool(removed)

    def forget_learned(self) -> int:
        """Delete all learned corrections and return their number; refused ones stay refused."""
        with self._database.transaction() as cursor:
            return int(cursor.execute("DELETE FROM learned_pairs WHERE NOT refused").fetchall()[0][0])


def _normal(pair: Pair) -> Pair:
    typo, correction = pair
    return typo.strip().lower(), correction.strip().lower()
