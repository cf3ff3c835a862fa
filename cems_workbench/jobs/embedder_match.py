"""Comparison of stored vectors with an embedder, by embedding a sample of texts again.

What a source's vectors are made of is unknown too: the content, the title and the content, a library's own text
(`sources/rows.py`). Each text is tried on a few rows, and the one that reproduces their vectors on the whole sample. If none does,
the cosines tell two cases apart: vectors of another model of the same dimension have cosines around 0 with the embedder's, those of the
same model and another text are near theirs, and nearer than to vectors of other memories.

If some of the sample are reproduced and others not, or there are few vectors, all are compared (`vector_origins`), which names the
others.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cems_workbench.analysis.vector_origins import Mismatch, VectorOrigins, origins
from cems_workbench.models.embedder_match import MATCH_COSINE, EmbedderMatch, cosine, match, of_cosines
from cems_workbench.models.protocol import Embedder
from cems_workbench.progress import Progress, silent
from cems_workbench.records import TakenChunk, TakenMemory
from cems_workbench.store import Store
from cems_workbench.store.sources import CONTENT, PREFIX_FORMS, TITLE_FORMS, SampleText, SourceRecord

SAMPLE_TEXTS = 20
"""Texts in a sample."""
FIRST_TEXTS = 3
"""Texts on which each form is tried first."""
FEW_VECTORS, MOST_SUSPECTS, MOST_VECTORS = 200, 20, 2_000
"""Up to `FEW_VECTORS` are all compared. Of more, first `MOST_SUSPECTS`: those that different texts share, and of memories edited after they
were created; as many that are farthest from the others; and if one of these is not of its text at most `MOST_VECTORS`, which takes the
packaged embedder 40 s on two cores."""
EQUAL_COSINE = 0.9999
"""Cosine from which no other form is tried."""
LIKELY_COSINE, LIKELY_ABOVE_OTHERS = 0.5, 0.05
"""The least median cosine at which the model may be the right one, and by how much it must exceed that with texts of other memories.

