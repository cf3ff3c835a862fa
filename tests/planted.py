"""An evidence file whose best config is known: relevant is what a planted config ranks first."""

from __future__ import annotations

from pathlib import Path

from benchmarks.synthetic_queries import NOW, evidences, fusion_only, planted
from cems_workbench.config import dump_config
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header
from cems_workbench.records import Judgment, Query

PLANTED = fusion_only({"lists.vector.weight": 2.5, "fusion.score_blend": 0.0})


def planted_file(folder: Path, count: int = 80) -> Path:
    """`count` queries of eight projects, gathered with `fusion_only()`; the relevant memories are the first results of `PLANTED`."""
    made = evidences(count, lists=2, hits=12)
    batch = planted(made, PLANTED)
    queries = [Query(query.qid, query.query, project=f"p{i % 8}") for i, query in enumerate(batch.queries)]
    judgments = [
        Judgment(qid, memory_id, grade)
        for qid, grades in zip(batch.qids, batch.grades, strict=True)
        for memory_id, grade in grades.items()
    ]
    path = folder / "set.evidence"
    header = Header("planted", "store1", 1, "none", dump_config(fusion_only()), NOW.isoformat())
    with EvidenceFile.create(path, header, queries, judgments) as file:
        for query, evidence in zip(queries, made, strict=True):
            file.add(query.qid, evidence, 0.0)
        file.finish()
    return path
