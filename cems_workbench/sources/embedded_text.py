"""Texts that a library embeds for a row, where they are not the row's text alone.

    LlamaIndex     "key: value" lines of the metadata, a blank line, the text (MetadataMode.EMBED), by the templates in `_node_content`
    Haystack       values of fields of `meta`, a line each, then the text (`meta_fields_to_embed` of an embedder)

Each is an `EmbeddedText`, so that another content can be put into it. Which one a store has is found by embedding some of them again
(`jobs/embedder_match.py`).

Source: llama-index-core 0.14.25 `TextNode.get_content`, haystack-ai 3.4.1 `SentenceTransformersDocumentEmbedder`; recorded by running
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any

from cems_workbench.records import EmbeddedText

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
    node = next((value for place in _places(payload) if isinstance(value := place.get("_node_content"), str)), None)
    if node is not None:
        made = llama_index_text(node)
        if made is not None:
            found[LLAMA_INDEX] = made
    meta = payload.get("meta")
    if isinstance(meta, Mapping):
        found.update(haystack_texts(meta, text))
    return {name: each for name, each in found.items() if len(each.before) + len(each.after) <= MAX_AROUND_CHARS}


def _places(payload: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The payload, and the objects in it that libraries keep metadata in."""
    yield payload
    for name in ("metadata", "metadata_"):
        if isinstance(inner := payload.get(name), Mapping):
            yield inner


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
    """A template of `str.format` with these values, and nothing else in it; None if it asks for more.

    Templates are data of a store: `str.format` would follow attributes, and pad to any width.
    """
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
