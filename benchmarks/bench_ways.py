"""Planted faults in stores that are made of turns, and how often `ways` names the place at which a question loses its fact.

    python -m benchmarks.bench_ways --data ../shared/data/locomo [--longmemeval FILE] [--part set|held-out|unseen] [--details]

Each conversation becomes a transcript, and a store that has its turns as memories under other ids and without their source. A question
takes part if the words of its answer that its turn has are in no other turn that also has half of the question's; or if it asks for a
time and the turn says one. One fault is planted for each question and draw, of the kinds in turn; no question gets the same twice.

Thresholds were set on the part "set": the first haystack of LongMemEval, and in LoCoMo the questions whose answer's words are in their
turn alone, and half of the others. "held-out" are the other half and the other haystacks. Its figures led to the rules on copies of a
turn; what these are worth was measured on "unseen": the questions of LoCoMo that the other parts leave, unless another turn has three
quarters of the words of both the question and its answer. All three have been looked at since. "all" takes every question of a
conversation: the figures of conversations that nobody looked at are those of `--data FOLDER --part all`.

Where another turn says the fact too, nothing is lost when one is deleted, and the planted place is wrong. Such questions have a
separate row, "said twice", and are not in "all": another turn has all words of the answer that the turn has, with a rare word of the
question (`said_again`). That rule knows none of the thresholds that are measured.

What the pipeline then does with the right memory is read off its trace: a fault that changes no rank is no loss.
Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

from cems_workbench import formats
from cems_workbench.config import preset
from cems_workbench.evaluation.labelling.judge_calibration import wilson
from cems_workbench.jobs.evidence_memory import EvidenceMemory
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline import replay
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query, Relation
from cems_workbench.settings import Settings
from cems_workbench.store.search.tokenizer import tokenize
from workbench_transcripts.answers import Answers
from workbench_transcripts.ways import ways_of

PARTS = ("set", "held-out", "unseen", "all")
DRAWS = {"set": (1, 3), "held-out": (2, 3), "unseen": (3, 0), "all": (2, 0)}
"""Faults of each question of a part, in LoCoMo and in LongMemEval."""
RARE, TWICE = 50, "said twice"
"""A word is rare if at most one turn in so many has it; and the row of questions whose fact another turn says too."""
KINDS = (
    "none", "delete", "number", "date", "name", "negate", "merge", "split", "deleted", "supersede", "expire", "project", "embed", "bury",
    "ignore", "contradict",
)  # fmt: skip
NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
TIMES = (
    "yesterday", "last week", "last month", "last year", "next month", "this month", "last weekend", "two weekends ago", "last Friday",
    "tomorrow", "next week", "last night",
)  # fmt: skip
_TIME = re.compile(rf"\b(?:{'|'.join((*MONTHS, *DAYS, *TIMES))})\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?]+|\n|$)")
_AUXILIARY = re.compile(
    r"\b(is|are|was|were|have|has|had|can|will|would|could|should|did|I'm|it's|we're|they're|I've)\b"
)
_SUBJECT = re.compile(r"\b(I|we|they|he|she|We|They|He|She) (?=[a-z]+\b)")


@dataclass(frozen=True)
class Planted:
    """A fault: the question, its kind and the turn; `memory_id` of the memory that has or had the fact."""

    query: Query
    kind: str
    turn: Memory
    memory_id: str
    said: str


def said(text: str) -> str:
    """A turn without its speaker and its questions: not by the code that is measured, which would choose the questions too."""
    pieces = _SENTENCE.findall(re.sub(r"^\w+: ", "", text))
    return " ".join(piece.strip() for piece in pieces if not piece.rstrip().endswith("?"))


def altered(kind: str, sentence: str, answer: str, names: list[str], chance: random.Random) -> str | None:
    """The sentence with another number, date or name, or negated; None where it has none."""
    if kind == "negate":
        if re.search(r"\b(?:not|never|no)\b|n't\b", sentence):
            return None
        if found := _AUXILIARY.search(sentence):
            return f"{sentence[: found.end()]} not{sentence[found.end() :]}"
        found = _SUBJECT.search(sentence)
        return f"{sentence[: found.end()]}never {sentence[found.end() :]}" if found else None
    if kind == "date":
        found = _TIME.search(sentence)
        kinds: tuple[tuple[str, ...], ...] = (MONTHS, DAYS, TIMES)
        pool = next((one for one in kinds if found and found[0].lower() in map(str.lower, one)), TIMES)
    elif kind == "number":
        found = re.search(rf"\b(?:\d+|{'|'.join(NUMBERS)})\b", sentence, re.IGNORECASE)
        found = found if found and found[0].lower() in answer.lower() else None
        pool = (str(int(found[0]) + 3),) if found and found[0].isdigit() else NUMBERS
    else:
        every = [
            one for one in re.finditer(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", sentence) if one[0] not in (*MONTHS, *DAYS)
        ]
        found, pool = next((one for one in every if one[0].lower() in answer.lower()), None), tuple(names)
    if found is None:
        return None
    other = chance.choice([one for one in pool if one.lower() != found[0].lower()])
    return f"{sentence[: found.start()]}{other}{sentence[found.end() :]}"


def conversations(
    part: str, locomo: Path, longmemeval: Path | None, folder: Path
) -> Iterator[tuple[str, ParsedInput, list[tuple[Query, Memory]], int]]:
    """The conversations of a part: name, turns, its questions with the turn that answers each, and how many draws."""
    for path in sorted(locomo.glob("*.json")):
        parsed = formats.read(path, "locomo", silent)
        needed = defaultdict(list)
        for judgment in parsed.judgments:
            needed[judgment.qid].append(judgment.memory_id)
        first, others, rest = candidates(parsed, {qid: ids[0] for qid, ids in needed.items() if len(ids) == 1})
        halves = [one for one in others if crc32(f"{path.stem} {one[0].qid}".encode()) % 2 == (part == "held-out")]
        chosen = rest if part == "unseen" else halves + (first if part == "set" else [])
        chosen = [*first, *others, *rest] if part == "all" else chosen
        yield path.stem, parsed, chosen, DRAWS[part][0]
    rows = json.loads(longmemeval.read_text("utf-8")) if longmemeval else []
    for row in {"set": rows[:1], "held-out": rows[1:]}.get(part, []):
        asked = row.get("questions") or [row["question"]]
        answers = row.get("answers") or [row["answer"]]
        sessions = row["answer_session_ids"] if "questions" in row else [row["answer_session_ids"]]
        file = folder / f"{row['question_id']}.json"
        flat = row | {
            "question": asked[0],
            "answer": answers[0],
            "answer_session_ids": [name for one in sessions for name in one],
        }
        file.write_text(json.dumps([flat]), "utf-8")
        parsed = formats.read(file, "longmemeval", silent)
        queries, turns = [], {}
        for i, (question, answer, names) in enumerate(zip(asked, answers, sessions, strict=True)):
            query = Query(f"{row['question_id']}-{i}", question, parsed.queries[0].project, answer=answer)
            words = {*tokenize(answer, "english")}
            shares = sorted(
                (len(words & {*tokenize(said(one.content), "english")}) / len(words), one.id)
                for one in parsed.memories
                if (one.session or "").split("/")[-1] in names
            )
            if words and len(shares) > 1 and shares[-1][0] >= 0.6 and shares[-1][0] > shares[-2][0]:
                queries.append(query)
                turns[query.qid] = shares[-1][1]
        parsed = replace(
            parsed, queries=tuple(queries), judgments=tuple(Judgment(qid, one, 1) for qid, one in turns.items())
        )
        first, others, _ = candidates(parsed, turns)
        yield row["question_id"], parsed, first + others, DRAWS[part][1]


def candidates(parsed: ParsedInput, needed: dict[str, str]) -> tuple[list[tuple[Query, Memory]], ...]:
    """The questions of which one turn alone has the answer's words, one a turn; those of which others have them, but not the question's,
    or whose turn answers another question too; and those of which no other turn has most of both."""
    turns = {memory.id: memory for memory in parsed.memories}
    terms = {one: {*tokenize(said(memory.content), "english")} for one, memory in turns.items()}
    first, others, rest, used = [], [], [], set()
    for query in parsed.queries:
        one = needed.get(query.qid)
        if one is None or not query.answer or query.answerable is False:
            continue
        key = {*tokenize(query.answer, "english")} & terms[one]
        asked = {*tokenize(query.query, "english")} & terms[one]
        timed = query.type == "temporal" and _TIME.search(turns[one].content)
        most = [other for other in terms if other != one and len(key & terms[other]) >= max(1, 0.75 * len(key))]
        alone = not any(key <= terms[other] for other in most)
        clear = timed or not (most or _twice(turns[one].content, key))
        if one not in used and (timed or (key and query.type != "temporal" and alone)):
            used.add(one)
            first += [(query, turns[one])] if clear else []
        elif key and not any(2 * len(asked & terms[other]) >= max(2, len(asked)) for other in most):
            others += [] if _twice(turns[one].content, key) else [(query, turns[one])]
        elif key and not any(len(asked & terms[other]) >= max(2, 0.75 * len(asked)) for other in most):
            rest += [] if _twice(turns[one].content, key) else [(query, turns[one])]
    return first, others, rest


def said_again(parsed: ParsedInput, questions: list[tuple[Query, Memory]]) -> set[str]:
    """The questions whose fact another turn says too: it has all words of the answer that the turn has, and a rare word of the question
    that the turn has, or any if the turn has no rare one; where the turn has none at all, the answer's words suffice."""
    terms = {memory.id: {*tokenize(memory.content, "english")} for memory in parsed.memories}
    frequent = Counter(word for words in terms.values() for word in words)
    names = {*tokenize(" ".join(memory.author or "" for memory in parsed.memories), "english")}
    found = set()
    for query, turn in questions:
        key = {*tokenize(query.answer or "", "english")} & {*tokenize(said(turn.content), "english")}
        held = ({*tokenize(query.query, "english")} - names) & terms[turn.id] - key
        wanted = {word for word in held if frequent[word] * RARE <= len(terms)} or held
        timed = query.type == "temporal" and _TIME.search(turn.content)
        if key and not timed:
            others = (words for one, words in terms.items() if one != turn.id and key <= words)
            found |= {query.qid} if any(not wanted or wanted & words for words in others) else set()
    return found


