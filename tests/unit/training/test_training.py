"""What the judge's training learns from: groups of texts, dialogues and papers, turns of speakers."""

from __future__ import annotations

import itertools
import json
import random
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import dialogues, papers, speakers
from training.groups import MIX, POOL, SIZE, Groups, steps, window
from training.passages import Corpus, Passage, Question, sentence_bounds
from training.speakers import NAMES


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def utterance(speaker: str, text: str) -> dict[str, Any]:
    return {"speakers": [speaker], "utterance": text}


def answer(text: str, utterance_id: int, *, is_speaker: bool = False) -> dict[str, Any]:
    return {"answer_text": text, "utterance_id": utterance_id, "is_speaker": is_speaker}


def test_a_scene_is_turns_and_its_questions_name_those_that_say_something(tmp_path: Path) -> None:
    turns = [
        utterance("#NOTE#", "[ Scene : a kitchen ]"),
        utterance("Ada Lund", "I 'm gon na sell the boat , it does n't float ."),
        utterance("Bo Berg", "Which boat ?"),
        utterance("Dr. Holm", "Mine , too ."),
    ]
    asked = [
        {"question": "What does Ada sell ?", "answers": [answer("the boat", 1)]},
        {"question": "Who asks which boat ?", "answers": [answer("Bo Berg", 2, is_speaker=True)]},
        {"question": "Where are they ?", "answers": [answer("a kitchen", 0)]},
    ]
    write(tmp_path / "dat/a.json", {"data": [{"paragraphs": [{"utterances:": turns, "qas": asked}]}]})
    ((scene, questions),) = dialogues.friendsqa(tmp_path)
    assert scene.sentences == (
        "Ada: I'm gonna sell the boat, it doesn't float.",
        "Bo: Which boat?",
        "Dr. Holm: Mine, too.",
    )
    assert scene.people == ("Ada", "Bo", "Dr. Holm")
    assert questions == [("What does Ada sell?", (0,), ("the boat",))]


def test_of_a_meetings_short_span_the_turn_that_says_the_summary_comes_first(tmp_path: Path) -> None:
    turns = [
        {"speaker": name, "content": text}
        for name, text in [
            ("Chair", "{vocalsound} What about the price ?"),
            ("Designer", "Um , okay ."),
            ("Designer", "Twelve euros , since plastic is cheap ."),
            ("Chair", "Then we are done ."),
        ]
    ]
    asked = [
        {
            "query": "What did Designer think of the price?",
            "answer": "Twelve euros, plastic.",
            "relevant_text_span": [["0", "2"]],
        },
        {"query": "What was said?", "answer": "All.", "relevant_text_span": [["0", str(dialogues.SHORT_SPAN)]]},
    ]
    write(tmp_path / "data/ALL/train/a.json", {"meeting_transcripts": turns, "specific_query_list": asked})
    ((meeting, questions),) = dialogues.qmsum(tmp_path)
    assert meeting.sentences[0] == "Chair: What about the price?"
    assert questions == [("What did Designer think of the price?", (2, 0, 1), ())]


def test_a_question_and_a_conclusion_ask_for_the_abstract_without_it(tmp_path: Path) -> None:
    row = {
        "QUESTION": "Is tea warm?",
        "CONTEXTS": ["Tea was poured.", "It steamed."],
        "LONG_ANSWER": "Tea is warm. So.",
    }
    write(tmp_path / "data/ori_pqal.json", {"1": row})
    assert list(papers.pubmedqa(tmp_path)) == [
        (
            Passage("pubmedqa", ("Tea was poured.", "It steamed.")),
            [("Is tea warm?", (0, 1), ()), ("Tea is warm.", (0, 1), ())],
        )
    ]


@pytest.mark.parametrize("mark", [":", "."])
def test_a_trial_is_asked_by_title_conclusion_and_comparison_but_its_body_is_not_read(tmp_path, mark):
    sections = [
        ("TITLE", "Tea for sleep"),
        ("ABSTRACT.METHODS", "Ten drank tea. Ten drank milk."),
        ("ABSTRACT.CONCLUSIONS", "Tea delays sleep. More is needed."),
        ("BODY.RESULTS", "Table one."),
    ]
    text = "\n\n".join(f"{name}{mark}\n{said}" for name, said in sections)
    write(tmp_path / "annotations/abstracts/PMC7.abst", text)
    write(
        tmp_path / "annotations/prompts_merged.csv",
        "PMCID,Outcome,Intervention,Comparator\n7,sleep time,green tea,milk\n",
    )
    ((trial, asked),) = papers.evidence_inference(tmp_path)
    assert trial.sentences == (
        "Tea for sleep",
        "Ten drank tea.",
        "Ten drank milk.",
        "Tea delays sleep.",
        "More is needed.",
    )
    assert asked[:2] == [("Tea for sleep", (1, 2, 3, 4), ()), ("Tea delays sleep.", (0, 1, 2), ())]
    ((finding, read, _),) = asked[2:]
    assert "green tea" in finding.lower() and "sleep time" in finding.lower() and read == (0, 1, 2, 3, 4)


