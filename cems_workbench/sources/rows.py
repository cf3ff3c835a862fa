"""Reading rows of a source: the fields that a sample of them shows, snapshots in pages, and the texts that their library embeds.

A row is a payload, whose columns are its names. A column that holds JSON is an object of the payload, so its keys have dotted paths. A
snapshot gives ids and markers of a part of a source, and of these the memories that are new or changed, in bounded batches.

Texts that a library embeds, where they are not the row's text alone:

    LlamaIndex     "key: value" lines of the metadata, a blank line, the text (MetadataMode.EMBED), by the templates in `_node_content`
    Haystack       values of fields of `meta`, a line each, then the text (`meta_fields_to_embed` of an embedder)

Each is an `EmbeddedText`, so that another content can be put into it. Which one a store has is found by embedding some of them again
(`jobs/embedder_match.py`).

Source: llama-index-core 0.14.25 `TextNode.get_content`, haystack-ai 3.4.1 `SentenceTransformersDocumentEmbedder`; recorded by running
them.
"""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from types import MappingProxyType
from typing import Any

import numpy as np

from cems_workbench.formats.base.memory_fields import OPTIONAL_FIELDS, STATE_NAMES
from cems_workbench.formats.base.payload import (
    ANY_NAMES,
    NESTED,
    USER_NAMES,
    Names,
    Payload,
    date_elsewhere,
    state_of,
    state_path,
    unread_note,
    used_names,
    user_path,
)
from cems_workbench.records import SUPERSEDES, EmbeddedText, Relation, RowProblem, TakenMemory
from cems_workbench.sources.source import Batch, Changed, Vector, bounded


@dataclass(frozen=True, slots=True)
class Recognised:
    """What a sample of the rows shows: the path of each field, of the user and of states, and what was not read."""

    fields: Mapping[str, str]
    user: str | None
    states: Mapping[str, str]
    unread: tuple[str, ...]
    dates: str | None = None
    """Where else created_at may be (`date_note`)."""

    @property
    def unread_notes(self) -> list[str]:
        """What was not read, in a line, after where dates may be."""
        return [*filter(None, (self.dates, unread_note(self.unread)))]

    @property
    def fields_note(self) -> str | None:
        """One line that names where each field comes from; None if there is none."""
        return fields_note(self.fields) if self.fields else None


def date_note(
    payloads: Sequence[Payload], names: Names, unread: Iterable[str], given: Mapping[str, str] = MappingProxyType({})
) -> str | None:
    """One line that proposes where else to read created_at, with the option of `connect`, added to the mapping that is `given`;
    None if the dates that are read tell rows apart."""
    if (found := date_elsewhere(payloads, names, unread)) is None:
        return None
    mapping = shlex.quote(json.dumps({**given, "created_at": found[0]}, ensure_ascii=False).replace('"', ""))
    return f"{found[1]}. To read it: `connect ADDRESS --mapping {mapping}`, or the same as Mapping on Sources"


def fields_note(fields: Mapping[str, str]) -> str:
    """One line that names where each field of memories comes from."""
    pairs = [field if field == path else f"{field} from {path}" for field, path in fields.items()]
    none = "no field of the rows is one of memories: only texts and vectors are taken"
    return f"fields taken: {', '.join(pairs)}" if pairs else none


def recognise(
    payloads: Sequence[Payload], names: Names, columns: Sequence[str], others: Sequence[str], known: Collection[str]
) -> Recognised:
    """Recognise the fields in a sample. `columns` are read of every row, `others` are not; `known` paths are not called unread."""
    # A column that is there counts although no row may have a value yet.
    empty = dict.fromkeys(columns, "")
    fields = {field: path for field in OPTIONAL_FIELDS if (path := names.found(empty, field)) is not None}
    fields |= {field: path for field, path in used_names(payloads, names).items() if field in OPTIONAL_FIELDS}
    states = {name: path for name in STATE_NAMES if (path := state_path(empty, name, names)) is not None}
    for payload in payloads:
        found = {name: path for name in STATE_NAMES if (path := state_path(payload, name, names)) is not None}
        states = found | states
    user = user_path(payloads, names) or next((name for name in USER_NAMES if name in columns), None)
    read = set(fields.values()) | set(states.values()) | set(known)
    for payload in payloads:
        read.update(path for field in OPTIONAL_FIELDS if (path := names.found(payload, field)) is not None)
    unread: dict[str, None] = {}
    for name in columns:
        for payload in payloads:
            unread |= dict.fromkeys(_paths_in(name, payload.get(name)))
    left = tuple(path for path in (*unread, *others) if path not in read)
    return Recognised(
        {field: fields[field] for field in OPTIONAL_FIELDS if field in fields},
        user or fields.get("author"),
        states,
        left,
        date_note(payloads, names, left),
    )


