"""Stored vectors that are not those which the embedder gives their texts, and what the numbers say of their origin.

    zeros       no direction: writing it failed
    shared      the very vector of a different text
    other form  what the embedder gives another form of the text, such as one with a prefix
    swapped     what it gives the text of another memory
    near        nearer to its own text than to others: a text like it was embedded, such as an earlier version
    far         no nearer to its own text than to others: another model or another text made it
    other model another model made it of this text

The last is stated only of a group of far vectors whose cosines with each other follow those of their texts (Pearson's r at least
`FOLLOWS` / sqrt(vectors), as in Mantel's test), and which are no nearer to their own texts than to others: those of a part of a text,
such as its title, are, and their cosines follow too. Measured with all-MiniLM-L6-v2 on 60 memories of sample_data: vectors of other
texts have r up to 0.70 for 6, 0.28 for 20 and 0.11 for 60; turned at random, as those of another model are, 1.

Where a memory would be with the vector of its text is found by ranking the query again with that one (`edited_evidence`).

Source: Mantel (1967), "The detection of disease clustering and a generalized regression approach".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.embedder_match import MATCH_COSINE, cosine
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.pipeline.list_sources import list_label, ordinal
from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.entries import EntryId
from cems_workbench.store.sources import CONTENT, UNPROVEN, SampleText

if TYPE_CHECKING:
    from cems_workbench.analysis.why.path import MemoryPath
    from cems_workbench.config import PipelineConfig
    from cems_workbench.pipeline.evidence import Evidence, Request
    from cems_workbench.pipeline.resources import Resources

Kind = Literal["zeros", "shared", "other form", "swapped", "near", "far", "other model"]
KINDS: Mapping[Kind, str] = {
    "zeros": "all zeros, without a cosine",
    "shared": "that of a different text too",
    "other form": "that of {of}",
    "swapped": "that of another memory's text",
    "near": "that of a text like it, such as an earlier version or a part of it",
    "far": "that of another model or of another text",
    "other model": "that of another model, which read this text",
}
"""What a vector of each kind is."""
NEAR_PERCENTILE, NEAR_ABOVE = 95, 0.1
"""A vector is near its text if their cosine exceeds by this much that percentile of its cosines with other texts."""
FOLLOWS, LEAST_FOLLOWS = 2.0, 6
BATCH_TEXTS = 64
"""Texts embedded between two reports of progress."""
MOST_IDS = 8
"""Ids that a sentence names."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An entry whose vector is not that of its text: the `cosine` of the two (None of zeros), and the form or the memory it is of."""

    memory_id: str
    chunk: int | None
    kind: Kind
    cosine: float | None = None
    of: str = ""

    @property
    def place(self) -> str:
        """Memory, and chunk if it is one."""
        return self.memory_id if self.chunk is None else f"{self.memory_id} chunk {self.chunk + 1}"

    @property
    def name(self) -> str:
        """The place, and the memory that the vector is of if it is another's."""
        return f"{self.place} (that of {self.of})" if self.kind == "swapped" else self.place

    @property
    def sentence(self) -> str:
        """What the stored vector is: "is not the one that its text gives (cosine -0.03), but that of another model or of another text"."""
        cosine = "" if self.cosine is None else f" (cosine {_two(self.cosine)})"
        other = f", {self.of}" if self.kind in ("shared", "swapped") else ""
        return f"is not the one that its text gives{cosine}, but {KINDS[self.kind].format(of=self.of)}{other}"