@pytest.fixture(scope="module")
def groups() -> Groups:
    scenes = [
        Passage(
            "friendsqa",
            tuple(f"{who}: thing{n} is {word} now, Ada" for word in ("red", "blue", "round") for who in ("Ada", "Bo")),
            ("Ada", "Bo"),
        )
        for n in range(4)
    ]
    trials = [Passage("pubmedqa", (f"Title {n}", f"Trial {n} had ten people.", f"Trial {n} ended.")) for n in range(6)]
    pages = [Passage("amazon", tuple(f"I bought lamp {n} on day {i}." for i in range(9))) for n in range(30)]
    questions = [Question(f"What colour is thing{n}, asks Ada?", n, (0, 1), ("red",)) for n in range(4)]
    questions += [Question(f"Claim {n}", 4 + n, (1, 2) if n % 2 else (0, 1, 2), ()) for n in range(6)]
    questions += [Question(f"Where is lamp {n}?", 10 + n, (4,), (f"lamp {n} on day 4",)) for n in range(30)]
    found = [[(q.passage + shift) % 40 for shift in range(40)] for q in questions]
    return Groups(Corpus((*scenes, *trials, *pages), tuple(questions)), np.array(found, np.int32), seed=5)


def test_a_dialogues_people_have_the_same_names_in_question_and_turns(groups: Groups) -> None:
    for epoch, number in ((epoch, number) for epoch in range(12) for number in range(4)):
        drawn = groups.draw(epoch, number)
        asked = drawn.query.removesuffix("?").split()[-1]
        assert asked == "Ada" or asked in NAMES
        assert all(text.endswith(f"now, {asked}") for text in drawn.texts[:5])
        assert "red" in drawn.texts[0] and not any("red" in text for text in drawn.texts[1:])
        assert len({text.partition(":")[0] for text in drawn.texts}) <= 2


def test_the_kinds_come_in_their_shares_and_every_question_of_a_kind_in_turn(groups: Groups) -> None:
    batches = list(islice(steps(groups, 16, seed=1), POOL // 16))
    asked = [group.query for batch in batches for group in batch]
    dialogue = [query for query in asked if "colour" in query]
    assert len(dialogue) / POOL == pytest.approx(MIX["dialogue"], abs=0.07)
    counts = [sum(f"thing{n}," in query for query in dialogue) for n in range(4)]
    assert max(counts) - min(counts) <= 1
    assert [group.query for group in next(steps(groups, 16, seed=1))] == asked[:16]


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
def few() -> Groups:
    subject = corpus()
    rows = [[(question.passage + shift) % 40 for shift in range(30)] for question in subject.questions]
    return Groups(subject, np.array(rows, np.int32), seed=7)


def test_the_same_seed_epoch_and_question_draw_the_same_group(few: Groups) -> None:
    assert [few.draw(0, n) for n in range(41)] == [few.draw(0, n) for n in range(41)]
    assert [few.draw(0, n) for n in range(41)] != [few.draw(1, n) for n in range(41)]


def test_the_first_text_answers_and_no_other_holds_the_answer(few: Groups) -> None:
    for epoch in range(6):
        for number in range(40):
            drawn = few.draw(epoch, number)
            assert 2 <= len(drawn.texts) == len(set(drawn.texts)) <= SIZE
            answer = f"thing{number} item 4 on shelf number 4"
            if drawn.answered and drawn.query.startswith("Where did") and "item 4" in drawn.query:
                assert answer in drawn.texts[0]
                assert not any(answer in text for text in drawn.texts[1:])


@given(st.integers(0, 8), st.integers(1, 600), st.integers(0, 99), st.sets(st.integers(0, 8), max_size=4))
def test_a_window_is_a_run_of_sentences_around_its_own_and_without_what_is_avoided(at, aim, seed, avoid):
    text = window(SENTENCES, at, aim, random.Random(seed), avoid=tuple(avoid))
    if at in avoid:
        assert text is None
        return
    assert text is not None and SENTENCES[at] in text and text in " ".join(SENTENCES)
    assert not any(SENTENCES[other] in text for other in avoid)
    assert len(text) <= max(aim, len(SENTENCES[at]))


@given(st.text(st.sampled_from('ab .?!"A1'), max_size=900))
def test_sentences_cover_every_word_in_order(text: str) -> None:
    bounds = sentence_bounds(text)
    assert "".join(text[a:b] for a, b in bounds).split() == text.split() or not text.strip()
    assert all(a < b for a, b in bounds)
    assert all(left[1] <= right[0] for left, right in itertools.pairwise(bounds))


@pytest.mark.parametrize(
    ("statement", "part"),
    [
        ("I bought a new kettle last week.", "Mia buy a new kettle"),
        ("Yesterday I finally visited my sister in Lyon.", "Mia visit their sister in Lyon"),
    ],
)
def test_a_first_person_statement_is_turned_into_a_question(statement: str, part: str) -> None:
    made = {speakers.question_from(statement, "Mia", random.Random(seed)) for seed in range(30)}
    assert any(question and part in question for question in made)
    assert all(question and question.endswith("?") for question in made)
