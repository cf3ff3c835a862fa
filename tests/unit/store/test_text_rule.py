"""The text rule: which text of a memory is embedded and searched, kept in the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cems_workbench.errors import InputError
from cems_workbench.records import DEFAULT_TEXT_RULE, Memory, ParsedInput, TextRule, indexed_text
from cems_workbench.store.text_rule import chunk_text, known_text_rule, parts_to_cut, rule_suffix, searched_text

MEMORY = Memory(
    "m1",
    "Run make ship, then watch the logs.",
    "Deploy",
    category="howto",
    project="acme/web",
    tags=("ops", "ci"),
    created_at=datetime(2026, 3, 1, 12, tzinfo=UTC),
)
CONTENT = TextRule(title=False)


def texts(store) -> dict[str, str]:
    return {document.id: document.text for document in store.indexes.documents()}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (DEFAULT_TEXT_RULE, "Deploy. Run make ship, then watch the logs."),
        (CONTENT, "Run make ship, then watch the logs."),
        (
            TextRule(fields=("category", "author", "tags", "created_at")),
            "category: howto\ntags: ops, ci\ncreated_at: 2026-03-01T12:00:00+00:00\nDeploy. Run make ship, then watch the logs.",
        ),
        (TextRule(title=False, first_tokens=3), "Run make ship"),
        (TextRule(fields=("project",), title=False, first_tokens=7), "project: acme/web\nRun"),
    ],
)
def test_searched_text_follows_the_rule(rule: TextRule, text: str) -> None:
    assert searched_text(MEMORY, rule) == text


def test_the_default_rule_makes_the_texts_of_before_and_the_same_labels_of_chunks() -> None:
    for memory in (MEMORY, replace(MEMORY, title=None), replace(MEMORY, content="Deploy now")):
        assert searched_text(memory) == indexed_text(memory)
        assert parts_to_cut(memory) == (memory.title, memory.content)
    assert rule_suffix(DEFAULT_TEXT_RULE) == "" != rule_suffix(CONTENT)


def test_chunks_have_lines_and_title_before_them_and_end_with_the_first_tokens() -> None:
    rule = TextRule(fields=("project",), first_tokens=9)
    assert chunk_text(MEMORY, "watch", rule) == "project: acme/web\nDeploy. watch"
    head, content = parts_to_cut(MEMORY, rule)
    assert head == "project: acme/web\nDeploy"
    assert MEMORY.content.startswith(content) and searched_text(MEMORY, rule).endswith(content) and content


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((True, ("projct",), None), "did you mean project"),
        ((True, ("tags", "tags"), None), "tags is there twice"),
        ((True, (), 0), "is not in 1 to"),
    ],
)
def test_a_rule_that_cannot_be_is_one_line(arguments, said: str) -> None:
    with pytest.raises(InputError, match=said):
        known_text_rule(*arguments)


def test_a_chosen_rule_is_kept_and_changes_what_is_searched(store) -> None:
    plain = Memory("m2", "No title at all.")
    store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(MEMORY, plain)))
    version = store.content_version
    assert store.texts.rule == DEFAULT_TEXT_RULE and not store.texts.choose(DEFAULT_TEXT_RULE)
    assert store.texts.choose(CONTENT) and store.texts.rule == CONTENT
    assert store.content_version == version + 1
    assert texts(store) == {"m1": MEMORY.content, "m2": plain.content}
    # An input that was imported before is unchanged under the new rule too.
    assert store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(MEMORY, plain))).memories.unchanged == 2
    assert store.texts.choose(TextRule(fields=("project",)))
    assert texts(store)["m1"] == "project: acme/web\nDeploy. Run make ship, then watch the logs."
    store.memories.update(replace(MEMORY, project="acme/api"), MEMORY)
    assert texts(store)["m1"].startswith("project: acme/api\n")


def test_a_change_past_the_first_tokens_is_stored(store) -> None:
    store.texts.choose(TextRule(title=False, first_tokens=2))
    store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(Memory("m", "one two three four"),)))
    report = store.add(ParsedInput("a.jsonl", "memories-jsonl", memories=(Memory("m", "one two three five"),)))
    assert report.memories.updated == 1
    assert store.memories.read()["m"].content == "one two three five"
