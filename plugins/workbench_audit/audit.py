"""What a store holds that it should not, which judged queries it costs, and what removing it would do to them.

    exact duplicate          equal to the character to another memory
    near duplicate           cosine >= NEAR to another of the same author, and no number, date, name or negation differs
    possible contradiction   cosine >= ALIKE, the same words but for one number, date, name or negation; no relation or verdict is stored
    junk, secret             by the text alone (texts.py)
    possibly invented        no turn of the transcript is like it (workbench_transcripts/whole.py)
    never returned           not within the first k of any judged query
    hub                      within the first k of many queries that judge it irrelevant (analysis/memory_use.py)
    expired                  its `valid_until` is over

A finding costs a query if one of its memories stands within the first k and is not judged relevant. What removal does is replayed
(leaks.py): of a whole kind, and of the MOST_TRIED findings of a kind that cost most; that they should be removed
stays a guess. What is never returned costs nothing, and is not tried.
Of duplicates the memory that most queries judge relevant stays, then the one returned most, then the oldest; of a contradiction the newer.

The pairs of memories whose vectors are nearest to each other: all products, by square tiles, of which the closest pairs are kept.

Time is n² / 2 products, 40 s of the processor for 100,000 memories; beyond MAX_COMPARED the rest is left out. Memory is the vectors, a
tile, and the pairs that are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.analysis.memory_use import memory_uses
from cems_workbench.analysis.text_evidence import idf
from cems_workbench.api.open_store import load_config
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, counted, did_you_mean
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.results import Result, Table
from cems_workbench.settings import settings_for
from cems_workbench.store.rows import portions
from cems_workbench.store.search.vector_index import VectorIndex
from workbench_audit.leaks import Effect, JudgedSet
from workbench_audit.texts import Texts, masked, words_in
from workbench_supersession.proposals import excluded_pairs
from workbench_transcripts.coverage import Reading, compared, point_of
from workbench_transcripts.transcript import opened_transcript, transcript_version
from workbench_transcripts.whole import coverage_of

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike, OpenStore


MAX_COMPARED = 150_000
"""Memories of which all pairs are compared."""
TILE = 2_048


@dataclass(frozen=True, slots=True)
class NearPairs:
    """The closest pairs with their cosines, closest first; `total` counts all of that cosine, `compared` the memories."""

    pairs: list[tuple[str, str, float]]
    total: int
    compared: int
    lacking: int
    """Memories without a vector."""


def near_pairs(index: VectorIndex, ids: Sequence[str], least: float, most: int, progress: Progress) -> NearPairs:
    """The `most` pairs of highest cosine, from `least` on, ties by their places among `ids`. A memory with chunks has the direction of
    their mean. Raises what `progress` raises."""
    known = index.embeddings(ids)
    lacking, names = len(ids) - len(known), [*known][:MAX_COMPARED]
    total, floor = 0, np.float32(least)
    kept, cosines = np.empty((0, 2), np.int32), np.empty(0, np.float32)
    vectors = np.stack([known[name] for name in names]) if names else np.empty((0, 1), np.float32)
    known.clear()
    for start in range(0, len(names), TILE):
        progress("comparing memories", start, len(names))
        for other in range(start, len(names), TILE):
            products = vectors[start : start + TILE] @ vectors[other : other + TILE].T
            if start == other:
                products[np.tril_indices(len(products))] = -1  # each pair once
            if products.max() < least:
                continue
            total += int(np.count_nonzero(products >= least))
            rows, columns = np.divmod(np.flatnonzero(products >= floor), products.shape[1])
            if len(rows):
                kept = np.concatenate([kept, np.stack([rows + start, columns + other], axis=1).astype(np.int32)])
                cosines = np.concatenate([cosines, products[rows, columns]])
            if len(cosines) > 4 * most:
                best = np.argpartition(-cosines, most)[:most]
                kept, cosines = kept[best], cosines[best]
                floor = cosines.min()
    order = np.lexsort((kept[:, 1], kept[:, 0], -cosines))[:most]
    pairs = [
        (names[one], names[two], float(cosine))
        for (one, two), cosine in zip(kept[order].tolist(), cosines[order], strict=True)
    ]
    return NearPairs(pairs, total, len(names), lacking)


KINDS = (
    "exact duplicate", "near duplicate", "possible contradiction", "junk", "secret", "possibly invented", "never returned", "hub",
    "expired",
)  # fmt: skip
NEAR, ALIKE = 0.92, 0.8
MOST = 10_000
"""Findings of a kind."""
MOST_PAIRS = 5_000
"""Near pairs whose texts are compared, the closest first."""
MOST_TRIED = 3
PORTION = 500
"""Pairs whose texts are read at a time."""
SHOWN = 40
_SPEAKER = re.compile(r"\s*([A-Z][\w.'-]*(?: [A-Z][\w.'-]*)?):\s")
"""The speaker before what is said."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Memories that should not be as they are: `ids`, of which `remove` would go. `queries` are those that it costs, `effect` is what
    removing them does to the judged set; None: not tried."""

    kind: str
    ids: tuple[str, ...]
    remove: tuple[str, ...]
    why: str
    queries: tuple[str, ...] = ()
    effect: Effect | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        of = {"kind": self.kind, "ids": self.ids, "remove": self.remove, "why": self.why, "queries": self.queries}
        return of | {"removing": self.effect.to_json() if self.effect else "not tried: a guess"}


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """The findings of a store, by kind and then by cost, and of each kind what removing all of them would do to the judged set."""

    memories: int
    name: str
    queries: int
    config: str
    findings: tuple[Finding, ...]
    effects: Mapping[str, Effect]
    texts: Mapping[str, Memory]
    remarks: tuple[str, ...] = ()
    ids: bool = False
    options: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Of what."""
        judged = f", and {counted(self.queries, 'judged queries')} of {self.name} with {self.config}"
        return f"audit of {counted(self.memories, 'memories')}{judged if self.queries else ''}"

    @property
    def kinds(self) -> dict[str, list[Finding]]:
        """The findings of each kind that was found."""
        found: dict[str, list[Finding]] = {}
        for one in self.findings:
            found.setdefault(one.kind, []).append(one)
        return found

    @property
    def lines(self) -> list[str]:
        """How many memories could go."""
        gone = {key for one in self.findings if one.kind != "never returned" for key in one.remove}
        said = f"{counted(len(gone), 'memories')} of {self.memories:,} are suspect"
        said += ", besides those that are only never returned" if self.queries else ""
        return [said if self.findings else "nothing was found"]

    @property
    def summary(self) -> Table:
        """A row a kind: findings, memories that would go, the queries they cost, and what their removal does."""
        rows, measure = [], next((one.rows[0][0] for one in self.effects.values()), "measure")
        for kind, own in self.kinds.items():
            gone, cost = ({key for one in own for key in getattr(one, name)} for name in ("remove", "queries"))
            effect = self.effects[kind].rows[0][1:] if kind in self.effects else (None,) * 4
            rows.append((kind, len(own), len(gone), len(cost) if self.queries else None, *effect))
        columns = (
            "kind",
            "findings",
            "would go",
            "queries",
            f"{measure} now",
            "without",
            "difference",
            "95 % interval",
        )
        return Table(columns, tuple(rows), "by kind")

    @property
    def tables(self) -> tuple[Table, ...]:
        """The kinds, and the first findings of each."""
        kinds = self.kinds
        shown = [one for own in kinds.values() for one in own[: SHOWN if len(kinds) == 1 else SHOWN // 4]]
        rows = []
        for one in shown:
            cost = len(one.queries) if self.queries else None
            rows.append((one.kind, self.named(one), one.why, cost, one.effect and one.effect.words))
        columns = ("kind", "ids" if self.ids else "memories", "why", "queries", "without")
        left = len(self.findings) - len(rows)
        return self.summary, Table(columns, tuple(rows), "findings", shown=len(rows), left_out=left)

    def named(self, finding: Finding, most: int = 3) -> str:
        """Its first memories by their ids, or by their first words with secrets masked."""
        said = list(finding.ids[:most])
        if not self.ids:
            known = (self.texts[key] for key in said if key in self.texts)
            said = [masked(memory_name(replace(one, title=None, content=masked(one.content)), 60)) for one in known]
        more = len(finding.ids) - most
        return " · ".join(said) + (f" and {more} more" if more > 0 else "")

    @property
    def notes(self) -> list[str]:
        """What was left out, and what is a guess."""
        said = dict.fromkeys(line for effect in self.effects.values() for line in effect.notes)
        tried = "What a removal does was replayed where it is stated; that it is right to remove something is a guess."
        return [*([tried] if self.findings else []), *said, *self.remarks]

    @property
    def next_words(self) -> list[str]:
        """The command that goes on, as words: what a pair or a memory does in the queries."""
        if "possible contradiction" in self.kinds:
            return ["supersessions", *self.options]
        worst = max(self.findings, key=lambda one: len(one.queries), default=None)
        return ["memory", worst.remove[0], *self.options] if worst and self.queries and worst.remove else []

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        of = {"memories": self.memories, "query_set": self.name, "queries": self.queries, "config": self.config}
        kinds = {kind: self.effects[kind].to_json() if kind in self.effects else "not tried" for kind in self.kinds}
        found = [one.to_json() for one in self.findings]
        return of | {"kinds": kinds, "findings": found, "notes": self.notes, "next": self.next_words}


def chosen_kinds(names: Sequence[str]) -> tuple[str, ...]:
    """The kinds of these names, all of them for none. Raises InputError for a name that is none."""
    for name in names:
        if name not in KINDS:
            raise InputError(f"kind {name[:40]}: there are {', '.join(KINDS)}{did_you_mean(name, KINDS)}")
    return tuple(kind for kind in KINDS if not names or kind in names)


def audit(
    store: OpenStore,
    query_set: str | None = None,
    config: ConfigLike | None = None,
    *,
    kinds: Sequence[str] = (),
    near: float = NEAR,
    progress: Progress = silent,
) -> Audit:
    """What a store holds that it should not, which judged queries it costs, and what removing it would do; nothing is changed.

    Args:
        store: an open store.
        query_set: the judged queries, a set of the store or `all`; None: all of them, where there are any.
        config: a config, the name of a preset, or the path of a config file.
        kinds: the kinds that are looked for, such as `near duplicate`; none for all.
        near: cosine from which memories are near duplicates, 0.5 to 1.
        progress: called with a label, a count and a total.

    Raises:
        InputError: there is no such kind, set or cosine.
    """
    if not 0.5 <= near <= 1:
        raise InputError(f"near {near:g}: expected a cosine between 0.5 and 1")
    wanted = chosen_kinds(kinds)
    store.resources.refresh(progress)
    with transcript_of(store.resources) as turns:
        found = _Work(store.resources, load_config(config), query_set, near, turns, progress)
        for kind in wanted:
            progress(f"looking for {kind}", wanted.index(kind), len(wanted))
            finder: Callable[[], Iterator[Finding]] = getattr(found, kind.replace(" ", "_"))
            found.add(kind, [*finder()])
    return found.result()


@contextmanager
def transcript_of(resources: Resources) -> Iterator[Resources | None]:
    """The transcript of an open store; None without one."""
    if not transcript_version(resources.store.path):
        yield None
        return
    with opened_transcript(resources, settings_for(resources.store.path)) as turns:
        yield turns


class _Pair(NamedTuple):
    """Two memories: what one denies of the other, whether one person says both, whether nothing differs but what is denied."""

    one: str
    two: str
    cosine: float
    otherwise: str
    alike: bool
    differ: bool


class _Work:
    """The work of one audit."""

    def __init__(
        self,
        resources: Resources,
        config: PipelineConfig,
        query_set: str | None,
        near: float,
        turns: Resources | None,
        progress: Progress,
    ) -> None:
        self.resources, self.config, self.near, self.progress = resources, config, near, progress
        self.memories, self.turns = resources.store.memories, turns
        self.remarks: list[str] = []
        self.findings: list[Finding] = []
        self.effects: dict[str, Effect] = {}
        self.set = self.uses = None
        if query_set is not None or resources.store.judgments.read():
            self.set = of = JudgedSet.read(query_set or "all", config, resources, progress)
            self.uses = memory_uses(of.queries, of.evidences, of.grades, config, of.least, k=of.k)
        else:
            self.remarks.append("no query is judged: what the findings cost, and what removing them does, is not known")

    def result(self) -> Audit:
        """All that was found."""
        name, count = (self.set.name, len(self.set.returned)) if self.set else ("", 0)
        texts = self.memories.read(sorted({key for one in self.findings for key in one.ids[:3]}))
        found, total = tuple(self.findings), self.memories.count()
        return Audit(total, name, count, self.config.name, found, self.effects, texts, tuple(self.remarks))

    def add(self, kind: str, found: list[Finding]) -> None:
        """Add the findings of a kind with their costs, and try what their removal does."""
        if len(found) > MOST:
            self.remarks.append(f"{kind}: the first {MOST:,} of {len(found):,} are kept")
            found = found[:MOST]
        if self.set is not None and found and kind != "never returned":  # which costs no query anything
            found = [replace(one, queries=tuple(self.set.costs(one.remove or one.ids))) for one in found]
            found.sort(key=lambda one: -len(one.queries))
            gone = {key for one in found for key in one.remove}
            if gone:
                self.effects[kind] = whole = self.set.without(gone, self.progress)
            for place, one in enumerate(found[:MOST_TRIED]):
                if one.queries and one.remove:
                    effect = whole if len(found) == 1 else self.set.without(one.remove, self.progress)
                    found[place] = replace(one, effect=effect)
        self.findings += found

    @cached_property
    def _created(self) -> dict[str, float]:
        origins = self.memories.origins()
        return {one.id: one.created_at.timestamp() if one.created_at else inf for one in origins}

    def _kept_first(self, ids: Iterable[str]) -> list[str]:
        """Memories of which the first stays."""

        def order(key: str) -> tuple[int, int, float, str]:
            use = self.uses and self.uses.of(key)
            return -use.wanted if use else 0, -use.returned if use else 0, self._created[key], key

        return sorted(ids, key=order)

    def exact_duplicate(self) -> Iterator[Finding]:
        """Equal texts."""
        groups, total = self.memories.exact_duplicates(MOST)
        if total > len(groups):
            self.remarks.append(f"exact duplicate: the largest {len(groups):,} of {total:,} groups are kept")
        for group in groups:
            ids = self._kept_first(group.ids)
            yield Finding("exact duplicate", tuple(ids), tuple(ids[1:]), f"{len(ids):,} times the same text")

    @cached_property
    def _pairs(self) -> list[_Pair]:
        """Near pairs of different texts, closest first."""
        equal = {key for group in self.memories.exact_duplicates(MOST)[0] for key in group.ids[1:]}
        ids = [key for key in self.memories.ids() if key not in equal]
        found = near_pairs(self.resources.indexes.vectors, ids, min(self.near, ALIKE), MOST_PAIRS, self.progress)
        if found.lacking:
            self.remarks.append(f"without a vector, and not compared: {counted(found.lacking, 'memories')}")
        if left := len(ids) - found.lacking - found.compared:
            self.remarks.append(f"near: the first {found.compared:,} memories by id are compared, {left:,} are left out")
        if found.total > len(found.pairs):
            self.remarks.append(f"near: the closest {len(found.pairs):,} of {found.total:,} pairs are read")
        pairs, reading, place = list[_Pair](), reading_of(self.resources), 0
        for some in portions(found.pairs, PORTION):
            self.progress("reading pairs", place, len(found.pairs))
            place += len(some)
            texts = self.memories.read({key for pair in some for key in pair[:2]})
            for one, two, cosine in some:
                first, second = texts[one], texts[two]
                pair = compared(point_of(first, "", "", reading), second, cosine, reading)
                otherwise = pair.reason if pair.coverage == "says otherwise" else ""
                authors, speakers = {first.author, second.author} - {None}, [_SPEAKER.match(of.content) for of in (first, second)]
                alike = len(authors) < 2 and len({of and of[1] for of in speakers}) == 1
                differ = bool(otherwise) and _differ_in(otherwise, first, second)
                pairs.append(_Pair(one, two, cosine, otherwise, alike, differ))
        return pairs

    def near_duplicate(self) -> Iterator[Finding]:
        """Near pairs that say the same."""
        gone = set[str]()
        for pair in self._pairs:
            if pair.alike and not pair.otherwise and pair.cosine >= self.near and not gone & {pair.one, pair.two}:
                kept, extra = self._kept_first([pair.one, pair.two])
                gone.add(extra)
                yield Finding("near duplicate", (kept, extra), (extra,), f"cosine {pair.cosine:.3f}")

    def possible_contradiction(self) -> Iterator[Finding]:
        """Pairs that differ in what one denies alone."""
        known = excluded_pairs(self.resources)
        for pair in self._pairs:
            if pair.differ and frozenset((pair.one, pair.two)) not in known:
                at = {key: -inf if self._created[key] == inf else self._created[key] for key in (pair.one, pair.two)}
                older, newer = sorted(at, key=lambda key: (at[key], key))
                why = f"{pair.otherwise}; no relation says which holds"
                yield Finding("possible contradiction", (newer, older), (older,), why)

    @cached_property
    def _texts(self) -> Texts:
        store, total = self.resources.store, self.memories.count()
        texts = Texts((query.query for query in store.queries.read()), store.language.current)
        for place, memory in enumerate(self.memories.iterate()):
            if place % 1_000 == 0:
                self.progress("reading memories", place, total)
            texts.add(memory)
        texts.finish()
        return texts

    def junk(self) -> Iterator[Finding]:
        """By the text alone."""
        for key, why in self._texts.junk.items():
            yield Finding("junk", (key,), (key,), why)

    def secret(self) -> Iterator[Finding]:
        """Forms of keys and passwords."""
        for key, kinds in self._texts.secrets.items():
            yield Finding("secret", (key,), (key,), ", ".join(kinds))

    def never_returned(self) -> Iterator[Finding]:
        """Within the first k of no query."""
        for use in self.uses.orphans(self.memories.ids()) if self.uses else ():
            wanted = f"; judged relevant to {counted(use.wanted, 'queries')}" if use.wanted else ""
            found = f"a list finds it for {counted(use.candidate, 'queries')}" if use.candidate else "no list finds it"
            ids = (use.memory_id,)
            yield Finding("never returned", ids, () if use.wanted else ids, found + wanted)

    def hub(self) -> Iterator[Finding]:
        """Returned for many queries that judge it irrelevant."""
        for use in self.uses.hubs() if self.uses else ():
            why = f"returned for {use.irrelevant:,} queries that judge it irrelevant; relevant to {use.found:,}"
            ids = (use.memory_id,)
            yield Finding("hub", ids, () if use.wanted else ids, why)

    def expired(self) -> Iterator[Finding]:
        """No longer valid."""
        now = datetime.now(UTC)
        for memory in self.memories.iterate() if self.memories.any_validity() else ():
            if memory.expired(now):
                yield Finding("expired", (memory.id,), (memory.id,), memory.out_of_date(now))

    def possibly_invented(self) -> Iterator[Finding]:
        """Memories that no turn is like."""
        if self.turns is None:
            self.remarks.append("no transcript is imported, so nothing can be called invented")
            return
        for one in coverage_of(self.resources, self.turns, self.progress).memories:
            if one.verdict == "nothing supports":
                yield Finding("possibly invented", (one.id,), (one.id,), "no turn is like it in words")


def _differ_in(otherwise: str, one: Memory, two: Memory) -> bool:
    """Whether two texts have the same words but for those of one difference, such as “940” there, “490” here."""
    words = [set(words_in(memory.content).split()) for memory in (one, two)]
    rest = words[0].symmetric_difference(words[1]) - set(words_in(otherwise).split())
    return not rest


def reading_of(resources: Resources) -> Reading:
    """How the texts of a store are compared; the names of its authors say nothing."""
    index = resources.indexes.lexical
    authors = [author for author, _ in resources.store.memories.facets().authors if author]
    names = frozenset(name.lower() for author in authors for name in (author, *author.split()))

    def weight(term: str) -> float:
        return idf(index.document_frequency(term), index.document_count)

    return Reading(weight, resources.store.language.current, index.language, names)
