"""Inputs that were mutated: importers, bundles, evidence files, configs and links, each read by what the commands call.

    python -m benchmarks.fuzz [--inputs 10000] [--seed 19] [--commands 60] [--only KIND] [--golden DIRECTORY]

Real files (sample_data, bundles and configs, a small evidence file and its forgeries) are mutated: bits, spans, odd tokens, values of their
JSON. Each is read in a child process that may have 4 GB of addresses, and no longer than 20 seconds. Good is: read, or refused by one line;
and of a table of a row a line every row that was not touched. A share goes through the real command line. Prints a table, and exits 1 when
anything was wrong. The same seed gives the same inputs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.forged_evidence import FORGED, forge
from cems_workbench import formats
from cems_workbench.config import FORMS, PipelineConfig, dump_config, export_config, import_config, preset, preset_names
from cems_workbench.errors import InputError, WorkbenchError
from cems_workbench.evaluation.evidence_file import EvidenceFile, Header, read_evidence_file
from cems_workbench.jobs.evaluation import labelled_file
from cems_workbench.pipeline import (
    Evidence,
    Hit,
    ModelScore,
    RankedList,
    Variant,
    bundle_from,
    evidence_from,
    read_bundle,
    replay,
)
from cems_workbench.records import Judgment, Memory, Query
from cems_workbench.ui.kit.address import packed

ROOT = Path(__file__).parents[1]
SECONDS, MOST_BYTES, ADDRESSES = 20, 2_000_000_000, 4_000_000_000
KINDS = ("import", "bundle", "evidence", "config", "link")
BATCH = 250
TOKENS = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\\ud800",
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\t",
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"-1",
    b"9" * 400,
    b"9223372036854775808",
    b"null",
    b"true",
    b"0x" + b"f" * 5000,
    b"010",
    b"1:30",
    b"&a ",
    b"*a",
    b"<<: *a",
    b"!!python/object/apply:os.system ['x']",
    b"2026-13-45",
    b"'" * 50,
    b"[" * 300,
    b"{a: " * 100,
    b"=cmd|'/c x'!A1",
    b"\x1b[31m",
    b"<script>",
    "\u202e\u0000é".encode(),
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**31,
    2**63 - 1,
    2**63,
    10**400,
    1.5,
    -0.0,
    1e308,
    math.nan,
    math.inf,
    "",
    " ",
    "x" * 5_000,
    "\ud800",
    "\x00",
    "1e5",
    "nan",
    "2026-02-30",
    "9999-12-31T23:59:59+23:59",
    "0001-01-01",
    [],
    {},
    [[]],
    [None],
    {"a": {"a": {}}},
    ["x"] * 1_000,
)


class Wrong(Exception):
    """What was read is not what should have been."""


def mutated(raw: bytes, drawn: random.Random) -> bytes:
    """A few mutations of bytes, or of one value where it is JSON."""
    if drawn.random() < 0.4:
        try:
            return json_mutated(raw, drawn)
        except (ValueError, RecursionError, UnicodeError):
            pass
    content = bytearray(raw)
    for _ in range(drawn.choice((1, 1, 2, 4, 16))):
        place = drawn.randrange(len(content) + 1)
        way = drawn.randrange(6)
        if way == 0 and content:
            content[min(place, len(content) - 1)] ^= 1 << drawn.randrange(8)
        elif way == 1:
            del content[place : place + drawn.choice((1, 4, 64, 4096))]
        elif way == 2:
            content[place:place] = drawn.choice(TOKENS)
        elif way == 3:
            content[place : place + 8] = drawn.randbytes(drawn.randrange(16))
        elif way == 4:
            start = drawn.randrange(len(content) + 1)
            content[place:place] = content[start : start + drawn.choice((8, 256, 4096))]
        elif drawn.random() < 0.2:
            del content[place:]
    return bytes(content)


def json_mutated(raw: bytes, drawn: random.Random) -> bytes:
    """One value in a document of JSON, or in one of its lines, replaced or removed. Raises ValueError where it is none."""
    lines = raw.split(b"\n")
    whole = raw.lstrip()[:1] in (b"{", b"[") and len(lines) > 1 and lines[0].strip() in (b"{", b"[")
    number = 0 if whole else drawn.randrange(len(lines))
    document = json.loads(raw if whole else lines[number])
    places: list[tuple[Any, Any]] = []
    waiting = [document]
    while waiting:
        value = waiting.pop()
        items: Sequence[tuple[Any, Any]] = (
            list(value.items())
            if isinstance(value, dict)
            else list(enumerate(value))
            if isinstance(value, list)
            else ()
        )
        places += [(value, key) for key, _ in items]
        waiting += [item for _, item in items if isinstance(item, (dict, list))]
    if not places:
        raise ValueError("nothing in it")
    holder, key = drawn.choice(places)
    if drawn.random() < 0.2:
        del holder[key]
    else:
        holder[key] = drawn.choice(VALUES)
    text = json.dumps(document).encode()
    return text if whole else b"\n".join([*lines[:number], text, *lines[number + 1 :]])


def small_evidence(path: Path) -> None:
    """An evidence file of six queries and eight memories, which the forgeries are written for."""
    queries = [Query(f"q{i}", word) for i, word in enumerate(("one", "two", "three", "four", "five", "six"), 1)]
    header = Header("small", "store1", 1, "minilm", dump_config(PipelineConfig()), "2026-09-01T00:00:00+00:00")
    judgments = [Judgment("q1", "a", 3), Judgment("q1", "h", 0), Judgment("q2", "g", 2)]
    with EvidenceFile.create(path, header, queries, judgments) as file:
        for query in queries:
            hits = tuple(Hit(key, 0.8 - 0.1 * i) for i, key in enumerate("abcdefgh" if query.qid != "q4" else ""))
            file.add(query.qid, _evidence(query.query, hits), 0.1)
        file.finish()


def _evidence(query: str, hits: tuple[Hit, ...]) -> Evidence:
    moment = datetime(2026, 9, 1, tzinfo=UTC)
    lists = (RankedList("vector:0", "vector", 0, hits), RankedList("lexical:0", "lexical", 0, hits[::-1]))
    return Evidence(
        query,
        {hit.memory_id: Memory(hit.memory_id, f"text {hit.memory_id}", created_at=moment) for hit in hits},
        (Variant(query),),
        lists,
        moment,
        judge_scores={"cross_encoder": {hit.memory_id: ModelScore(hit.score) for hit in hits}},
    )


class Readers:
    """What reads an input of each kind, as the commands and pages do; a folder and a store to work in."""

    def __init__(self, folder: Path, golden: Path | None) -> None:
        from cems_workbench.store import Store

        self.folder = folder
        self.store = Store.open(folder / "store")
        whole = folder / "whole.evidence"
        small_evidence(whole)
        bundles = sorted(golden.glob("*/bundle.json")) if golden and golden.is_dir() else []
        configs = sorted(golden.glob("*/config.yaml")) if golden and golden.is_dir() else []
        files = (path for path in (ROOT / "sample_data").rglob("*") if path.is_file())
        sample = sorted(path for path in files if path.name != "README.md")
        heads = [(path.name, b"".join(path.read_bytes().splitlines(keepends=True)[:12])) for path in sample]
        rows = [json.loads(line) for line in dict(heads)["memories.jsonl"].splitlines()]
        csv = "id,content,category\n" + "".join(f"{row['id']},{json.dumps(row['content'])},x\n" for row in rows)
        locomo = {
            "qa": [{"question": "q", "answer": "a", "evidence": ["D1:1"], "category": 1}],
            "conversation": {
                "speaker_a": "A",
                "speaker_b": "B",
                "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_1": [{"speaker": "A", "dia_id": "D1:1", "text": "hello"}],
            },
            "sample_id": "c1",
        }
        heads += [("memories.csv", csv.encode()), ("locomo.json", json.dumps([locomo]).encode())]
        plain = bundle_from(_evidence("plain", (Hit("a", 0.5), Hit("b", 0.25))))
        self.seeds: dict[str, list[tuple[str, bytes]]] = {
            "import": heads,
            "bundle": [(path.name, path.read_bytes()) for path in bundles]
            or [("bundle.json", json.dumps(plain).encode())],
            "evidence": [("e.evidence", whole.read_bytes())],
            "config": [(path.name, path.read_bytes()) for path in configs]
            + [
                (f"c.{form}", export_config(preset(name).config, form).encode())
                for name in preset_names()
                for form in FORMS
            ],
            "link": [
                (
                    "link.json",
                    json.dumps(
                        {"preset": ["cems"], "set": packed(["fusion.k=30"] * 60), "space": ["fusion.k=10:90:5"]}
                    ).encode(),
                )
            ],
        }
        self.whole = whole

    def read(self, kind: str, name: str, original: bytes, raw: bytes) -> None:
        """Read an input. Raises WorkbenchError where it is refused, Wrong where a row was lost."""
        path = self.folder / name
        path.write_bytes(raw)
        getattr(self, f"_read_{kind}")(path, original, raw)

    def _read_import(self, path: Path, original: bytes, raw: bytes) -> None:
        parsed = formats.read_path(path)
        for file in parsed:
            self.store.add(file)
        if path.name == "memories.jsonl" and raw.count(b"\n") == original.count(b"\n"):
            before, after = original.split(b"\n"), raw.split(b"\n")
            untouched = [
                json.loads(line)["id"] for line, now in zip(before, after, strict=True) if line and line == now
            ]
            found = {memory.id for file in parsed for memory in file.memories}
            other = {str(row.get("id")) for row in map(_object, after) if row is not None}
            lost = [one for one in untouched if one not in found and one in other]
            if lost:
                raise Wrong(f"rows lost: {lost[:3]}")

    def _read_bundle(self, path: Path, original: bytes, raw: bytes) -> None:
        evidence = read_bundle(path)
        json.dumps(replay(evidence, PipelineConfig()).to_json(), allow_nan=False)
        evidence_from(json.loads(json.dumps(bundle_from(evidence))))

    def _read_evidence(self, path: Path, original: bytes, raw: bytes) -> None:
        Path(f"{path}.wal").unlink(missing_ok=True)
        read = read_evidence_file(path)
        labelled_file(read, None)
        for evidence in read.evidences.values():
            replay(evidence, read.header.config)

    def _read_config(self, path: Path, original: bytes, raw: bytes) -> None:
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise InputError("not UTF-8") from None
        export_config(import_config(text, source=path.name).config, "yaml")

    def _read_link(self, path: Path, original: bytes, raw: bytes) -> None:
        from cems_workbench.platform.parsing import json_values
        from cems_workbench.ui.inspect.share import put_setting

        values = json_values(raw, "link")
        if isinstance(values, dict):
            put_setting(
                {name: [str(one) for one in rows] for name, rows in values.items() if isinstance(rows, list) and rows}
            )


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError, UnicodeError):
        return None
    return value if isinstance(value, dict) else None


def inputs(readers: Readers, kind: str, seed: int, first: int, count: int) -> Iterator[tuple[int, str, bytes, bytes]]:
    """(number, file name, what it was, what it is) of the inputs of a kind, from `first` on."""
    for number in range(first, first + count):
        drawn = random.Random(f"{seed} {kind} {number}")
        name, original = drawn.choice(readers.seeds[kind])
        if kind == "evidence" and number < len(FORGED):
            forge(readers.whole, readers.folder / name, list(FORGED.values())[number][0])
            yield number, name, original, (readers.folder / name).read_bytes()
        elif (
            kind == "evidence" and drawn.random() < 0.5
        ):  # where the pages are, at random: a header would refuse them all
            content = bytearray(original)
            for _ in range(drawn.choice((1, 8, 64))):
                content[drawn.randrange(len(content))] = drawn.randrange(256)
            yield number, name, original, bytes(content)
        else:
            yield number, name, original, mutated(original, drawn)


def outcome(read: Callable[[], None]) -> tuple[str, str]:
    """How reading ended, in a word, and what was said."""
    began = time.monotonic()
    try:
        read()
        said = ("read", "")
    except WorkbenchError as error:
        text = str(error)
        bad = "\n" in text or len(text) > 2_000
        said = ("WRONG: not one line", text[:300]) if bad else ("refused", text)
    except TimeoutError:
        said = ("WRONG: too long", "")
    except MemoryError:
        said = ("WRONG: too much memory", traceback.format_exc(limit=-4))
    except Exception as error:
        said = (f"WRONG: {type(error).__name__}", traceback.format_exc(limit=-6))
    return said if time.monotonic() - began <= SECONDS else ("WRONG: too long", said[1])


def _alarm(signal_number: int, frame: object) -> None:
    raise TimeoutError


def work(kind: str, seed: int, first: int, count: int, golden: Path | None) -> None:
    """In a child: read some inputs, and print how each ended."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    signal.signal(signal.SIGALRM, _alarm)
    with tempfile.TemporaryDirectory() as folder:
        readers = Readers(Path(folder), golden)
        for number, name, original, raw in inputs(readers, kind, seed, first, count):
            print(json.dumps([number, name, "begun", ""]), flush=True)
            signal.alarm(SECONDS + 5)
            said, words = outcome(lambda name=name, original=original, raw=raw: readers.read(kind, name, original, raw))  # type: ignore[misc]
            signal.alarm(0)
            print(json.dumps([number, name, said, words if "WRONG" in said else ""]), flush=True)
    print(json.dumps([-1, "", "memory", str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)]), flush=True)


