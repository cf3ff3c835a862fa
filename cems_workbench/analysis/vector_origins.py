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

Source: Mantel (1967), "The detection of disease clustering and a generalized regression approach".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cems_workbench.models.embedder_match import MATCH_COSINE
from cems_workbench.models.protocol import Embedder, Float32
from cems_workbench.progress import Progress, silent
from cems_workbench.store.search.entries import EntryId
from cems_workbench.store.sources import SampleText

Kind = Literal["zeros", "shared", "other form", "swapped", "near", "far", "other model"]
KINDS: Mapping[Kind, str] = {
    "zeros": "{n} {are} all zeros and {have} no cosine",
    "shared": "{n} {have} the very vector of a different text",
    "other form": "{n} {are} of {of}",
    "swapped": "{n} {are} of another memory's text",
    "near": "{n} {are} of a text like theirs, such as an earlier version or a part of it",
    "far": "{n} {are} of another model or of another text",
    "other model": "{n} {are} of another model, which read these texts",
}
"""The words about a group of each kind."""
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
        """What the stored vector is: "is not that of its text (cosine −0.03), but of another model or of another text"."""
        if self.kind == "zeros":
            return "is all zeros and has no cosine"
        what = {
            "shared": f"that of a different text too, as {self.of}'s",
            "other form": f"that of {self.of}",
            "swapped": f"that of {self.of}'s text",
            "near": "that of a text like it, such as an earlier version or a part of it",
            "far": "that of another model or of another text",
            "other model": "that of another model, which read this text",
        }[self.kind]
        cosine = "" if self.cosine is None else f" (cosine {_two(self.cosine)})"
        return f"is not the one that its text gives{cosine}, but {what}"


@dataclass(frozen=True, slots=True)
class VectorOrigins:
    """The vectors of a source, of which `checked` were compared with the embedder `model_id`, and the mismatches.

    Vectors of zeros are found among all. `sample` is what the comparison of a sample found, if it did not reproduce one vector at all.
    """

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
        count = len(self.mismatches)
        of = (
            f"the {self.checked:,} compared of {self.vectors:,}" if self.checked < self.vectors else f"{self.vectors:,}"
        )
        one = count == 1
        texts = "its text" if one else "their texts"
        models = "two models: " if any(each.kind == "other model" for each in self.mismatches) else ""
        if self.checked:
            told = (
                f"{models}{count:,} of {of} stored vectors {'is' if one else 'are'} not what "
                f"{self.model_id} gives {texts}: re-embed {'it' if one else 'them'}"
            )
        else:
            told = f"{count:,} of {self.vectors:,} stored vectors {'says' if one else 'say'} nothing of {texts}"
        groups = {kind: [one for one in self.mismatches if one.kind == kind] for kind in KINDS}
        return [told, *(self._group(kind, own) for kind, own in groups.items() if own)]

    def _group(self, kind: Kind, own: Sequence[Mismatch]) -> str:
        one = len(own) == 1
        of = ", ".join(dict.fromkeys(each.of for each in own))
        told = KINDS[kind].format(n=f"{len(own):,}", are="is" if one else "are", have="has" if one else "have", of=of)
        cosines = [each.cosine for each in own if each.cosine is not None]
        reach = list(dict.fromkeys((_two(min(cosines)), _two(max(cosines))))) if cosines else []
        between = f" (cosine {' to '.join(reach)})" if reach else ""
        names = ", ".join(each.name for each in own[:MOST_IDS])
        more = f" and {len(own) - MOST_IDS:,} more" if len(own) > MOST_IDS else ""
        return f"{told}{between}: {names}{more}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
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
    """The mismatches among rows whose vectors, none of zeros, should be of the text `form`.

    `others` are forms that some vectors may be of; `shared` names for an entry one of a different text with the same vector.
    Raises ModelError, and what `progress` raises.
    """
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
