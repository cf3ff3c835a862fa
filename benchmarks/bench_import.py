"""What `import` costs against `json` or `csv` reading the same files and keeping nothing, in one run on one machine.

    python -m benchmarks.bench_import [FOLDER] [--most 10] [--rounds 3] [--only NAME …]

`import` is `formats.read_path` and `Store.add`, without embedding. Its peer reads the files that the format opened: `json.loads` of a
document or of each line, `csv.reader` of everything else. The largest files of FOLDER in a known form are taken, a folder that is one data
set as one; without FOLDER the bundled sample, multiplied and written in every form. Judgments of memories and queries that are not in
the same input find them in the store.

Every measurement is a separate process, the two sides in turn; rows a second are those of processor time, of all threads, so that the
machine's other work counts little. Peak memory is what the process took beyond what it had before. Exits 1 when a file misses the target.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from cems_workbench import formats
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.errors import InputError
from cems_workbench.formats.base.files import is_document
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store

ROOT = Path(__file__).resolve().parents[1]
TARGET = 0.5
"""Rows a second of import, by those of the peer."""
COPIES = 10
SIDES = ("import", "peer")
KINDS = ("memories", "relations", "queries", "judgments", "answers")


@dataclass(frozen=True, slots=True)
class Case:
    """One input: a file or a folder that is one data set, its format, and the files that the format opens for it."""

    path: Path
    format: str
    files: tuple[Path, ...]

    @property
    def bytes(self) -> int:
        return sum(file.stat().st_size for file in self.files)


@dataclass
class Cost:
    """What each round of one side took: processor seconds and MB at most; `rows` are those of the last round."""

    rows: int = 0
    left_out: int = 0
    seconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)


def cases(folder: Path, only: list[str]) -> Iterator[Case]:
    """Everything below `folder` in a known form whose path contains one of `only`, if there are any; how many are in none is printed."""
    opened: list[Path] = []

    def note(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | os.PathLike):
            opened.append(Path(arguments[0]))

    sys.addaudithook(note)
    waiting, unread = [folder], 0
    while waiting:
        path = waiting.pop(0)
        whole = [form.name for form in formats.FORMATS.values() if path.is_dir() and form.folder(path)]
        if path.is_dir() and not whole:
            waiting.extend(sorted(entry for entry in path.iterdir() if not entry.name.startswith(".")))
            continue
        if only and not any(part in str(path) for part in only):
            continue
        try:
            name = whole[0] if whole else formats.detect(path)
            opened.clear()
            formats.read(path, name)
        except InputError:
            unread += 1
            continue
        files = {file for file in opened if file == path or path in file.parents}
        yield Case(path, name, tuple(sorted(files)))
    print(f"  {unread} files in no known form")


def multiplied(folder: Path, copies: int) -> Path:
    """The sample's memories, queries and judgments `copies` times under new ids, in every form that holds them; each a file or
    a folder, which is returned."""
    parts = [part for name in ("memories.jsonl", "queries.jsonl") for part in formats.read_path(SAMPLE_DATA / name)]
    graded = formats.read_path(SAMPLE_DATA / "judgments.qrels")[0].judgments
    memories = [
        replace(memory, id=f"{memory.id}.{n}") for n in range(copies) for part in parts for memory in part.memories
    ]
    queries = [
        replace(query, qid=f"{query.qid}.{n}", query=f"{query.query} {n}")
        for n in range(copies)
        for part in parts
        for query in part.queries
    ]
    judgments = [
        replace(one, qid=f"{one.qid}.{n}", memory_id=f"{one.memory_id}.{n}") for n in range(copies) for one in graded
    ]
    for name in formats.dataset_writers():
        suffix = ".csv" if "csv" in name else ".jsonl" if "jsonl" in name else ".json"
        path = folder / (name if "beir" in name else f"{name}{suffix}")
        try:
            formats.write_dataset(
                name, formats.DataSet(memories, len(memories), queries=queries, judgments=judgments), path
            )
        except InputError as error:  # a form of conversations holds none of the sample
            print(f"  not written as {name}: {str(error).removeprefix(str(path))[2:60]}")
    by_qid = {query.qid: query for query in queries}
    for name in formats.judgment_writers():
        suffix = ".csv" if "csv" in name else ".jsonl" if "jsonl" in name else ".json" if "json" in name else ".txt"
        (folder / f"{name}{suffix}").write_text(formats.write_judgments(name, judgments, by_qid).text, "utf-8")
    return folder


def peer_reads(file: Path) -> None:
    """Read one file with the standard library, and keep nothing of it."""
    if file.suffix.lower() in (".jsonl", ".ndjson") or (file.suffix.lower() == ".json" and not is_document(file)):
        with file.open("rb") as lines:
            for line in lines:
                if line.strip():
                    json.loads(line)
    elif file.suffix.lower() == ".json":
        json.loads(file.read_bytes())
    else:
        with file.open(encoding="utf-8", errors="replace", newline="") as text:
            first = text.readline()
            text.seek(0)
            for _ in csv.reader(text, delimiter="\t" if "\t" in first else "," if "," in first else " "):
                pass


def add_what_is_judged(store: Store, inputs: list[ParsedInput]) -> None:
    """The memories and queries that judgments name and that no input brings, as a store that is judged has them."""
    judged = [one for parsed in inputs for one in parsed.judgments]
    memories = {one.memory_id for one in judged} - {row.id for parsed in inputs for row in parsed.memories}
    queries = {one.qid for one in judged} - {row.qid for parsed in inputs for row in parsed.queries}
    words = {row.qid: row.query for parsed in inputs for row in parsed.queries}
    store.add(
        ParsedInput(
            "judged",
            "judged",
            memories=tuple(Memory(name, name) for name in sorted(memories)),
            queries=tuple(Query(name, words.get(name, f"query {name}")) for name in sorted(queries)),
        )
    )


def once(side: str, case: Case) -> None:
    """One measurement, printed as JSON for the process that asked for it."""
    rows = left_out = 0
    with tempfile.TemporaryDirectory() as home, Store.open(Path(home) / "store") as store:
        warm = Memory("warm", "the first import opens the store's database and loads its tables")
        store.add(ParsedInput("warm", "warm", (warm,), judgments=(Judgment("none", "warm", 1),)))
        if side == "import":
            add_what_is_judged(store, formats.read_path(case.path))
        gc.collect()
        before = _peak_from_now()
        began = time.process_time()
        if side == "peer":
            for file in case.files:
                peer_reads(file)
        else:
            for parsed in formats.read_path(case.path):
                report = store.add(parsed)
                left_out += len(report.errors)
                rows += sum(
                    count.added + count.updated + count.unchanged for count in map(report.__getattribute__, KINDS)
                )
        seconds = time.process_time() - began
        print(json.dumps([rows, left_out, seconds, max(_megabytes("VmHWM") - before, 0)]))


def _peak_from_now() -> float:
    """Forget the process's peak; what it has now, in MB."""
    Path("/proc/self/clear_refs").write_text("5")
    return _megabytes("VmRSS")