def run_kind(kind: str, total: int, seed: int, golden: Path | None) -> tuple[Counter[str], float, int, list[str]]:
    """Counts of how the inputs of a kind ended, the longest seconds of a batch by input, the most memory, and what was wrong."""
    counted: Counter[str] = Counter()
    wrong: list[str] = []
    most, slowest, first = 0, 0.0, 0
    while first < total:
        count = min(BATCH, total - first)
        arguments = [kind, str(seed), str(first), str(count), str(golden or "")]
        began = time.monotonic()
        child = subprocess.run(
            [sys.executable, "-m", "benchmarks.fuzz", "--worker", *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            cwd=ROOT,
            check=False,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        rows = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("[")]
        slowest = max(slowest, (time.monotonic() - began) / count)
        last = first - 1
        for number, name, said, words in rows:
            if said == "memory":
                most = max(most, int(words))
            elif said != "begun":
                counted[said] += 1
                if "WRONG" in said:
                    wrong.append(f"{kind} {number} {name}: {said} {words}")
            last = max(last, number)
        if child.returncode:
            counted["WRONG: crash"] += 1
            wrong.append(f"{kind} {last}: crash {child.returncode} {child.stderr[-600:]}")
            first = max(last, first) + 1
        else:
            first += count
    return counted, slowest, most, wrong


def run_commands(total: int, seed: int, golden: Path | None) -> tuple[Counter[str], list[str]]:
    """A share of the inputs through the real command line."""
    counted: Counter[str] = Counter()
    wrong = []
    with tempfile.TemporaryDirectory() as home:
        readers = Readers(Path(home), golden)
        readers.store.close()
        for turn in range(total):
            kind = KINDS[turn % 4]
            number, name, _, raw = next(inputs(readers, kind, seed, 100_000 + turn, 1))
            path = Path(home) / name
            path.write_bytes(raw)
            command = {
                "import": ["import", str(path), "--store", str(Path(home) / "commands")],
                "bundle": ["replay", str(path), "--preset", "cems"],
                "evidence": ["evaluate", str(path)],
                "config": ["export", str(path), "--format", "yaml"],
            }[kind]
            ended = subprocess.run(
                [sys.executable, "-m", "cems_workbench", *command],
                capture_output=True,
                text=True,
                errors="replace",
                cwd=ROOT,
                timeout=120,
                check=False,
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
            )
            good = ended.returncode in (0, 1, 2) and "Traceback" not in ended.stderr
            counted[f"exit {ended.returncode}" if good else "WRONG"] += 1
            if not good:
                wrong.append(f"command {kind} {number} {name}: {ended.returncode} {ended.stderr[-800:]}")
    return counted, wrong


def main() -> int:
    """Mutate, read and print; 1 when anything was wrong."""
    if sys.argv[1:2] == ["--worker"]:
        kind, seed, first, count, golden = sys.argv[2:]
        work(kind, int(seed), int(first), int(count), Path(golden) if golden else None)
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--commands", type=int, default=60)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--golden", type=Path, default=ROOT.parent / "shared" / "golden")
    options = parser.parse_args()
    faults: list[str] = []
    share = {"import": 0.3, "bundle": 0.25, "evidence": 0.1, "config": 0.25, "link": 0.1}
    for kind in KINDS if options.only is None else (options.only,):
        total = options.inputs if options.only else round(options.inputs * share[kind])
        counted, seconds, most, wrong = run_kind(kind, total, options.seed, options.golden)
        if most > MOST_BYTES:
            wrong.append(f"{kind}: {most:,} bytes of memory")
        faults += wrong
        print(
            f"{kind}: {total} inputs, {dict(counted)}, {seconds * 1000:.0f} ms each, {most / 1e6:,.0f} MB at most",
            flush=True,
        )
    if options.commands and options.only is None:
        counted, wrong = run_commands(options.commands, options.seed, options.golden)
        faults += wrong
        print(f"commands: {dict(counted)}", flush=True)
    for line in faults[:40]:
        print(line)
    print("nothing was wrong" if not faults else f"{len(faults)} WRONG")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
