"""Is every cell of Side by side that of the stage's own row? Random queries of evidence files under all presets, and under configs with
ties, a reranker of what is returned, and supersession that follows. And what the table costs for 900 candidates, in turns with the cards:
processor time, so that other work on the machine does not count.

Run from the checkout: python -m benchmarks.bench_side_by_side_cells FILE.duckdb [FILE …] [--queries 200] [--seed 54]
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.analysis.ranks import lists_in_use
from cems_workbench.analysis.side_by_side import side_by_side
from cems_workbench.config import PipelineConfig, preset, preset_names, with_values
from cems_workbench.evaluation.evidence_file import read_evidence_file
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.evidence import Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.pipeline.stages import ADJUST, ASSEMBLY, FUSION, JUDGE, LISTS, RERANK
from cems_workbench.pipeline.stages.result import StageRow
from cems_workbench.records import Memory

ROWS = 900
MOVES = 15
TIES = {f"lists.{name}.ties": "competition" for name in ("vector", "lexical", "recency", "access")}
MORE: Mapping[str, tuple[str, dict[str, Any]]] = {
    "cems, ties": ("cems", TIES),
    "workbench, the returned reranked": ("workbench", {"rerank.position": "returned"}),
    "workbench, successors follow": ("workbench", {"supersession.mode": "follow"}),
    "cems, judged": ("cems", {"judge.backend": "auto"}),
}


def expected_parts(trace: Trace, row: StageRow, stage: str) -> dict[str, float]:
    """What the stage's own row says the score is made of."""
    memory_id, found = row.memory_id, dict[str, float | None]()
    if stage == FUSION.name:
        parts = trace.stage(FUSION).score_parts(memory_id) if row.kept else ()
        found = {f"{list_label(one.list)} {one.kind}" if one.list else one.kind: one.value for one in parts}
    elif stage == RERANK.name:
        scored = trace.stage(RERANK).by_id[memory_id]
        found = {"raw": scored.raw, "normalised": scored.unit}
        if trace.config.rerank.combine == "position_bands":
            found |= {"retrieval score": scored.retrieval_score, "retrieval weight": scored.retrieval_weight}
    elif stage == ADJUST.name:
        found = {name.replace("_", " "): value for name, value in trace.stage(ADJUST).by_id[memory_id].factors.items()}
    elif stage == JUDGE.name:
        judged = trace.stage(JUDGE).by_id[memory_id]
        found = {"raw": judged.raw, "sigmoid": judged.sigmoid}
    elif stage == ASSEMBLY.name:
        found = {"MMR value": trace.stage(ASSEMBLY).by_id[memory_id].mmr}
    return {label: value for label, value in found.items() if value is not None}


def check(trace: Trace) -> tuple[int, int]:
    """The cells of a trace, each compared with its stage's row, and the rows. Raises AssertionError for one that differs."""
    table = side_by_side(trace)
    values, cells = table.to_columns(), 0
    ids: list[str] = values["memory_id"]
    results = {result.memory_id: result.rank for result in trace.results}
    fused = trace.stage(FUSION).by_id
    for memory_id, final, former, by in zip(
        ids, values["final_rank"], values["former_rank"], values["dropped_by"], strict=True
    ):
        assert final == results.get(memory_id)
        assert former == (fused[memory_id].rank_out if memory_id in fused else None)
        name, last = trace.path(memory_id)[-1]
        assert by == (None if last.kept else name)
    assert [one["list"] for one in values["columns"] if one["kind"] == "list"] == lists_in_use(trace)
    for column in values["columns"]:
        labels = [part["label"] for part in column["parts"]]
        expected: dict[str, tuple[int | None, float | None, dict[str, float]]] = {}
        if column["list"] is not None:
            for row in trace.stage(LISTS).rows:
                for entry in row.lists:
                    if entry.list == column["list"] and entry.kept:
                        raw = {} if entry.raw is None else {"raw": entry.raw}
                        expected[row.memory_id] = (entry.rank, entry.normalized, raw)
        else:
            for row in trace.stage(column["stage"]).rows:
                parts = expected_parts(trace, row, column["stage"])
                score = parts.get("raw") if column["kind"] == "judge" else row.score
                expected[row.memory_id] = (row.rank_out, score, parts)
        for place, memory_id in enumerate(ids):
            own = {label: given[place] for label, given in zip(labels, column["values"], strict=True)}
            own = {label: value for label, value in own.items() if value is not None}
            cell = (column["rank"][place], column["score"][place], own)
            assert cell == expected.get(memory_id, (None, None, {})), (column["key"], memory_id, cell)
            cells += memory_id in expected
            if column["kind"] == "fusion" and own:
                assert math.isclose(sum(own.values()), cell[1] or 0.0, rel_tol=1e-9, abs_tol=1e-12)
    return cells, len(ids)


