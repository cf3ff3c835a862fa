"""Two stores compared on their judged queries: what differs, the paired test, and of each query that is won or lost the cause.

A side is the folder of a store, `FOLDER@N` (a store as it was after import N: a copy in which later imports are undone), or an evidence
file. The judgments of both sides count on both: each follows its text (`store.rebase`). A judged text that a side lacks stays in the
ideal ranking, so that a lost memory is a loss.

Parts are put back in copies of the second store, in a temporary folder; neither store is changed. Of evidence files only what is in
them can be put back: lists as they were gathered, dates, fields, supersession, the config.

Evidence of a query with some parts as other evidence of it has them: what can be put back without a store.

The parts are the vector lists with the embeddings, all other lists with the texts and chunks, supersession, dates (with the moment of the
query) and the other fields of memories. Lists by date and use follow from the candidates.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.analysis import swaps
from cems_workbench.analysis.swaps import ChangedQuery, Trial, Values
from cems_workbench.config import PipelineConfig, difference, with_values
from cems_workbench.errors import InputError, counted, some
from cems_workbench.evaluation.assertions import Asserted
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.evaluation.comparison import VALUE_TOLERANCE, compare, overlap_of
from cems_workbench.evaluation.evaluate import Evaluation, evaluate
from cems_workbench.evaluation.evidence_file import EvidenceSet, differences, is_evidence_file, read_header
from cems_workbench.evaluation.grades import as_judged
from cems_workbench.evaluation.metrics import Measure, parse_measures, standard_measures
from cems_workbench.evaluation.verdict import verdict_measure
from cems_workbench.jobs.evaluation import AgreedGrades, agreed, refuse_nothing
from cems_workbench.jobs.factory import embedder, for_store, servers
from cems_workbench.jobs.query_set_evidence import (
    ALL_QUERIES,
    EMBED_BATCH_SIZE,
    embed_ahead,
    queries_named,
    request_for,
    require_words,
)
from cems_workbench.jobs.regression import Regression, got_worse
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.evidence import RankedList
from cems_workbench.pipeline.gather import gather, metadata_lists
from cems_workbench.pipeline.resources import ENTITIES_FILE, Resources
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.progress import Progress, silent
from cems_workbench.records import WHOLE_STORE, Judgment, Memory, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.judged_texts import UNJUDGED, Judged, Sought, found_among
from cems_workbench.store.parts import (
    COLUMNS,
    CONFIG,
    DATES,
    FIELDS,
    LEXICAL,
    SUPERSESSION,
    TEXTS,
    VECTORS,
    Difference,
    Side,
    StoredVectors,
    compared,
)
from cems_workbench.store.rebase import follow
from cems_workbench.store.recovery import EXPANSIONS_FILE, TERMS_FILE

VECTOR_LISTS, OTHER_LISTS = "vector lists", "lexical and other lists"
EVIDENCE_PARTS = (VECTOR_LISTS, OTHER_LISTS, SUPERSESSION, DATES, FIELDS)
"""In the order in which they are put back."""
_BY_DATE = ("recency", "access")


def differ(part: str, was: Evidence, now: Evidence) -> bool:
    """Whether a part of the evidence is another one; of memories that both have."""
    both = was.memories.keys() & now.memories.keys()
    if part in (DATES, FIELDS):
        names = COLUMNS[part]
        pairs = ((was.memories[key], now.memories[key]) for key in both)
        other = any(getattr(one, name) != getattr(two, name) for one, two in pairs for name in names)
        return other or (part == DATES and was.as_of != now.as_of)
    if part == SUPERSESSION:
        first, second = (evidence.notes.get(SUPERSEDED) or {} for evidence in (was, now))
        return any(first.get(key) != second.get(key) for key in both)
    lists = [[ranked for ranked in evidence.lists if _list_part(ranked) == part] for evidence in (was, now)]
    return lists[0] != lists[1]


def _list_part(ranked: RankedList) -> str:
    return DATES if ranked.source in _BY_DATE else VECTOR_LISTS if ranked.source == "vector" else OTHER_LISTS


def renamed(evidence: Evidence, names: Mapping[str, str]) -> Evidence:
    """The evidence with its memories under other ids; `names` has all of them."""

    def keys(of: Mapping[str, Any]) -> dict[str, Any]:
        return {names[key]: value for key, value in of.items()}

    noted = {
        names[key]: [one | {"id": names[one["id"]]} for one in own]
        for key, own in (evidence.notes.get(SUPERSEDED) or {}).items()
    }
    return replace(
        evidence,
        memories={names[key]: replace(one, id=names[key]) for key, one in evidence.memories.items()},
        lists=tuple(
            replace(ranked, hits=tuple(replace(hit, memory_id=names[hit.memory_id]) for hit in ranked.hits))
            for ranked in evidence.lists
        ),
        embeddings=keys(evidence.embeddings),
        chunks={
            names[key]: tuple(replace(one, memory_id=names[key]) for one in own) for key, own in evidence.chunks.items()
        },
        tokens=keys(evidence.tokens),
        relations=tuple(
            replace(one, source_id=names[one.source_id], target_id=names[one.target_id]) for one in evidence.relations
        ),
        model_scores={model: keys(own) for model, own in evidence.model_scores.items()},
        judge_scores={model: keys(own) for model, own in evidence.judge_scores.items()},
        notes={**evidence.notes, SUPERSEDED: noted} if SUPERSEDED in evidence.notes else evidence.notes,
    )


def with_parts(now: Evidence, was: Evidence, back: Collection[str], config: PipelineConfig) -> Evidence:
    """The evidence `now` with these parts of `was`, whose memories have the same ids."""
    columns = [name for part in (DATES, FIELDS) if part in back for name in COLUMNS[part]]
    columns += COLUMNS[TEXTS] if OTHER_LISTS in back else ()

    def memory(key: str, one: Memory) -> Memory:
        before = was.memories.get(key)
        return one if before is None else replace(one, **{name: getattr(before, name) for name in columns})

    def merged(part: str, name: str) -> dict[str, Any]:
        first, second = (was, now) if part in back else (now, was)
        return {**getattr(second, name), **getattr(first, name)}

    memories = {**was.memories, **{key: memory(key, one) for key, one in now.memories.items()}}
    known = [
        ranked
        for side, taken in ((now, False), (was, True))
        for ranked in side.lists
        if _list_part(ranked) != DATES and (_list_part(ranked) in back) == taken
    ]
    order = {ranked.name: place for place, ranked in enumerate([*now.lists, *was.lists])}
    known.sort(key=lambda ranked: order[ranked.name])
    noted = (was if SUPERSESSION in back else now).notes.get(SUPERSEDED)
    others = {name: note for name, note in now.notes.items() if name != SUPERSEDED}
    return replace(
        now,
        memories=memories,
        lists=(
            *known,
            *metadata_lists(
                {hit.memory_id: memories[hit.memory_id] for one in known for hit in one.hits}, known, config
            ),
        ),
        as_of=was.as_of if DATES in back else now.as_of,
        embeddings=merged(VECTOR_LISTS, "embeddings"),
        chunks=merged(OTHER_LISTS, "chunks"),
        tokens=merged(OTHER_LISTS, "tokens"),
        relations=(was if OTHER_LISTS in back else now).relations,
        model_scores={name: {**was.model_scores.get(name, {}), **own} for name, own in now.model_scores.items()},
        judge_scores={name: {**was.judge_scores.get(name, {}), **own} for name, own in now.judge_scores.items()},
        notes=others if noted is None else {**others, SUPERSEDED: noted},
    )


FILES = (EXPANSIONS_FILE, TERMS_FILE, ENTITIES_FILE)
"""Files of a store that change its searches: lexical settings."""
AT_IMPORT = "@"
NOT_HERE = "not here: "
"""How the id of a judged text begins that a side lacks."""
FIRST = 5
Results = Sequence[tuple[str, str, bool]]
"""Id, text and relevance of the first results, best first."""


@dataclass(frozen=True, eq=False, repr=False)
class StoresCompared(Regression):
    """Two sides compared: a `Regression` with what differs, and the queries that are won or lost with their causes."""

    difference: Difference = field(default_factory=Difference)
    changed: Sequence[ChangedQuery] = ()
    measure: str = ""
    results: Mapping[str, tuple[Results, Results]] = field(default_factory=dict)
    """By qid of a changed query the first results of both sides."""


@dataclass(frozen=True)
class Asked:
    """What two stores are compared on, and how; every field has a default."""

    query_set: str = ALL_QUERIES
    metrics: str | None = None
    grade: int | None = None
    judge_kind: str | None = None
    successors: bool = False
    only_project: bool = False
    seed: int = 0
    asserted: Asserted = field(default_factory=Asserted)
    shown: int = 10
    why: bool = True


def is_store(name: str) -> bool:
    """Whether a name is the folder of a store, or that at an import."""
    return Store.exists(Path(name)) or _at_import(name) is not None


def _at_import(name: str) -> tuple[Path, int] | None:
    folder, mark, number = name.rpartition(AT_IMPORT)
    return (Path(folder), int(number)) if mark and number.isdecimal() and Store.exists(Path(folder)) else None


def differing_files(names: Sequence[str]) -> bool:
    """Whether the names are two evidence files of different stores, states, embedders or gather parameters."""
    paths = [Path(name) for name in names]
    if len(paths) != 2 or not all(path.is_file() and is_evidence_file(path) for path in paths):
        return False
    return bool(differences(*map(read_header, paths)))


@contextmanager
def _opened(name: str, settings: Settings, place: Path, notes: list[str], progress: Progress) -> Iterator[Resources]:
    """A store with its own embedder and current indexes; one at an import is a copy in which the later ones are undone."""
    at = _at_import(name)
    path = at[0] if at else Path(name)
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(path, create=False, chroma_url=settings.chroma_url, team=settings.team))
        if at:
            later = [event.number for event in store.imports.read() if event.number > at[1] and event.undone_at is None]
            store.imports.get(at[1])
            store.copy(place)
            store = stack.enter_context(Store.open(place, create=False))
            for number in later:
                notes += [f"{name}: import {number}: {line}" for line in store.imports.undo(number, progress).stay]
        if not store.memories.count():
            raise InputError(f"{name}: the store has no memories")
        resources = _resources(store, settings, progress)
        if len(models := store.embedders()) > 1:
            notes.append(f"{name} has vectors of {some(models, 3)}; it is searched with {resources.embedder.model_id}")
        yield resources


def _resources(store: Store, settings: Settings, progress: Progress) -> Resources:
    """The store with the embedder of its vectors, and current indexes."""
    own = for_store(settings, store)
    chosen, known = embedder(own), store.embedders()
    if known and own is settings and chosen.model_id not in known:
        chosen = embedder(own.model_copy(update={"embedder": known[-1]}))
    resources = Resources(store, chosen, servers(settings))
    resources.refresh(progress)
    return resources


def compare_stores(
    first: str,
    second: str,
    configs: tuple[PipelineConfig, PipelineConfig],
    settings: Settings,
    asked: Asked = Asked(),
    progress: Progress = silent,
) -> StoresCompared:
    """Compare the second store with the first. Raises InputError without judged queries, and StoreError."""
    if Path(first).resolve() == Path(second).resolve():
        raise InputError(
            f"{first} is named twice; name two stores, or {first}{AT_IMPORT}N, the store as it was after import N"
        )
    notes = list[str]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True)))
        both = [
            stack.enter_context(_opened(name, settings, folder / place, notes, progress))
            for name, place in ((first, "first"), (second, "second"))
        ]
        return _Stores(both[0], both[1], (first, second), configs, asked, folder, notes, progress).compared()


class _Labels:
    """The judgments of both stores on the same queries, as they follow their texts to any store."""

    def __init__(self, sides: Sequence[Resources], judgments: Sequence[Sequence[Judgment]], kind: str | None) -> None:
        self._kind = kind
        self._given = [
            (own, side.store.judged_texts({one.memory_id for one in own}))
            for side, own in zip(sides, judgments, strict=True)
        ]
        self._sought = Sought(one.text for _, texts in self._given for one in texts.values())

    def of(self, store: Store) -> tuple[AgreedGrades, Counter[str]]:
        """The grades in a store, and how many judgments of the first side have which status there."""
        found, counts = dict[tuple[str, ...], Judgment](), Counter[str]()
        for place, (own, texts) in enumerate(self._given):
            at = store.find_judged(texts, self._sought)
            if not place:
                counts.update(at.get(one.memory_id, UNJUDGED).status for one in own if one.memory_id != WHOLE_STORE)
            lacking = {key for key, one in at.items() if not one.targets} | {
                one.memory_id for one in own if one.memory_id not in texts
            }
            kept = [one for one in own if one.memory_id == WHOLE_STORE or one.memory_id not in lacking]
            there = [one for _, one in follow(list(enumerate(kept)), at)]
            there += [
                replace(one, memory_id=_absent(one.memory_id, texts))
                for one in own
                if one.memory_id in lacking - {WHOLE_STORE}
            ]
            for one in there:
                key = one.qid, one.memory_id, one.judge, one.kind
                if key not in found or found[key].grade < one.grade:
                    found[key] = one
        return agreed([*found.values()], self._kind), counts


def _absent(memory_id: str, texts: Mapping[str, Judged]) -> str:
    """The id of a judged text that a side lacks: the same for the same text."""
    text = texts[memory_id].text if memory_id in texts else memory_id
    return NOT_HERE + hashlib.sha256(text.encode()).hexdigest()[:16]


class _Stores:
    """One comparison of two open stores."""

    def __init__(
        self,
        first: Resources,
        second: Resources,
        names: tuple[str, str],
        configs: tuple[PipelineConfig, PipelineConfig],
        asked: Asked,
        folder: Path,
        notes: list[str],
        progress: Progress,
    ) -> None:
        self.sides, self.configs, self.asked, self.folder, self.notes = (first, second), configs, asked, folder, notes
        self.progress, self.moment, self.made = progress, datetime.now(UTC), 0
        self.names = names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")
        given = [self._judged(side) for side in self.sides]
        words = {query.qid: query for queries, _ in reversed(given) for query in queries}
        self.queries = [query for query in words.values() if all(_same(query, queries) for queries, _ in given)]
        known = {query.qid for query in self.queries}
        self.notes += [f"{counted(len(words) - len(known), 'queries')} left out: other words under one id"] * (
            len(words) > len(known)
        )
        refuse_nothing(self.queries, f"{names[0]} and {names[1]}")
        self.labels = _Labels(
            self.sides, [[one for one in rows if one.qid in known] for _, rows in given], asked.judge_kind
        )
        self.measures = _measures(
            asked, min(side.store.query_sets.relevant_from(asked.query_set) for side in self.sides)
        )

    def _judged(self, side: Resources) -> tuple[Sequence[Query], Sequence[Judgment]]:
        names = {one.name for one in side.store.query_sets.latest()} | {ALL_QUERIES}
        if self.asked.query_set not in names and not Path(self.asked.query_set).exists():
            return [], []
        if not side.store.queries.read():
            return [], []
        try:
            return queries_named(self.asked.query_set, side, True)
        except InputError:  # no judgments on this side
            return [], []

    def gathered(
        self, side: Resources, config: PipelineConfig, queries: Sequence[Query], label: str
    ) -> dict[str, Evidence]:
        """The evidence of queries, all at the same moment, by qid."""
        require_words(config, side.store.path)
        found = {}
        for at, query in enumerate(queries):
            self.progress(label, at, len(queries))
            if not at % EMBED_BATCH_SIZE:
                embed_ahead(queries[at : at + EMBED_BATCH_SIZE], side)
            found[query.qid] = gather(
                request_for(query, self.moment, self.asked.only_project), config, side, judge="decisive"
            )
        return found

    def batch(
        self, side: Resources, config: PipelineConfig, queries: Sequence[Query], label: str
    ) -> tuple[LabelledBatch, Counter[str]]:
        """Queries gathered in a store, with the judgments as they follow to it."""
        grades, counts = self.labels.of(side.store)
        asked, found = as_judged(queries, grades.answerable), self.gathered(side, config, queries, label)
        return LabelledBatch(asked, found, grades.grades, None, self.asked.successors), counts

    def compared(self) -> StoresCompared:
        """What differs, the verdict, and the causes."""
        measured, counts, batches = list[Evaluation](), Counter[str](), list[LabelledBatch]()
        for side, config, name in zip(self.sides, self.configs, self.names, strict=True):
            batch, counts = self.batch(side, config, self.queries, f"searching {name}")
            batches.append(batch)
            measured.append(evaluate(batch, with_values(config, {"name": name}), self.measures, seed=self.asked.seed))
        self.progress("comparing memories", 0, 1)
        of = [side.store.side(side.indexes, side.embedder.model_id) for side in self.sides]
        differs = compared(*of)
        settings = dict(differs.settings)
        if other := [name for name in FILES if _content(self.sides[0], name) != _content(self.sides[1], name)]:
            settings[LEXICAL] = "; ".join([*([settings[LEXICAL]] if LEXICAL in settings else []), *other])
        differs = replace(differs, settings=settings | _config_changes(self.configs))
        labels = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
        lines = [*differs.words, *([f"labels of {self.names[0]}: {labels}"] if counts else [])]
        return report(measured, batches, differs, self.names, self.asked, lines, self.notes, self._trial(differs, of))

    def _trial(self, differs: Difference, of: Sequence[Side]) -> Trial:
        queries = {query.qid: query for query in self.queries}

        def trial(back: frozenset[str], qids: Sequence[str]) -> Values:
            config = self.configs[0 if CONFIG in back else 1]
            label = f"replaying with {' and '.join(sorted(back))} as before"
            with self._with_parts(back - {CONFIG}, differs, of) as side:
                batch, _ = self.batch(side, config, [queries[qid] for qid in qids], label)
                return values_of(batch, config, verdict_measure(self.measures))

        return trial

    @contextmanager
    def _with_parts(self, back: frozenset[str], differs: Difference, of: Sequence[Side]) -> Iterator[Resources]:
        """The second store with some parts as the first has them: a copy, as long as it is used."""
        first, second = self.sides
        if not back:
            yield second
            return
        self.made += 1
        path = self.folder / f"with-{self.made}"
        second.store.copy(path)
        try:
            if LEXICAL in back:
                for name in FILES:
                    (path / name).unlink(missing_ok=True)
                    if (kept := first.store.path / name).is_file():
                        shutil.copyfile(kept, path / name)
            with Store.open(path, create=False) as store:
                store.put_back(of[0], differs, back)
                model = (first if VECTORS in back else second).embedder
                # Equal models have equal vectors of a text where the vectors are no difference.
                near = of if VECTORS in back else of[::-1]
                vectors = StoredVectors(near[: 1 if VECTORS in differs.parts else 2])
                anew = VECTORS in back and model.model_id in store.embedders()
                (store.indexes.rebuild if anew else store.indexes.refresh)(model, self.progress, precomputed=vectors)
                with closing(Resources(store, model, second.servers)) as resources:
                    resources.refresh(self.progress)
                    yield resources
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _measures(asked: Asked, relevant_from: int) -> tuple[Measure, ...]:
    """The chosen measures, and those that are asserted."""
    least = relevant_from if asked.grade is None else asked.grade
    own = parse_measures(asked.metrics, least) if asked.metrics else standard_measures(least)
    return tuple(dict.fromkeys([*own, *asked.asserted.measures(least)]))


def _config_changes(configs: tuple[PipelineConfig, PipelineConfig]) -> dict[str, str]:
    changes = [path for path, *_ in difference(*configs) if path != "name"]
    return {CONFIG: some(changes, 5)} if changes else {}


def _same(query: Query, queries: Sequence[Query]) -> bool:
    return all(other.query == query.query for other in queries if other.qid == query.qid)


def _content(side: Resources, name: str) -> bytes:
    path = side.store.path / name
    return path.read_bytes() if path.is_file() else b""


def values_of(batch: LabelledBatch, config: PipelineConfig, measure: Measure) -> Values:
    """The values of a measure that are defined, by qid."""
    values = evaluate(batch, config, [measure], with_bounds=False).values[:, 0].tolist()
    return {qid: value for qid, value in zip(batch.qids, values, strict=True) if not np.isnan(value)}


def report(
    measured: Sequence[Evaluation],
    batches: Sequence[LabelledBatch],
    differs: Difference,
    names: tuple[str, str],
    asked: Asked,
    lines: Sequence[str],
    notes: Sequence[str],
    trial: Trial,
) -> StoresCompared:
    """The verdict on the second side, and of each query that is won or lost by the measure of the verdict the cause."""
    base, other = measured
    back = {now: was for was, now in differs.pairs.items()}
    overlap = overlap_of(
        base.results, [[back.get(key, f"{key} of the second") for key in ids] for ids in other.results]
    )
    comparison = compare(measured, seed=asked.seed, overlaps=[float(overlap.mean())])
    measure = verdict_measure(base.measures)
    column = base.measures.index(measure)
    values = np.stack([base.values[:, column], other.values[:, column]])
    gains = np.nan_to_num(measure.direction * (values[1] - values[0]))
    changed = [
        ChangedQuery(query.qid, query.query, query.type, float(values[0, q]), float(values[1, q]), float(gains[q]))
        for q, query in enumerate(batches[0].queries)
        if abs(gains[q]) > VALUE_TOLERANCE
    ]
    found = swaps.causes(changed, differs.parts, trial) if asked.why else {}
    changed = [replace(one, cause=found.get(one.qid, ())) for one in changed]
    worse, places = got_worse(comparison, asked.asserted), {qid: q for q, qid in enumerate(base.qids)}
    return StoresCompared(
        title=f"{names[1]} against {names[0]}",
        verdicts=worse.verdicts,
        outcomes=worse.outcomes,
        said=[*lines, *(swaps.summary(changed) if asked.why else [])],
        tables=(swaps.table(changed, str(measure), asked.shown), *comparison.tables),
        notes=(*dict.fromkeys(notes), *comparison.notes),
        values=comparison.to_json() | {"difference": differs.to_json(), "changed": swaps.to_json(changed)},
        comparison=comparison,
        difference=differs,
        changed=changed,
        measure=str(measure),
        results={one.qid: _results(measured, batches, places[one.qid]) for one in changed},
    )


def _results(measured: Sequence[Evaluation], batches: Sequence[LabelledBatch], q: int) -> tuple[Results, Results]:
    """The first results of a query on both sides."""

    def of(found: Evaluation, batch: LabelledBatch) -> Results:
        memories, grades = batch.evidences[q].memories, batch.grades[q]
        return [
            (key, memories[key].content, grades.get(key, 0) >= found.relevant_from) for key in found.results[q][:FIRST]
        ]

    first, second = (of(*one) for one in zip(measured, batches, strict=True))
    return first, second


def compare_files(
    first: EvidenceSet, second: EvidenceSet, configs: tuple[PipelineConfig, PipelineConfig], asked: Asked = Asked()
) -> StoresCompared:
    """Compare the evidence of another store, or state, with a first on the queries that both hold. Raises InputError.

    Memories are matched among the candidates alone, so that none is reported as new or gone."""
    if first.external or second.external:
        raise InputError(
            "external traces of two systems cannot be compared memory by memory: their stages are recorded"
        )
    gathered = [query for query in first.queries if query.qid in first.evidences and query.qid in second.evidences]
    given = [
        {key: one.content for found in side.evidences.values() for key, one in found.memories.items()}
        for side in (first, second)
    ]
    names, matched = _names(*given)
    rows = [replace(one, memory_id=names.get(one.memory_id, one.memory_id)) for one in first.judgments]
    merged = {(one.qid, one.memory_id, one.judge, one.kind): one for one in [*second.judgments, *rows]}
    grades = agreed([*merged.values()], asked.judge_kind)
    queries = [query for query in as_judged(gathered, grades.answerable) if _same(query, second.queries)]
    was = {query.qid: renamed(first.evidences[query.qid], names) for query in queries}
    now = {query.qid: second.evidences[query.qid] for query in queries}

    def of(asked_of: Sequence[Query], evidences: Mapping[str, Evidence]) -> LabelledBatch:
        return LabelledBatch(asked_of, evidences, grades.grades, None, asked.successors)

    measures = _measures(asked, min(first.header.relevant_from, second.header.relevant_from))
    sides, shown = [of(queries, evidences) for evidences in (was, now)], (str(first.path), str(second.path))
    refuse_nothing(sides[0].queries, f"{shown[0]} and {shown[1]}")
    measured = [
        evaluate(batch, with_values(config, {"name": name}), measures, seed=asked.seed)
        for batch, config, name in zip(sides, configs, shown, strict=True)
    ]
    settings = {part: "" for part in EVIDENCE_PARTS if any(differ(part, was[qid], now[qid]) for qid in was)}
    settings |= _config_changes(configs)

    def trial(back: frozenset[str], qids: Sequence[str]) -> Values:
        config = configs[0 if CONFIG in back else 1]
        mixed = {qid: with_parts(now[qid], was[qid], back, config) for qid in qids}
        return values_of(of([one for one in queries if one.qid in mixed], mixed), config, verdict_measure(measures))

    differs = Difference({key: key for key in names.values() if key in given[1]}, settings=settings)
    lines = [f"candidates: {matched:,} of {len(given[0]):,} are in both", *differences(first.header, second.header)]
    notes = ["evidence holds candidates alone; compare the two stores to tell texts, chunks and vectors apart"]
    return report(measured, sides, differs, shown, asked, lines, notes, trial)


def _names(first: Mapping[str, str], second: Mapping[str, str]) -> tuple[dict[str, str], int]:
    """By id of the first side's candidates the id that they have on the second, or one that nothing has there; and how many are matched."""
    found = found_among(
        {key: Judged(text) for key, text in first.items()}, {key: Judged(text) for key, text in second.items()}
    )
    of = {one.targets[0]: key for key, one in found.items() if one.status in ("valid", "moved") and one.targets}
    pairs = {key: target for target, key in of.items()}
    names, free = dict(pairs), {*second}
    for key in first.keys() - pairs.keys():
        names[key] = key
        while names[key] in free:
            names[key] += "*"
    return names, len(pairs)