def _twice(text: str, key: set[str]) -> bool:
    """Whether two sentences of a turn have most of the answer's words: no change of one of them loses it."""
    pieces = [{*tokenize(piece, "english")} for piece in _SENTENCE.findall(text)]
    return bool(key) and sum(len(key & piece) >= 0.75 * len(key) for piece in pieces) > 1


def plant(
    parsed: ParsedInput, questions: list[tuple[Query, Memory]], had: dict[str, set[str]], chance: random.Random
) -> tuple[list[Memory], list[Relation], list[Planted], list[str], dict[str, str]]:
    """Memories, edges, faults, the memories that are deleted after the import, and those whose vector is another text's."""
    names = sorted({one for m in parsed.memories for one in re.findall(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b", m.content)})
    ids = {memory.id: f"m{i:04d}" for i, memory in enumerate(parsed.memories)}
    memories = {one.id: replace(one, id=ids[one.id], source_ref=None, session=None) for one in parsed.memories}
    relations: list[Relation] = []
    planted: list[Planted] = []
    deleted: list[str] = []
    mis_embedded: dict[str, str] = {}
    waiting = Counter[str]()
    chosen, used = chance.sample(questions, len(questions)), set[str]()
    unasked = sorted(memories.keys() - {turn.id for _, turn in chosen})
    for query, turn in chosen:
        if turn.id in used:
            continue
        used.add(turn.id)
        pieces = [piece.strip() for piece in _SENTENCE.findall(re.sub(r"^\w+: ", "", turn.content)) if piece.strip()]
        point = max(
            [piece for piece in pieces if query.type == "temporal" and _TIME.search(piece)]
            or [piece for piece in pieces if not piece.endswith("?")]
            or pieces,
            key=lambda piece: len(
                {*tokenize(piece, "english")} & {*tokenize(f"{query.answer} {query.query} {query.answer}", "english")}
            ),
        )
        made = {
            kind: altered(kind, point, query.answer or "", names, chance)
            for kind in ("number", "date", "name", "negate")
        }
        if query.type != "temporal":
            made["date"] = None
        lie = next((made[one] for one in ("name", "number", "date", "negate") if made[one]), None)
        rest = turn.content.replace(point, "").strip()
        key = {*tokenize(query.answer or "", "english")}
        key &= {*tokenize(said(turn.content), "english")}
        whole = key <= {*tokenize(point, "english")}
        pieces = pieces if whole and pieces.count(point) == 1 and len(pieces) > 1 else []
        keeps = not (key and key <= {*tokenize(rest, "english")}) and len(tokenize(said(rest), "english")) >= 0.5 * len(
            tokenize(said(turn.content), "english")
        )
        able = [kind for kind in KINDS if kind not in made or made[kind]]
        able = [
            kind for kind in able if (kind != "merge" or keeps) and (kind not in ("supersede", "contradict") or lie)
        ]
        able = [kind for kind in able if kind not in had[query.qid] and (kind != "split" or pieces)]
        kind = min(able, key=lambda one: (waiting[one], KINDS.index(one)))
        waiting[kind] += 1
        had[query.qid].add(kind)
        memory = memories[turn.id]
        wrong = turn.content.replace(point, changed) if (changed := made.get(kind)) else ""
        other = memories[chance.choice(unasked)] if kind in ("merge", "embed") else memory
        answer = query.answer or ""
        if kind == "delete":
            del memories[turn.id]
        elif wrong:
            memories[turn.id] = replace(memory, content=wrong)
        elif kind == "merge":
            memories[turn.id] = replace(memory, content=f"{rest} {other.content}")
        elif kind == "split":
            del memories[turn.id]
            for i, piece in enumerate(pieces):
                memories[f"{turn.id}s{i}"] = replace(
                    memory, id=f"s{memory.id}{i}" if piece != point else memory.id, content=piece
                )
        elif kind == "deleted":
            deleted.append(memory.id)
        elif kind == "supersede":
            memories["new" + turn.id] = replace(
                memory, id=f"n{memory.id}", content=turn.content.replace(point, str(lie)), created_at=_later(memory)
            )
            relations.append(Relation(f"n{memory.id}", memory.id, "supersedes"))
        elif kind == "expire":
            memories[turn.id] = replace(memory, valid_until=_later(memory))
        elif kind == "project":
            memories[turn.id] = replace(memory, project="elsewhere")
        elif kind == "embed":
            mis_embedded[memory.content] = other.content
        elif kind == "bury":
            for i in range(14):
                memories[f"{turn.id}b{i}"] = replace(
                    memory, id=f"b{memory.id}{i}", content=f"{query.query} {'Hm, ' * i}I wonder."
                )
        elif kind == "contradict":
            memories["lie" + turn.id] = replace(memory, id=f"w{memory.id}", content=f"{query.query} {lie}")
        planted.append(Planted(query, kind, turn, memory.id, answer))
    return list(memories.values()), relations, planted, deleted, mis_embedded


def _later(memory: Memory) -> datetime | None:
    return None if memory.created_at is None else memory.created_at + timedelta(seconds=1)


def expected(fault: Planted, ranks: dict[str, int], k: int) -> tuple[str, ...]:
    """The right place; what only the pipeline decides is read off the ranks."""
    through = fault.memory_id in ranks and ranks[fault.memory_id] <= k
    if fault.kind == "delete":
        return ("not written",)
    if fault.kind in ("number", "date", "name", "negate", "merge"):
        return ("written wrongly",)
    if fault.kind in ("deleted", "supersede", "expire"):
        return ("returned",) if through else ("gone",)
    if fault.kind in ("ignore", "contradict") and through:
        return ("not used" if fault.kind == "ignore" else "contradicted",)
    return ("returned",) if through else ("lost",)


def measured(
    name: str,
    parsed: ParsedInput,
    questions: list[tuple[Query, Memory]],
    had: dict[str, set[str]],
    seed: int,
    folder: Path,
) -> list[tuple[Planted, Any, tuple[str, ...]]]:
    """The faults of one conversation and draw, each with its way and the right place."""
    memories, relations, planted, deleted, mis_embedded = plant(parsed, questions, had, random.Random(f"{name} {seed}"))
    settings = Settings(store=folder / f"{name}-{seed}")
    queries = [fault.query for fault in planted]
    turns = settings.model_copy(update={"store": folder / f"{name}-turns"})
    with closing(open_resources(settings)) as store, closing(open_resources(turns)) as transcript:
        if not transcript.store.memories.count():
            transcript.store.add(parsed, silent)
            transcript.refresh(silent)
        if not store.store.memories.count():
            made = ParsedInput("planted", "memories-jsonl", memories=tuple(memories), relations=tuple(relations))
            store.store.add(made, silent)
            _embed(store, mis_embedded)
            for one in deleted:
                store.store.memories.delete(one)
            store.refresh(silent)
        answers = Answers({fault.query.qid: _answer(fault, memories) for fault in planted})
        config = preset("workbench").config
        begun = time.process_time()
        gathered = EvidenceMemory()
        found = ways_of(name, queries, store, transcript, config, answers, gathered=gathered)
        print(f"{name}: {len(planted)} faults, {time.process_time() - begun:.1f} s")
        evidences = gathered.get(queries, config, store)
        ranks = [dict(replay(evidence, config).ranks) for evidence in evidences]
    return [
        (fault, way, expected(fault, rank, found.k))
        for fault, way, rank in zip(planted, found.ways, ranks, strict=True)
    ]


def _embed(resources: Resources, others: dict[str, str]) -> None:
    """Give memories the vector of another text."""
    embedder: Any = resources.embedder
    encode = embedder.encode
    embedder.encode = lambda texts, *rest: encode([others.get(text, text) for text in texts], *rest)
    try:
        resources.refresh(silent)
    finally:
        del embedder.encode


def _answer(fault: Planted, memories: list[Memory]) -> str:
    if fault.kind == "ignore":
        return "I do not know that."
    if fault.kind == "contradict":
        lie = next(one.content for one in memories if one.id == f"w{fault.memory_id}")
        return lie.replace(fault.query.query, "")
    return fault.said


def speed(locomo: Path, folder: Path, size: int, asked: int) -> None:
    """Processor seconds a question of gathering, and of all after it, where transcript and store have `size` turns and memories: those of
    LoCoMo, again under other projects until there are so many."""
    parsed = [formats.read(path, "locomo", silent) for path in sorted(locomo.glob("*.json"))]
    whole = [memory for one in parsed for memory in one.memories]
    turns = [
        replace(
            memory, id=f"{memory.id}~{i}" if i else memory.id, project=f"{memory.project}~{i}" if i else memory.project
        )
        for i in range(-(-size // len(whole)))
        for memory in whole
    ][:size]
    queries = tuple(query for one in parsed for query in one.queries if query.answer)[
        :: max(1, len(whole) // (3 * asked))
    ][:asked]
    judgments = tuple(judgment for one in parsed for judgment in one.judgments)
    made = [replace(turn, id=f"m{i}", source_ref=None, session=None) for i, turn in enumerate(turns)]
    inputs = (
        ParsedInput("turns", "memories-jsonl", memories=tuple(turns), queries=queries, judgments=judgments),
        ParsedInput("memories", "memories-jsonl", memories=tuple(made)),
    )
    folders = (folder / "turns", folder / "memories")
    with (
        closing(open_resources(Settings(store=folders[0]))) as transcript,
        closing(open_resources(Settings(store=folders[1]))) as store,
    ):
        for one, resources in zip(inputs, (transcript, store), strict=True):
            resources.store.add(one, silent)
            resources.refresh(silent)
        config, gathered = preset("workbench").config, EvidenceMemory()
        gathered.get(queries[:1], config, store)  # models are loaded
        begun = time.process_time()
        gathered.get(queries, config, store)
        between = time.process_time()
        found = ways_of("speed", queries, store, transcript, config, Answers({}), gathered=gathered)
        gather, after = ((b - a) / len(queries) for a, b in ((begun, between), (between, time.process_time())))
    places = dict(Counter(way.place for way in found.ways))
    ratio = after / gather
    print(
        f"{size:,} turns, {len(queries)} questions: gathering {gather:.3f} s, after it {after:.3f} s ({ratio:.2f}); {places}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/locomo"))
    parser.add_argument(
        "--longmemeval", type=Path, help="a file of LongMemEval, or one with several questions a haystack"
    )
    parser.add_argument("--part", choices=PARTS, default="set")
    parser.add_argument("--only", nargs="*", help="conversations by name")
    parser.add_argument("--folder", type=Path, help="where the stores are kept for another run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--details", action="store_true")
    parser.add_argument(
        "--speed", type=int, metavar="SIZE", help="measure the processor's seconds at so many turns instead"
    )
    given = parser.parse_args()
    if given.speed:
        with tempfile.TemporaryDirectory(prefix="ways-") as temporary:
            return speed(given.data, Path(temporary), given.speed, 20)
    rows, twice = [], set[str]()
    with tempfile.TemporaryDirectory(prefix="ways-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name, parsed, questions, draws in conversations(given.part, given.data, given.longmemeval, folder):
            had: dict[str, set[str]] = defaultdict(set)
            twice |= said_again(parsed, questions)
            for draw in range(draws if not given.only or name in given.only else 0):
                rows += measured(name, parsed, questions, had, given.seed + draw, folder)
    by_kind: dict[str, Counter[str]] = defaultdict(Counter)
    for fault, way, right in rows:
        kind = TWICE if fault.query.qid in twice else fault.kind
        verdict = "right" if way.place in right else "cannot tell" if way.place == "cannot tell" else "wrong"
        by_kind[kind][verdict] += 1
        by_kind["all"][verdict] += kind != TWICE
        if given.details and verdict != "right":
            held = way.held[0] if way.held else None
            print(
                f"\n{verdict}: {fault.kind}, right {right}, said {way.place}: {way.reason}\n  {fault.query.query} | {fault.query.answer}"
            )
            print(
                f"  turn   {fault.turn.content[:200]}\n  memory {held.memory.content[:200] if held and held.memory else None}"
            )
            print(f"  {held.pair if held else None}")
    for kind in (*KINDS, "all", TWICE):
        count = by_kind[kind].total()
        if count:
            low, high = wilson(by_kind[kind]["right"], count)
            print(
                f"{kind:12} {count:4} right {by_kind[kind]['right'] / count:.2f} [{low:.2f}, {high:.2f}] {dict(by_kind[kind])}"
            )


if __name__ == "__main__":
    main()
