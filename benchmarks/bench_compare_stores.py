"""Whether `compare` of two stores names the part that was planted, and what it costs.

    python -m benchmarks.bench_compare_stores causes --locomo ../shared/data/locomo [--singles 120] [--pairs 40] [--half first]
    python -m benchmarks.bench_compare_stores cost --stores DIR [--memories 10000 100000]

Stores: the bundled sample, and LoCoMo's observations (conversations 26 and 30) with the questions whose evidence they are made of; of each
QUERIES judged queries. A plant changes one part of a copy, as its user would: rewritten texts, deleted and new memories, imported chunks,
the 8-bit embedder, another language, parameters, edges, dates, fields. Of a single plant every changed query has that part as cause. Of two
plants f and g the truth is measured in stores that have one alone, made the same way: f is the cause if the store with g alone has the
value of before, else g if the store with f alone has it, else both. The plants of a pair touch other memories than those that one of them
rewrites or deletes: what a memory would be that is not there, nobody knows. Seeds are even in the first half and odd in the second, which
was kept for the end. "cost" is the processor time and the memory of comparing two stores, over those of evaluating both. The stores
are those of scale_memories.py, made once and kept in DIR; of a hundred memories one is gone in the second, one reworded, one new, ten have
another id, five other dates. No model: a vector is made of the number that a text begins with.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import re
import resource
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.bench_coverage import observations
from benchmarks.scale_memories import BLOCK, DIMENSION, LAST_DAY, SPREAD, memory_id
from benchmarks.scale_memories import memories as scale_memories
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
THEMES = 1_000
"""A reworded memory, with its number and the size of the store as number, is of the same theme."""
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


class Numbered:
    """Unit vectors by the number that a text begins with, or that is given for it: of one theme around one direction. No model."""

    model_id, dimension, line = "numbered", DIMENSION, "numbered"

    def __init__(self, given: Mapping[str, int]) -> None:
        self._given = given
        self._themes = np.random.default_rng(0).normal(size=(THEMES, DIMENSION)).astype(np.float32)

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        rows = np.empty((len(texts), DIMENSION), np.float32)
        for place, text in enumerate(texts):
            number = self._given.get(text)
            if number is None and (found := re.search(r"\bnote(\d+)\b", text)):
                number = int(found[1])
            assert number is not None, text
            noise = np.random.default_rng(number).normal(size=DIMENSION)
            rows[place] = self._themes[number % THEMES] + SPREAD * noise
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)

    def encode_query(self, text: str) -> Float32:
        return np.asarray(self.encode([text])[0])


GONE, REWORDED, RIVAL, OTHER_ID, OTHER_DATES = range(0, 1), range(1, 2), range(2, 3), range(3, 13), range(13, 18)
"""Of a hundred memories in a row those that are gone in the second state, reworded, beside a new one, under another id, accessed again."""


def later(memories: Sequence[Memory], size: int) -> Iterator[Memory]:
    """What the second store has of the first `size` memories, some of which these are."""
    for one in memories:
        row = int(one.id[1:])
        words = one.content.split()[1:]
        kind = row % 100
        if kind in REWORDED:
            yield replace(one, content=f"note{row + size} {' '.join(words[len(words) // 2 :])}")
        elif kind in OTHER_ID:
            yield replace(one, id=f"again{row}")
        elif kind in OTHER_DATES:
            yield replace(one, last_accessed=LAST_DAY + timedelta(days=1), access_count=one.access_count + 1)
        elif kind not in GONE:
            yield one
        if kind in RIVAL:
            yield replace(one, id=f"new{row}", content=f"note{row + 2 * size} {' '.join(words[::-1])}")


@cache
def asked_of(size: int, count: int) -> list[tuple[Query, int]]:
    """Queries of some words of one of the first memories, and its number; one in twenty of each kind of change."""
    rng, first = np.random.default_rng(size), list(scale_memories(min(size, BLOCK)))
    made = list[tuple[Query, int]]()
    for number in range(count):
        row = 100 * int(rng.integers(len(first) // 100)) + number % 20
        words = first[row].content.split()[1:]
        made.append((Query(f"q{number}", " ".join(rng.permutation(words)[:6].tolist())), row))
    return made


def two_states(folder: Path, size: int, count: int) -> None:
    """The two stores, made once."""
    asked = asked_of(size, count)
    for name in ("a", "b"):
        if Store.exists(folder / name):
            continue
        shutil.rmtree(folder / "making", ignore_errors=True)
        with Store.open(folder / "making") as store:
            for start in range(0, size, BLOCK):
                some_of = tuple(scale_memories(min(BLOCK, size - start), start))
                store.add(
                    ParsedInput("memories", "bench", memories=some_of if name == "a" else tuple(later(some_of, size)))
                )
            rows = [(query, row) for query, row in asked if name == "a" or row % 100 not in GONE]
            ids = [f"again{row}" if name == "b" and row % 100 in OTHER_ID else memory_id(row) for _, row in rows]
            judgments = tuple(Judgment(query.qid, key, 2) for (query, _), key in zip(rows, ids, strict=True))
            store.add(ParsedInput("labels", "bench", queries=tuple(one for one, _ in rows), judgments=judgments))
            store.indexes.refresh(embedder_of(size, count))
        (folder / "making").rename(folder / name)


def embedder_of(size: int, count: int) -> Numbered:
    return Numbered({query.query: row for query, row in asked_of(size, count)})


def alone(what: str, folder: Path, size: int, count: int) -> tuple[float, float, int]:
    """Of a process that does one thing: processor seconds, the most memory in bytes, and how many queries changed."""
    changed, loaded = 0, time.process_time()
    embedder = embedder_of(size, count)
    made = time.process_time() - loaded
    with mock.patch.object(job, "embedder", lambda settings: embedder):
        if what in ("a", "b"):
            evaluated(folder / what, embedder)
        else:
            changed = len(compared(folder / "a", folder / "b", (HERE, HERE), what == "causes").changed)
    return time.process_time() - made, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, changed


def cost(asked: argparse.Namespace) -> None:
    """Print the processor time and memory of comparing two stores over those of evaluating both, each in a separate process."""
    for size in asked.memories:
        folder = asked.stores / str(size)
        two_states(folder, size, asked.queries)
        found = {}
        for what in ("a", "b", "compared", "causes"):
            shutil.rmtree(folder / what / "evidence", ignore_errors=True)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                found[what] = process.submit(alone, what, folder, size, asked.queries).result()
        both = found["a"][0] + found["b"][0]
        print(
            f"{size:7} memories, {asked.queries} queries, {found['causes'][2]} changed: evaluated {both:.1f} s, "
            f"{max(found['a'][1], found['b'][1]) / 1e6:,.0f} MB; "
            + "; ".join(
                f"{what} {found[what][0]:.1f} s, {found[what][0] / both:.2f} times, {found[what][1] / 1e6:,.0f} MB"
                for what in ("compared", "causes")
            ),
            flush=True,
        )


def evaluated(folder: Path, embedder: Numbered) -> None:
    """What `evaluate` does with a store whose evidence is not gathered yet."""
    from cems_workbench.evaluation.evaluate import evaluate
    from cems_workbench.evaluation.metrics import parse_measures
    from cems_workbench.jobs.evaluation import agreed, labelled
    from cems_workbench.jobs.factory import servers
    from cems_workbench.jobs.query_set_evidence import ALL_QUERIES, ensure_evidence, selected
    from cems_workbench.pipeline.resources import Resources

    settings = Settings(store=folder)
    with Store.open(folder) as store:
        resources = Resources(store, embedder, servers(settings))
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
    parser.add_argument("--memories", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--stores", type=Path, default=Path("compare-stores"))
    parser.add_argument("--queries", type=int, default=200)
    asked = parser.parse_args()
    (causes if asked.what == "causes" else cost)(asked)


if __name__ == "__main__":
    main()