def _paths_in(path: str, value: Any) -> Iterator[str]:
    """The paths of the values in a column: itself, or its keys, and the keys of its nested metadata."""
    if not isinstance(value, Mapping):
        if value is not None and value != "" and value != []:
            yield path
        return
    for key, inner in value.items():
        if isinstance(inner, Mapping) and key not in NESTED and inner:
            yield f"{path}.{key}"
        else:
            yield from _paths_in(f"{path}.{key}", inner)


def payload_of(
    columns: Iterable[str],
    json_columns: Iterable[str],
    values: Sequence[Any],
    memory_id: str,
    problems: list[RowProblem],
) -> dict[str, Any]:
    """Values by column, with those of JSON columns read; JSON that Python cannot read is a problem."""
    found = dict(zip(columns, values, strict=True))
    for name in json_columns:
        if isinstance(found[name], str | bytes):
            try:
                found[name] = json.loads(found[name])
            except (ValueError, RecursionError):
                problems.append(RowProblem(memory_id, name, "is JSON that cannot be read; it was left out"))
                found[name] = None
    return found


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the memories that exist: ids and markers, and `read`, which gives those at some of their places.
    `sizes` are their bytes of texts and vectors; empty where the whole page is small enough to be read at once."""

    ids: Sequence[str]
    markers: Sequence[str]
    read: Callable[[Sequence[int]], tuple[Sequence[TakenMemory], Sequence[RowProblem]]]
    sizes: Sequence[int] = ()
    problems: Sequence[RowProblem] = ()


@dataclass
class PagedSnapshot(ABC):
    """A `source.Snapshot` of pages."""

    _edges: list[tuple[str, str]] = field(init=False, default_factory=list)
    """(reference of the newer memory, id of the older one)."""
    _known_as: dict[str, str] = field(init=False, default_factory=dict)
    """The ids of memories by the one that edges name."""

    _seen: set[str] = field(init=False, default_factory=set)
    """Ids that another row may have too."""

    @property
    @abstractmethod
    def total(self) -> int:
        """Number of memories."""

    @abstractmethod
    def pages(self) -> Iterator[Page]:
        """Every memory once. Raises SourceError."""

    def batches(self, changed: Changed) -> Iterator[Batch]:
        """Every id as seen, but for memories that cannot be taken, and those that `changed` selects. Raises SourceError."""
        for page in self.pages():
            problems: Sequence[RowProblem] = page.problems
            wanted = set(changed(page.ids, page.markers)) if page.ids else set()
            places = [place for place, id in enumerate(page.ids) if id in wanted]
            parts = bounded([page.sizes[place] for place in places]) if page.sizes else [slice(None)] if places else []
            seen = 0
            for part in parts:
                chosen = places[part]
                taken, found = page.read(chosen)
                ids = page.ids[seen : chosen[-1] + 1]
                if len(taken) < len(chosen):
                    lost = {page.ids[place] for place in chosen} - {each.memory.id for each in taken}
                    ids = [id for id in ids if id not in lost]
                yield Batch(ids, taken, [*problems, *found])
                seen, problems = chosen[-1] + 1, ()
            if seen < len(page.ids) or problems:
                # Unchanged rows after the last changed one were seen too.
                yield Batch(page.ids[seen:], problems=problems)

    def relations(self) -> Iterator[Sequence[Relation]]:
        """What the rows say supersedes them (`note_state`)."""
        found = {(self._known_as.get(newer, newer), older) for newer, older in self._edges}
        edges = [Relation(newer, older, SUPERSEDES) for newer, older in sorted(found) if newer != older]
        if edges:
            yield edges

    def id_problem(self, memory_id: str | None) -> RowProblem | None:
        """Why a row with this id cannot be taken, if it cannot: it has none, or is not the first."""
        if memory_id is None or not memory_id.strip():
            return RowProblem("(none)", "id", "is empty; the row was left out")
        if memory_id not in self._seen:
            return None
        reason = "is the id of more than one row; the first was imported"
        return RowProblem(memory_id, "id", reason, duplicate=True)

    def note_state(self, memory_id: str, payload: Payload, names: Names = ANY_NAMES) -> None:
        """Note what supersedes a memory, and by which id others refer to it."""
        newer, own = (_reference(state_of(payload, name, names)) for name in ("superseded_by", "original_id"))
        if newer is not None and newer.strip():
            self._edges.append((newer, memory_id))
        if own is not None:
            self._known_as.setdefault(own, memory_id)


def _reference(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def usable_vector(
    memory_id: str,
    name: str,
    vector: Vector | None,
    dimension: int | None,
    problems: list[RowProblem],
    finite: bool | None = None,
) -> Vector | None:
    """The vector if it can be searched, else None and a problem of the field `name`. `finite`: whether its values are
    numbers, if known. A `dimension` of None is that of a source without vectors, which lacks none."""
    if vector is None and dimension is None:
        return None
    if vector is None:
        reason = "is missing: the row can be read and not found by its vector"
    elif dimension is not None and vector.size != dimension:
        reason = f"has {vector.size} numbers, most there have {dimension}; it was left out"
    elif not (np.isfinite(vector).all() if finite is None else finite):
        reason = "has values that are no numbers; it was left out"
    else:
        return vector
    problems.append(RowProblem(memory_id, name, reason))
    return None


LLAMA_INDEX = "LlamaIndex's text: metadata lines, a blank line, the content"
HAYSTACK = "Haystack's text: {fields} above the content"
MAX_FIELD_CHARS = 200
"""Longer values of Haystack's `meta` are not tried."""
MAX_FIELDS = 4
"""Most fields of Haystack's `meta` that are tried, each alone and all of them."""
MAX_AROUND_CHARS = 20_000
"""More text around a content is not kept."""


