"""A small labelled query set as an evidence file: results stand in the order of their cosines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cems_workbench.config import PipelineConfig, dump_config, with_values
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header
from cems_workbench.pipeline import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.records import Judgment, Memory, Query

NOW = datetime(2026, 9, 1, tzinfo=UTC)
AS_LISTED = with_values(
    PipelineConfig(),
    {
        "name": "as_listed",
        "adjust.priority": False,
        "adjust.time_decay.mode": "none",
        "filter.min_score": None,
        "judge.backend": "auto",
        "lists.lexical.enabled": False,
    },
)
OTHER_WAY = with_values(AS_LISTED, {"name": "other_way", "lists.lexical.enabled": True, "lists.vector.enabled": False})
IDS = "abcdefgh"


def evidence(
    query: str, *, cosines: Mapping[str, float] | None = None, judged: Mapping[str, float] | None = None
) -> Evidence:
    """Vector list as in `cosines` (a to h, falling from 0.80 by 0.10), lexical list the other way round."""
    scores = cosines if cosines is not None else {key: 0.8 - 0.1 * i for i, key in enumerate(IDS)}
    hits = tuple(Hit(key, score) for key, score in scores.items())
    lexical = tuple(Hit(key, 10.0 - i) for i, key in enumerate(reversed(list(scores))))
    return Evidence(
        query=query,
        memories={key: Memory(key, f"text {key}", created_at=NOW) for key in scores},
        variants=(Variant(query),),
        lists=(RankedList("vector:0", "vector", 0, hits), RankedList("lexical:0", "lexical", 0, lexical)),
        as_of=NOW,
        judge_scores={"cross_encoder": {key: ModelScore(raw) for key, raw in (judged or {}).items()}},
        notes={"models": {"judge": "a judge", "reranker": "a reranker"}},
    )


QUERIES = [
    Query("q1", "one", type="temporal"),
    Query("q2", "two", type="temporal"),
    Query("q3", "three", type="other"),
    Query("q4", "four", type="other"),
    Query("q5", "five"),
    Query("q6", "six"),
]
JUDGMENTS = [
    Judgment("q1", "a", 3),
    Judgment("q1", "h", 0),
    Judgment("q2", "g", 2),
    Judgment("q3", "b", 1),
    Judgment("q4", "a", 1),
    Judgment("q5", "c", 0),
    Judgment("q1", "a", 0, "m", "model"),
]
"""q5 has nothing relevant, q6 no judgment; q4 has no results."""


def evidences() -> dict[str, Evidence]:
    """The evidence of every query by qid."""
    found = {query.qid: evidence(query.query) for query in QUERIES}
    return found | {"q4": evidence("four", cosines={})}


@cache
def _written() -> bytes:
    with TemporaryDirectory() as folder:
        return _write(Path(folder) / "small.evidence").read_bytes()


def evidence_file(folder: Path) -> Path:
    """The set as a file."""
    path = folder / "small.evidence"
    path.write_bytes(_written())
    return path


def _write(path: Path) -> Path:
    header = Header("small", "store1", 1, "minilm", dump_config(AS_LISTED), NOW.isoformat())
    with EvidenceFile.create(path, header, QUERIES, JUDGMENTS) as file:
        for qid, one in evidences().items():
            file.add(qid, one, 0.1)
        file.finish()
    return path
