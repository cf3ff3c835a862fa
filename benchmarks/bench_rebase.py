"""How many judgments follow their memories to a store with other ids, and how many end at the wrong one.

    python -m benchmarks.bench_rebase --locomo ../shared/data/locomo [--seed 0]
    python -m benchmarks.bench_rebase --cost PYTHON    # processor time, beside retrieval-eval 0.1.1 (PyPI) in that interpreter

The judged memories are those of the bundled sample and LoCoMo's observations; of these the judgments are the questions' evidence. The new
store has them under other ids; cut again by three rules (sentences, windows of 40 words with 10 shared, three memories in one); or
reworded without a language model: the words of each clause in another order, other case, and "the user" for a speaker's name. In
"half gone", half of the judged memories are missing: what moves then moves wrongly. A judgment is kept if it moved or was valid; it is
right if the new text was made of the judged memory's (of a cut one: with SHARE of its words). No model, no vectors. "cost" takes the least
of ROUNDS, each with a fresh copy, in processes that have loaded their libraries; then the two commands as a shell starts them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.bench_coverage import observations
from cems_workbench import formats
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.store import Store

SHARE, ROUNDS = 0.15, 10
Text = tuple[str, Mapping[str, float]]
"""A text of the new store, and the share of each judged memory's words that it was made of."""


def sample() -> tuple[list[Memory], list[Judgment]]:
    """The bundled sample."""
    memories = formats.read(SAMPLE_DATA / "memories.jsonl").memories
    return list(memories), list(formats.read(SAMPLE_DATA / "judgments.qrels").judgments)


def locomo(folder: Path) -> tuple[list[Memory], list[Judgment]]:
    """The observations of all conversations, and a judgment of each that was made of a question's evidence."""
    memories, judgments = list[Memory](), list[Judgment]()
    for path in sorted(folder.glob("*.json")):
        made = observations(path)
        of_file = [
            Memory(f"{path.stem}-{i}", text, source_ref=min(turns, default=None))
            for i, (_, text, turns) in enumerate(made)
        ]
        memories += of_file
        for number, asked in enumerate(json.loads(path.read_text("utf-8"))["qa"]):
            evidence = set(asked.get("evidence") or ())
            for memory, (_, _, turns) in zip(of_file, made, strict=True):
                if turns & evidence:
                    judgments.append(Judgment(f"{path.stem}-q{number}", memory.id, 2))
    return memories, judgments


def speakers(folder: Path) -> list[str]:
    """The names of those who speak in the conversations."""
    return sorted({speaker for path in folder.glob("*.json") for speaker, _, _ in observations(path)})


def same(memories: Sequence[Memory]) -> list[Text]:
    return [(one.content, {one.id: 1.0}) for one in memories]


def sentences(memories: Sequence[Memory]) -> list[Text]:
    pieces = list[Text]()
    for one in memories:
        size = len(one.content.split())
        pieces += [
            (text, {one.id: len(text.split()) / size})
            for text in re.split(r"(?<=[.!?])\s+", one.content)
            if text.strip()
        ]
    return pieces


def windows(memories: Sequence[Memory], size: int = 40, shared: int = 10) -> list[Text]:
    words = [(word, one.id) for one in memories for word in one.content.split()]
    sizes = {one.id: len(one.content.split()) for one in memories}
    cut = [words[at : at + size] for at in range(0, len(words), size - shared)]
    return [(" ".join(word for word, _ in some), _shares(some, sizes)) for some in cut]


def _shares(words: Iterable[tuple[str, str]], sizes: Mapping[str, int]) -> dict[str, float]:
    shares: dict[str, float] = {}
    for _, key in words:
        shares[key] = shares.get(key, 0.0) + 1 / sizes[key]
    return shares


def together(memories: Sequence[Memory]) -> list[Text]:
    groups = [memories[at : at + 3] for at in range(0, len(memories), 3)]
    return [("\n\n".join(one.content for one in group), {one.id: 1.0 for one in group}) for group in groups]


