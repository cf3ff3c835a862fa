"""Commands killed at random moments while they write: nothing that was done is lost, and the same command completes afterwards.

    python -m benchmarks.kills [--kills 100] [--seed 0] [COMMAND …]
    python -m benchmarks.kills --kills 200 chroma

Each command runs once unharmed, from the first change of a file it writes to its end. Then it is run again and killed (SIGKILL) at a
random moment of that time. Then the store has to open with all that was in it and without a word of loss; a file that stood where it
writes is the old one or a whole new one; what gather, tune and label had confirmed (a query, the scores of a search, a label) is there;
the command, run once more, ends as the unharmed one did; and a search of the store works. A command is a fork of this process, which has
loaded what it needs. Exits 1 where one of that fails. `chroma` is instead so many sequences of changes of a store (chroma_history.py).
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
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import chroma_history
from benchmarks.faults import load

if TYPE_CHECKING:
    from cems_workbench.pipeline import Evidence
    from cems_workbench.tuning.scorer import KnownScores

ROOT = Path(__file__).parents[1]
STEP = 0.002
"""Seconds between two looks at the files."""
Look = Callable[[Path], object]
CONFIRMED = "confirmed"
LABELS, LABELLER = 60, "Ann"


@dataclass(frozen=True)
class Case:
    """A command in a folder: its arguments, the file or folder that it writes, whether that stood there before, and what it comes to."""

    arguments: Sequence[str]
    writes: str
    result: Look
    before: Sequence[str] = ()
    """The command that wrote an older file there."""
    needs: Sequence[Sequence[str]] = ()
    """Commands that are run first, unharmed."""
    kept: Look | None = None
    """Raises RuntimeError when something is gone that was confirmed, which are the lines of the file `CONFIRMED`."""


def store_rows(folder: Path) -> object:
    """Everything of the store that people or files brought in."""
    from cems_workbench.store import Store

    with Store.open(folder / "store") as store:
        if any(" lost: the log " in line for line in store.notices):
            raise RuntimeError(store.notices[0])
        sets = [(each.name, each.version, each.digest) for each in store.query_sets.latest()]
        rows = sorted(store.relations.read(), key=repr), sorted(store.judgments.read(), key=repr)
        return store.memories.read(), rows, store.queries.read(), sets


def config(folder: Path) -> object:
    """A written config."""
    from cems_workbench.config import load_import

    return load_import(next(folder.glob("out.yaml"))).config


def confirmed(folder: Path) -> list[str]:
    """What the command had confirmed, a line each."""
    path = folder / CONFIRMED
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [line.strip() for line in lines if line.endswith("\n")]


def gathered(folder: Path) -> object:
    """The lists of each query in an evidence file."""
    from cems_workbench.evaluation.evidence_file import read_evidence_file

    found = read_evidence_file(folder / "out.evidence").evidences
    return {
        qid: [[hit.memory_id for hit in ranked.hits] for ranked in each.lists] for qid, each in sorted(found.items())
    }


def queries_kept(folder: Path) -> object:
    """Every query that was said to be finished is in the evidence file."""
    said = confirmed(folder)
    if said and (lost := set(said) - set(gathered(folder))):  # type: ignore[call-overload]
        raise RuntimeError(f"queries that were finished are gone: {sorted(lost)}")
    return None


def scores_kept(folder: Path) -> object:
    """As many scores as were written are in the file of scores."""
    import numpy as np

    said = confirmed(folder)
    if said:
        with np.load(next(folder.glob("*.scores.npz")), allow_pickle=False) as file:
            if len(file["names"]) < int(said[-1]):
                raise RuntimeError(f"{said[-1]} scores were kept, {len(file['names'])} are there")
    return None


def labels_kept(folder: Path) -> object:
    """Every label that was confirmed is there, and its event."""
    from cems_workbench.store import Store

    with Store.open(folder / "store") as store:
        given = {
            f"{each.qid} {each.memory_id} {each.grade}" for each in store.judgments.read() if each.judge == LABELLER
        }
        events = {f"{each.qid} {each.memory_id} {each.grade}" for each in store.labels.history(LABELLER)}
    if lost := set(confirmed(folder)) - (given & events):
        raise RuntimeError(f"labels that were confirmed are gone: {sorted(lost)}")
    return None


IMPORT = ("import", "in", "--store", "store")
GATHER = ("gather", "all", "--preset", "cems", "--out", "out.evidence", "--store", "store")
CASES: Mapping[str, Case] = {
    "gather": Case(GATHER, "out.evidence", gathered, needs=(IMPORT,), kept=queries_kept),
    "tune": Case(
        (
            "tune",
            "out.evidence",
            "--out",
            "out.yaml",
            "--preset",
            "cems",
            "--trials",
            "40",
            "--folds",
            "3",
            "--group-by",
            "query",
        ),
        "out.yaml",
        config,
        needs=(IMPORT, GATHER),
        kept=scores_kept,
    ),
    "label": Case(("label",), "store", store_rows, needs=(IMPORT,), kept=labels_kept),
    "import": Case(IMPORT, "store", store_rows),
    "export": Case(
        ("export", str(ROOT / "cems_workbench/config/presets/cems.yaml"), "--format", "yaml", "--out", "out.yaml"),
        "out.yaml",
        config,
        ("export", str(ROOT / "cems_workbench/config/presets/qmd.yaml"), "--format", "yaml", "--out", "out.yaml"),
    ),
}


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

        tell_what_is_confirmed()
        if arguments[0] == "label":
            give_labels()
            code = 0
        else:
            sys.argv = ["cems_workbench", *arguments]
            code = main() or 0  # type: ignore[func-returns-value]
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def tell_what_is_confirmed() -> None:
    """Have what stores the work of gather and tune write a line when it has returned."""
    from cems_workbench.evaluation.evidence_file import EvidenceFile
    from cems_workbench.tuning.scorer import ScoreCache

    add, write = EvidenceFile.add, ScoreCache.write

    def added(self: EvidenceFile, qid: str, evidence: Evidence, seconds: float) -> None:
        add(self, qid, evidence, seconds)
        confirm(qid)

    def written(self: ScoreCache, known: KnownScores) -> None:
        write(self, known)
        confirm(str(len(known)))

    EvidenceFile.add, ScoreCache.write = added, written  # type: ignore[method-assign, assignment]


def confirm(line: str) -> None:
    """Write a line of what is done."""
    file = os.open(CONFIRMED, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def give_labels() -> None:
    """Label in the store of this folder, as the Label page does."""
    from cems_workbench.records import Judgment
    from cems_workbench.store import Store

    with Store.open(Path("store")) as store:
        memories = sorted(store.memories.read())
        for n in range(LABELS):
            given = Judgment(
                f"q{n % 12 + 1:02}", memories[n], n % 4, LABELLER, judged_at=datetime(2026, 1, 1, tzinfo=UTC)
            )
            store.labels.give(given)
            confirm(f"{given.qid} {given.memory_id} {given.grade}")


SEARCH = ("search", "when are we moving house", "--preset", "cems", "--store", "store")


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
        if path.name not in ("said", CONFIRMED) and path.is_file():
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
        if case.before and asked(case.result, folder) not in (older, whole):
            return "the file is neither the old one nor the new one"
        if case.kept is not None:
            asked(case.kept, folder)
        again = finish(case.arguments, folder)
        if again or asked(case.result, folder) != whole:
            return again or "run again, it ends otherwise"
        return finish(SEARCH, folder) if (folder / "store").exists() else ""
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
    for command in (*CASES[name].needs, *[CASES[name].before] * bool(CASES[name].before)):
        if wrong := finish(command, folder):
            raise RuntimeError(wrong)
    (folder / CONFIRMED).unlink(missing_ok=True)


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
    parser.add_argument("commands", nargs="*", metavar="COMMAND", help=f"{', '.join(CASES)}; or chroma")
    given = parser.parse_args()
    random.seed(given.seed)
    names = given.commands or list(CASES)
    if names == ["chroma"]:
        with tempfile.TemporaryDirectory(prefix="kills-") as home:
            return bool(chroma_history.run(given.kills, given.seed, Path(home)))
    load()

    with tempfile.TemporaryDirectory(prefix="kills-") as home:
        wrong = [line for name in names for line in run(name, -(-given.kills // len(names)), Path(home))]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