@dataclass(frozen=True, slots=True)
class VectorOrigins:
    """The vectors of a source, of which `checked` were compared with the embedder `model_id`, and the mismatches.
    Vectors of zeros are found among all. `sample` is what the comparison of a sample found, if it did not reproduce one
    vector at all."""

    model_id: str
    vectors: int
    checked: int
    mismatches: tuple[Mismatch, ...] = ()
    sample: str = ""

    @property
    def summary(self) -> str:
        """How many are not of their texts; what the sample showed if it showed nothing of single ones; empty if all are of their texts."""
        return self.sample or next(iter(self.lines), "")

    def only(self, entries: Set[EntryId]) -> VectorOrigins:
        """Without the mismatches that are not among these entries: they were re-embedded, edited or deleted since."""
        kept = tuple(one for one in self.mismatches if (one.memory_id, one.chunk) in entries)
        return replace(self, vectors=len(entries), checked=min(self.checked, len(entries)), mismatches=kept)

    @property
    def lines(self) -> list[str]:
        """How many are not of their texts, and a line with ids for each kind; empty if all are."""
        if not self.mismatches:
            return []
        count, of = len(self.mismatches), f"{self.vectors:,}"
        told = f"{count:,} of {of} stored vectors say nothing of their texts"
        if self.checked:
            models = "two models: " if any(each.kind == "other model" for each in self.mismatches) else ""
            of = f"the {self.checked:,} compared of {of}" if self.checked < self.vectors else of
            told = f"{models}{count:,} of {of} stored vectors are not what {self.model_id} gives their texts: re-embed them"
        groups = {kind: [one for one in self.mismatches if one.kind == kind] for kind in KINDS}
        return [told, *(self._group(kind, own) for kind, own in groups.items() if own)]

    def _group(self, kind: Kind, own: Sequence[Mismatch]) -> str:
        told = KINDS[kind].format(of=", ".join(dict.fromkeys(each.of for each in own)))
        cosines = [each.cosine for each in own if each.cosine is not None]
        reach = list(dict.fromkeys((_two(min(cosines)), _two(max(cosines))))) if cosines else []
        between = f" (cosine {' to '.join(reach)})" if reach else ""
        names = ", ".join(each.name for each in own[:MOST_IDS])
        more = f" and {len(own) - MOST_IDS:,} more" if len(own) > MOST_IDS else ""
        return f"{len(own):,} × {told}{between}: {names}{more}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> VectorOrigins:
        """What `to_json` made."""
        return cls(**{**values, "mismatches": tuple(Mismatch(**one) for one in values["mismatches"])})


def origins(
    rows: Sequence[SampleText],
    embedder: Embedder,
    form: str,
    others: Sequence[str] = (),
    shared: Mapping[EntryId, str] | None = None,
    progress: Progress = silent,
) -> tuple[Mismatch, ...]:
    """The mismatches among rows whose vectors, none of zeros, should be of the text `form`. `others` are forms that
    some vectors may be of; `shared` names for an entry one of a different text with the same vector. Raises ModelError,
    and what `progress` raises."""
    stored = np.stack([_unit(row.vector) for row in rows]) if rows else np.empty((0, 0))
    made = _made(rows, embedder, form, progress)
    own = np.einsum("ij,ij->i", stored, made)
    off = np.flatnonzero(own < MATCH_COSINE)
    cosines = stored[off] @ made.T
    found: dict[int, Mismatch] = {}
    for place, i in enumerate(off.tolist()):
        name, single = rows[i].id, float(own[i])
        rest = np.delete(cosines[place], i)
        if shared and name in shared:
            found[i] = Mismatch(*name, "shared", single, shared[name])
        elif rest.size and rest.max() >= MATCH_COSINE:
            other = int(np.argmax(np.where(np.arange(len(rows)) == i, -2.0, cosines[place])))
            found[i] = Mismatch(*name, "swapped", single, rows[other].id[0])
        elif rest.size and single >= np.percentile(rest, NEAR_PERCENTILE) + NEAR_ABOVE:
            if not _cut(embedder, rows[i].of(form)):  # another limit of what is read moves a vector as far
                found[i] = Mismatch(*name, "near", single)
        else:
            found[i] = Mismatch(*name, "far", single)
    for other_form in others:
        left = [i for i, one in found.items() if one.kind in ("near", "far")]
        again = _made([rows[i] for i in left], embedder, other_form, progress) if left else np.empty((0, 0))
        for i, vector in zip(left, again, strict=True):
            if float(vector @ stored[i]) >= MATCH_COSINE:
                found[i] = Mismatch(*rows[i].id, "other form", float(own[i]), other_form)
    far = [i for i, one in found.items() if one.kind == "far"]
    if follows(stored[far], made[far]) and not _nearer(own[far], stored[far] @ made.T):
        found |= {i: replace(found[i], kind="other model") for i in far}
    return tuple(sorted(found.values(), key=lambda one: (one.memory_id, one.chunk or 0)))


