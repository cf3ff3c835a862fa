"""Undo of imports: after any imports, undoing them in reverse order leaves the store as it was before each."""

from __future__ import annotations

import random
from typing import Any

import pytest

from cems_workbench.records import (
    Chunk,
    GradeScale,
    Judgment,
    Memory,
    ParsedInput,
    Query,
    RecordedAnswer,
    Relation,
    Returned,
)
from cems_workbench.store import ImportOptions, Store
from tests.thoroughly import THOROUGH

FILES = ("a/memories.jsonl", "b/memories.jsonl", "upload.jsonl")
WIDE = GradeScale(tuple((grade, f"Grade {grade}") for grade in range(-1, 5)))
SEQUENCES = 300 if THOROUGH else 10


def random_input(chance: random.Random) -> ParsedInput:
    """A file with some rows of every kind, whose ids meet those of other files."""

    def some(names: str, most: int) -> list[str]:
        return chance.sample(names, chance.randint(0, most))

    def word() -> str:
        return f"text {chance.randint(1, 4)}"

    memories = tuple(
        Memory(key, word(), title=chance.choice((None, "text 1")), tags=tuple(some("tu", 2)))
        for key in some("mnopqrs", 5)
    )
    queries = tuple(Query(f"q{key}", word(), type=chance.choice((None, "fact"))) for key in some("1234", 4))
    return ParsedInput(
        chance.choice(FILES),
        "test",
        memories=memories,
        relations=tuple(
            Relation(one, other, weight=chance.random()) for one, other in zip(some("mno", 2), "op", strict=False)
        ),
        queries=queries,
        judgments=tuple(
            Judgment(f"q{key}", chance.choice("mnop"), chance.randint(0, 3), chance.choice(("ada", "bo")))
            for key in some("1234", 3)
        ),
        chunks=tuple(Chunk(each.id, seq, word(), None) for each in memories[:2] for seq in range(chance.randint(0, 2))),
        answers=tuple(
            RecordedAnswer(row, each.qid, each.query, None, (Returned(1, chance.choice("mnop"), chance.random()),))
            for row, each in enumerate(queries[:2], 1)
        ),
    )


def content(store: Store) -> dict[str, Any]:
    """What a user has in a store: everything that an import can bring. A set that became empty is none."""
    sets = store.query_sets.latest()
    with store._database.reading() as cursor:
        rows = (
            "SELECT k.*, c.seq, c.content FROM chunked AS k JOIN chunks AS c USING (memory_id) WHERE k.rule = 'given'"
        )
        answers = "SELECT set_name, qid, source, row, results FROM recorded_answers"
        marks = "SELECT id, origin, added_by FROM memories UNION ALL SELECT source_id || target_id, origin, added_by FROM relations"
        own = [cursor.execute(f"SELECT * FROM ({sql}) ORDER BY ALL").fetchall() for sql in (rows, answers, marks)]
    return {
        "memories": store.memories.read(),
        "relations": store.relations.read(),
        "queries": store.queries.read(),
        "judgments": store.judgments.read(),
        "sets": {one.name: (one.scale, store.query_sets.queries(one.name), one.sources) for one in sets if one.size},
        "own": own,
    }


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_imports_undone_in_reverse_order_leave_the_store_as_before(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    before = [content(store)]
    for _ in range(chance.randint(2, 5)):
        options = ImportOptions(
            query_set=chance.choice((None, "set")),
            scale=chance.choice((None, None, WIDE)),
            replace=chance.random() < 0.6,
        )
        event = store.add(random_input(chance), options=options).event
        now = content(store)
        assert (now != before[-1]) >= bool(event)
        if event:
            before.append(now)
    for former in reversed(before[:-1]):
        store.imports.undo()
        assert content(store) == former
    assert all(event.undone_at for event in store.imports.read())
