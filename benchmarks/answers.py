"""Are the answers still the same? What a checkout says on its public surfaces, a text file an answer, and what differs between two.

    python -m benchmarks.answers record FOLDER [--tree DIR] [--only PART ...] [--match TEXT]
    python -m benchmarks.answers compare BEFORE AFTER [--show LINES] [--match TEXT]

A refactoring changes no answer. Parts: the command line (data/answers/commands.txt, every --help and preset, connect to recorded
stores), the files that commands write, the Python API, MCP, the pages, and the registries. The script and its inputs are those of this
checkout; the code is that of --tree, of which only public surfaces are used. Each answer comes from a fork of one process that has
imported the package, on a copy of one prepared store, always below `WORK`, so that no path has another length or hash; a second recording
waits for the first. What differs between two runs (present times, durations, ports) is replaced.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import fcntl
import gc
import hashlib
import importlib
import importlib.util
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks" / "data" / "answers"
RECORDINGS = ROOT / "tests" / "recordings"
WORK = Path("/tmp/cems-answers")
PARTS = ("commands", "files", "api", "mcp", "pages", "registries")
AT_ONCE, SECONDS = 2, 180
ENVIRONMENT = {
    "CEMS_WORKBENCH_GATHER_AHEAD": "false",
    "CEMS_WORKBENCH_SERVE": "off",
    "CHROMA_ANONYMIZED_TELEMETRY": "False",
    "COLUMNS": "140",
    "HF_HUB_OFFLINE": "1",
    "HOME": str(WORK / "home"),
    "LANG": "C.UTF-8",
    "LOGNAME": "someone",
    "NO_COLOR": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": os.environ["PATH"],
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": str(WORK / "tree"),
    "TZ": "UTC",
    "USER": "someone",
}
WITH_THREADS = ("pyarrow", "lancedb", "chromadb", "torch")
"""Packages that start a thread when they are imported, which no fork would have."""
WRITES = re.compile(r"--(out|run-out|bundle|spans|html|markdown) |ci init")
PROGRESS = re.compile(r"^[a-z].*(: \d[\d,]* of [\d,]+(, .*)?| …)\n", re.M)
BINARY = 200
"""Bytes of a binary file of no known kind that are shown."""


# Cases


@dataclass(frozen=True, slots=True)
class Case:
    """Answers that come from one folder: a function that yields each with its name, below a part."""

    part: str
    name: str
    answers: Callable[[Path], Iterator[tuple[str, str]]]

    @property
    def folder(self) -> Path:
        """Where it runs: the same in each recording, whatever other cases there are."""
        return WORK / "cases" / hashlib.sha256(f"{self.part} {self.name}".encode()).hexdigest()[:8]


def written_cases() -> Iterator[tuple[str, list[str]]]:
    """The cases of commands.txt: name and lines."""
    name, lines = "", list[str]()
    for line in (DATA / "commands.txt").read_text("utf-8").splitlines():
        if line.startswith(" "):
            lines.append(line.strip())
        elif line and not line.startswith("#"):
            if lines:
                yield name, lines
            name, _, first = line.partition(": ")
            lines = [first]
    yield name, lines


def preset_cases() -> Iterator[tuple[str, list[str]]]:
    """A search and an export by each preset."""
    import cems_workbench

    for name in cems_workbench.presets():
        asked = f"search 'when are we moving house' --as-of 2026-09-01 --preset {name}"
        yield f"preset {name}", [f"{asked} --stages", f"export {name}"]


def connect_cases() -> Iterator[tuple[str, list[str]]]:
    """The recorded stores that open without a server, connected, refreshed, searched and forgotten."""
    for answers in sorted([*RECORDINGS.glob("stores/*/answers.json"), *RECORDINGS.glob("tools/*/answers.json")]):
        name, form = answers.parent.name, json.loads(answers.read_text("utf-8"))["address"]
        if "{url}" in form:
            continue
        address = shlex.quote(form.format(path="HERE/store"))
        yield (
            f"connect {name}",
            [
                f"! cp -r in/stores/{name} store",
                f"connect {address} --probe --store n",
                f"connect {address} --store n",
                "connect --store n",
                "search 'who keeps the kettle' --as-of 2026-11-01 --store n --stages",
                "dataset --format memories-jsonl --out m.jsonl --store n",
                f"connect {address} --forget --store n",
            ],
        )


def command_cases(parts: Sequence[str], helps: Mapping[str, str]) -> Iterator[Case]:
    """The command lines as text and as JSON, each with the files that it wrote."""
    for name, lines in [*written_cases(), *preset_cases(), *connect_cases()]:
        if not name.startswith("preset ") and ("commands" in parts or any(WRITES.search(line) for line in lines)):
            yield Case("commands", name, partial(run_lines, name=name, lines=lines))
        as_json = [f"{line} --json" if takes_json(line, helps) else line for line in lines]
        if as_json != lines and "commands" in parts:
            yield Case(
                "commands", f"{name} --json", partial(run_lines, name=f"{name} --json", lines=as_json, files=False)
            )


def takes_json(line: str, helps: Mapping[str, str]) -> bool:
    """Whether the command of a line has the option --json."""
    words = line.split()
    shown = helps.get(" ".join(words[:2])) or helps.get(words[0], "")
    return "--json" in shown and "--json" not in line


def run_lines(folder: Path, name: str, lines: Sequence[str], files: bool = True) -> Iterator[tuple[str, str]]:
    """What the commands of a case print, and the files that they leave."""
    shown = []
    for line in lines:
        if line.startswith("!"):
            subprocess.run(["/bin/sh", "-c", line[1:].replace("HERE", str(folder))], check=True)
        else:
            shown.append(command(shlex.split(line.replace("HERE", str(folder))), line))
    yield f"commands/{name}", "\n".join(shown)
    for path in sorted(folder.rglob("*")) if files else ():
        parts = path.relative_to(folder).parts
        if path.is_file() and parts[0] not in ("in", "s", "n", "store", "tmp"):
            yield f"files/{name}/{'/'.join(parts)}", content(path)


def command(words: Sequence[str], line: str) -> str:
    """What a command of the command line answers, run in a fork of this process."""
    out, err = Path("tmp/out"), Path("tmp/err")
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        for number, stream in ((0, Path(os.devnull)), (1, out), (2, err)):
            os.dup2(
                os.open(stream, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), number
            )
        leave(run_module, words)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    printed, said = (path.read_text("utf-8", "backslashreplace") for path in (out, err))
    with contextlib.suppress(ValueError):
        printed = json.dumps(json.loads(printed), ensure_ascii=False, indent=1) + "\n"
    said = PROGRESS.sub("", said).lstrip("\n")
    return f"$ {line}\nexit code {code}\n{printed}" + (f"--- stderr\n{said}" if said else "")


def run_module(words: Sequence[str]) -> None:
    """`python -m cems_workbench WORDS`, within this process."""
    sys.argv = ["cems_workbench", *words]
    runpy.run_module("cems_workbench", run_name="__main__", alter_sys=True)


def leave(run: Callable[..., None], *arguments: Any) -> None:
    """Call a function and end this process as Python would, without going back to what its parent does."""
    code: Any = 0
    try:
        run(*arguments)
    except SystemExit as stopped:
        code = stopped.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def content(path: Path) -> str:
    """A file as text: as it is, or if it is binary what is in it."""
    raw = path.read_bytes()
    if raw[8:12] == b"DUCK":
        return tables(path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return f"{len(raw)} bytes: {raw[:BINARY]!r}\n"


def tables(path: Path) -> str:
    """The tables of a database file: columns, number of rows, and the first rows without their long values."""
    import duckdb

    lines = []
    with duckdb.connect(str(path), read_only=True) as database:
        for (name,) in database.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
            rows = database.execute(f'SELECT * FROM "{name}"').fetchall()
            columns = [f"{column[0]} {column[1]}" for column in database.description or ()]
            lines.append(f"{name}: {len(rows)} rows of {', '.join(columns)}")
            timed = [column[0] == "seconds" for column in database.description or ()]
            shown = [
                ["N" if time else str(value)[:80] for value, time in zip(row, timed, strict=True)] for row in rows[:3]
            ]
            lines += ["  " + " | ".join(row) for row in shown]
    return "\n".join(lines) + "\n"


# What is answered from


def help_pages() -> dict[str, str]:
    """What --help says of each command, by its words; "" is the program."""
    found, waiting = dict[str, str](), [""]
    while waiting:
        name = waiting.pop(0)
        found[name] = command([*name.split(), "--help"], f"{name} --help".strip())
        listed = found[name].partition("\nCommands:\n")[2]
        waiting += [f"{name} {each}".strip() for each in re.findall(r"^  ([a-z-]+)  ", listed, re.M)]
    return found


def ours(path: str) -> Any:
    """A module of this checkout that imports no other of it, beside a tree that may have it too."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def link_inputs() -> None:
    """The folder `in` of every case."""
    inputs = WORK / "in"
    inputs.mkdir()
    for name, target in (
        ("answers", DATA),
        ("german", ROOT / "tests/data/german"),
        ("reports", RECORDINGS / "reports"),
        ("sample_cut.json", RECORDINGS / "sample_cut.json"),
        ("sample_data", ROOT / "sample_data"),
        ("spanish", ROOT / "tests/data/spanish"),
        ("spans", RECORDINGS / "spans"),
    ):
        shutil.copytree(target, inputs / name) if target.is_dir() else shutil.copy(target, inputs / name)
    rows = (ROOT / "sample_data/queries.jsonl").read_text("utf-8").splitlines(keepends=True)
    few = "".join([*rows[8::9], rows[90]])
    (inputs / "few.jsonl").write_text(few, "utf-8")
    unanswerable = (ROOT / "sample_data/no_answer/unanswerable.jsonl").read_text("utf-8").splitlines(keepends=True)
    (inputs / "mixed.jsonl").write_text(few + "".join(unanswerable[:6]), "utf-8")
    recorded = ours("tests/recorded_stores.py")
    for name in recorded.names():
        if "{url}" not in recorded.answers(name)["address"]:
            recorded.restore(name, inputs / "stores" / name)
    for packed in RECORDINGS.glob("tools/*/store.tar.xz"):
        with tarfile.open(packed) as archive:
            archive.extractall(inputs / "stores" / packed.parent.name, filter="data")