Measured with all-MiniLM-L6-v2 on 200 memories of sample_data, content against another text of the same memory: medians 0.77 (seven lines
of file metadata before it) to 0.99 (a prefix), single texts 0.36 to 1.00; with other memories 0.13 to 0.17. Against vectors turned at
random, as those of another model are: -0.16 to 0.10. The second is small, because vectors of some models (E5) are all near each other.
"""


@dataclass(frozen=True, slots=True)
class SourceMatch:
    """How well an embedder reproduces the vectors of a source from the best `form` of their texts. `low` and `high` are
    of the cosines; `others` is the median cosine with the vector of another memory, None for one text. `tried` are the
    forms that were tried, `cut` how many texts of the sample the model does not read to their end."""

    match: EmbedderMatch
    form: str = CONTENT
    low: float = 0.0
    high: float = 0.0
    others: float | None = None
    tried: tuple[str, ...] = ()
    cut: int = 0
    also: tuple[str, ...] = ()
    """Forms that reproduce vectors which `form` does not."""
    rest: float = 0.0
    """The median cosine of those that are not reproduced."""

    @property
    def same(self) -> bool:
        """Whether every vector was reproduced."""
        return self.match.same

    @property
    def asked(self) -> int:
        """Texts compared."""
        return self.match.asked

    @property
    def likely(self) -> bool:
        """Whether the model may be the right one, and the embedded text another than those tried."""
        if 2 * self.match.reproduced >= self.asked:
            return False
        near = self.rest >= LIKELY_COSINE
        return near and (self.others is None or self.rest - self.others >= LIKELY_ABOVE_OTHERS)

    @property
    def proven(self) -> bool:
        """Whether the embedder made the vectors, or those of them that another model or text did not make."""
        return self.match.reproduced > 0 and not self.likely

    def __str__(self) -> str:
        """In words: the counts, and the text if it is not the content; else the cosines, and what was tried."""
        of = "" if self.form == CONTENT or not self.asked else f", of another text than the content: {self.form}"
        if self.same or not self.asked:
            return f"{self.match}{of}"
        if self.proven:
            return f"{self.match.reproduced} of {self.asked} stored vectors reproduced{of}"
        others = "" if self.others is None else f" ({self.others:.2f} with those of other memories)"
        cut = f"; {self.cut} of the texts are longer than the model reads" if self.cut else ""
        maybe = "; the model may be right, and the text that was embedded another than those tried" * self.likely
        return (
            f"{self.match.reproduced} of {self.asked} stored vectors reproduced, cosines {self.low:.2f} to {self.high:.2f}{others}; "
            f"tried: {_listed(self.tried)}{cut}{maybe}"
        )


NOT_COMPARED = SourceMatch(EmbedderMatch(0, 0, 0.0))


def _listed(forms: Sequence[str]) -> str:
    """Forms in words, those with a title or a prefix together."""
    groups = {
        "title and content": [form for form in forms if form in TITLE_FORMS],
        "prefixes of models": [form for form in forms if form in PREFIX_FORMS],
    }
    single = [form for form in forms if form not in TITLE_FORMS and form not in PREFIX_FORMS]
    return ", ".join([*single, *(f"{name} in {len(found)} forms" for name, found in groups.items() if found)])


def naming(address: str) -> str:
    """The command that names the embedder of a source."""
    return f"connect {shlex.quote(address)} --embedder MODEL"


def match_store(store: Store, embedder: Embedder) -> EmbedderMatch:
    """Compare a sample of a store's vectors: those imported from a source, else those of the embedder's index. Compares
    nothing if that index is stale. Raises ModelError."""
    for record in store.sources.with_memories():
        if record.dimension is not None:
            return match_source(store, record, embedder).match
    if not all(state.fresh for state in store.indexes.states(embedder.model_id)):
        return EmbedderMatch(0, 0, 0.0)
    vectors = store.indexes.open(embedder).vectors
    ids = vectors.ids()
    places = np.linspace(0, len(ids) - 1, min(SAMPLE_TEXTS, len(ids))).astype(int).tolist()
    spread = [ids[i] for i in dict.fromkeys(places)]
    stored, texts = vectors.chunk_embeddings(spread), store.indexes.texts(spread)
    # One chunk per memory, so that the sample covers more memories.
    firsts = [(key, next(iter(stored[key]))) for key in spread if key in stored]
    return match(embedder, [(texts[key][seq], stored[key][seq]) for key, seq in firsts])


def match_source(store: Store, record: SourceRecord, embedder: Embedder) -> SourceMatch:
    """Compare a sample of a source's vectors, by the text that reproduced them before, else by each in turn. Raises ModelError."""
    return match_texts(store.sources.sample(record.id, SAMPLE_TEXTS), embedder, record.text_form or CONTENT)


def vector_origins(
    store: Store, record: SourceRecord, embedder: Embedder, match: SourceMatch, most: int, progress: Progress = silent
) -> VectorOrigins:
    """What was kept of the vectors' origins, else those of at most `most`; of twice `MOST_SUSPECTS` if all of them and of the sample are of
    their texts, and there are more than `FEW_VECTORS`. Raises ModelError, and what `progress` raises.
    """
    entries = store.sources.entries(record.id)
    kept = store.sources.kept_origins(record.id)
    if kept is not None and kept["model_id"] == embedder.model_id:
        return VectorOrigins.of_json(kept).only(entries)
    zeros, shared = store.sources.faulty(record.id)
    without = tuple(Mismatch(*name, "zeros") for name in zeros)
    if not match.proven:
        alike = (Mismatch(*name, "shared", None, other) for name, other in sorted(shared.items(), key=str))
        return VectorOrigins(embedder.model_id, len(entries), 0, (*without, *alike), str(match) if match.asked else "")
    rows = store.sources.embedded(record.id, most, shared)
    rows = [each for each in rows if each.vector.shape == (record.dimension,) and each.vector.any()]
    if match.same and len(entries) > FEW_VECTORS:
        suspects = [*rows[:MOST_SUSPECTS], *_outlying(rows[MOST_SUSPECTS:], MOST_SUSPECTS)]
        if not origins(suspects, embedder, match.form):
            return VectorOrigins(embedder.model_id, len(entries), len(suspects) + len(zeros), without)
    mismatches = origins(rows, embedder, match.form, match.also, shared, progress)
    return VectorOrigins(embedder.model_id, len(entries), len(rows) + len(zeros), (*without, *mismatches))


def _outlying(rows: Sequence[SampleText], most: int) -> list[SampleText]:
    """Those with the least cosine with the sum of all: where another model made a few, they are among these."""
    if not rows:
        return []
    units = np.stack([row.vector for row in rows])
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    return [rows[i] for i in np.argsort(units @ units.sum(axis=0), kind="stable")[:most]]


