"""Planted faults: does the product name the cause that was planted, and is its fix one?

    python -m benchmarks.planted [--only NAME …] [--pairs 3] [--work DIR] [--out FILE]

One fault at a time is planted in a healthy store of the sample, or in a small pipeline over it (`benchmarks/planted_faults`). Pairs of a
query and a memory that the healthy config returns and the broken one does not are asked through the commands alone: `why`, and what
`import`, `connect`, `doctor` and `evaluate --losses` print where the fault is one of the data or of a set.

cause   right: the stage is right and what is broken is named. wrong: another stage is blamed, or the memory would need nothing.
        partly: the stage is right, and no more. cannot tell: neither.
fix     true: with it the memory is among the results, and the mean nDCG@10 of the other judged queries is no more than 0.01 lower.
        A memory is re-embedded on a copy of the store.

Planting and checking use the Python API; the product's own verdicts are not read for it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.update(HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", CEMS_WORKBENCH_SERVE="off")

from benchmarks.planted_faults import MOMENT, Fault, Pair, Planted, named

ROOT = Path(__file__).parents[1]
K = 10
TOLERATED = 0.01
"""Loss of nDCG@10 that a fix may cost on average, as in the product's own verdict."""
DRAWN = 40
"""Judged pairs that are looked through for ones that the fault takes away, at most."""


@dataclass(frozen=True)
class Row:
    """What the product answered for one pair, and whether that is right."""

    fault: str
    query: str
    memory_id: str
    cause: str
    fix: str
    said: str
    offered: str

    def to_json(self) -> dict[str, str]:
        """The row as plain values."""
        return dict(vars(self))


