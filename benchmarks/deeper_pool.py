"""What judging the sample's pool deeper changes: every preset and plain list with and without sample_data/deeper_pool.

    python -m benchmarks.deeper_pool [--work .workbench/deeper_pool] [--write]
    python -m benchmarks.deeper_pool --draw FILE [--depth 10]

Evidence files are kept in the work folder, as those of `benchmarks.report`. `--write` replaces the table in sample_data/README.md. `--draw`
writes the pairs that nobody has judged of the first results of every preset and list, and of the first five of every reranker alone, for
somebody to judge: by query and memory id, so that nothing tells who returned a memory, or at which rank. A preset whose model server
does not answer has no part in either.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.report import SAMPLE, Dataset, gathered, plain_configs, quiet, reranker, table
from cems_workbench import formats
from cems_workbench.config import PipelineConfig, preset_names
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.evaluation.grades import Grades, agreed_grades
from cems_workbench.evaluation.metrics import parse_measures
from cems_workbench.evaluation.statistics import bootstrap, means
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.table import Floats
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.records import Judgment

BEFORE, DEEPER, PAGE = SAMPLE / "judgments.qrels", SAMPLE / "deeper_pool" / "judgments.jsonl", SAMPLE / "README.md"
MEASURES = parse_measures("nDCG@10 hit@5 Judged@10")
RANKED = 2
"""The first of them rank presets; the last says how much was judged."""
LISTS_OF = "workbench"
"""The preset whose evidence the plain lists are of: it searches both for every query."""
DEPTH = 10
ALONE = 5
"""How many are drawn of the results of a preset or list, and of what a reranker alone puts first."""
BEGIN = "<!-- Written by `python -m benchmarks.deeper_pool --write`; do not edit. -->"
END = "<!-- The end of what is written by it. -->"
SAME = 1e-9


@dataclass(frozen=True)
class Row:
    """A preset or list under the judgments before and after: (Q, M) values, NaN where a measure is not of the query."""

    name: str
    before: Floats
    after: Floats


def rankers(evidence: Mapping[str, EvidenceSet]) -> Iterator[tuple[str, LabelledBatch, PipelineConfig]]:
    """Every preset on its own evidence, and each list unmodified."""
    for name, of in evidence.items():
        yield f"`{name}`", LabelledBatch.of(of), quiet(name)
    lists = LabelledBatch.of(evidence[LISTS_OF])
    for config in plain_configs():
        yield config.name, lists, config


def by_score(evidence: Evidence, model: str) -> list[str]:
    """The memory ids that a reranker read, best score first, ties by id."""
    scores = {key: score.raw for key, score in evidence.model_scores[model].items() if score.raw is not None}
    return sorted(scores, key=lambda key: (-scores[key], key))


def pool(evidence: Mapping[str, EvidenceSet], depth: int) -> dict[str, set[str]]:
    """By query id the memories among the first `depth` of any preset or list, or the first `ALONE` of a reranker alone."""
    found: dict[str, set[str]] = {}
    for _, batch, config in rankers(evidence):
        for qid, ranking in zip(batch.qids, batch.result_ids(batch.rankings(config)), strict=True):
            found.setdefault(qid, set()).update(ranking[:depth])
    for of in evidence.values():
        for qid, one in of.evidences.items():
            for model in one.model_scores:
                found.setdefault(qid, set()).update(by_score(one, model)[:ALONE])
    return found


def unjudged(drawn: Mapping[str, Collection[str]], judgments: Sequence[Judgment]) -> list[tuple[str, str]]:
    """The pairs of query and memory without a judgment, in order of their ids."""
    judged = {(judgment.qid, judgment.memory_id) for judgment in judgments}
    return sorted({(qid, key) for qid, keys in drawn.items() for key in keys} - judged)


def draw(evidence: Mapping[str, EvidenceSet], judgments: Sequence[Judgment], depth: int, path: Path) -> int:
    """Write the pairs nobody judged as JSON lines, with all that a judge needs; returns how many."""
    queries = {query.qid: query for of in evidence.values() for query in of.queries}
    memories = {
        key: memory for of in evidence.values() for one in of.evidences.values() for key, memory in one.memories.items()
    }
    pairs = unjudged(pool(evidence, depth), judgments)
    lines = []
    for qid, key in pairs:
        query, memory = queries[qid], memories[key]
        row = {
            "qid": qid,
            "query": query.query,
            "project": query.project,
            "as_of": query.as_of and query.as_of.isoformat(),
            "memory_id": key,
            "title": memory.title,
            "memory_project": memory.project,
            "created_at": memory.created_at and memory.created_at.isoformat(),
            "content": memory.content,
        }
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    write_text(path, "".join(lines))
    return len(pairs)


def measured(evidence: Mapping[str, EvidenceSet], before: Grades, after: Grades) -> list[Row]:
    """Every preset and list under both, best nDCG@10 of before first."""

    def values(batch: LabelledBatch, config: PipelineConfig, grades: Grades) -> Floats:
        given = dict(zip(batch.qids, batch.evidences, strict=True))
        graded = LabelledBatch(batch.queries, given, grades).rankings(config).graded
        return np.stack([measure.values(graded) for measure in MEASURES], axis=1)

    rows = [
        Row(name, values(batch, config, before), values(batch, config, after))
        for name, batch, config in rankers(evidence)
    ]
    return sorted(rows, key=lambda row: -means(row.before)[0])


def places(rows: Sequence[Row], column: int) -> str:
    """Which of them stand otherwise by the mean of a measure than before, in words."""

    def order(left: Row, right: Row) -> tuple[int, int]:
        gaps = [
            means(of)[column] - means(to)[column] for of, to in ((left.before, right.before), (left.after, right.after))
        ]
        first, second = (0 if abs(gap) < SAME else int(np.sign(gap)) for gap in gaps)
        return first, second

    pairs = [(left, right, order(left, right)) for i, left in enumerate(rows) for right in rows[i + 1 :]]
    moved = [_moved(left.name, right.name, *signs) for left, right, signs in pairs if signs[0] != signs[1]]
    name = MEASURES[column]
    return f"By {name} every place stays as it was." if not moved else f"By {name} these change: {'; '.join(moved)}."


def _moved(left: str, right: str, before: int, after: int) -> str:
    if after == 0:
        return f"{left} and {right} are level"
    first, second = (left, right) if after > 0 else (right, left)
    return f"{first} is {'no longer level with, but ' if before == 0 else ''}above {second}"


def section(rows: Sequence[Row], judgments: Sequence[Judgment], depth_left: int, seed: int) -> str:
    """The part of the page that is written: what was judged, the table, and whether a place changes."""
    grades = Counter(judgment.grade for judgment in judgments if judgment.grade >= MEASURES[0].grade)
    counts = ", ".join(f"{grade}: {count}" for grade, count in sorted(grades.items(), reverse=True))
    relevant, queries = grades.total(), int((~np.isnan(rows[0].before[:, 0])).sum())
    left = (
        f"Of the first {DEPTH} of any preset or list, and the first {ALONE} of any reranker alone, "
        f"{'none is' if not depth_left else f'{depth_left} are'} left without a judgment."
    )
    header = [
        "",
        *(f"{measure}, with it, change" for measure in MEASURES[:RANKED]),
        *(f"{str(measure).lower()}, with it" for measure in MEASURES[RANKED:]),
    ]
    cells = [header, ["---", *["---:"] * len(MEASURES)], *(_cells(row, seed) for row in rows)]
    return "\n\n".join(
        [
            f"{relevant} of the {len(judgments):,} judgments ({relevant / len(judgments):.1%}) call a memory relevant "
            f"(by grade, {counts}). {left}",
            table(cells),
            f"nDCG and hit over the {queries} queries with something relevant, judged@k over all; changes with their 95 % bootstrap "
            f"interval. " + " ".join(places(rows, column) for column in range(RANKED)),
        ]
    )


def _cells(row: Row, seed: int) -> list[str]:
    before, after, change = means(row.before), means(row.after), means(row.after - row.before)
    low, high = bootstrap(row.after - row.before, seed)
    moved = [
        f"{before[m]:.3f} → {after[m]:.3f}, {change[m]:+.3f} [{low[m]:+.3f}, {high[m]:+.3f}]" for m in range(RANKED)
    ]
    return [row.name, *moved, *(f"{before[m]:.2f} → {after[m]:.2f}" for m in range(RANKED, len(MEASURES)))]


def replace_between(text: str, begin: str, end: str, part: str) -> str:
    """A page with the text between two marks replaced by `part`. Raises ValueError if a mark is missing."""
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise ValueError(f"the page lacks the marks {begin} and {end}")
    return f"{before}{begin}\n\n{part}\n\n{end}{after}"


def main() -> int:
    """Gather what is missing, then draw, or measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path(".workbench/deeper_pool"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="replace the table in sample_data/README.md")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="write what is not judged there, and measure nothing")
    parser.add_argument("--depth", type=int, default=DEPTH, help="how many results of each are drawn")
    options = parser.parse_args()
    files, _, _ = gathered(Dataset("sample", SAMPLE, "Sample set"), preset_names(), options.work, None, options.seed)
    evidence = {name: of for name, of in files.items() if reranker(of, quiet(name))[0] is None}
    before, deeper = formats.read(BEFORE).judgments, formats.read(DEEPER).judgments
    if options.draw:
        print(
            f"{options.draw}: {draw(evidence, [*before, *deeper], options.depth, options.draw)} pairs nobody has judged"
        )
        return 0
    rows = measured(evidence, agreed_grades(before), agreed_grades([*before, *deeper]))
    left = len(unjudged(pool(evidence, DEPTH), [*before, *deeper]))
    part = section(rows, deeper, left, options.seed)
    if options.write:
        write_text(PAGE, replace_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, part))
    print(part)
    return 0


if __name__ == "__main__":
    sys.exit(main())