def follows(stored: NDArray[np.float64], made: NDArray[np.float64]) -> bool:
    """Whether the cosines of these unit vectors with each other, shape (vectors, dimension), follow those of the made ones."""
    count = len(stored)
    if count < LEAST_FOLLOWS:
        return False
    pairs = np.triu_indices(count, 1)
    one, other = (stored @ stored.T)[pairs], (made @ made.T)[pairs]
    if min(float(one.std()), float(other.std())) < 1e-6:
        return False
    return bool(np.corrcoef(one, other)[0, 1] >= FOLLOWS / np.sqrt(count))


def _nearer(own: NDArray[np.float64], cosines: NDArray[np.float64]) -> bool:
    """Whether vectors are on average nearer to their own texts than to all: by three standard errors."""
    by = own - cosines.mean(axis=1)
    return bool(by.mean() * np.sqrt(len(by)) > 3 * by.std(ddof=1))


def _made(rows: Sequence[SampleText], embedder: Embedder, form: str, progress: Progress) -> NDArray[np.float64]:
    """What the embedder gives the texts, at length 1, shape (rows, dimension)."""
    parts = []
    for start in range(0, len(rows), BATCH_TEXTS):
        progress("comparing vectors", start, len(rows))
        parts.append(embedder.encode([row.of(form) for row in rows[start : start + BATCH_TEXTS]]))
    return np.stack([_unit(vector) for part in parts for vector in part]) if parts else np.empty((0, 0))


def _cut(embedder: Embedder, text: str) -> bool:
    truncated = getattr(embedder, "truncated", None)  # a server does not say what it reads
    return truncated is not None and bool(truncated([text])[0])


def _two(cosine: float) -> str:
    """Two digits, without -0.00."""
    return f"{round(cosine, 2) + 0.0:.2f}"


def _unit(vector: Float32) -> NDArray[np.float64]:
    found = np.asarray(vector, np.float64)
    return found / max(float(np.linalg.norm(found)), 1e-12)


OTHER_TEXTS = 20
"""Texts of other memories with which a vector that is not of its text is compared."""


