"""Every file of a store damaged in every way: what each command and the page says and answers, and what a rescue still finds.

    python -m benchmarks.faults [--flips 20] [--seed 19] [--only NAME] [--ask COMMAND …]

A small store is made of the sample: memories, labels that lie in the database's log alone (as after `kill -9`), all indexes, an evidence
file. Of a copy one file at a time is removed, emptied, halved, overwritten at random or has one bit flipped, and each of `ASKED` that reads
it is done on a fresh copy, in a fork of this process, which has loaded the models; after a flipped bit some of them, in turn. Last: a store
that may not be written (as root, on a tmpfs) and one whose folder is gone.

WRONG is: a traceback, a crash, an endless wait, an exception on the page; other results than the whole store's without a word about damage;
rows of an undamaged database that are not there any more; a damaged database whose rescue does not end in a line. Prints a table, and
exits 1 when anything was WRONG.
"""

from __future__ import annotations

import argparse
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import cems_workbench

ROOT = Path(__file__).parents[1]
QUERY = "when are we moving house"
MOMENT = "2026-09-01"
MEMORIES = 80
SECONDS = 60
"""After which a command counts as endless."""
WAYS = ("removed", "emptied", "halved", "random", "flipped")
DATABASE = ("workbench.duckdb", "workbench.duckdb.wal")


