"""Commands killed at random moments while they write: nothing that was done is lost, and the same command completes afterwards.

    python -m benchmarks.kills [--kills 100] [--seed 0] [COMMAND …]

Each command runs once unharmed, from the first change of a file it writes to its end. Then it is run again and killed (SIGKILL) at a
random moment of that time; the store has to open with all that was in it, a file that stood where it writes is the old one or a whole new
one, and the command, run once more, ends as the unharmed one did. A command is a fork of this process, which has loaded what it needs.
Exits 1 where one of that fails. Labels are killed by `bench_durability`;
gather and tune are not killed yet.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]
STEP = 0.002
"""Seconds between two looks at the files."""
Look = Callable[[Path], object]


@dataclass(frozen=True)
class Case:
    """A command in a folder: its arguments, the file or folder that it writes, whether that stood there before, and what it comes to."""

    arguments: Sequence[str]
    writes: str
    result: Look
    before: Sequence[str] = ()
    """The command that wrote an older file there."""


def store_rows(folder: Path) -> object:
    """Everything of the store that people or files brought in."""
    from cems_workbench.store import Store

    with Store.open(folder / "store") as store:
        sets = [(each.name, each.version, each.digest) for each in store.query_sets.latest()]
        rows = sorted(store.relations.read(), key=repr), sorted(store.judgments.read(), key=repr)
        return store.memories.read(), rows, store.queries.read(), sets


def config(folder: Path) -> object:
    """A written config."""
    from cems_workbench.config import load_import

    return load_import(next(folder.glob("out.yaml"))).config


CASES: Mapping[str, Case] = {
    "import": Case(("import", "in", "--store", "store"), "store", store_rows),
    "export": Case(
        ("export", str(ROOT / "cems_workbench/config/presets/cems.yaml"), "--to", "yaml", "--out", "out.yaml"), "out.yaml", config,
        ("export", str(ROOT / "cems_workbench/config/presets/qmd.yaml"), "--to", "yaml", "--out", "out.yaml"),
    ),
    "migrate": Case(("search", "deploy", "--preset", "recollection", "--store", "store"), "store", store_rows),
}  # fmt: skip


def fork(arguments: Sequence[str], folder: Path) -> int:
    """Begin a command in a folder; its process."""
    pid = os.fork()
    if pid:
        return pid
    os.chdir(folder)
    said = os.open(folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 1
    try:
        from cems_workbench.cli.main import main

        sys.argv = ["cems_workbench", *arguments]
        code = main() or 0  # type: ignore[func-returns-value]
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def finish(arguments: Sequence[str], folder: Path) -> str:
    """Run a command to its end; what is wrong, empty where nothing is."""
    code = os.waitstatus_to_exitcode(os.waitpid(fork(arguments, folder), 0)[1])
    said = (folder / "said").read_text()
    return "" if code == 0 and "Traceback" not in said else f"{arguments[0]} ended with {code}: {said[-300:]}"


def state(folder: Path) -> list[tuple[str, int, int]]:
    """Size and time of every file but the command's words."""
    found = []
    for path in folder.rglob("*"):
        try:
            known = path.stat()
        except OSError:
            continue
        if path.name != "said" and path.is_file():
            found.append((str(path), known.st_size, known.st_mtime_ns))
    return sorted(found)


def wait_for_change(pid: int, folder: Path, before: list[tuple[str, int, int]]) -> bool:
    """Return when a file has changed, False when the process ended without."""
    while state(folder) == before:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(STEP)
    return True


def asked(look: Look, folder: Path) -> object:
    """What a fork sees in a folder as text, so that no database is ever open in this process; raises RuntimeError with what it met."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            words = hashlib.sha256(repr(look(folder)).encode()).hexdigest()
        except BaseException as error:
            words = f"!{type(error).__name__}: {error}"
        os.write(write, words.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    if said.startswith("!"):
        raise RuntimeError(said[1:])
    return said


def killed_once(case: Case, ready: Path, folder: Path, after: float, whole: object) -> str | None:
    """Kill a command so long after its first write, and look; what is wrong, empty where nothing is, None where it had ended by then."""
    shutil.copytree(ready, folder)
    older = asked(case.result, folder) if case.before else None
    before = state(folder)
    pid = fork(case.arguments, folder)
    if not wait_for_change(pid, folder, before):
        return None
    time.sleep(after)
    if os.waitpid(pid, os.WNOHANG)[0]:
        return None
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        if asked(case.result, folder) not in (older, whole) and case.before:
            return "the file is neither the old one nor the new one"
        again = finish(case.arguments, folder)
        return again or ("" if asked(case.result, folder) == whole else "run again, it ends otherwise")
    except RuntimeError as error:
        return str(error)


def prepare(name: str, folder: Path) -> None:
    """What a command needs, in an empty folder."""
    (folder / "in").mkdir(parents=True)
    for file, lines in (("memories", 80), ("queries", 12)):
        text = (ROOT / "sample_data" / f"{file}.jsonl").read_text().splitlines(keepends=True)
        (folder / "in" / f"{file}.jsonl").write_text("".join(text[:lines]))
    qids = [f"q{n:02}" for n in range(1, 13)]
    rows = [f"{qid} 0 m{n:03} {n % 4}\n" for i, qid in enumerate(qids) for n in range(1 + i, 9 + i)]
    (folder / "in" / "judgments.qrels").write_text("".join(rows))
    if name == "migrate":
        from cems_workbench.records import Memory
        from tests.small_store import make_store_of_schema

        pid = os.fork()
        if not pid:
            make_store_of_schema(folder / "store", 8, memories=[Memory(f"m{n}", f"deploy {n}") for n in range(60)])
            os._exit(0)
        os.waitpid(pid, 0)
    if CASES[name].before and (wrong := finish(CASES[name].before, folder)):
        raise RuntimeError(wrong)


def run(name: str, kills: int, home: Path) -> list[str]:
    """Kill a command so often; prints a line, and gives what went wrong."""
    case, ready = CASES[name], home / name / "ready"
    prepare(name, ready)
    unharmed = Path(shutil.copytree(ready, home / name / "unharmed"))
    before = state(unharmed)
    pid = fork(case.arguments, unharmed)
    if not wait_for_change(pid, unharmed, before):
        return [f"{name}: ended without a file changed: {(unharmed / 'said').read_text()[-300:]}"]
    begun = time.monotonic()
    os.waitpid(pid, 0)
    span = time.monotonic() - begun
    whole = asked(case.result, unharmed)
    wrong, done, late = [], 0, 0
    while done < kills and late < 5 * kills:
        folder = home / name / "killed"
        found = killed_once(case, ready, folder, random.random() * span, whole)
        shutil.rmtree(folder)
        if found is None:
            late += 1
            continue
        done += 1
        wrong += [f"{name}: {found}"] if found else []
    print(
        f"{name:8} {done:3} kills over {span:6.3f} s of writing, {late} too late, {len(wrong)} wrong",
        *wrong,
        sep="\n  ",
        flush=True,
    )
    return wrong


def main() -> int:
    """Kill, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="over all commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=", ".join(CASES))
    given = parser.parse_args()
    random.seed(given.seed)
    names = given.commands or list(CASES)
    for module in ("sentence_transformers", "cems_workbench.cli.main", "cems_workbench.runs.opening"):
        import_module(module)  # before the forks, which then begin at once

    with tempfile.TemporaryDirectory(prefix="kills-") as home:
        wrong = [line for name in names for line in run(name, -(-given.kills // len(names)), Path(home))]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