def embedded_texts(payload: Mapping[str, Any], text: str) -> dict[str, EmbeddedText]:
    """The texts by what they are called; empty if the payload is of no library that embeds another text than `text`."""
    found: dict[str, EmbeddedText] = {}
    # The payload, and the objects in it that libraries keep metadata in.
    places = (
        place for place in (payload, payload.get("metadata"), payload.get("metadata_")) if isinstance(place, Mapping)
    )
    node = next((value for place in places if isinstance(value := place.get("_node_content"), str)), None)
    if node is not None:
        made = llama_index_text(node)
        if made is not None:
            found[LLAMA_INDEX] = made
    meta = payload.get("meta")
    if isinstance(meta, Mapping):
        found.update(haystack_texts(meta, text))
    return {name: each for name, each in found.items() if len(each.before) + len(each.after) <= MAX_AROUND_CHARS}


def llama_index_text(node_content: str) -> EmbeddedText | None:
    """The text that LlamaIndex embeds for a node, from its JSON; None if it is the content alone, or the JSON has no such node."""
    try:
        node = json.loads(node_content)
    except (ValueError, RecursionError):
        return None
    metadata = node.get("metadata") if isinstance(node, dict) else None
    excluded = node.get("excluded_embed_metadata_keys") if isinstance(node, dict) else None
    if not isinstance(metadata, dict) or not isinstance(excluded, list | None):
        return None
    line = _text(node, ("metadata_template",), "{key}: {value}")
    separator = _text(node, ("metadata_separator", "metadata_seperator"), "\n")
    rows = []
    for key, value in metadata.items():
        if key not in (excluded or ()):
            row = filled(line, {"key": key, "value": str(value)})
            if row is None:
                return None
            rows.append(row)
    lines = separator.join(rows).strip()
    if not lines:
        return None
    before, found, after = _text(node, ("text_template",), "{metadata_str}\n\n{content}").partition("{content}")
    parts = [filled(part, {"metadata_str": lines}) for part in (before, after)]
    if not found or parts[0] is None or parts[1] is None:
        return None
    return EmbeddedText(parts[0], parts[1], "strip")


def haystack_texts(meta: Mapping[str, Any], text: str) -> dict[str, EmbeddedText]:
    """Texts with one field of `meta`, and with all that are short texts, in their order."""
    short = {
        key: value
        for key, value in meta.items()
        if isinstance(value, str) and value.strip() and len(value) <= MAX_FIELD_CHARS and value != text
    }
    names = list(short)[:MAX_FIELDS]
    groups = [[name] for name in names] + ([names] if len(names) > 1 else [])
    return {
        HAYSTACK.format(fields=" and ".join(group)): EmbeddedText("".join(f"{short[name]}\n" for name in group))
        for group in groups
    }


def filled(template: str, values: Mapping[str, str]) -> str | None:
    """A template of `str.format` with these values, and nothing else in it; None if it asks for more. Templates are
    data of a store: `str.format` would follow attributes, and pad to any width."""
    try:
        pieces = list(_pieces(template, values))
    except (ValueError, KeyError):
        return None
    return "".join(pieces)


def _pieces(template: str, values: Mapping[str, str]) -> Iterator[str]:
    for literal, name, width, conversion in Formatter().parse(template):
        yield literal
        if name is not None:
            if width or conversion:
                raise ValueError(name)
            yield values[name]


def _text(node: Mapping[str, Any], names: tuple[str, ...], default: str) -> str:
    return next((value for name in names if isinstance(value := node.get(name), str)), default)