def _megabytes(name: str) -> float:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1e3 if found else 0.0


def measure(case: Case, rounds: int) -> dict[str, Cost]:
    """Both sides of a case in turn, each round in new processes. Raises SystemExit when one fails."""
    costs = {side: Cost() for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            command = [sys.executable, "-m", "benchmarks.bench_import", str(case.path), "--once", side]
            run = subprocess.run(
                [*command, "--files", *map(str, case.files)], cwd=ROOT, capture_output=True, text=True, check=False
            )
            if run.returncode:
                raise SystemExit(f"{side} of {case.path} failed:\n{run.stderr}")
            cost = costs[side]
            cost.rows, cost.left_out, seconds, megabytes = json.loads(run.stdout.splitlines()[-1])
            cost.seconds.append(seconds)
            cost.megabytes.append(megabytes)
    return costs


def main() -> int:
    """Measure every case, print the table, say by the exit code whether the target is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="files to import; without it the sample, multiplied")
    parser.add_argument("--most", type=int, default=10, help="the largest this many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="names that a case's path contains")
    parser.add_argument("--once", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--files", type=Path, nargs="*", default=[], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options.once, Case(options.folder, "", tuple(options.files)))
        return 0
    with tempfile.TemporaryDirectory() as made:
        folder = (options.folder or multiplied(Path(made), COPIES)).resolve()
        found = sorted(cases(folder, options.only), key=lambda case: -case.bytes)
        return _table(folder, found[: options.most], options.rounds)


def _table(folder: Path, chosen: list[Case], rounds: int) -> int:
    print(
        f"\n{os.cpu_count()} CPUs, {rounds} rounds, processor seconds of the median round, MB above what the process had\n"
    )
    print(
        f"{'input':44} {'format':16} {'MB':>6} {'rows':>8} {'left':>6} {'import':>8} {'peer':>8} {'rows/s':>9} {'peer':>9}"
        f" {'peak':>6} {'ratio':>6}"
    )
    ratios = []
    for case in chosen:
        costs = measure(case, rounds)
        ours, peer = (statistics.median(costs[side].seconds) for side in SIDES)
        rows, peak = costs["import"].rows, max(costs["import"].megabytes)
        ratios.append(peer / ours)
        print(
            f"{str(case.path.relative_to(folder))[-44:]:44} {case.format:16} {case.bytes / 1e6:6.1f} {rows:8,}"
            f" {costs['import'].left_out:6,} {ours:8.3f} {peer:8.3f} {rows / ours:9,.0f} {rows / peer:9,.0f} {peak:6.0f}"
            f" {ratios[-1]:6.2f}{'' if ratios[-1] >= TARGET else ' MISSED'}",
            flush=True,
        )
    if not ratios:
        raise SystemExit(f"{folder} has no file in a known form")
    print(f"\nmedian ratio {statistics.median(ratios):.2f}, target {TARGET} for every file")
    return 0 if min(ratios) >= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