def mismatched_memories(store: Store, embedder: Embedder, progress: Progress = silent) -> list[str]:
    """The memories with a vector of a source that is not of its text. Raises ModelError, and what `progress` raises."""
    found: dict[str, None] = {}
    for record in store.sources.with_memories():
        if record.dimension is not None and record.model_id == embedder.model_id:
            match = match_source(store, record, embedder)
            named = vector_origins(store, record, embedder, match, MOST_VECTORS, progress).mismatches
            found |= dict.fromkeys(one.memory_id for one in named)
    return list(found)


def match_texts(sample: Sequence[SampleText], embedder: Embedder, known: str = CONTENT) -> SourceMatch:
    """Compare vectors with texts embedded in the form `known`, else in each of the others. Raises ModelError."""
    if not sample:
        return NOT_COMPARED
    first = sample[:FIRST_TEXTS]
    tried: list[str] = []
    best: SourceMatch | None = None
    for form in _forms(sample, known):
        tried.append(form)
        if min(_form_cosines(first, embedder, form)) >= MATCH_COSINE:
            whole = _whole(sample, embedder, form, tuple(tried))
            # Long texts hide a word before them: the nearest form counts, unless this one leaves nothing to improve.
            if whole.same and whole.low >= EQUAL_COSINE:
                return whole
            best = whole if whole.same and (best is None or whole.low > best.low) else best
    if best is not None:
        return best
    # The first ones may be those of another model or text.
    by_form = {form: np.array(_form_cosines(sample, embedder, form)) for form in tried}
    hits = {form: cosines >= MATCH_COSINE for form, cosines in by_form.items()}
    form = max(tried, key=lambda name: (int(hits[name].sum()), float(np.median(by_form[name]))))
    also = tuple(name for name in tried if (hits[name] & ~hits[form]).any())
    return replace(_whole(sample, embedder, form, tuple(tried)), also=also)


def taken_texts(taken: Iterable[TakenMemory]) -> list[SampleText]:
    """A sample of the texts that have a vector, before they are in a store, one of each memory."""
    found = []
    for each in taken:
        parts = each.chunks or (TakenChunk(0, each.memory.content, each.vector, embedded=each.embedded),)
        part = next(
            (part for part in parts if part.vector is not None and part.vector.any() and part.text.strip()), None
        )
        if part is not None and part.vector is not None:
            found.append(SampleText((each.memory.id, None), part.text, each.memory.title, part.vector, part.embedded))
    return found[:: max(1, len(found) // SAMPLE_TEXTS)][:SAMPLE_TEXTS]


def _forms(sample: Sequence[SampleText], known: str) -> Iterator[str]:
    """The names of texts to try, each that differs from those before it on the sample."""
    own = dict.fromkeys(name for each in sample for name in each.embedded)
    seen: set[tuple[str, ...]] = set()
    for form in dict.fromkeys((known, CONTENT, *own, *TITLE_FORMS, *PREFIX_FORMS)):
        texts = tuple(each.of(form) for each in sample)
        if texts not in seen:
            seen.add(texts)
            yield form


def _form_cosines(sample: Sequence[SampleText], embedder: Embedder, form: str) -> list[float]:
    made = embedder.encode([each.of(form) for each in sample])
    return [cosine(vector, each.vector) for vector, each in zip(made, sample, strict=True)]


def _whole(sample: Sequence[SampleText], embedder: Embedder, form: str, tried: tuple[str, ...]) -> SourceMatch:
    """The comparison of the whole sample in one form."""
    texts = [each.of(form) for each in sample]
    made = embedder.encode(texts)
    cosines, shifted = (
        [cosine(vector, each.vector) for vector, each in zip(made, rows, strict=True)]
        for rows in (sample, [*sample[1:], sample[0]])
    )
    truncated = getattr(embedder, "truncated", None)  # a server does not say what it reads
    cut = 0 if truncated is None else sum(truncated(texts))
    others = float(np.median(shifted)) if len(sample) > 1 else None
    rest = float(np.median([each for each in cosines if each < MATCH_COSINE] or [1.0]))
    return SourceMatch(of_cosines(cosines), form, min(cosines), max(cosines), others, tried, cut, rest=rest)