def damage(path: Path, way: str, drawn: random.Random) -> None:
    """Damage a file in one of the `WAYS`."""
    if way == "removed":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    if way == "emptied":
        content = bytearray()
    elif way == "halved":
        del content[len(content) // 2 :]
    elif way == "random":
        content = bytearray(drawn.randbytes(len(content)))
    elif content:
        content[drawn.randrange(len(content))] ^= 1 << drawn.randrange(8)
    path.write_bytes(content)


def command(*arguments: str) -> int:
    """Run the workbench's command line in this process."""
    from cems_workbench.cli.main import main

    sys.argv = ["cems_workbench", *arguments]
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def search(store: Path, out: Path) -> object:
    """Ids and scores of a search that uses every list."""
    code = command("search", QUERY, "--preset", "cems", "--as-of", MOMENT, "--store", str(store), "--json")
    return code or [
        {key: value for key, value in result.items() if isinstance(value, (str, int, float))}
        for result in json.loads((out / "stdout").read_text())["results"]
    ]


def full_text(store: Path, out: Path) -> object:
    """The same by PostgreSQL's ts_rank, which has a separate index."""
    code = command(
        "search",
        QUERY,
        "--preset",
        "cems",
        "--set",
        "lists.ts_rank.enabled=true",
        "--as-of",
        MOMENT,
        "--store",
        str(store),
        "--json",
    )
    return code or [sorted(result.items())[:3] for result in json.loads((out / "stdout").read_text())["results"]]


def doctor(store: Path, out: Path) -> object:
    """What `doctor` finds is its answer; it has to come to an end."""
    command("doctor", "--store", str(store))
    return None


def deep(store: Path, out: Path) -> object:
    """The same, reading everything."""
    command("doctor", "--deep", "--store", str(store))
    return None


def repair(store: Path, out: Path) -> object:
    """What a search answers after a repair."""
    code = command("doctor", "--repair", "--store", str(store))
    (out / "stdout").write_text("")
    sys.stdout.seek(0)
    return search(store, out) if code != 2 else code


def why(store: Path, out: Path) -> object:
    """Why a memory is missing."""
    code = command("why", QUERY, "m070", "--preset", "cems", "--as-of", MOMENT, "--store", str(store), "--json")
    return code or without_times((out / "stdout").read_text())


def gather(store: Path, out: Path) -> object:
    """The hash of what was gathered."""
    from cems_workbench.evaluation.evidence_file import read_evidence_file

    code = command(
        "gather", "all", "--limit", "3", "--preset", "cems", "--out", str(out / "new"), "--store", str(store)
    )
    if code:
        return code
    found = read_evidence_file(out / "new")
    return {
        qid: [[(hit.memory_id, hit.score) for hit in one.hits] for one in each.lists]
        for qid, each in found.evidences.items()
    }


def evaluate(store: Path, out: Path) -> object:
    """Figures of the evidence that was made before."""
    asked = str(store / "evidence.duckdb")
    code = command("evaluate", asked, "--metric", "nDCG@10", "--metric", "hit@5", "--store", str(store), "--json")
    return code or without_times((out / "stdout").read_text())


def label(store: Path, out: Path) -> object:
    """A label that is given, and all labels then."""
    from cems_workbench.errors import WorkbenchError
    from cems_workbench.records import Judgment
    from cems_workbench.store import Store

    try:
        with Store.open(store, create=False) as opened:
            for line in opened.notices:
                print(f"warning: {line}", file=sys.stderr)
            opened.labels.give(Judgment("q02", "m003", 1, "Eva"))
            return sorted((each.qid, each.memory_id, each.judge, each.grade) for each in opened.judgments.read())
    except WorkbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def judgments(store: Path, out: Path) -> object:
    """The labels as a file."""
    code = command("judgments", "--judge-kind", "all", "--out", str(out / "labels.jsonl"), "--store", str(store))
    return code or (out / "labels.jsonl").read_text()


def rescue(store: Path, out: Path) -> object:
    """The exit code of a rescue."""
    return command("doctor", "--recover-to", str(out / "new"), "--store", str(store))


def page(store: Path, out: Path) -> object:
    """The results that Inspect shows, and that no page shows an exception."""
    from streamlit.testing.v1 import AppTest

    import cems_workbench.ui.kit.session as handles

    handles.WARM_UP_DELAY_S = 0.0
    os.environ.update(CEMS_WORKBENCH_STORE=str(store), CEMS_WORKBENCH_GATHER_AHEAD="false")
    shown = AppTest.from_file(str(ROOT / "app.py"), default_timeout=SECONDS).run()
    with_query = [box for box in shown.text_input if box.key == "inspect:query"]
    if with_query:
        with_query[0].set_value(QUERY).run()
    body = next((str(each.proto.body) for each in shown.get("html") if 'class="wb-results' in each.proto.body), "")
    for name in ("label", "evaluate", "memories"):
        told(shown)
        shown.switch_page(f"pages/{name}.py").run()
    told(shown)
    return re.findall(r"<code>(.+?)</code>", body) or 2


def told(shown: Any) -> None:
    """Print what a page says aloud; a traceback where it shows an exception."""
    for kind in ("exception", "error", "warning"):
        for each in shown.get(kind):
            words = getattr(each, "stack_trace", ()) if kind == "exception" else ()
            print(f"{'Traceback: ' if kind == 'exception' else kind + ': '}{each.value}", *words, file=sys.stderr)


def without_times(text: str) -> str:
    """What is printed without what a clock says."""
    return re.sub(r'"[a-z_]*(seconds|_ms|_s|_at|time)": [^,\n}]+', "", text)


ASKED: Mapping[str, Callable[[Path, Path], object]] = {
    each.__name__: each
    for each in (search, full_text, doctor, deep, repair, why, gather, evaluate, label, judgments, page)
}


@dataclass(frozen=True)
class Ended:
    """How something ended: its answer as text, what it said, its exit by a signal, and what the store had afterwards."""

    answer: str
    said: str
    crash: int = 0
    kept: str = ""


def ask(name: str, store: Path, out: Path, look: bool = True) -> Ended:
    """Do one of `ASKED` in a fork; with `look`, read afterwards what the store has."""
    out.mkdir()
    pid = os.fork()
    if not pid:
        os.setsid()
        signal.alarm(SECONDS)
        for number, file in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(out / file, os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        try:
            done = rescue if name == "rescue" else ASKED[name]
            (out / "answer").write_text(json.dumps(done(store, out), sort_keys=True, default=str))
            if look:
                (out / "kept").write_text(repr(rows_of(store)))
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    files = {file: out / file for file in ("answer", "stderr", "stdout", "kept")}
    text = {file: path.read_text(errors="replace") if path.exists() else "" for file, path in files.items()}
    said = text["stderr"] + (text["stdout"] if name in ("doctor", "deep", "repair") else "")
    return Ended(text["answer"], said, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, text["kept"])


def rows_of(store: Path) -> object:
    """Everything that was brought into a store but the label that `label` gives."""
    from cems_workbench.store import Store

    with Store.open(store) as opened:
        labels = sorted(repr(each) for each in opened.judgments.read() if each.judge != "Eva")
        relations = sorted(opened.relations.read(), key=repr)
        return opened.memories.read(), relations, labels, opened.queries.read()


def verdict(name: str, whole: Ended, ended: Ended, database: bool) -> str:
    """How something on a damaged store ended, in a few words; what must not be begins with WRONG."""
    if ended.crash:
        return "WRONG: endless" if ended.crash == signal.SIGALRM else f"WRONG: crash {ended.crash}"
    if "Traceback" in ended.said:
        return "WRONG: traceback"
    before = whole.said.splitlines()
    lines = [
        line
        for line in ended.said.splitlines()
        if line.strip() and line not in before and "ScriptRunContext" not in line
    ]
    aloud = any(re.match(r"warning|error|missing", line) for line in lines)
    if ended.answer == "2":
        return "one line" if sum(line.startswith("error:") for line in lines) >= 1 else "WRONG: refused without a line"
    if not database and ended.kept != whole.kept:
        return "WRONG: rows of the database are lost"
    if ended.answer != whole.answer:
        return "other, said" if aloud else "WRONG: other results"
    return "same, said" if aloud else "same"


def make(home: Path) -> Path:
    """A store with something in each file that a store can have, as a killed process leaves it."""
    from cems_workbench.records import Judgment
    from cems_workbench.store import Store

    (home / "in").mkdir(parents=True)
    for file, count in (("memories", MEMORIES), ("queries", 12)):
        text = (ROOT / "sample_data" / f"{file}.jsonl").read_text().splitlines(keepends=True)
        (home / "in" / f"{file}.jsonl").write_text("".join(text[:count]))
    rows = [f"q{n:02} 0 m{m:03} {m % 4}\n" for n in range(1, 13) for m in range(n, n + 8)]
    (home / "in" / "judgments.qrels").write_text("".join(rows))
    store, whole = home / "open" / "store", home / "whole" / "store"
    shell = ["--store", str(store)]
    for arguments in (
        ["import", str(home / "in"), *shell],
        ["search", QUERY, "--preset", "cems", "--set", "lists.ts_rank.enabled=true", *shell],
        ["gather", "all", "--preset", "cems", "--out", str(store / "evidence.duckdb"), *shell],
    ):
        if command(*arguments):
            raise RuntimeError(arguments)
    with Store.open(store) as opened:
        for n in range(10, 20):
            opened.labels.give(Judgment("q01", f"m{n:03}", n % 4, "Ann"))
        shutil.copytree(store, whole)
    return whole


def copied(whole: Path, place: Path, link: bool = True) -> Path:
    """A store to damage: what is never written in place is linked."""

    def copy(source: str, target: str) -> None:
        if (link and "/lexical/" in source) or (link and "/ts_rank/" in source):
            os.link(source, target)
        else:
            shutil.copyfile(source, target)

    return Path(shutil.copytree(whole, place / "store", copy_function=copy))


def one(whole: Path, place: Path, file: Path, way: str, seed: str, name: str, expected: Ended) -> str:
    """Damage a file of a copy, do one thing, and judge."""
    place.mkdir()
    try:
        store = copied(whole, place)
        target = store / file
        content = target.read_bytes()
        target.unlink()
        target.write_bytes(content)
        damage(target, way, random.Random(seed))
        database = file.name in DATABASE
        ended = ask(name, store, place / "out", look=not database)
        said = verdict(name, expected, ended, database)
        if said.startswith("one line") and file.name in DATABASE and name == "search":
            rescued = ask_rescue(store, place / "rescue")
            said += f", {rescued}"
        if "WRONG" in said and os.environ.get("FAULTS_SHOW"):
            print(
                f"--- {file} {way} {name}: {said}\n{ended.said[-1500:]}\n{ended.answer[:300]}\n{expected.answer[:300]}",
                flush=True,
            )
        return said
    finally:
        shutil.rmtree(place)


def ask_rescue(store: Path, out: Path) -> str:
    """How a rescue of a damaged database ends."""
    ended = ask("rescue", store, out, look=False)
    return "WRONG: rescue" if ended.crash or "Traceback" in ended.said else f"rescue {ended.answer}"


def main() -> int:
    """Damage, ask and print; 1 when anything was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--flips", type=int, default=20)
    parser.add_argument("--seed", type=int, default=19)
    parser.add_argument("--only", default="", help="files whose name has this")
    parser.add_argument("--ask", nargs="*", choices=list(ASKED), default=list(ASKED))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        pid = os.fork()  # no database is ever open in this process
        if not pid:
            os.dup2(os.open(home / "made", os.O_WRONLY | os.O_CREAT), 1)
            code = 1
            try:
                make(home)
                code = 0
            finally:
                os._exit(code)
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError("the store cannot be made")
        load()
        whole = home / "whole" / "store"
        expected = {
            name: ask(name, copied_to(whole, home / f"expected-{name}"), home / f"said-{name}") for name in options.ask
        }
        for name, ended in expected.items():
            if ended.crash or "Traceback" in ended.said:
                raise RuntimeError(f"{name} on the whole store: {ended}")
        counted = run(whole, home, options, expected)
        if options.only in "surroundings":
            surroundings(whole, home, expected, counted)
    wrong = sum(count for found in counted.values() for said, count in found.items() if "WRONG" in said)
    print("nothing went wrong" if not wrong else f"{wrong} WRONG")
    return int(bool(wrong))


def surroundings(whole: Path, home: Path, expected: Mapping[str, Ended], counted: dict[str, Counter[str]]) -> None:
    """The same in a folder that is gone, and in one that may not be written; prints a line of each."""
    kept = copied_to(whole, home / "read-only")
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", kept.parent], check=False
        ).returncode
    )
    try:
        if mounted:
            kept = copied(whole, kept.parent, link=False)
            subprocess.run(["mount", "-o", "remount,ro", kept.parent], check=True)
        for words, store in (("vanished", home / "vanished" / "store"), *[("read-only", kept)] * mounted):
            found: dict[str, list[str]] = {}
            for name, ended in expected.items():
                if words == "vanished" and name == "page":  # the app makes a new store, and says that it is empty
                    continue
                said = verdict(name, ended, ask(name, store, home / f"{words}-{name}", look=False), True)
                found.setdefault(said, []).append(name)
                counted.setdefault(name, Counter())[said] += 1
            print(words, *(f"{said}: {' '.join(names)}" for said, names in found.items()), sep=" | ", flush=True)
    finally:
        if mounted:
            subprocess.run(["umount", kept.parent], check=False)


def copied_to(whole: Path, place: Path) -> Path:
    """A whole copy in a folder that is made."""
    place.mkdir()
    return copied(whole, place)


def load() -> None:
    """What every fork needs, before any."""
    from streamlit.components.v2 import manifest_scanner

    from cems_workbench.jobs.factory import embedder as named
    from cems_workbench.models.minilm_embedder import MiniLMEmbedder
    from cems_workbench.models.tokens import count
    from cems_workbench.settings import Settings

    for module in pkgutil.walk_packages(cems_workbench.__path__, "cems_workbench."):
        if "__main__" not in module.name:
            import_module(module.name)
    for name in (
        "streamlit.testing.v1",
        "duckdb",
        "pyarrow.ipc",
        "bm25s",
        "scipy.sparse",
        "plotly.graph_objects",
    ):
        import_module(name)
    embedder = named(Settings())
    embedder.encode_query("warm up")
    count("warm up")
    assert isinstance(embedder, MiniLMEmbedder)
    MiniLMEmbedder._network = embedder.network  # type: ignore[assignment]
    manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)


def asked(file: Path, way: str, turn: int, names: Sequence[str]) -> list[str]:
    """What is done on a damage: all that reads the file; of a flipped bit some of it, in turn."""
    home = file.parts[0]
    if home == "ts_rank":
        names = [name for name in names if name in ("full_text", "doctor", "deep", "repair")]
    elif home in ("lexical", "vectors"):
        names = [name for name in names if name not in ("full_text", "evaluate", "label", "judgments")]
    if way != "flipped":
        return list(names)
    many = 1 if len(file.parts) > 1 else 4
    return [names[(turn * many + n) % len(names)] for n in range(min(many, len(names)))]


def run(whole: Path, home: Path, options: argparse.Namespace, expected: Mapping[str, Ended]) -> dict[str, Counter[str]]:
    """Every file, way and thing to do; prints a line a file and way, and counts how they ended."""
    counted: dict[str, Counter[str]] = {}
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    begun, number = time.monotonic(), 0
    for file in files:
        if options.only not in str(file):
            continue
        for way in WAYS:
            found: dict[str, Counter[str]] = {}
            for turn in range(options.flips if way == "flipped" else 1):
                for name in asked(file, way, turn, options.ask):
                    number += 1
                    said = one(
                        whole, home / f"case{number}", file, way, f"{options.seed} {file} {turn}", name, expected[name]
                    )
                    found.setdefault(said, Counter())[name] += 1
                    counted.setdefault(name, Counter())[said] += 1
            cells = [
                f"{said}: {' '.join(f'{name} {count}' if count > 1 else name for name, count in names.items())}"
                for said, names in found.items()
            ]
            print(f"{file} {way} | {' | '.join(cells)}", flush=True)
    print(f"{number} in {time.monotonic() - begun:.0f} s")
    for name, endings in counted.items():
        print(f"{name:10} {', '.join(f'{count} {said}' for said, count in endings.most_common())}", flush=True)
    return counted


if __name__ == "__main__":
    sys.exit(main())