def command(store: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command on a store."""
    line = [sys.executable, "-m", "cems_workbench", "--no-serve", *arguments, "--store", str(store)]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=900)
    return done.returncode, done.stdout, done.stderr


def healthy_store(folder: Path) -> Path:
    """A store of the sample, made by `import` unless it is there."""
    store = folder / "healthy"
    if not (store / "workbench.duckdb").exists():
        code, _, error = command(store, "import", "sample_data")
        if code:
            raise SystemExit(error)
    return store


def judged_pairs(store: Path) -> list[Pair]:
    """Queries with their best memories (grade 2 or more), one of each query first."""
    grades: dict[str, list[tuple[int, str]]] = {}
    for line in (ROOT / "sample_data" / "judgments.qrels").read_text().splitlines():
        qid, _, memory_id, grade = line.split()
        if int(grade) >= 2:
            grades.setdefault(qid, []).append((-int(grade), memory_id))
    texts = {}
    for line in (ROOT / "sample_data" / "queries.jsonl").read_text().splitlines():
        row = json.loads(line)
        texts[row["qid"]] = row["query"]
    ranked = [(place, qid, key) for qid, found in grades.items() for place, (_, key) in enumerate(sorted(found))]
    return [(texts[qid], key) for _, qid, key in sorted(ranked)]


def configured(preset: str, changes: Mapping[str, Any]) -> Any:
    """The config of a preset with changes."""
    import cems_workbench as workbench

    return workbench.load_config(preset, dict(changes))


def rank_of(store: Any, query: str, memory_id: str, config: Any, planted: Planted | None = None) -> int | None:
    """Rank of a memory in the results of one query."""
    import cems_workbench as workbench

    asked: dict[str, Any] = {"as_of": MOMENT}
    for name, value in zip(planted.options[::1], planted.options[1::1], strict=False) if planted else ():
        if name == "--project":
            asked["project"] = value
    if planted and "--only-project" in planted.options:
        asked["only_project"] = True
    ids = list(workbench.search(store, query, config, **asked).ids)
    return ids.index(memory_id) + 1 if memory_id in ids else None


def victims(healthy: Path, fault: Fault, planted: Planted, count: int) -> list[Pair]:
    """Judged pairs that the healthy config has in the first half of the results, and the planted one not at all in the first `K`."""
    import cems_workbench as workbench

    found: list[Pair] = []
    well = configured(planted.preset, fault.healthy)
    broken = configured(planted.preset, {**fault.healthy, **planted.changes})
    with workbench.open_store(healthy) as one, workbench.open_store(planted.store) as other:
        for query, memory_id in judged_pairs(healthy)[::2][: 4 * DRAWN]:
            rank = rank_of(one, query, memory_id, well)
            if rank is None or rank > K // 2:
                continue
            now = rank_of(other, planted.query(query), memory_id, broken, planted)
            if now is None or now > min(K, broken.assembly.limit or K):
                found.append((planted.query(query), memory_id))
            if len(found) == count:
                break
    return found


def as_text(value: Any) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return value if isinstance(value, str) else json.dumps(value)


def asked(fault: Fault, planted: Planted, pair: Pair) -> tuple[dict[str, Any], str]:
    """The answer of `why`, as JSON and as the text that its user reads."""
    line = ["why", pair[0], pair[1], *planted.options]
    if planted.evidence:
        line += ["--evidence", planted.evidence]
    else:
        line += ["--preset", planted.preset, "--as-of", MOMENT]
        if fault.healthy.get("rerank.backend") == "none":  # what its page advises; with a reranker it takes minutes
            line += ["--labelled"]
        for path, value in {**fault.healthy, **planted.changes}.items():
            line += ["--set", f"{path}={as_text(value)}"]
    code, out, error = command(planted.store, *line, "--json")
    if code or not out.strip():
        return {}, error
    answer = json.loads(out)
    answer.pop("query", None)  # the words of the query are no finding
    return answer, error


def told(answer: Mapping[str, Any]) -> str:
    """The sentences of an answer: cause, standing, known mistakes, findings, the fix and the changes of its headline."""
    fix = answer.get("fix") or {}
    rest = {
        key: value
        for key, value in answer.items()
        if key not in ("counterfactuals", "places", "path", "fix", "memory_id", "nearest")
    }
    return "\n".join(
        [json.dumps(rest, ensure_ascii=False), fix.get("sentence") or "", " ".join(fix.get("changes") or {})]
    )


def cause_of(fault: Fault, answer: Mapping[str, Any], read: str) -> str:
    """right, partly, wrong or cannot tell."""
    said, right = told(answer) + "\n" + " ".join(read.split()), fault.right  # a terminal breaks sentences
    is_named = any(path in said for path in right.parameters)
    is_named = is_named or bool(right.words and re.search(right.words, said, re.IGNORECASE | re.DOTALL))
    at = answer.get("lost_at") or ""
    place = not right.stages or at in right.stages
    if is_named and place:
        return "right"
    if right.stages and at and not place:
        return "wrong"
    if not answer or answer.get("status") == "returned":
        return "wrong" if answer else "cannot tell"
    return "partly" if right.stages and place else "cannot tell"


def ndcg(store: Any, config: Any) -> dict[str, float]:
    """nDCG@10 by query text."""
    import cems_workbench as workbench

    report = workbench.evaluate(workbench.gather(store, "all", config), config, "nDCG@10")
    frame = report.per_query.to_pandas()
    return dict(zip(frame["query"], frame["nDCG@10"], strict=True))


def fix_of(fault: Fault, planted: Planted, pair: Pair, answer: Mapping[str, Any]) -> tuple[str, str]:
    """Whether the offered change is one: true, false or none offered; and the change."""
    import cems_workbench as workbench

    offered = answer.get("fix") or {}
    changes = offered.get("changes") or {}
    sentence = offered.get("sentence") or ""
    if offered.get("re_embed") and not planted.evidence:
        fixed, others = re_embedded(planted, pair, {**fault.healthy, **planted.changes}, offered["re_embed"])
        return fixed, f"{sentence} [{others}]"
    searched = offered.get("searched")
    if planted.evidence or not (changes or searched) or sentence.startswith(("No change", "All ", "The only change")):
        return "none", sentence
    if searched:
        with workbench.open_store(planted.store) as store:
            config = configured(planted.preset, {**fault.healthy, **planted.changes})
            ids = list(workbench.search(store, pair[0], config, as_of=MOMENT, searched=searched).ids)
        return ("true" if pair[1] in ids[:K] else "false"), sentence
    before = {**fault.healthy, **planted.changes}
    for_this = "this query only" in sentence
    with workbench.open_store(planted.store) as store:
        try:
            config = configured(planted.preset, {**before, **changes})
        except Exception as error:
            return "false", f"{sentence} [{error}]"
        if for_this:
            terms = next((r.get("terms") or [] for r in answer.get("counterfactuals", []) if r.get("terms")), [])
            import cems_workbench as workbench

            ids = list(workbench.search(store, pair[0], config, as_of=MOMENT, variants=terms).ids)
            rank = ids.index(pair[1]) + 1 if pair[1] in ids else None
            return ("true" if rank and rank <= K else "false"), sentence
        rank = rank_of(store, pair[0], pair[1], config, planted)
        if rank is None or rank > K:
            return "false", f"{sentence} [{rank}]"
        was = ndcg(store, configured(planted.preset, before))
        now = ndcg(store, config)
    fixed, gain = spared(was, now, pair[0])
    return fixed, f"{sentence} [{gain}]"


def re_embedded(planted: Planted, pair: Pair, changes: Mapping[str, Any], memory_id: str) -> tuple[str, str]:
    """Whether `reindex` of a memory, on a copy of the store, brings the memory in and spares the other queries; and what it did."""
    import cems_workbench as workbench

    config = configured(planted.preset, changes)
    with tempfile.TemporaryDirectory(dir=planted.store.parent) as folder:
        mended = Path(shutil.copytree(planted.store, Path(folder) / "store"))
        code, _, error = command(mended, "reindex", memory_id)
        if code:
            return "false", error
        with workbench.open_store(planted.store) as one, workbench.open_store(mended) as other:
            rank = rank_of(other, *pair, config, planted)
            if rank is None or rank > K:
                return "false", str(rank)
            was, now = ndcg(one, config), ndcg(other, config)
    return spared(was, now, pair[0])


def spared(was: Mapping[str, float], now: Mapping[str, float], query: str) -> tuple[str, str]:
    """Whether the other judged queries lose no more than `TOLERATED` on average, and what they gain."""
    gains = [now[each] - was[each] for each in was if each != query and was[each] >= 0 and now.get(each, -1) >= 0]
    gain = sum(gains) / max(len(gains), 1)
    return ("true" if gain >= -TOLERATED else "false"), f"others {gain:+.4f}"


def rows_of(fault: Fault, healthy: Path, work: Path, count: int) -> list[Row]:
    """Plant one fault, ask, and judge the answers."""
    folder = work / hashlib.sha256(fault.name.encode()).hexdigest()[:8]  # paths are printed, and are no finding
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    planted = fault.plant(healthy, folder)
    pairs = list(planted.pairs)[:count] or victims(healthy, fault, planted, count)
    if not pairs:
        return [Row(fault.name, "", "", "not planted", "none", "the fault takes no judged memory away", "")]
    read = planted.said
    for line in planted.ask:
        _, out, error = command(planted.store, *line)
        read += out + error
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda pair: asked(fault, planted, pair), pairs))
    rows = []
    for pair, (answer, error) in zip(pairs, answers, strict=True):
        fix, offered = fix_of(fault, planted, pair, answer)
        said = str(answer.get("cause", error))
        rows.append(Row(fault.name, *pair, cause_of(fault, answer, read + error), fix, said, offered))
    return rows


def table(rows: Sequence[Row]) -> str:
    """By fault: pairs, causes and fixes."""
    lines = [
        "| fault | pairs | right | partly | wrong | cannot tell | fixes | true |",
        "|---|---|---|---|---|---|---|---|",
    ]
    names = list(dict.fromkeys(row.fault for row in rows))
    for name in [*names, ""]:
        of = [row for row in rows if not name or row.fault == name]
        causes, fixes = Counter(row.cause for row in of), Counter(row.fix for row in of)
        cells = [name or "all", len(of), causes["right"], causes["partly"], causes["wrong"]]
        cells += [causes["cannot tell"] + causes["not planted"], fixes["true"] + fixes["false"], fixes["true"]]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    """Plant, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path, help="all rows, as JSON lines")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    work = given.work or Path(tempfile.mkdtemp(prefix="planted-"))
    work.mkdir(parents=True, exist_ok=True)
    healthy = healthy_store(work)
    rows: list[Row] = []
    for fault in named(given.only):
        found = rows_of(fault, healthy, work, given.pairs)
        rows += found
        for row in found:
            print(
                f"{row.fault:24} {row.cause:12} fix {row.fix:6} {row.memory_id}: {row.said[:150]} | {row.offered[:170]}",
                flush=True,
            )
        if given.out:
            given.out.write_text("".join(json.dumps(row.to_json()) + "\n" for row in rows))
    print(table(rows))


if __name__ == "__main__":
    main()