def reworded(memories: Sequence[Memory], rng: random.Random, names: Sequence[str]) -> list[Text]:
    name = re.compile(rf"\b(?:{'|'.join(names)})\b")
    made = list[Text]()
    for one in memories:
        clauses = re.split(r"(?<=[,;:.!?])\s+", name.sub("the user", one.content))
        turned = []
        for clause in clauses:
            words = clause.split()
            at = rng.randrange(len(words)) if words else 0
            turned.append(" ".join([*words[at:], *words[:at]]))
        rng.shuffle(turned)
        made.append((" ".join(turned).upper() if rng.random() < 0.3 else " ".join(turned).lower(), {one.id: 1.0}))
    return made


def _replaced(folder: Path, old: Sequence[Memory], judgments: Sequence[Judgment], new: Sequence[Memory]) -> Store:
    """A store whose judged memories were replaced by others."""
    store = Store.open(folder)
    queries = tuple(Query(qid, qid) for qid in dict.fromkeys(one.qid for one in judgments))
    first = store.add(ParsedInput("old", "bench", memories=tuple(old))).event
    store.add(ParsedInput("judgments", "bench", queries=queries, judgments=tuple(judgments)))
    store.imports.undo(first)
    store.add(ParsedInput("new", "bench", memories=tuple(new)))
    return store


def measured(old: Sequence[Memory], judgments: Sequence[Judgment], new: Sequence[Text], *, turns: bool) -> str:
    """A line of a store in which the memories are replaced by these texts, after its rebase."""
    refs = {one.id: one.source_ref for one in old} if turns else {}
    made = [Memory(f"n{i}", text, source_ref=refs.get(max(of, key=of.__getitem__))) for i, (text, of) in enumerate(new)]
    of = {f"n{i}": shares for i, (_, shares) in enumerate(new)}
    plain = old if turns else [Memory(one.id, one.content) for one in old]
    with tempfile.TemporaryDirectory() as place, _replaced(Path(place) / "store", plain, judgments, made) as store:
        began = time.process_time()
        plan = store.plan_rebase()
        took = time.process_time() - began
        store.rebase(plan)
        written = [one for one in store.judgments.read() if one.memory_id in of]
    kept = sum(bool(plan.found[one.memory_id].targets) for one in judgments)
    moves = [(key, to) for key, one in plan.found.items() for to in one.targets]
    text = {one.id: one.content for one in (*old, *made)}
    right = sum(of[to].get(key, 0.0) >= SHARE or text[key] in text[to] for key, to in moves)
    doubts = sum(bool(plan.found[one.memory_id].doubtful) for one in judgments)
    return (
        f"kept {kept:5} of {len(judgments):5} = {kept / len(judgments):6.1%}  doubtful {doubts:4}  moves right {right:5} of {len(moves):5}"
        f" = {right / len(moves) if moves else 1:6.1%}  written {len(written):5}  {took:.2f} s"
    )


_THEIRS = """
import contextlib, io, shutil, sys, time
from retrieval_eval.cli import main
for _ in range(int(sys.argv[1])):
    shutil.copy("given.jsonl", "judgments.jsonl")
    began = time.process_time()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main(["drift", "--judgments", "judgments.jsonl", "--corpus", "corpus.json", "--fix"])
    print(time.process_time() - began)
"""