def equal(paths: Sequence[Path], queries: int, seed: int) -> None:
    """Print how many cells were compared under how many configs."""
    configs = {name: preset(name).config for name in preset_names()}
    configs |= {name: with_values(configs[base], changes) for name, (base, changes) in MORE.items()}
    every = [(path, qid, one) for path in paths for qid, one in sorted(read_evidence_file(path).evidences.items())]
    chosen = random.Random(seed).sample(every, min(queries, len(every)))
    cells = rows = 0
    began = time.perf_counter()
    for _, qid, evidence in chosen:
        for name, config in configs.items():
            try:
                found = check(replay(evidence, config))
            except AssertionError as error:
                raise SystemExit(f"{qid} under {name}: {error}") from error
            cells, rows = cells + found[0], rows + found[1]
    print(
        f"{len(chosen)} queries of {len(paths)} files × {len(configs)} configs ({len(preset_names())} presets): {rows} rows, {cells} "
        f"cells, each equal to the row of its stage; {time.perf_counter() - began:.0f} s"
    )


def large() -> tuple[Evidence, PipelineConfig]:
    """A query with 900 candidates in eight lists, and a config that keeps, reranks and judges all of them."""
    rng, now = np.random.default_rng(1), datetime(2026, 1, 1, tzinfo=UTC)
    ids = [f"m{number:04d}" for number in range(ROWS)]
    memories = {
        key: Memory(key, "words " * 80 + key, title=f"title {key}", created_at=now, pinned=number % 7 == 0)
        for number, key in enumerate(ids)
    }

    def ranked(name: str, source: str, variant: int | None, share: float) -> RankedList:
        found = rng.permutation([key for key in ids if rng.random() < share])
        scores = np.sort(rng.random(len(found)))[::-1]
        return RankedList(
            name, source, variant, tuple(Hit(key, float(s)) for key, s in zip(found, scores, strict=True))
        )

    searched = [ranked(f"{source}:{i}", source, i, 0.7) for i in range(3) for source in ("vector", "lexical")]
    by_date = [ranked(source, source, None, 1.0) for source in ("recency", "access")]
    scores = {key: ModelScore(float(rng.normal())) for key in ids}
    variants = (Variant("a", "original"), Variant("b", "expansion"), Variant("c", "expansion"))
    evidence = Evidence(
        "how to deploy",
        memories,
        variants=variants,
        lists=(*searched, *by_date),
        as_of=now,
        model_scores={"cross_encoder": scores},
        judge_scores={"oracle": scores},
    )
    changes = {"rerank.backend": "cross_encoder", "rerank.depth": ROWS, "judge.backend": "auto"}
    changes |= {f"lists.{source}.depth": ROWS for source in ("vector", "lexical")}
    changes |= {f"lists.{source}.enabled": True for source in ("recency", "access")}
    changes |= {"assembly.limit": None, "assembly.max_tokens": None, "filter.min_score": None}
    return evidence, with_values(preset("cems").config, changes)


def cost() -> None:
    """Print milliseconds for the table of 900 candidates and for their cards, under another config each time, in turns."""
    from cems_workbench.ui.inspect.results import results_html

    evidence, config = large()
    took: dict[str, list[float]] = {"side by side": [], "cards": []}
    shape = (0, 0)
    for number in range(MOVES + 1):
        moved = with_values(config, {"fusion.k": 40 + number})
        for form in sorted(took, reverse=number % 2 == 0):
            trace = replay(evidence, moved)
            began = time.process_time()
            if form == "cards":
                results_html(trace, {})
            else:
                table = side_by_side(trace)
                table.to_columns()
                shape = (len(table), len(table.columns))
            if number:  # the first one reads the texts
                took[form].append((time.process_time() - began) * 1000)
    for form, values in took.items():
        print(f"{form:14s} {shape[0]} rows: median {statistics.median(values):.1f} ms, least {min(values):.1f} ms")
    print(f"{shape[1]} columns, from a trace whose rows were not made")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="evidence files; none: only what 900 candidates cost")
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=54)
    options = parser.parse_args()
    if options.files:
        equal(options.files, options.queries, options.seed)
    cost()


if __name__ == "__main__":
    main()
