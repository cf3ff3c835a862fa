"""Two stores compared: the planted part is named as the cause of what it changed, labels follow, and a store is compared with itself before
an import."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cems_workbench.analysis.swaps import ChangedQuery, causes, summary
from cems_workbench.config import PipelineConfig, preset, with_values
from cems_workbench.jobs.compare_stores import Asked, StoresCompared, compare_stores
from cems_workbench.jobs.factory import open_resources
from cems_workbench.models.resolve import EIGHT_BIT
from cems_workbench.records import SUPERSEDES, Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.parts import CHUNKS, COLUMNS, CONFIG, DATES, LEXICAL, MEMORIES, SUPERSESSION, TEXTS, VECTORS

MADE = datetime(2026, 3, 1, tzinfo=UTC)
ASKED = "which day does the invoice job run"
OLD = {
    "job": "The invoice job runs on the first day of each month.",
    "job then": "The invoice job ran on the last day of each month.",
    "oat": "Mira drinks oat milk in her coffee and never cow's milk.",
    "dump": "The staging database is restored from the nightly dump at six.",
    "long": f"{'Parcels leave the warehouse in Graz before lunch. ' * 40} The keys of the server room are in the blue safe.",
    "keys": "The keys of the garage hang at the reception.",
}
QUERIES = {
    "q1": (ASKED, "job"),
    "q2": ("what milk does Mira drink", "oat"),
    "q3": ("where are the keys of the server room", "long"),
}
CONFIG_HERE = with_values(preset("cems").config, {"supersession.mode": "demote"})


def made(folder: Path, memories: Iterable[Memory], embedder: str | None = None) -> Path:
    queries = tuple(Query(qid, words) for qid, (words, _) in QUERIES.items())
    ids = {one.content: one.id for one in memories}
    judgments = tuple(Judgment(qid, ids[OLD[key]], 2) for qid, (_, key) in QUERIES.items())
    with Store.open(folder) as store:
        store.add(ParsedInput("first", "test", memories=tuple(memories)))
        store.add(ParsedInput("labels", "test", queries=queries, judgments=judgments))
    settings = Settings(store=folder)
    resources = open_resources(settings.model_copy(update={"embedder": embedder}) if embedder else settings)
    resources.refresh()
    resources.close()
    return folder


def memories(prefix: str = "") -> list[Memory]:
    return [Memory(prefix + key, text, created_at=MADE) for key, text in OLD.items()]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("compared") / "old", memories())


def compared(first: object, second: object, now: PipelineConfig = CONFIG_HERE) -> StoresCompared:
    return compare_stores(str(first), str(second), (CONFIG_HERE, now), Settings(), Asked(metrics="nDCG@10"))


def changed_by(*plants: Callable[[Store], object]) -> Callable[[Path, Path], Path]:
    def copy(before: Path, place: Path) -> Path:
        with Store.open(Path(shutil.copytree(before, place))) as store:
            for plant in plants:
                plant(store)
        return place

    return copy


def reworded(store: Store) -> None:
    store.memories.update(Memory("job", "Nothing is billed here any more.", created_at=MADE))


def redated(store: Store) -> None:
    for one in store.memories.read(["job", "long"]).values():
        store.memories.update(replace(one, last_accessed=MADE - timedelta(days=4000)))


def copied(store: Store) -> None:
    store.add(ParsedInput("more", "test", memories=(Memory("copy", ASKED, created_at=MADE),)))


def superseded(store: Store) -> None:
    store.add(ParsedInput("edges", "test", relations=(Relation("job then", "job", SUPERSEDES),)))


PLANTS = {
    "reworded": (TEXTS, changed_by(reworded)),
    "gone": (MEMORIES, changed_by(lambda store: store.memories.delete("job"))),
    "new": (MEMORIES, changed_by(copied)),
    "superseded": (SUPERSESSION, changed_by(superseded)),
    "whole": (CHUNKS, changed_by(lambda store: store.chunks.choose("whole"))),
    "german": (LEXICAL, changed_by(lambda store: store.language.choose("german"))),
    "redated": (DATES, changed_by(redated)),
}

LOST: dict[str, list[str]] = {"whole": ["q3"], "german": [], "redated": ["q1", "q3"]}


@pytest.mark.parametrize("name", PLANTS)
def test_planted_change_is_the_only_part_and_the_cause(name: str, before: Path, tmp_path: Path) -> None:
    part, plant = PLANTS[name]
    found = compared(before, plant(before, tmp_path / "new"))
    assert found.difference.parts == (part,)
    assert all(one.cause == (part,) for one in found.changed)
    assert [one.qid for one in found.changed if one.gain < 0] == LOST.get(name, ["q1"])


def test_each_of_two_parts_is_told_by_putting_it_back(before: Path, tmp_path: Path) -> None:
    place = changed_by(reworded, lambda store: store.language.choose("german"))(before, tmp_path / "new")
    found = compared(before, place, with_values(CONFIG_HERE, {"lists.lexical.enabled": True}))
    assert TEXTS in found.difference.parts and LEXICAL in found.difference.parts
    assert {one.qid: one.cause for one in found.changed}["q1"] == (TEXTS,)
    place = changed_by(
        lambda store: store.memories.delete("job"), lambda store: store.memories.update(Memory("oat", "No."))
    )(before, tmp_path / "deleted")
    assert {one.qid: one.cause for one in compared(before, place).changed} == {"q1": (MEMORIES,), "q2": (TEXTS,)}


def test_every_field_of_a_memory_is_of_a_part() -> None:
    assert sorted(name for names in COLUMNS.values() for name in names) == sorted(
        {one.name for one in fields(Memory)} - {"id", "source_ref"}
    )


def test_cause_is_the_first_alone_then_a_pair_else_cannot_tell() -> None:
    rows = [ChangedQuery(qid, qid, None, 1.0, 0.2, -0.8) for qid in ("alone", "pair", "neither")]
    values = {
        "alone": {frozenset({TEXTS}): 1.0},
        "pair": {frozenset({TEXTS, CHUNKS}): 1.0},
        "neither": {frozenset({DATES}): 0.9},
    }
    found = causes(rows, (TEXTS, CHUNKS, DATES), lambda back, qids: {qid: values[qid].get(back, 0.2) for qid in qids})
    assert found == {"alone": (TEXTS,), "pair": (TEXTS, CHUNKS)}
    told = [replace(one, cause=found.get(one.qid, ())) for one in rows]
    assert summary(told) == ["of 3 queries lost, 1 by memory texts, 1 by memory texts and chunks, 1 cannot tell"]


def test_other_ids_and_another_embedder_keep_every_label(before: Path, tmp_path: Path) -> None:
    other = made(tmp_path / "other", memories("new-"), EIGHT_BIT)
    with Store.open(other) as store:
        for qid, (_, key) in QUERIES.items():
            store.judgments.remove(qid, f"new-{key}")
    found = compared(before, other)
    assert found.difference.parts == (VECTORS,)
    assert found.difference.counts["under another id"] == found.difference.counts["re-embedded"] == len(OLD)
    assert found.comparison is not None and all(one.mean(one.measures[0]) > 0.5 for one in found.comparison.evaluations)
    assert "labels of" in "\n".join(found.lines) and "3 moved" in "\n".join(found.lines)


def test_store_before_an_import_a_config_each_and_files(
    before: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    place = changed_by(copied)(before, tmp_path / "new")
    found = command("compare", f"{place}@2", place, "--metric", "nDCG@10", "--json")
    told = json.loads(found.out)
    assert found.code == 0 and told["difference"]["new"] == ["copy"]
    assert {one["qid"]: one["cause"] for one in told["changed"]} == {"q1": [MEMORIES]}
    for name, store in (("a", before), ("b", place)):
        assert not command(
            "gather", "all", "--judged", "--store", store, "--preset", "cems", "--out", f"{name}.evidence"
        ).code
    found = command("compare", "a.evidence", "b.evidence", "--metric", "nDCG@10")
    assert found.code == 0 and "of 1 query lost, 1 by vector lists" in found.out
    found = command(
        "compare", before, place, "--preset", "cems", "--preset", "langgraph", "--metric", "nDCG@10", "--json"
    )
    assert json.loads(found.out)["difference"]["parts"] == [MEMORIES, CONFIG]
    assert "named twice" in command("compare", place, place).err
    assert "two stores, and a.evidence is not one" in command("compare", place, "a.evidence").err
    assert "--query-set" in command("compare", "a.evidence", "--query-set", "all").err
