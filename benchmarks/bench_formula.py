"""The formula solver on programs whose formula is known: random pipelines of ours, and programs that no config of ours expresses.

    python -m benchmarks.bench_formula [--pipelines 200] [--foreign 40] [--seed 1]

A pipeline has 1 to 5 lists of random depth with missing hits and ties, a random method with weights, constants, bonus, boost, divisor, cap,
blend and normalisation, and often a reranker or factors. Its own replay gives the scores, which are printed with 4, 6 or 17 digits. The
solver sees 3 to 20 queries; 5 more that it never sees decide: the stated config must print their scores. A statement is

    solved    the scores of every unseen row come out as printed, or every score as the generated pipeline's on the printed inputs
    open      they do not, and the solver said that its rows leave constants or formulas open
    wrong     they do not, and it said nothing
    none      nothing was stated

Foreign programs multiply by the logarithm of a number that is not shown, give absent hits a default rank, or sum standard scores.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import numpy as np

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.model import changed
from cems_workbench.errors import InputError
from cems_workbench.pipeline.evidence import Evidence, Hit, ModelScore, RankedList, Variant
from cems_workbench.pipeline.replay import replay
from cems_workbench.pipeline.stages import FUSION
from cems_workbench.records import Memory
from workbench_explanations import formula
from workbench_explanations.formula import MOMENT, NEUTRAL, Explained, Row, Solved

NAMES = ("vector", "lexical", "fts5", "sparse", "lucene")
HIDDEN = 5
FOREIGN = ("hidden factor", "hidden addend", "default rank", "standard scores")


def constant(rng: random.Random, low: float, high: float) -> float:
    """A number as people write them: mostly two digits."""
    return round(rng.uniform(low, high), rng.choice((1, 1, 2, 2, 2, 4))) or high


def random_config(rng: random.Random) -> tuple[PipelineConfig, dict[str, Any]]:
    """A pipeline, and which parts it reads."""
    names = NAMES[: rng.randint(1, 5)]
    method = rng.choice(("rrf", "rrf", "rrf", "rank_divided_rrf", "combsum", "combsum", "combmax", "dbsf"))
    by_rank = method in ("rrf", "rank_divided_rrf")
    values: dict[str, Any] = {
        "fusion.method": method,
        "fusion.k": rng.choice((60, 60, 60, 1, 2, 10, 20, 30, 100, rng.randint(1, 200))),
    }
    equal = rng.random() < 0.25
    for name in names:
        own: dict[str, Any] = {"enabled": True, "depth": None, "weight": 1.0 if equal else constant(rng, 0.1, 2)}
        own["normalization"] = "none" if method == "dbsf" else rng.choice(("none", "max", "minmax", "saturating"))
        if by_rank and rng.random() < 0.2:
            own["ties"] = rng.choice(("dense", "competition"))
        values |= {f"lists.{name}.{key}": value for key, value in own.items()}
    if method == "rrf":
        values["fusion.rank_base"] = rng.choice((1, 1, 1, 1, 0))
        if rng.random() < 0.3:
            values |= {
                "fusion.top_rank_bonus.rank1": constant(rng, 0.01, 0.1),
                "fusion.top_rank_bonus.rank2_3": constant(rng, 0.01, 0.05),
            }
            values["fusion.top_rank_bonus.mode"] = rng.choice(("per_list", "best_rank"))
    if rng.random() < 0.15:
        values["fusion.multi_list_boost"] = constant(rng, 0.05, 0.5)
    if rng.random() < 0.25:
        values["fusion.normalize"] = "minmax"
    elif rng.random() < 0.1:
        values["fusion.divisor"] = "active_lists"
    if rng.random() < 0.2:
        values["fusion.score_blend"] = constant(rng, 0.1, 0.9)
    parts: dict[str, Any] = {}
    kind = rng.choice((None, None, None, "age", "age", "priority", "pinned", "count", "replace", "blend", "bands"))
    if kind == "age":
        values |= {"adjust.time_decay.mode": rng.choice(("hyperbolic", "exponential", "linear"))}
        values["adjust.time_decay.half_life_days"] = float(rng.choice((7, 14, 30, 60, 90, 180, rng.randint(1, 400))))
        values["adjust.time_decay.alpha"] = rng.choice((None, None, 0.2, constant(rng, 0.1, 1)))
        values["adjust.time_decay.floor"] = rng.choice((0.0, 0.0, 0.1, constant(rng, 0.05, 0.5)))
    values["adjust.priority"] = kind == "priority"
    if kind == "pinned":
        values["adjust.pinned_factor"] = constant(rng, 1.05, 2)
    if kind == "count":
        values |= {"adjust.count.of": "accesses", "adjust.count.alpha": constant(rng, 0.05, 1)}
    if kind in ("replace", "blend", "bands"):
        shares = [constant(rng, 0.1, 0.9) for _ in range(3)]
        bands = [
            {"max_rank": 3, "retrieval": shares[0]},
            {"max_rank": 10, "retrieval": shares[1]},
            {"max_rank": None, "retrieval": shares[2]},
        ]
        values |= {
            "rerank.backend": "cross_encoder",
            "rerank.raw_scale": rng.choice(("sigmoid", "raw", "minmax")),
            "rerank.retrieval_score": "fused",
        }
        values["rerank.combine"] = "replace" if kind == "replace" else "position_bands"
        values["rerank.bands"] = bands if kind == "bands" else bands[2:]
        if kind == "bands":
            values["rerank.retrieval_score"] = rng.choice(("fused", "rrf", "inverse_rank", "normalized_rrf"))
    parts["kind"] = kind
    try:
        return with_values(NEUTRAL, values), {"kind": kind, "names": names}
    except InputError:
        return random_config(rng)


def random_query(rng: random.Random, number: int, shape: dict[str, Any]) -> Evidence:
    """Evidence of one query."""
    pool = [f"m{number:03}_{i:03}" for i in range(shape["pool"])]
    rng.shuffle(pool)
    memories = {}
    for key in pool:
        memories[key] = Memory(
            key,
            "",
            created_at=MOMENT - timedelta(days=round(rng.expovariate(1 / 60), shape["day_digits"])),
            priority=rng.choice((1.0, 1.0, 1.2, 1.5, 2.0)),
            pinned=rng.random() < 0.2,
            access_count=rng.choice((0, 1, 2, 5, 9, 30)),
        )
    lists = []
    for name in shape["names"]:
        size = 0 if rng.random() < 0.08 else rng.randint(max(1, shape["depth"] // 2), shape["depth"])
        top = 1.0 if name == "vector" else 20.0
        scores = sorted((rng.uniform(0.05, top) for _ in range(size)), reverse=True)
        if rng.random() < shape["tied"]:
            scores = [round(score, 1) for score in scores]
        found = rng.sample(pool, min(size, len(pool)))
        lists.append(
            RankedList(f"{name}:0", name, 0, tuple(Hit(*hit) for hit in zip(found, scores, strict=False)), True)
        )
    models = {"cross_encoder": {key: ModelScore(rng.gauss(0, 3)) for key in pool}}
    return Evidence(
        f"query {number}", memories, (Variant(f"query {number}"),), tuple(lists), MOMENT, model_scores=models
    )


def explanation(
    evidence: Evidence, config: PipelineConfig, shape: dict[str, Any], digits: int, change: Any = None
) -> Explained:
    """What a program with this config prints of a query."""
    trace = replay(evidence, config)
    fused = trace.stage(FUSION).by_id
    rows = []
    finals = {result.memory_id: float(result.score or 0.0) for result in trace.results}
    if change is not None:
        finals = change(trace, finals)
    order = sorted(finals, key=lambda key: -finals[key])
    ranks = {}
    for i, ranked in enumerate(evidence.lists):
        places, ties = trace.table.lists.gathered, getattr(config.lists, ranked.source).ties
        for hit in ranked.hits:
            c = trace.columns[hit.memory_id]
            position, dense = int(places.position[0, i, c]), int(places.dense[0, i, c])
            first = min(int(places.position[0, i, d]) for d in np.flatnonzero(places.dense[0, i] == dense))
            ranks[ranked.source, hit.memory_id] = (
                {"ordinal": position, "dense": dense, "competition": first}[ties] - 1 + config.fusion.rank_base
            )
    shown = order[: shape["shown"]]
    for rank, key in enumerate(shown, 1):
        memory, parts = evidence.memories[key], {}
        if shape["kind"] == "age":
            assert memory.created_at is not None
            parts["age_days"] = (MOMENT - memory.created_at) / timedelta(days=1)
        elif shape["kind"] == "priority":
            parts["boost"] = memory.priority
        elif shape["kind"] == "pinned":
            parts["pinned"] = float(memory.pinned)
        elif shape["kind"] == "count":
            parts["access_count"] = float(memory.access_count)
        elif shape["kind"]:
            parts["cross_encoder"] = float(evidence.model_scores["cross_encoder"][key].raw or 0.0)
            if shape["kind"] == "bands":
                parts["fused_score"] = float(fused[key].score or 0.0)
        lists = {
            shape["called"].get(ranked.source, ranked.source): (ranks[ranked.source, key], round(hit.score, digits))
            for ranked in evidence.lists
            for hit in ranked.hits
            if hit.memory_id == key
        }
        rows.append(
            Row(
                key,
                round(finals[key], digits),
                rank,
                lists,
                {name: round(value, digits) for name, value in parts.items()},
            )
        )
    return Explained(evidence.query, rows)


def foreign(kind: str, rng: random.Random, config: PipelineConfig) -> Any:
    """What a program that no config of ours expresses makes of the scores."""

    def change(trace: Any, finals: dict[str, float]) -> dict[str, float]:
        lists = [ranked for ranked in trace.evidence.lists if ranked.hits]
        if kind == "hidden factor":
            return {key: score * float(np.log(1 + rng.randint(1, 50))) for key, score in finals.items()}
        if kind == "hidden addend":
            return {key: score + rng.random() / 10 for key, score in finals.items()}
        made = dict.fromkeys(finals, 0.0)
        for i, ranked in enumerate(lists):
            scores = np.array([hit.score for hit in ranked.hits])
            inside = {hit.memory_id: (rank, hit.score) for rank, hit in enumerate(ranked.hits, 1)}
            for key in made:
                if kind == "default rank":
                    made[key] += (1 + i / 2) / (60 + (inside[key][0] if key in inside else 100))
                elif key in inside:
                    made[key] += (1 + i / 2) * float((inside[key][1] - scores.mean()) / (scores.std() or 1.0))
        return made

    return change


def judge(every: list[Explained], seen: int, solved: Solved, config: PipelineConfig, shape: dict[str, Any]) -> bool:
    """Whether the stated config prints the scores of the queries after those that the solver saw, or gives every row the score that
    the generated one gives on the same printed inputs: rounded inputs move a tie or the end of a band in both."""
    assert solved.config is not None
    program = formula._Program(every, solved.roles)
    ours = program.scores(solved.config)
    within = np.abs(ours - program.y) <= program.tolerance(solved.config) * 1.01
    if within[program.query >= seen].all():
        return True
    known = {name: role for name, role in formula.roles_of(every).items() if role != "fused"}
    printed, generated = formula._Program(every, known), config
    own = {called: name for name, called in shape["called"].items()}
    for name, source in zip(printed.names, printed.sources, strict=True):
        for key in ("enabled", "depth", "weight", "normalization", "ties"):
            generated = changed(generated, f"lists.{source}.{key}", config.get(f"lists.{own.get(name, name)}.{key}"))
    return bool((np.abs(ours - printed.scores(generated)) <= 1e-9).all())


def one(seed: int, number: int, kind: str | None, verbose: bool = False) -> tuple[str, float, dict[str, Any]]:
    """The outcome of a program, the seconds of the processor, and what it was."""
    rng = random.Random(f"{seed} {number} {kind}")
    config, shape = random_config(rng)
    if kind is not None:
        config = with_values(config, {"fusion.normalize": "none", "rerank.backend": "none", "fusion.rank_base": 1})
        shape["kind"] = None
    digits = rng.choice((4, 6, 17))
    depth = rng.randint(8, 40)
    shape |= {
        "depth": depth,
        "pool": rng.randint(depth + 2, 3 * depth),
        "day_digits": rng.choice((0, 3)),
        "tied": rng.choice((0, 0.3)),
    }
    whole = (
        config.fusion.normalize == "none"
        and config.fusion.method in ("rrf", "rank_divided_rrf")
        and not config.fusion.score_blend
    )
    shape["shown"] = rng.choice((10, 1000)) if whole and config.rerank.backend == "none" else 1000
    shape["called"] = rng.choice(({}, {"vector": "semantic", "lexical": "bm25"}))
    queries = rng.randint(3, 20)
    change = None if kind is None else foreign(kind, rng, config)
    every = [explanation(random_query(rng, i, shape), config, shape, digits, change) for i in range(queries + HIDDEN)]
    begun = time.process_time()
    solved = formula.solve(every[:queries])
    took = time.process_time() - begun
    if solved.config is None:
        outcome = "none"
    elif judge(every, queries, solved, config, shape):
        outcome = "solved"
    else:
        outcome = "open" if solved.undetermined else "wrong"
    about = {
        "digits": digits,
        "queries": queries,
        "rows": sum(len(one.rows) for one in every[:queries]),
        "config": config,
        "shape": shape,
        "solved": solved,
    }
    return outcome, took, about


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pipelines", type=int, default=200)
    parser.add_argument("--foreign", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one pipeline by its number, with everything known of it")
    parser.add_argument("--list", action="store_true", help="name each that was not solved")
    chosen = parser.parse_args()
    for kinds, count in (((None,), chosen.pipelines), (FOREIGN, chosen.foreign)):
        outcomes: Counter[str] = Counter()
        by_digits: Counter[tuple[int, str]] = Counter()
        seconds = []
        for number in range(count) if chosen.only is None else [chosen.only]:
            outcome, took, about = one(chosen.seed, number, kinds[number % len(kinds)])
            seconds.append(took)
            outcomes[outcome] += 1
            by_digits[about["digits"], outcome] += 1
            if number % 20 == 19:
                print(f"{number + 1}: {dict(outcomes)}", file=sys.stderr, flush=True)
            wanted = "solved" if kinds == (None,) else "none"
            if (chosen.list and outcome != wanted) or chosen.only is not None:
                from cems_workbench.config import difference

                print(
                    number,
                    outcome,
                    f"{took:.2f} s",
                    about["digits"],
                    about["queries"],
                    about["rows"],
                    about["shape"]["kind"],
                    [(path, now) for path, _, now in difference(NEUTRAL, about["config"])],
                )
                print("   ", about["solved"].formula or about["solved"].unexplained, about["solved"].undetermined)
        what = "pipelines of ours" if kinds == (None,) else "foreign programs"
        spread = f"{np.median(seconds):.2f} s median, {max(seconds):.2f} s most" if seconds else ""
        print(f"{what}: {dict(outcomes)} of {count}; {dict(sorted(by_digits.items()))}; {spread}")
        if chosen.only is not None:
            return


if __name__ == "__main__":
    main()
