"""What a store holds that it should not, which judged queries it costs, and what removing it would do to them.

    exact duplicate   equal to the character to another memory
    near duplicate    cosine >= NEAR to another, and no number, date, name or negation differs between them
    contradiction     says otherwise than another, as such a near pair, or as `supersessions` proposes; no relation or verdict is stored
    junk, secret      by the text alone (texts.py)
    invented          no turn of the transcript supports it, or one says otherwise (workbench_transcripts/whole.py)
    never returned    not within the first k of any judged query
    hub               within the first k of many queries that judge it irrelevant (analysis/memory_use.py)
    expired           its `valid_until` is over

A finding costs a query if one of its memories stands within the first k and is not judged relevant. What removal does is replayed
(removal.py): of a whole kind, and of the MOST_TRIED findings of a kind that cost most; that they should be removed
stays a guess. What is never returned costs nothing, and is not tried.
Of duplicates the memory that most queries judge relevant stays, then the one returned most, then the oldest; of a contradiction the newer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import Any

from cems_workbench.analysis.memory_names import memory_name
from cems_workbench.analysis.memory_use import MemoryUses, memory_uses
from cems_workbench.analysis.proposed_edges import ASKED
from cems_workbench.analysis.text_evidence import idf
from cems_workbench.config import PipelineConfig
from cems_workbench.errors import InputError, counted, did_you_mean
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory
from cems_workbench.results import Result, Table
from workbench_audit.near import near_pairs, vectors_of
from workbench_audit.removal import Effect, JudgedSet
from workbench_audit.texts import Texts, masked
from workbench_supersession.proposals import Excluded, excluded_pairs, proposed_edges
from workbench_transcripts.coverage import Pair, Reading, compared, point_of
from workbench_transcripts.whole import coverage_of

KINDS = (
    "exact duplicate", "near duplicate", "contradiction", "junk", "secret", "invented", "never returned", "hub", "expired",
)  # fmt: skip
OF_QUERIES = ("never returned", "hub")
"""Kinds that need judged queries."""
NEAR = 0.92
MOST = 10_000
"""Findings of a kind."""
MOST_TRIED = 3
MAX_PAIRED = 20_000
"""Memories of a store up to which contradictions are proposed."""
SEARCHED = 12
"""Texts of each index that one is compared with."""
SHOWN = 40


@dataclass(frozen=True, slots=True)
class Finding:
    """Memories that should not be as they are: `ids`, of which `remove` would go. `queries` are those that it costs."""

    kind: str
    ids: tuple[str, ...]
    remove: tuple[str, ...]
    why: str
    queries: tuple[str, ...] = ()
    effect: Effect | None = None
    """What removing them does to the judged set; None: not tried."""

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        of = {"kind": self.kind, "ids": self.ids, "remove": self.remove, "why": self.why, "queries": self.queries}
        return of | {"removing": self.effect.to_json() if self.effect else "not tried: a guess"}


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """The findings of a store, and of each kind what removing all of them would do to the judged set."""

    memories: int
    name: str
    queries: int
    config: str
    findings: tuple[Finding, ...]
    effects: Mapping[str, Effect]
    texts: Mapping[str, Memory]
    remarks: tuple[str, ...] = ()
    ids: bool = False
    options: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """Of what."""
        on = (
            f", and {counted(self.queries, 'judged queries')} of {self.name} with {self.config}" if self.queries else ""
        )
        return f"audit of {counted(self.memories, 'memories')}{on}"

    def of_kind(self, kind: str) -> list[Finding]:
        """The findings of a kind, those that cost most first."""
        return [one for one in self.findings if one.kind == kind]

    @property
    def kinds(self) -> list[str]:
        """The kinds that were found, in their order."""
        return [kind for kind in KINDS if self.of_kind(kind)]

    @property
    def lines(self) -> list[str]:
        """How many memories could go."""
        gone = {key for one in self.findings if one.kind != "never returned" for key in one.remove}
        if not self.findings:
            return ["nothing was found"]
        return [
            f"{counted(len(gone), 'memories')} of {self.memories:,} are suspect, besides those that are only never returned"
        ]

    @property
    def summary(self) -> Table:
        """A row a kind: findings, memories that would go, the queries they cost, and what their removal does."""
        rows = []
        for kind in self.kinds:
            own, effect = self.of_kind(kind), self.effects.get(kind)
            gone = {key for one in own for key in one.remove}
            cost = len({qid for one in own for qid in one.queries}) if self.queries else None
            rows.append((kind, len(own), len(gone), cost, *(effect.rows[0][1:] if effect else (None,) * 4)))
        measure = next((one.rows[0][0] for one in self.effects.values()), "measure")
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
        """The kinds, and the findings of each."""
        rows = [
            (
                one.kind,
                self.named(one),
                one.why,
                len(one.queries) if self.queries else None,
                one.effect and one.effect.words,
            )
            for kind in self.kinds
            for one in self.of_kind(kind)[: SHOWN if len(self.kinds) == 1 else SHOWN // 4]
        ]
        left = len(self.findings) - len(rows)
        columns = ("kind", "ids" if self.ids else "memories", "why", "queries", "without")
        return self.summary, Table(columns, tuple(rows), "findings", shown=len(rows), left_out=left)

    def named(self, finding: Finding, most: int = 3) -> str:
        """Its first memories by their ids, or by their first words with secrets masked."""
        if self.ids:
            said = list(finding.ids)
        else:
            known = (self.texts[key] for key in finding.ids if key in self.texts)
            said = [masked(memory_name(replace(one, title=None, content=masked(one.content)), 60)) for one in known]
        more = len(finding.ids) - most
        return " · ".join(said[:most]) + (f" and {more} more" if more > 0 else "")

    @property
    def notes(self) -> list[str]:
        """What was left out, and what is a guess."""
        said = dict.fromkeys(line for effect in self.effects.values() for line in effect.notes)
        tried = [
            "What a removal does was replayed where it is stated; that it is right to remove something is a guess."
        ]
        return [*(tried if self.findings else []), *said, *self.remarks]

    @property
    def next_words(self) -> list[str]:
        """The command that goes on, as words: what a pair or a memory does in the queries."""
        kinds = self.kinds
        if "contradiction" in kinds:
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


def audit_store(
    resources: Resources,
    config: PipelineConfig,
    query_set: str | None = None,
    *,
    kinds: Sequence[str] = (),
    near: float = NEAR,
    transcript: Resources | None = None,
    progress: Progress = silent,
) -> Audit:
    """Audit a store; `query_set` None: all judged queries, where there are any. `near` is the cosine from which memories
    are near. Raises InputError for an unknown kind, a cosine outside 0.5..1 and a named set without judged queries;
    what `progress` raises."""
    if not 0.5 <= near <= 1:
        raise InputError(f"near {near:g}: expected a cosine between 0.5 and 1")
    wanted = chosen_kinds(kinds)
    resources.refresh(progress)
    found = _Audit(resources, config, query_set, near, transcript, progress)
    for kind in wanted:
        progress(f"looking for {kind}", wanted.index(kind), len(wanted))
        if kind in OF_QUERIES and found.set is None:
            continue
        if kind == "invented" and transcript is None:
            found.remarks.append("no transcript is imported, so nothing can be called invented")
            continue
        finder: Callable[[], Iterator[Finding]] = getattr(found, kind.replace(" ", "_"))
        found.add(kind, [*finder()])
    return found.result()


class _Audit:
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
        self.turns = turns
        self.resources, self.config, self.near, self.progress = resources, config, near, progress
        self.memories = resources.store.memories
        self.remarks: list[str] = []
        self.findings: list[Finding] = []
        self.effects: dict[str, Effect] = {}
        self.set: JudgedSet | None = None
        self.uses: MemoryUses | None = None
        if query_set is not None or resources.store.judgments.read():
            name = query_set or "all"
            self.set = of = JudgedSet.read(name, config, resources, progress)
            self.uses = memory_uses(of.queries, of.evidences, of.grades, config, of.least, k=of.k)
        else:
            self.remarks.append("no query is judged: what the findings cost, and what removing them does, is not known")
        self._reading = reading_of(resources)
        self._texts: Texts | None = None
        self._pairs: list[tuple[str, str, float, Pair]] | None = None

    def result(self) -> Audit:
        """All that was found."""
        name, count = (self.set.name, len(self.set.returned)) if self.set else ("", 0)
        ids = {key for one in self.findings for key in one.ids[:3]}
        texts = self.memories.read(sorted(ids))
        total = self.memories.count()
        of = (total, name, count, self.config.name, tuple(self.findings), self.effects, texts, tuple(self.remarks))
        return Audit(*of)

    def add(self, kind: str, found: list[Finding]) -> None:
        """Add the findings of a kind with their costs, and try what their removal does."""
        if len(found) > MOST:
            self.remarks.append(f"{kind}: the first {MOST:,} of {len(found):,} are kept")
            found = found[:MOST]
        if self.set is None or not found or kind == "never returned":  # which costs no query anything
            self.findings += found
            return
        found = [replace(one, queries=tuple(self.set.costs(one.remove))) for one in found]
        found.sort(key=lambda one: -len(one.queries))
        self.effects[kind] = of_kind = self.set.without({key for one in found for key in one.remove}, self.progress)
        for place, one in enumerate(found[:MOST_TRIED]):
            if one.queries:
                effect = of_kind if len(found) == 1 else self.set.without(one.remove, self.progress)
                found[place] = replace(one, effect=effect)
        self.findings += found

    def _kept_first(self, ids: Iterable[str]) -> list[str]:
        """Memories of which the first stays."""
        known = self.memories.read(list(ids))

        def order(key: str) -> tuple[int, int, float, str]:
            use, created = self.uses and self.uses.of(key), known[key].created_at
            at = created.timestamp() if created else inf
            return -use.wanted if use else 0, -use.returned if use else 0, at, key

        return sorted(known, key=order)

    def exact_duplicate(self) -> Iterator[Finding]:
        """Equal texts."""
        groups, total = self.memories.exact_duplicates(MOST)
        if total > len(groups):
            self.remarks.append(f"exact duplicate: the largest {len(groups):,} of {total:,} groups are kept")
        for group in groups:
            ids = self._kept_first(group.ids)
            yield Finding("exact duplicate", tuple(ids), tuple(ids[1:]), f"{len(ids):,} times the same text")

    def _near(self) -> list[tuple[str, str, float, Pair]]:
        """The near pairs of different texts, compared."""
        if self._pairs is None:
            copies = {key for group in self.memories.exact_duplicates(MOST)[0] for key in group.ids[1:]}
            ids = [key for key in self.memories.ids() if key not in copies]
            known, vectors = vectors_of(self.resources, ids, self.progress)
            pairs, total = near_pairs(known, vectors, self.near, MOST, self.progress)
            if total > len(pairs):
                self.remarks.append(f"near duplicate: the closest {len(pairs):,} of {total:,} pairs are compared")
            if lacking := len(ids) - len(known):
                self.remarks.append(f"without a vector, and not compared: {counted(lacking, 'memories')}")
            self._pairs = []
            for start in range(0, len(pairs), 500):
                some = pairs[start : start + 500]
                texts = self.memories.read(list(dict.fromkeys(key for pair in some for key in pair[:2])))
                for one, other, cosine in some:
                    point = point_of(texts[one], "", "", self._reading)
                    self._pairs.append((one, other, cosine, compared(point, texts[other], cosine, self._reading)))
        return self._pairs

    def near_duplicate(self) -> Iterator[Finding]:
        """Near pairs that say the same."""
        gone = set[str]()
        for one, other, cosine, pair in self._near():
            if pair.coverage != "says otherwise" and not gone & {one, other}:
                kept, extra = self._kept_first([one, other])
                gone.add(extra)
                yield Finding("near duplicate", (kept, extra), (extra,), f"cosine {cosine:.3f}")

    def contradiction(self) -> Iterator[Finding]:
        """Pairs that say otherwise."""
        known: Excluded = excluded_pairs(self.resources)
        seen = set[frozenset[str]]()
        for one, other, _, pair in self._near():
            if pair.coverage == "says otherwise" and (both := frozenset((one, other))) not in known:
                seen.add(both)
                older, newer = self._by_time(one, other)
                yield Finding("contradiction", (newer, older), (older,), f"{pair.reason}; no relation says which holds")
        if self.memories.count() > MAX_PAIRED:
            self.remarks.append(
                f"in a store of more than {MAX_PAIRED:,} memories contradictions are near pairs alone; supersessions compares more"
            )
            return
        try:
            proposed = proposed_edges(self.resources, most=MOST, minimum=ASKED, progress=self.progress)
        except InputError as error:  # no two memories have dates
            self.remarks.append(f"contradiction: {error}")
            return
        for edge in proposed.edges:
            if frozenset((edge.newer, edge.older)) not in seen:
                why = f"score {edge.score:.2f}: {edge.why}"
                yield Finding("contradiction", (edge.newer, edge.older), (edge.older,), why)

    def _by_time(self, one: str, other: str) -> tuple[str, str]:
        known = self.memories.read([one, other])
        first = datetime.min.replace(tzinfo=UTC)
        return tuple(sorted((one, other), key=lambda key: (known[key].created_at or first, key)))  # type: ignore[return-value]

    def _read_texts(self) -> Texts:
        if self._texts is None:
            store, total = self.resources.store, self.memories.count()
            self._texts = Texts((query.query for query in store.queries.read()), store.language.current)
            for place, memory in enumerate(self.memories.iterate()):
                if place % 1_000 == 0:
                    self.progress("reading memories", place, total)
                self._texts.add(memory)
            self._texts.finish()
        return self._texts

    def junk(self) -> Iterator[Finding]:
        """By the text alone."""
        for key, why in self._read_texts().junk.items():
            yield Finding("junk", (key,), (key,), why)

    def secret(self) -> Iterator[Finding]:
        """Forms of keys and passwords."""
        for key, kinds in self._read_texts().secrets.items():
            yield Finding("secret", (key,), (key,), ", ".join(kinds))

    def never_returned(self) -> Iterator[Finding]:
        """Within the first k of no query."""
        assert self.uses is not None
        for use in self.uses.orphans(self.memories.ids()):
            wanted = f"; judged relevant to {counted(use.wanted, 'queries')}" if use.wanted else ""
            found = f"a list finds it for {counted(use.candidate, 'queries')}" if use.candidate else "no list finds it"
            yield Finding(
                "never returned", (use.memory_id,), (use.memory_id,) if not use.wanted else (), found + wanted
            )

    def hub(self) -> Iterator[Finding]:
        """Returned for many queries that judge it irrelevant."""
        assert self.uses is not None
        for use in self.uses.hubs():
            why = f"returned for {use.irrelevant:,} queries that judge it irrelevant; relevant to {use.found:,}"
            yield Finding("hub", (use.memory_id,), (use.memory_id,), why)

    def expired(self) -> Iterator[Finding]:
        """No longer valid."""
        now = datetime.now(UTC)
        if self.memories.any_validity():
            for memory in self.memories.iterate():
                if memory.expired(now):
                    yield Finding("expired", (memory.id,), (memory.id,), memory.out_of_date(now))

    def invented(self) -> Iterator[Finding]:
        """Memories that no turn supports, or of which a turn says otherwise."""
        assert self.turns is not None
        found = coverage_of(self.resources, self.turns, self.progress)
        otherwise = {link.memory: link.reason for link in found.links if link.coverage == "says otherwise"}
        for one in found.memories:
            if one.verdict in ("nothing supports", "says otherwise"):
                why = (
                    f"a turn says otherwise: {otherwise.get(one.id, '')}"
                    if one.verdict == "says otherwise"
                    else one.verdict
                )
                yield Finding("invented", (one.id,), (one.id,), f"{why} it" if why == "nothing supports" else why)


def reading_of(resources: Resources) -> Reading:
    """How the texts of a store are compared; the names of its authors say nothing."""
    index = resources.indexes.lexical
    authors = [author for author, _ in resources.store.memories.facets().authors if author]
    names = frozenset(name.lower() for author in authors for name in (author, *author.split()))

    def weight(term: str) -> float:
        return idf(index.document_frequency(term), index.document_count)

    return Reading(weight, resources.store.language.current, index.language, names)


def nearest(text: str, vectors: Iterable[Any], resources: Resources) -> dict[str, Memory]:
    """The memories of a store that its indexes have nearest to a text and its vectors."""
    indexes = resources.indexes
    hits = indexes.lexical.search(text, SEARCHED)
    hits += [hit for one in vectors for hit in indexes.vectors.search(one, SEARCHED)]
    return resources.store.memories.read(list(dict.fromkeys(key for key, _ in hits)))
