"""Redaction changes no number of any trace, and leaves no word that says something."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from strategies import configs, evidences

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, bundle_from, evidence_from
from cems_workbench.pipeline.evidence import QUESTIONS, ModelScore
from cems_workbench.pipeline.redact import Pseudonyms, redacted
from cems_workbench.pipeline.scoring import with_question
from cems_workbench.pipeline.stages.query import CEMS_SIGNALS, SIGNALS
from cems_workbench.records import Memory
from tests.redaction import assert_same_numbers, telling_words, words_left

SIGNAL_WORDS = [signal for words in (SIGNALS, CEMS_SIGNALS) for signals in words.values() for signal in signals]
QUERIES = st.lists(
    st.sampled_from(
        [*SIGNAL_WORDS, "how", "all the", "redis", "ELASTICSEARCH", "Blast", "_last_", "é", "laſt", "x", "naïve", "İ"]
    ),
    max_size=8,
).map(" ".join) | st.text(max_size=30)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=30) | st.text("aİiK\u212aß. é9Z", max_size=12)


@given(evidences(), configs(), QUERIES)
def test_every_number_of_the_trace_stays(evidence: Evidence, config: PipelineConfig, query: str) -> None:
    evidence = replace(evidence, query=query)
    after = redacted(evidence, b"key")
    assert_same_numbers(evidence, after, config)
    assert_same_numbers(evidence, evidence_from(json.loads(json.dumps(bundle_from(after)))), config)


@given(TEXTS, TEXTS)
def test_a_text_read_with_its_question_stays_both(question: str, text: str) -> None:
    scores = {"model": {"m": ModelScore(1.0, with_question(question, text))}}
    evidence = Evidence(
        "x", {"m": Memory("m", text)}, model_scores=scores, notes={QUESTIONS: {"m": question, "gone": "telling"}}
    )
    after = redacted(evidence, b"key")
    (memory_id,) = after.memories
    read = after.model_scores["model"][memory_id].chunk
    assert read == with_question(after.questions[memory_id], after.memories[memory_id].content)
    assert list(after.questions) == [memory_id]


@given(evidences(), QUERIES)
def test_no_telling_word_is_left_but_categories_and_signals(evidence: Evidence, query: str) -> None:
    evidence = replace(evidence, query=query)
    # The name of the bundle's format has a word too.
    categories = {memory.category for memory in evidence.memories.values()}
    kept = {"laſt", "workbench"} | {
        word for text in [*SIGNAL_WORDS, *filter(None, categories)] for word in text.split()
    }
    assert words_left(redacted(evidence, b"key"), telling_words(evidence) - kept) == set()


@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_texts_keep_length_and_the_words_they_have_in_common(texts: list[str]) -> None:
    words = Pseudonyms(b"key", texts)
    before = [set(re.findall("[a-z0-9]+", text.lower())) for text in texts]
    after = [set(re.findall("[a-z0-9]+", words.text(text).lower())) for text in texts]
    assert [len(words.text(text)) for text in texts] == [len(text) for text in texts]
    for old, new in zip(before, after, strict=True):
        for other_old, other_new in zip(before, after, strict=True):
            assert len(old & other_old) == len(new & other_new)
            assert len(old | other_old) == len(new | other_new)
