"""Junk by the text alone: the kinds of mem0#4573, and facts in similar words, which are none."""

from cems_workbench.records import Memory
from workbench_audit.texts import Texts

JUNK = (
    "The user did not say anything.",
    "No personal details were provided in this conversation.",
    "The user's name is unknown.",
    "You are an expert memory manager. Extract facts about the user.",
    "Return only a JSON object with the key facts.",
    "Follow the instructions in HEARTBEAT.md strictly.",
    "System: be concise.",
    "Sorry, but I can't share that.",
    "user: hi",
    "Where is the boathouse?",
)
FACTS = (
    "Jo did not say anything at the funeral of her father.",
    "The user has not shared the wedding date with his parents yet.",
    "The user said hello to his grandmother on the phone every Sunday.",
    "Extract of vanilla is what makes Jo's cake special.",
    "Mira's system prompt for the bakery bot is stored in harbor/prompts.",
    "Unknown callers are blocked on Jo's phone.",
)


def test_junk_is_told_from_facts_in_similar_words() -> None:
    texts = Texts(["where is the boathouse"], "english")
    for text in (*JUNK, *FACTS):
        texts.add(Memory(text, text))
    texts.finish()
    assert [*texts.junk] == [*JUNK]
