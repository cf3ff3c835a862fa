"""What one step of training learns from."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.groups import SIZE, Groups, holds, window
from training.passages import Corpus, Passage, Question, sentence_bounds, untokenised

SENTENCES = tuple(f"I put item {i} on shelf number {i} and wrote it down." for i in range(9))


def corpus() -> Corpus:
    passages = tuple(
        Passage("amazon", tuple(sentence.replace("item", f"thing{number} item") for sentence in SENTENCES))
        for number in range(40)
    )
    questions = tuple(
        Question(f"Where did the reviewer put thing{n} item 4?", n, (4,), (f"thing{n} item 4 on shelf number 4",))
        for n in range(40)
    )
    return Corpus(passages, (*questions, Question("who knows?", 3, (), ())))


@pytest.fixture(scope="module")
def groups() -> Groups:
    subject = corpus()
    rows = [[(question.passage + shift) % 40 for shift in range(30)] for question in subject.questions]
    return Groups(subject, np.array(rows, np.int32), seed=7)


def test_the_same_seed_epoch_and_question_draw_the_same_group(groups: Groups) -> None:
    assert [groups.draw(0, n) for n in range(41)] == [groups.draw(0, n) for n in range(41)]
    assert [groups.draw(0, n) for n in range(41)] != [groups.draw(1, n) for n in range(41)]


def test_the_first_text_answers_and_no_other_holds_the_answer(groups: Groups) -> None:
    for epoch in range(6):
        for number in range(40):
            drawn = groups.draw(epoch, number)
            assert 2 <= len(drawn.texts) == len(set(drawn.texts)) <= SIZE
            answer = f"thing{number} item 4 on shelf number 4"
            if drawn.answered and drawn.query.startswith("Where did") and "item 4" in drawn.query:
                assert answer in drawn.texts[0]
                assert not any(answer in text for text in drawn.texts[1:])


def test_a_question_without_an_answer_has_no_answering_text(groups: Groups) -> None:
    for epoch in range(20):
        drawn = groups.draw(epoch, 40)
        made_from_the_passage = drawn.query != "who knows?" and "who knows" not in drawn.query
        assert made_from_the_passage or not drawn.answered


def test_some_groups_have_no_answer_and_most_have(groups: Groups) -> None:
    answered = [groups.draw(epoch, n).answered for epoch in range(10) for n in range(40)]
    assert 0.8 < float(np.mean(answered)) < 1.0


@given(st.integers(0, 8), st.integers(1, 600), st.integers(0, 99), st.sets(st.integers(0, 8), max_size=4))
def test_a_window_is_a_run_of_sentences_around_its_own_and_without_what_is_avoided(at, aim, seed, avoid):
    text = window(SENTENCES, at, aim, random.Random(seed), avoid=tuple(avoid))
    if at in avoid:
        assert text is None
        return
    assert text is not None and SENTENCES[at] in text and text in " ".join(SENTENCES)
    assert not any(SENTENCES[other] in text for other in avoid)
    assert len(text) <= max(aim, len(SENTENCES[at]))


def test_short_answers_are_not_looked_for() -> None:
    assert holds("It was Kyiv.", ["kyiv"])
    assert not holds("It was 7 of 9.", ["7"])


@given(st.text(st.sampled_from('ab .?!"A1'), max_size=900))
def test_sentences_cover_every_word_in_order(text: str) -> None:
    bounds = sentence_bounds(text)
    assert "".join(text[a:b] for a, b in bounds).split() == text.split() or not text.strip()
    assert all(a < b for a, b in bounds)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(bounds))


def test_clapnqs_tokens_are_written_as_a_person_writes_them() -> None:
    assert untokenised("it 's a `` test '' , is n't it ?") == "it's a \" test \", isn't it?"
