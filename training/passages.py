"""The questions and passages that are learned from: SQuADShifts (CC BY 4.0), ClapNQ (Apache-2.0), and what may be added.

SQuADShifts: Miller et al. 2020, Amazon reviews, Reddit posts and new Wikipedia articles, each question with answer spans.
ClapNQ: Rosenthal et al. 2024, Natural Questions with long answers; its unanswerable half has a passage without an answer.
"""

from __future__ import annotations

import csv
import html
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = ("amazon_reviews_v1.0.json", "new_wiki_v1.0.json", "reddit_v1.0.json")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])")
LONGEST_SENTENCE = 400
DIALOGUES = ("friendsqa", "qmsum")
PAPERS = ("pubmedqa", "evidence_inference", "scitldr")


@dataclass(frozen=True, slots=True)
class Passage:
    """One text, cut into its sentences in order, and where it comes from: amazon, new_wiki, reddit, clapnq, one of `DIALOGUES`
    (its sentences are turns, `people` those who speak) or one of `PAPERS`."""

    source: str
    sentences: tuple[str, ...]
    people: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """`answering` are the sentences of the passage, by index, that hold an answer: none for one without an answer there.

    Of a paper they are all that may be read: a title or a conclusion that is itself the question is not among them.
    """

    text: str
    passage: int
    answering: tuple[int, ...]
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Passages, and the questions that name them by index."""

    passages: tuple[Passage, ...]
    questions: tuple[Question, ...]


Asked = list[tuple[str, tuple[int, ...], tuple[str, ...]]]


def read(
    squadshifts: Path, clapnq: Path, more: Iterable[tuple[Passage, Asked]] = (), limit: int | None = None
) -> Corpus:
    """Read both folders, then `more`; at most `limit` passages of each source, evenly taken.

    Raises FileNotFoundError with the file's name when one is missing.
    """
    passages: list[Passage] = []
    questions: list[Question] = []
    for passage, asked in taken([*_squadshifts(squadshifts), *_clapnq(clapnq), *more], limit):
        number = len(passages)
        passages.append(passage)
        questions += [Question(text, number, at, answers) for text, at, answers in asked]
    return Corpus(tuple(passages), tuple(questions))


def taken(rows: list[tuple[Passage, Asked]], limit: int | None) -> list[tuple[Passage, Asked]]:
    """At most `limit` passages of each source, at even distances in their order; all of them without a limit."""
    sizes = Counter(passage.source for passage, _ in rows)
    seen: Counter[str] = Counter()
    kept = []
    for passage, asked in rows:
        at, size = seen[passage.source], sizes[passage.source]
        seen[passage.source] += 1
        if limit is None or size <= limit or at * limit // size != (at + 1) * limit // size:
            kept.append((passage, asked))
    return kept


def _squadshifts(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    for name in FILES:
        document = json.loads((folder / name).read_text(encoding="utf-8"))
        source = name.split("_v1")[0].removesuffix("_reviews")
        for article in document["data"]:
            for paragraph in article["paragraphs"]:
                text = paragraph["context"]
                bounds = sentence_bounds(text)
                asked: Asked = []
                for row in paragraph["qas"]:
                    spans = [(a["answer_start"], a["answer_start"] + len(a["text"])) for a in row["answers"]]
                    at = {i for i, (start, end) in enumerate(bounds) for a, b in spans[:1] if a < end and b > start}
                    answers = tuple(dict.fromkeys(a["text"].strip().lower() for a in row["answers"]))
                    if at:
                        asked.append((clean(row["question"]), tuple(sorted(at)), answers))
                yield Passage(source, tuple(clean(text[start:end]) for start, end in bounds)), asked


def _clapnq(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    read_questions = set()
    for name in ("clapnq_dev_answerable.jsonl", "clapnq_dev_unanswerable.jsonl"):
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            read_questions.add(row["input"])
            sentences = tuple(untokenised(sentence) for sentence in row["passages"][0]["sentences"])
            chosen = {untokenised(s) for out in row["output"] for s in out.get("selected_sentences", [])}
            at = tuple(i for i, sentence in enumerate(sentences) if sentence in chosen)
            if at or name.endswith("unanswerable.jsonl"):
                yield Passage("clapnq", sentences), [(row["input"], at, ())]
    for name in ("question_train_answerable.tsv", "question_dev_answerable.tsv"):
        with (folder / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file, delimiter="\t"):
                answer = untokenised(row["answers"].split("::")[0].replace("\n", " "))
                if row["question"] in read_questions or len(answer) < 40:
                    continue
                sentences = tuple(clean(answer[start:end]) for start, end in sentence_bounds(answer))
                yield Passage("clapnq", sentences), [(row["question"], tuple(range(len(sentences))), ())]


def sentence_bounds(text: str) -> list[tuple[int, int]]:
    """(start, end) of each sentence; one of over `LONGEST_SENTENCE` characters is cut at a space."""
    starts = [0, *(match.end() for match in _SENTENCE.finditer(text))]
    found: list[tuple[int, int]] = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        while end - start > LONGEST_SENTENCE:
            cut = text.rfind(" ", start + LONGEST_SENTENCE // 2, start + LONGEST_SENTENCE)
            cut = cut if cut > 0 else start + LONGEST_SENTENCE
            found.append((start, cut))
            start = cut
        if text[start:end].strip():
            found.append((start, end))
    return found


def clean(text: str) -> str:
    """Entities resolved and white space made single."""
    return " ".join(html.unescape(text).replace("<br />", " ").split())


def untokenised(text: str) -> str:
    """ClapNQ's spaced tokens ("it 's a `` test '' .") as a person writes them."""
    text = text.replace("``", '"').replace("''", '"').replace("-LRB-", "(").replace("-RRB-", ")").strip(' "')
    text = re.sub(r"\s+([.,;:!?%)\]])", r"\1", text)
    text = re.sub(r"([(\[$])\s+", r"\1", text)
    return clean(re.sub(r"\s+('s|'re|'ve|'ll|'d|'m|n't)\b", r"\1", text))
