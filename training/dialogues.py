"""Questions about dialogues, with the turns that answer them: FriendsQA (Apache-2.0) and QMSum (MIT).

FriendsQA: Yang & Choi 2019, scenes of a television show, each question with the turns that hold an answer. QMSum: Zhong et al.
2021, meetings, each question with the span of turns that its summary is made from; only short spans are taken, and of a span
only the turn that says most of the summary. A passage is a scene or a meeting, and a sentence of it one turn, "Ross: I'm here".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.passages import Asked, Passage, sentence_bounds, untokenised

SHORT_SPAN = 10
"""QMSum's spans of more turns say too little about which of them answers."""
SHORT = 5
"""Words, the name counted, of a turn that says nothing without the one before it ("Toby: Switzerland?")."""
TURN = 350
"""Characters of a turn; a longer one is cut at sentence ends."""
STAGE = "#NOTE#"
"""Who "speaks" FriendsQA's stage directions, which are left out."""
_NOISE = re.compile(r"\{\w+\}|\(\w+\)|\[\w+\]")
_SPLIT_WORDS = ((" gon na", " gonna"), (" wan na", " wanna"), (" got ta", " gotta"), (" can not", " cannot"))


def friendsqa(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    """The scenes of dat/*.json below `folder`. Raises FileNotFoundError when there are none."""
    for file in _files(folder, "dat/*.json"):
        for scene in json.loads(file.read_text(encoding="utf-8"))["data"]:
            for part in scene["paragraphs"]:
                turns = part["utterances:"]
                people = [_first_name((turn["speakers"] or ["Someone"])[0]) for turn in turns]
                said = [spoken(turn["utterance"]) for turn in turns]
                passage, starts = _passage("friendsqa", list(zip(people, said, strict=True)))
                asked = [_friends_question(row, starts, passage.sentences) for row in part["qas"]]
                yield passage, [question for question in asked if question[1]]


def _friends_question(
    row: dict[str, Any], starts: list[tuple[int, ...]], turns: tuple[str, ...]
) -> tuple[str, tuple[int, ...], tuple[str, ...]]:
    at = {i for answer in row["answers"] for i in starts[int(answer["utterance_id"])]}
    at = {i for i in at if len(turns[i].split()) > SHORT}
    held = [spoken(answer["answer_text"]).lower() for answer in row["answers"] if not answer["is_speaker"]]
    return spoken(row["question"]), tuple(sorted(at)), tuple(dict.fromkeys(text.rstrip(".") for text in held))


def qmsum(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    """The meetings of data/ALL/*/*.json below `folder`. Raises FileNotFoundError when there are none."""
    for file in _files(folder, "data/ALL/*/*.json"):
        meeting = json.loads(file.read_text(encoding="utf-8"))
        turns = [(row["speaker"], spoken(row["content"])) for row in meeting["meeting_transcripts"]]
        passage, starts = _passage("qmsum", turns)
        asked: Asked = []
        for row in meeting["specific_query_list"]:
            spans = [range(int(first), int(last) + 1) for first, last in row["relevant_text_span"]]
            pieces = [i for span in spans for turn in span if turn < len(starts) for i in starts[turn]]
            if pieces and sum(map(len, spans)) <= SHORT_SPAN:
                summary = _words(row["answer"])
                best = max(pieces, key=lambda i: len(summary & _words(passage.sentences[i])))
                asked.append((spoken(row["query"]), tuple(sorted({best, *pieces}, key=lambda i: (i != best, i))), ()))
        if asked:
            yield passage, asked


def _passage(source: str, turns: list[tuple[str, str]]) -> tuple[Passage, list[tuple[int, ...]]]:
    """The turns as sentences, and for each turn the indexes of its pieces."""
    pieces: list[str] = []
    starts: list[tuple[int, ...]] = []
    for person, said in turns:
        cut = [] if person == STAGE else _pieces(said)
        starts.append(tuple(range(len(pieces), len(pieces) + len(cut))))
        pieces += [f"{person}: {text}" for text in cut]
    return Passage(
        source, tuple(pieces), tuple(dict.fromkeys(person for person, _ in turns if person != STAGE))
    ), starts


def _pieces(text: str) -> list[str]:
    pieces: list[str] = []
    for start, end in sentence_bounds(text):
        sentence = text[start:end].strip()
        if pieces and len(pieces[-1]) + len(sentence) < TURN:
            pieces[-1] += f" {sentence}"
        else:
            pieces.append(sentence)
    return pieces


def spoken(text: str) -> str:
    """Spaced tokens and transcribers' marks ("{vocalsound} you 're gon na go ?") as a person writes them."""
    text = _NOISE.sub(" ", text)
    for apart, together in _SPLIT_WORDS:
        text = text.replace(apart, together)
    return re.sub(r"\b(\w+) n't\b", r"\1n't", untokenised(text))


def _words(text: str) -> set[str]:
    return {word for word in re.findall(r"[a-z]{4,}", text.lower())}


def _first_name(person: str) -> str:
    """ "Ross Geller" as he is called in questions; titles ("Dr. Green") stay."""
    first = person.split()[0] if person.split() else "Someone"
    return person if first.endswith(".") or first in ("The", "Mr", "Mrs", "Ms") else first


def _files(folder: Path, pattern: str) -> list[Path]:
    files = sorted(folder.glob(pattern))
    if not files:
        raise FileNotFoundError(f"no {pattern} in {folder}")
    return files
