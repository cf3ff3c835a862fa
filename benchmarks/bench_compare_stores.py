"""Whether `compare` of two stores names the part that was planted, and what it costs.

    python -m benchmarks.bench_compare_stores causes --locomo ../shared/data/locomo [--singles 120] [--pairs 40] [--half first]
    python -m benchmarks.bench_compare_stores cost [--memories 2000 20000]

Stores: the bundled sample, and LoCoMo's observations (conversations 26 and 30) with the questions whose evidence they are made of; of each
QUERIES judged queries. A plant changes one part of a copy, as its user would: rewritten texts, deleted and new memories, imported chunks,
the 8-bit embedder, another language, parameters, edges, dates, fields. Of a single plant every changed query has that part as cause. Of two
plants f and g the truth is measured in stores that have one alone, made the same way: f is the cause if the store with g alone has the
value of before, else g if the store with f alone has it, else both. The plants of a pair touch other memories than those that one of them
rewrites or deletes: what a memory would be that is not there, nobody knows. Seeds are even in the first half and odd in the second, which
was kept for the end. "cost" is the processor time of comparing two stores, over that of evaluating both; vectors are of a hash there.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.bench_coverage import observations
from cems_workbench import formats
from cems_workbench.analysis import swaps
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.jobs import compare_stores as job
from cems_workbench.jobs.compare_stores import Asked, StoresCompared, compare_stores
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import EIGHT_BIT
from cems_workbench.progress import Progress, silent
from cems_workbench.records import SUPERSEDES, Chunk, Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.parts import (
    CHUNKS,
    CONFIG,
    DATES,
    FIELDS,
    LEXICAL,
    MEMORIES,
    PARTS,
    SUPERSESSION,
    TEXTS,
    VECTORS,
)

QUERIES = 24
HERE = with_values(
    preset("cems").config, {"lists.lexical.enabled": True, "supersession.mode": "demote", "judge.backend": "none"}
)
TOLERANCE = 1e-9
Base = tuple[Path, tuple[Memory, ...], tuple[Judgment, ...]]
Plant = Callable[[Store, random.Random, Base], object]


def sample(chance: random.Random) -> tuple[list[Memory], list[Query], list[Judgment]]:
    """The bundled sample, with some of its queries."""
    judgments = [one for one in formats.read(SAMPLE_DATA / "judgments.qrels").judgments if one.grade]
    queries = [
        one
        for one in formats.read(SAMPLE_DATA / "queries.jsonl").queries
        if any(row.qid == one.qid for row in judgments)
    ]
    return list(formats.read(SAMPLE_DATA / "memories.jsonl").memories), chance.sample(queries, QUERIES), judgments


def locomo(chance: random.Random, path: Path) -> tuple[list[Memory], list[Query], list[Judgment]]:
    """The observations of a conversation, and questions with the observations of their evidence."""
    made, begun = observations(path), datetime(2026, 1, 1, tzinfo=UTC)
    memories = [Memory(f"o{i}", text, created_at=begun + timedelta(hours=i)) for i, (_, text, _) in enumerate(made)]
    judgments, queries = list[Judgment](), list[Query]()
    for number, asked in enumerate(json.loads(path.read_text("utf-8"))["qa"]):
        evidence = set(asked.get("evidence") or ())
        rows = [Judgment(f"q{number}", f"o{i}", 2) for i, (_, _, turns) in enumerate(made) if turns & evidence]
        if rows and len(rows) < 6:
            queries.append(Query(f"q{number}", asked["question"], type=str(asked["category"])))
            judgments += rows
    return memories, chance.sample(queries, QUERIES), judgments


def base(folder: Path, memories: Sequence[Memory], queries: Sequence[Query], judgments: Sequence[Judgment]) -> Base:
    """A searchable store of these."""
    asked = {one.qid for one in queries}
    own = tuple(one for one in judgments if one.qid in asked)
    with Store.open(folder) as store:
        store.add(ParsedInput("memories", "bench", memories=tuple(memories)))
        store.add(ParsedInput("labels", "bench", queries=tuple(queries), judgments=own))
    refreshed(folder)
    return folder, tuple(memories), own


def refreshed(folder: Path, embedder: str | None = None) -> None:
    settings = Settings(store=folder)
    resources = open_resources(settings.model_copy(update={"embedder": embedder}) if embedder else settings)
    resources.embed_anew()
    resources.close()


def some(chance: random.Random, of: Base, share: float) -> list[Memory]:
    """Memories, half of them relevant to a query; the same of a seed."""
    relevant = sorted({one.memory_id for one in of[2]})
    chosen = set(chance.sample(relevant, round(len(relevant) * share)))
    chosen |= {one.id for one in chance.sample(of[1], min(len(chosen), len(of[1])))}
    return [one for one in of[1] if one.id in chosen]


def texts(store: Store, chance: random.Random, of: Base) -> None:
    for one in some(chance, of, 0.3):
        words = one.content.split()
        chance.shuffle(words)
        if (now := store.memories.get(one.id)) is not None:
            store.memories.update(
                replace(now, content=f"Minutes of item {chance.randrange(999)}: " + " ".join(words[: len(words) // 3]))
            )


def memories(store: Store, chance: random.Random, of: Base) -> None:
    for one in some(chance, of, 0.2):
        store.memories.delete(one.id)
    asked = store.queries.read()
    new = tuple(
        Memory(f"new{i}", f"{one.query} {i}", created_at=datetime(2026, 2, 1, tzinfo=UTC))
        for i, one in enumerate(asked[::3])
    )
    store.add(ParsedInput("more", "bench", memories=new))


def chunks(store: Store, chance: random.Random, of: Base) -> None:
    rows = list[Chunk]()
    for one in some(chance, of, 0.8):
        words = one.content.split()
        if len(words) > 6 and (now := store.memories.get(one.id)) is not None and now.content == one.content:
            at = chance.randrange(2, len(words) - 2)
            rows += [Chunk(one.id, 0, " ".join(words[:at])), Chunk(one.id, 1, " ".join(words[at:]))]
    store.add(ParsedInput("chunks", "bench", chunks=tuple(rows)))


def language(store: Store, chance: random.Random, of: Base) -> None:
    store.language.choose(chance.choice(("german", "spanish", "french", "cjk")))


def edges(store: Store, chance: random.Random, of: Base) -> None:
    there = {one.id for one in store.memories.iterate()}
    older = [one.id for one in some(chance, of, 0.5) if one.id in there]
    newer = chance.sample([one.id for one in of[1] if one.id in there and one.id not in older], len(older) // 2)
    store.add(
        ParsedInput(
            "edges", "bench", relations=tuple(Relation(a, b, SUPERSEDES) for a, b in zip(newer, older, strict=False))
        )
    )


def dates(store: Store, chance: random.Random, of: Base) -> None:
    for one in some(chance, of, 0.6):
        if (now := store.memories.get(one.id)) is not None:
            store.memories.update(
                replace(now, last_accessed=datetime(2025, 1, 1, tzinfo=UTC) - timedelta(days=chance.randrange(900)))
            )


def other_fields(store: Store, chance: random.Random, of: Base) -> None:
    for one in some(chance, of, 0.6):
        if (now := store.memories.get(one.id)) is not None:
            store.memories.update(replace(now, priority=chance.choice((0.3, 0.5, 1.7))))


PLANTS: Mapping[str, Plant | None] = {
    TEXTS: texts,
    MEMORIES: memories,
    CHUNKS: chunks,
    VECTORS: None,
    LEXICAL: language,
    CONFIG: None,
    SUPERSESSION: edges,
    DATES: dates,
    FIELDS: other_fields,
}
CONFIGS = (
    {"fusion.k": 5},
    {"lists.lexical.weight": 3.0},
    {"lists.vector.weight": 0.2},
    {"adjust.time_decay.half_life_days": 5},
    {"lists.lexical.enabled": False},
)


SHARES = {TEXTS: 0.3, MEMORIES: 0.2}


def touched(of: Base, part: str, seed: int) -> list[Memory]:
    """The memories that a plant rewrites or deletes."""
    return some(random.Random(f"{seed} {part}"), of, SHARES[part])


def planted(
    of: Base, place: Path, parts: Sequence[str], seed: int, among: Sequence[str] = ()
) -> tuple[Path, PipelineConfig]:
    """A copy of a store with these parts changed, of those of a pair, and the config that it is searched with."""
    shutil.copytree(of[0], place)
    config = HERE
    with Store.open(place) as store:
        for part in sorted(parts, key=PARTS.index):
            chance = random.Random(f"{seed} {part}")
            if (plant := PLANTS[part]) is not None:
                taken = {
                    one.id
                    for other in (MEMORIES, TEXTS)
                    if other in among and other != part
                    for one in touched(of, other, seed)
                }
                own = tuple(one for one in of[1] if one.id not in taken)
                plant(
                    store,
                    chance,
                    of if part == MEMORIES else (of[0], own, tuple(one for one in of[2] if one.memory_id not in taken)),
                )
            elif part == CONFIG:
                config = with_values(HERE, chance.choice(CONFIGS))
    if VECTORS in parts:
        with Store.open(place) as store:
            for name in store.embedders():
                store.indexes._files(name).discard()
    refreshed(place, EIGHT_BIT if VECTORS in parts else None)
    return place, config


def compared(
    first: Path, second: Path, configs: tuple[PipelineConfig, PipelineConfig], why: bool = True
) -> StoresCompared:
    return compare_stores(str(first), str(second), configs, Settings(store=first), Asked(metrics="nDCG@10", why=why))


def values(found: StoresCompared, place: int) -> dict[str, float]:
    """The measured values of a side, by qid."""
    assert found.comparison is not None
    of = found.comparison.evaluations[place]
    return {qid: value for qid, value in zip(of.qids, of.values[:, 0].tolist(), strict=True) if not np.isnan(value)}


def single(of: Base, part: str, seed: int, folder: Path) -> Counter[str]:
    """How many changed queries have the planted part as cause, another one, or none."""
    place, config = planted(of, folder / "new", [part], seed)
    real = swaps.causes
    with mock.patch.object(swaps, "causes", lambda changed, parts, trial: real(changed, (*parts, "nothing"), trial)):
        found = compared(of[0], place, (HERE, config))  # the part is put back in a copy, though no other one differs
    return Counter(
        "right" if one.cause == (part,) else "wrong" if one.cause else "cannot tell" for one in found.changed
    )


def pair(of: Base, parts: tuple[str, str], seed: int, folder: Path) -> tuple[Counter[str], Counter[str]]:
    """The same for two planted parts, by what is true; and of queries that only both parts change together."""
    both, config = planted(of, folder / "both", parts, seed, parts)
    found = compared(of[0], both, (HERE, config))
    alone = [planted(of, folder / f"alone{i}", [part], seed, parts) for i, part in enumerate(parts)]
    measured = compared(alone[0][0], alone[1][0], (alone[0][1], alone[1][1]), why=False)
    with_one = [values(measured, place) for place in (0, 1)]
    told, together = Counter[str](), Counter[str]()
    for one in found.changed:
        # The store with the second part alone is the one in which the first was put back.
        back = [
            swaps.ChangedQuery.reversed_by(one, with_one[1 - i][one.qid]) for i in (0, 1) if one.qid in with_one[1 - i]
        ]
        true = (parts[0],) if back[0] else (parts[1],) if back[1] else parts
        kind = "right" if one.cause == true else "wrong" if one.cause else "cannot tell"
        told[kind] += 1
        together[kind] += true == parts
    return told, together


def causes(asked: argparse.Namespace) -> None:
    """Print how many causes are right, of single plants and of pairs, of one half."""
    odd = asked.half == "second"
    with tempfile.TemporaryDirectory() as name:
        folder, chance = Path(name), random.Random(asked.half)
        made = [base(folder / "sample", *sample(chance))]
        made += [base(folder / number, *locomo(chance, asked.locomo / f"{number}.json")) for number in ("26", "30")]
        for what, count in (("single", asked.singles // 2), ("pair", asked.pairs // 2)):
            total, together, plants, by = Counter[str](), Counter[str](), Counter[str](), dict[str, Counter[str]]()
            for at in range(count):
                seed = 2 * at + odd
                of, place = made[at % len(made)], folder / "trial"
                place.mkdir()
                parts = tuple(sorted(random.Random(f"{what} {seed}").sample(PARTS, 2), key=PARTS.index))
                if what == "single":
                    parts = (PARTS[at % len(PARTS)],)
                    told = single(of, parts[0], seed, place)
                else:
                    told, only_both = pair(of, (parts[0], parts[1]), seed, place)
                    together += only_both
                shutil.rmtree(place)
                total += told
                by.setdefault(" + ".join(parts), Counter()).update(told)
                plants["right" if told["right"] == told.total() else "wrong" if told["wrong"] else "in part"] += bool(
                    told
                )
                print(f"{what} {seed:4} {' + '.join(parts):40} {dict(told)}", flush=True)
            for kind, counts in ((what, total), *((("only together", together),) if what == "pair" else ())):
                whole = max(counts.total(), 1)
                print(
                    f"{asked.half} half, {kind}: {counts.total()} changed queries, right {counts['right'] / whole:.1%}, wrong "
                    f"{counts['wrong'] / whole:.1%}, cannot tell {counts['cannot tell'] / whole:.1%}; plants {dict(plants)}",
                    flush=True,
                )


class HashedWords:
    """Unit vectors of a hash of the words: no model, and similar texts are near one another."""

    model_id, dimension, line = "hashed words", 64, "hashed words"

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for word in text.lower().split():
                rows[row, hash(word) % self.dimension] += 1
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9), np.float32)

    def encode_query(self, text: str) -> Float32:
        return np.asarray(self.encode([text])[0])


def cost(asked: argparse.Namespace) -> None:
    """Print the processor time of comparing two stores over that of evaluating both, for one and for two parts."""
    for size in asked.memories:
        with tempfile.TemporaryDirectory() as name, mock.patch.object(job, "embedder", lambda settings: HashedWords()):
            folder, chance, words = Path(name), random.Random(size), [f"word{i}" for i in range(5000)]
            memories = tuple(Memory(f"m{i}", " ".join(chance.choices(words, k=20))) for i in range(size))
            queries = tuple(Query(f"q{i}", " ".join(memories[i].content.split()[:6])) for i in range(asked.queries))
            judgments = tuple(Judgment(one.qid, f"m{i}", 2) for i, one in enumerate(queries))
            with Store.open(folder / "a") as store:
                store.add(ParsedInput("memories", "bench", memories=memories))
                store.add(ParsedInput("labels", "bench", queries=queries, judgments=judgments))
                store.indexes.refresh(HashedWords())
            of: Base = (folder / "a", memories, judgments)
            evaluated(folder / "a")  # loads what a process loads once
            for parts in ((DATES,), (TEXTS, DATES)):
                shutil.copytree(of[0], folder / "b")
                with Store.open(folder / "b") as store:
                    for part in parts:
                        plant = PLANTS[part]
                        assert plant is not None
                        plant(store, chance, of)
                    store.indexes.refresh(HashedWords())
                taken = []
                for why in (False, True):
                    began = time.process_time()
                    found = compared(of[0], folder / "b", (HERE, HERE), why)
                    taken.append(time.process_time() - began)
                shutil.rmtree(folder / "a" / "evidence")
                began = time.process_time()
                for side in ("a", "b"):
                    evaluated(folder / side)
                alone = time.process_time() - began
                shutil.rmtree(folder / "b")
                print(
                    f"{size:7} memories, {len(queries)} queries, {' and '.join(parts)}, {len(found.changed)} changed: both evaluated "
                    f"{alone:.1f} s; compared {taken[0] / alone:.2f}, with causes {taken[1] / alone:.2f} times",
                    flush=True,
                )


def evaluated(folder: Path) -> None:
    """What `evaluate` does with a store whose evidence is not gathered yet."""
    from cems_workbench.evaluation.evaluate import evaluate
    from cems_workbench.evaluation.metrics import parse_measures
    from cems_workbench.jobs.evaluation import agreed, labelled
    from cems_workbench.jobs.factory import servers
    from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, ensure_evidence, selected
    from cems_workbench.pipeline.resources import Resources

    settings = Settings(store=folder)
    with Store.open(folder) as store:
        resources = Resources(store, HashedWords(), servers(settings))
        selection, judgments = selected(ALL_QUERIES, resources, True)
        evidence = ensure_evidence(HERE, selection, judgments, resources)
        evaluate(labelled(evidence, agreed(judgments, None)).batch, HERE, parse_measures("nDCG@10", 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("what", choices=("causes", "cost"))
    parser.add_argument("--locomo", type=Path, default=Path("../shared/data/locomo"))
    parser.add_argument("--singles", type=int, default=120)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--half", choices=("first", "second"), default="first")
    parser.add_argument("--memories", type=int, nargs="+", default=[2_000, 10_000])
    parser.add_argument("--queries", type=int, default=200)
    asked = parser.parse_args()
    (causes if asked.what == "causes" else cost)(asked)


if __name__ == "__main__":
    main()
