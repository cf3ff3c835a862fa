"""Texts that libraries embed, rebuilt from what they store: the same as the library makes."""

from __future__ import annotations

import json

import pytest
from llama_index.core.schema import MetadataMode, TextNode
from llama_index.core.vector_stores.utils import node_to_metadata_dict

from cems_workbench.records import EmbeddedText
from cems_workbench.sources.rows import (
    HAYSTACK,
    LLAMA_INDEX,
    embedded_texts,
    filled,
    llama_index_text,
)

METADATA = {"title": "Ship {it}", "n": 3, "share": 1 / 7, "none": None, "yes": True, "tags": ["a", "b"], "wörd": "ä\nb"}
FORMS = {
    "defaults": {},
    "excluded keys": {"excluded_embed_metadata_keys": ["n", "tags"], "excluded_llm_metadata_keys": ["title"]},
    "own templates": {"metadata_template": "<{key}>={value}", "metadata_separator": " | "},
    "content first": {"text_template": "{content}\n-- {{braces}}\n{metadata_str}  "},
    "no metadata left": {"excluded_embed_metadata_keys": list(METADATA)},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", ["Run make ship.", "  spaces and {braces}\n\n"])
def test_the_text_of_llama_index_is_what_the_library_embeds(form: str, content: str) -> None:
    node = TextNode(text=content, metadata=METADATA, **FORMS[form])
    stored = node_to_metadata_dict(node, remove_text=True)["_node_content"]
    made = llama_index_text(stored) or EmbeddedText()
    assert made.of(content) == node.get_content(MetadataMode.EMBED)
    # The same with an edited content, as the library would embed that.
    node.text = "Another text."
    assert made.of("Another text.") == node.get_content(MetadataMode.EMBED)


@pytest.mark.parametrize("template", ["{key.__class__}", "{key:>9999999999}", "{key!r}", "{other}", "{", "{0}"])
def test_a_template_of_a_store_can_only_name_its_values(template: str) -> None:
    assert filled(template, {"key": "k"}) is None
    node = json.dumps({"metadata": {"k": "v"}, "metadata_template": template})
    assert llama_index_text(node) is None


def test_a_payload_has_the_texts_of_its_library() -> None:
    assert embedded_texts({"data": "a", "user_id": "b"}, "a") == {}
    assert embedded_texts({"_node_content": "no json"}, "a") == {}
    node = {"_node_content": json.dumps({"metadata": {"k": "v"}})}
    assert embedded_texts(node, "a")[LLAMA_INDEX].of("a") == "k: v\n\na"
    haystack = embedded_texts({"content": "a", "meta": {"title": "T", "n": 1, "by": "B"}}, "a")
    assert {name: text.of("a") for name, text in haystack.items()} == {
        HAYSTACK.format(fields="title"): "T\na",
        HAYSTACK.format(fields="by"): "B\na",
        HAYSTACK.format(fields="title and by"): "T\nB\na",
    }