@dataclass(frozen=True, slots=True)
class StoredVector:
    """A vector of a memory that is not of its text, and what re-embedding changes. `lists` are (list, rank, rank then)
    of the lists of vectors; `rank` and `then` those among the results. None: in none; `then` is None too if a running
    system answers such a list (`replayed` is False): only that system can re-embed it there."""

    mismatch: Mismatch
    k: int
    rank: int | None
    lists: tuple[tuple[str, int | None, int | None], ...] = ()
    then: int | None = None
    replayed: bool = True
    of_source: str = ""
    """What `connect` found of the other vectors of its source; empty if they are of their texts."""

    @property
    def brings_in(self) -> bool:
        """Whether re-embedding brings the memory into the first k."""
        return self.then is not None and self.then <= self.k and (self.rank is None or self.rank > self.k)

    @property
    def sentence(self) -> str:
        """What the vector is of, and the ranks with the one that the text gives."""
        told = f"The stored vector of {self.mismatch.place} {self.mismatch.sentence}.{self.of_source}"
        if not self.replayed:
            return (
                f"{told} Its system answers the list of vectors, so only re-embedding it there would show the effect."
            )
        moved = [f"{_rank(then)} in {list_label(name)} ({_rank(now)} now)" for name, now, then in self.lists]
        results = f"{_rank(self.then)} of the results ({_rank(self.rank)} now)"
        return f"{told} With the vector of its text it is {', '.join([*moved, results])}."

    @property
    def fix(self) -> str:
        """The fix that it is, if it brings the memory in."""
        name = self.mismatch.memory_id
        return f"Fix: re-embed {name}. {name} becomes {_rank(self.then)}; not checked on other queries."

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the sentence."""
        return {**asdict(self), "sentence": self.sentence}


def stored_vector(
    path: MemoryPath,
    evidence: Evidence,
    config: PipelineConfig,
    request: Request,
    resources: Resources,
    switched_off: Collection[int] = (),
    progress: Progress = silent,
) -> StoredVector | None:
    """The first vector of the memory that is not of its text, replaced; None if all are, or are not from a source.
    Raises ModelError if the embedder fails."""
    named = _mismatch(path.memory_id, resources)
    memory = resources.store.memories.get(path.memory_id)
    if named is None or memory is None:
        return None
    # `doctor` compares vectors without what ranks.
    from cems_workbench.analysis.edited_evidence import Edit, answered_elsewhere, edited_evidence
    from cems_workbench.analysis.why.path import memory_path
    from cems_workbench.pipeline import replay
    from cems_workbench.pipeline.gather import gather_scores

    found, of_source = named
    vectors = [ranked for ranked in evidence.lists if ranked.source == "vector"]
    if any(answered_elsewhere(evidence, ranked.name) for ranked in vectors):
        return StoredVector(found, path.k, path.rank, replayed=False, of_source=of_source)
    edit = Edit(memory, memory, resources, again=True)
    changed = edited_evidence(edit, evidence, config, request)
    changed = gather_scores(changed, config, resources, progress, only="rerank", switched_off=switched_off)
    then = memory_path(replay(changed, config, switched_off=switched_off), path.memory_id, path.k)
    now = {place.list: place.rank for place in path.places}
    lists = []
    for ranked in changed.lists:
        if ranked.source == "vector":
            order = list(dict.fromkeys(hit.memory_id for hit in ranked.hits))
            place = order.index(path.memory_id) + 1 if path.memory_id in order else None
            lists.append((ranked.name, now.get(ranked.name), place))
    return StoredVector(found, path.k, path.rank, tuple(lists), then.rank, of_source=of_source)


def _mismatch(memory_id: str, resources: Resources) -> tuple[Mismatch, str] | None:
    """The first vector that is not of its text, and the sentence about the source's vectors."""
    sources, embedder = resources.store.sources, resources.embedder
    for record, row in sources.memories_embedded([memory_id]):
        if record.model_id != embedder.model_id or record.text_form is None:
            continue
        form = CONTENT if record.text_form == UNPROVEN else record.text_form
        if row.vector.any() and cosine(embedder.encode([row.of(form)])[0], row.vector) >= MATCH_COSINE:
            continue
        kept = sources.kept_origins(record.id)
        known = None if kept is None else VectorOrigins.of_json(kept).only(sources.entries(record.id))
        found = next((one for one in known.mismatches if (one.memory_id, one.chunk) == row.id), None) if known else None
        if not row.vector.any():
            found = Mismatch(*row.id, "zeros")
        elif found is None:  # of a large source not all vectors were compared, and of one that no text reproduces none
            rows = [each for each in sources.embedded(record.id, OTHER_TEXTS, [row.id]) if each.vector.any()]
            named = origins(rows, embedder, form)
            found = next((one for one in named if (one.memory_id, one.chunk) == row.id), None)
        if found is not None:
            alone = known is None or not (known.sample or len(known.mismatches) > 1)
            return found, "" if known is None or alone else f" Of its source: {known.summary}."
    return None


def _rank(rank: int | None) -> str:
    return "not" if rank is None else ordinal(rank)