PREPARATION = (
    "import in/sample_data",
    "import in/few.jsonl --query-set few",
    "import in/answers/labels.jsonl",
    "import in/answers/todo.csv --queue todo",
    "gather few --preset cems",
    "gather few --preset workbench",
    "gather few --preset cems --out in/few_cems.evidence",
    "gather few --preset workbench --out in/few_workbench.evidence",
)


def preload() -> None:
    """Import what a search and the pages need, so that no fork has to."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        with contextlib.suppress(SystemExit):
            run_module(["search", "tea", "--as-of", "2026-09-01"])
        with contextlib.suppress(ImportError):
            importlib.import_module("streamlit.testing.v1")
        os.write(write, " ".join(sys.modules).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as modules:
        names = modules.read().split()
    os.waitpid(child, 0)
    for name in names:
        if name.partition(".")[0] not in (*WITH_THREADS, "__main__"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads run before the first fork"
    gc.freeze()


# Recording


def inside(parts: Sequence[str], match: str) -> None:
    """Record the tree whose process this is into WORK/out."""
    for name in ("home", "cases", "out", "prepared/tmp"):
        (WORK / name).mkdir(parents=True)
    link_inputs()
    os.chdir(WORK / "prepared")
    os.environ["CEMS_WORKBENCH_STORE"] = str(WORK / "prepared/s")
    Path("in").symlink_to("../in")
    prepared = [command(shlex.split(line), line) for line in PREPARATION]
    helps = help_pages()
    preload()
    if "commands" in parts:
        keep(WORK / "prepared", "commands/prepare", "\n".join(prepared))
        for name, text in helps.items():
            keep(WORK / "prepared", f"help/{name or 'cems-workbench'}", text)
    cases: list[Case] = []
    if {"commands", "files"} & {*parts}:
        cases += command_cases(parts, helps)
    surfaces = ours("benchmarks/surfaces.py").SURFACES
    for part in parts:
        for name, answers in surfaces.get(part, {}).items():
            cases.append(Case(part, name, partial(named, part=part, case=name, answers=answers)))
    cases = [case for case in cases if match in f"{case.part}/{case.name}"]
    running = dict[int, str]()
    for number, case in enumerate(cases):
        while len(running) >= AT_ONCE:
            ended(running)
        child = os.fork()
        if not child:
            leave(perform, case, parts)
        running[child] = case.name
        print(f"\r{number + 1} of {len(cases)} {case.name:40}", end="", flush=True)
    while running:
        ended(running)
    print()


def named(_: Path, part: str, case: str, answers: Callable[[], Iterator[tuple[str, str]]]) -> Iterator[tuple[str, str]]:
    """Answers with the names of their files."""
    for name, text in answers():
        yield f"{part}/{case}/{name}", text


def ended(running: dict[int, str]) -> None:
    """Wait for a case; one that fails is reported."""
    child, status = os.wait()
    name = running.pop(child)
    if status:
        print(f"\n{name}: the recording failed", file=sys.stderr)


def perform(case: Case, parts: Sequence[str]) -> None:
    """Run a case in its folder, with a copy of the store, and keep its answers."""
    shutil.copytree(WORK / "prepared/s", case.folder / "s")
    (case.folder / "tmp").mkdir()
    (case.folder / "in").symlink_to(WORK / "in")
    os.chdir(case.folder)
    os.environ["CEMS_WORKBENCH_STORE"] = str(case.folder / "s")
    os.environ["TMPDIR"] = str(case.folder / "tmp")
    for name, text in case.answers(case.folder):
        if name.partition("/")[0] in parts:
            keep(case.folder, name, text)
    os.chdir(WORK)
    shutil.rmtree(case.folder)


def keep(folder: Path, name: str, text: str) -> None:
    """Write an answer, without what differs between two recordings."""
    path = WORK / "out" / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(normalised(text, folder, durations=not name.startswith("help/")), "utf-8", "backslashreplace")


def normalised(text: str, folder: Path, durations: bool = True) -> str:
    """A text without paths of this machine, times of today, progress and durations."""
    for path, word in (
        (sys.executable, "python"),
        (str(folder), "HERE"),
        (str((WORK / "tree").resolve()), "TREE"),
        (str(ROOT), "TREE"),
        (str(WORK), "WORK"),
    ):
        text = text.replace(path, word)
    now = datetime.now(UTC)
    days = [now.date() - timedelta(days=each) for each in (0, 1)]
    iso = "|".join(day.isoformat() for day in days)
    text = re.sub(rf"\b(?:{iso})(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?", "TIME", text)
    parts = "|".join(f"{day.year}, {day.month}, {day.day}" for day in days)
    text = re.sub(rf"datetime\.datetime\((?:{parts})(?:, \d+)*", "datetime.datetime(TIME", text)
    text = re.sub(r"\b(process|pid|PID|port) \d+", r"\1 N", text)
    text = re.sub(r"\b0x[0-9a-f]{8,}\b", "ADDRESS", text)
    text = re.sub(r"\b[0-9a-f]{12}/(?=\d+\b)", "CORPUS/", text)  # each store has another
    text = re.sub(r"-[0-9a-f]{12}\.evidence", "-ID.evidence", text)
    text = re.sub(r'("(?:trace|span|parent)_id": )"[0-9a-f]+"', r'\1"ID"', text)
    text = re.sub(r"/tmp/(cems-[a-z]+)-[a-z0-9_]{8}\b", r"/tmp/\1", text)
    text = re.sub(r"(<dt>store</dt><dd>)[0-9a-f]{12}", r"\1CORPUS", text)
    text = re.sub(
        r"not read: ([\w, ]+);", lambda found: f"not read: {', '.join(sorted(found[1].split(', ')))};", text
    )  # Chroma's order
    if durations:
        text = re.sub(r"^ms/query .*$", "ms/query N", text, flags=re.M)
        text = re.sub(r'("(?:[a-z_]*_)?(?:elapsed|seconds|ms)(?:_[a-z_]*)?": )[\d.e-]+', r"\1N", text)
        text = re.sub(r"\b\d+(?:[,.]\d+)*( ?(?:ms|s|min|seconds)(?:/query)?)\b", r"N\1", text)
        text = re.sub(r'ms="[\d.]+"', 'ms="N"', text)
        text = re.sub(r"^(stage +in +out) +ms( +warnings)$", r"\1 ms\2", text, flags=re.M)
        text = re.sub(r"^([a-z]+ +\d+ +\d+) +\d+\.\d+( +\d+)$", r"\1 N\2", text, flags=re.M)
        text = without_times(text)
    return text


def without_times(text: str) -> str:
    """A text whose tables in CSV or Markdown have no milliseconds."""
    lines, column, mark = text.split("\n"), None, ","
    for number, line in enumerate(lines):
        if found := re.search(r"[,|] ?(ms per query|ms)(?=[,| ]|$)", line):
            mark = found[0][0]
            column = line[: found.start()].count(mark) + 1
        elif column is not None:
            cells = re.split(r",(?=(?:[^\"]*\"[^\"]*\")*[^\"]*$)" if mark == "," else r"\|", line)
            if len(cells) <= column:
                column = None
            elif re.fullmatch(r" ?[\d.,]+ ?", cells[column]):
                cells[column] = "N"
                lines[number] = mark.join(cells)
    return "\n".join(lines)


def record(folder: Path, tree: Path, parts: Sequence[str], match: str) -> None:
    """Record a tree into a folder, whose earlier answers of these parts go unless only some cases are recorded."""
    lock = WORK.with_suffix(".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    (WORK / "tree").symlink_to(tree)
    python = WORK / "tree/.venv/bin/python"
    started = time.monotonic()
    ran = subprocess.run(
        [
            python if python.exists() else sys.executable,
            "-P",
            __file__,
            "inside",
            folder,
            "--match",
            match,
            "--only",
            *parts,
        ],
        env=ENVIRONMENT,
        cwd=WORK / "tree",
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{tree} could not be recorded: exit code {ran.returncode}")
    for made in sorted((WORK / "out").iterdir()):
        if not match:
            shutil.rmtree(folder / made.name, ignore_errors=True)
        shutil.copytree(made, folder / made.name, dirs_exist_ok=True)
    answers = sum(1 for _ in folder.rglob("*.txt"))
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"{folder}: {answers:,} answers in {time.monotonic() - started:.0f} s")


# Comparing


def compare(before: Path, after: Path, shown: int, match: str = "") -> int:
    """Print which answers are missing, new or different; returns how many."""
    old, new = (
        {name: path for path in folder.rglob("*.txt") if match in (name := str(path.relative_to(folder)))}
        for folder in (before, after)
    )
    parts = {name.partition("/")[0] for name in new}
    old = {name: path for name, path in old.items() if name.partition("/")[0] in parts}
    different = 0
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            print(f"{'missing' if name in old else 'new'}: {name}")
            different += 1
            continue
        was, now = (each[name].read_text("utf-8").splitlines() for each in (old, new))
        if was != now:
            different += 1
            print(f"different: {name}")
            for line in [*difflib.unified_diff(was, now, lineterm="", n=1)][2:][:shown]:
                print(f"    {line[:300]}")
    print(
        f"{different} of {len(old.keys() | new.keys()):,} answers differ"
        if different
        else f"{len(new):,} answers, all equal"
    )
    return different


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("record", "inside"):
        recording = commands.add_parser(name)
        recording.add_argument("folder", type=Path)
        recording.add_argument(
            "--tree", type=Path, default=ROOT, help="the checkout whose code answers (default: this one)"
        )
        recording.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
        recording.add_argument("--match", default="", help="only cases that have this in PART/NAME")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--show", type=int, default=20, help="lines of each difference")
    comparing.add_argument("--match", default="", help="only answers that have this in their name")
    options = parser.parse_args()
    if options.command == "compare":
        sys.exit(1 if compare(options.before, options.after, options.show, options.match) else 0)
    elif options.command == "inside":
        inside(options.only, options.match)
    else:
        record(options.folder.resolve(), options.tree.resolve(), options.only, options.match)


if __name__ == "__main__":
    main()