def cost(python: Path) -> None:
    """Print the processor time of a rebase of the sample's judgments, over that of `retrieval-eval drift --fix`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "task"
        write(folder)
        ours = {"exact texts alone": list[float](), "with --apply": list[float]()}
        theirs = list[float]()
        for _ in range(ROUNDS):  # in turn, as the machine's pace changes
            printed = subprocess.run(
                [python, "-c", _THEIRS, "3"], cwd=folder, capture_output=True, text=True, check=True
            )
            theirs += map(float, printed.stdout.split())
            for _ in range(3):
                shutil.copytree(folder / "store", folder / "copy")
                with Store.open(folder / "copy", create=False) as store:
                    began = time.process_time()
                    plan = store.plan_rebase()
                    ours["exact texts alone"].append(time.process_time() - began)
                    store.rebase(plan)
                    ours["with --apply"].append(time.process_time() - began)
                shutil.rmtree(folder / "copy")
        print(f"in one process: retrieval-eval {min(theirs) * 1000:.1f} ms")
        for what, took in ours.items():
            print(f"  {what}: {min(took) * 1000:.1f} ms, {min(took) / min(theirs):.2f} times")
        shell = [sys.executable, "-m", "cems_workbench", "judgments", "rebase", "--apply", "--store"]
        alone: list[str | Path] = [
            python.parent / "retrieval-eval",
            "drift",
            "--judgments",
            "judgments.jsonl",
            "--corpus",
            "corpus.json",
            "--fix",
        ]
        spent = {
            "retrieval-eval": list[float](),
            "judgments rebase --apply": list[float](),
            "import duckdb": list[float](),
        }
        for _ in range(5):
            shutil.copy(folder / "given.jsonl", folder / "judgments.jsonl")
            shutil.copytree(folder / "store", folder / "copy")
            of: Sequence[list[str | Path]] = (alone, [*shell, str(folder / "copy")], [sys.executable, "-c", "import duckdb"])
            for command, list_of in zip(of, spent.values(), strict=True):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(
                    command,
                    cwd=folder if command is alone else None,
                    stdout=subprocess.DEVNULL,
                    check=command is not alone,
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                list_of.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
            shutil.rmtree(folder / "copy")
        print("as commands: " + ", ".join(f"{what} {min(each):.2f} s" for what, each in spent.items()))


def write(folder: Path) -> None:
    """The sample whose memories came again under other ids, as a store and as files of PyPI's retrieval-eval."""
    memories, judgments = sample()
    folder.mkdir(parents=True)
    _replaced(
        folder / "store", memories, judgments, [Memory(f"n{i}", one.content) for i, one in enumerate(memories)]
    ).close()
    texts = {one.id: one.content for one in memories}
    chunks = [{"chunk_id": f"n{i}", "doc_uri": "store", "text": one.content} for i, one in enumerate(memories)]
    (folder / "corpus.json").write_text(json.dumps({"corpus_fingerprint": "new", "chunks": chunks}), "utf-8")
    rows = [
        {
            "query_id": one.qid,
            "query": one.qid,
            "doc_uri": "store",
            "chunk_id": one.memory_id,
            "chunk_text": texts[one.memory_id],
        }
        | {"relevance": one.grade, "source": "human", "corpus_fingerprint": "old"}
        for one in judgments
    ]
    (folder / "given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cost", type=Path)
    asked = parser.parse_args()
    if asked.cost:
        return cost(asked.cost)
    sets = {"sample": sample()} | ({"locomo": locomo(asked.locomo)} if asked.locomo else {})
    for name, (memories, judgments) in sets.items():
        rng = random.Random(asked.seed)
        names = speakers(asked.locomo) if name == "locomo" else ["Mira"]
        judged = {one.memory_id for one in judgments}
        gone = set(rng.sample(sorted(judged), len(judged) // 2))
        left = [one for one in memories if one.id not in gone]
        of_gone = [one for one in judgments if one.memory_id in gone]
        again = reworded(memories, rng, names)
        for rule, texts, asked_of in (
            ("other ids", same(memories), judgments),
            ("sentences", sentences(memories), judgments),
            ("windows of 40 words", windows(memories), judgments),
            ("three in one", together(memories), judgments),
            ("reworded", again, judgments),
            ("reworded, half gone", reworded(left, rng, names), of_gone),
            ("other ids, half gone", same(left), of_gone),
        ):
            print(f"{name:7} {rule:21} {measured(memories, asked_of, texts, turns=False)}", flush=True)
        if name == "locomo":
            print(
                f"{name:7} {'reworded, turns known':21} {measured(memories, judgments, again, turns=True)}", flush=True
            )


if __name__ == "__main__":
    main()
