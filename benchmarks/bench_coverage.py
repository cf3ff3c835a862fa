"""How often `coverage` names the turn that a memory came from, and what it says of memories that were altered or made up.

    python -m benchmarks.bench_coverage --data ../shared/data/locomo [--part set|held-out]
    python -m benchmarks.bench_coverage --speed 6000

The memories of a conversation are its LoCoMo observations, facts that a language model wrote of its turns, each with the turns that it
used; the store does not have these. One in ten is replaced by an observation of another conversation under this one's names, and in each
second one with a number, a day or a month this is another. Thresholds were set on the conversations of the part "set". Intervals are
Wilson's, 95 %.

`--speed` compares so many made-up turns with as many memories, and gives the seconds beside those of embedding them.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import resource
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from cems_workbench import formats
from cems_workbench.evaluation.labelling.judge_calibration import wilson
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import silent
from cems_workbench.records import Memory, ParsedInput
from cems_workbench.settings import Settings
from workbench_transcripts.whole import TranscriptCoverage, coverage_of

PARTS = {"set": ("26", "30", "41"), "held-out": ("42", "43")}
_NUMBERS, _MONTHS = (
    "two nine three ten four seven five eight six three",
    "January October March December May July June April August February",
)
_VALUES = f"{_NUMBERS} {_MONTHS} Monday Saturday Tuesday Sunday Wednesday Friday Thursday Monday Friday Tuesday".split()
OTHERS = dict(zip(_VALUES[::2], _VALUES[1::2], strict=True))
"""Another value by a value."""


def altered(text: str) -> str:
    """The text with another number, day or month; the same if it has none."""
    found = re.search(rf"\b(?:\d+|{'|'.join(OTHERS)})\b", text)
    if found is None:
        return text
    other = OTHERS.get(found[0]) or str(int(found[0]) * 2 + 3)
    return text[: found.start()] + other + text[found.end() :]


def observations(path: Path) -> list[tuple[str, str, set[str]]]:
    """(speaker, text, ids of its turns) of each observation of a conversation."""
    rows = []
    for key, of_session in json.loads(path.read_text("utf-8")).items():
        for speaker, each in of_session.items() if key.endswith("_observation") else ():
            for text, turns in each:
                rows.append((speaker, text, set(re.findall(r"D\d+:\d+", str(turns)))))
    return rows


def opened(folder: Path, memories: list[Memory]) -> Resources:
    """A store of these memories, searchable."""
    resources = open_resources(Settings(store=folder))
    resources.store.add(ParsedInput("bench", "memories", memories=tuple(memories)))
    resources.refresh()
    return resources


def measured(data: Path, name: str, other: str, folder: Path) -> Counter[tuple[str, str]]:
    """Of each kind of memory how many have which verdict; a supported one is right or wrong by its turns. "covered": turns of
    observations; "uncovered": the others."""
    chance, rows = random.Random(name), observations(data / f"{name}.json")
    strangers = observations(data / f"{other}.json")
    names = [sorted({speaker for speaker, _, _ in side}) for side in (strangers, rows)]
    memories, kinds, truth = list[Memory](), dict[str, str](), dict[str, set[str]]()
    for i, (speaker, text, turns) in enumerate(rows):
        kind = "invented" if i % 10 == 0 else "altered" if i % 2 and altered(text) != text else "as written"
        if kind == "invented":
            speaker, text, turns = *chance.choice(strangers)[:2], set[str]()
            for theirs, ours in zip(*names, strict=True):
                text, speaker = text.replace(theirs, ours), ours if speaker == theirs else speaker
        kinds[f"m{i}"] = kind
        truth[f"m{i}"] = turns
        memories.append(Memory(f"m{i}", altered(text) if kind == "altered" else text, author=speaker))
    turns_of = list(formats.read(data / f"{name}.json", "locomo", silent).memories)
    with closing(opened(folder / "s", memories)) as store, closing(opened(folder / "t", turns_of)) as transcript:
        found = coverage_of(store, transcript)
    counts = Counter[tuple[str, str]]()
    for memory in found.memories:
        links = {
            link.turn.rpartition("/")[2]
            for link in found.links
            if link.memory == memory.id and link.coverage == "covers"
        }
        verdict = memory.verdict
        if verdict == "supported" and kinds[memory.id] == "as written":
            counts["as written", "supported by the right turn" if links & truth[memory.id] else "by another alone"] += 1
        else:
            counts[kinds[memory.id], verdict] += 1
    known = {turn for memory, turns in truth.items() if kinds[memory] == "as written" for turn in turns}
    for turn in found.turns:
        counts["turn of a memory" if turn.id.rpartition("/")[2] in known else "other turn", turn.verdict] += 1
    return counts


def speed(count: int, folder: Path) -> None:
    """Print the seconds of embedding and of comparing `count` turns and memories, and the memory that was held."""
    chance, ends = random.Random(count), ("kan", "lor", "mis", "net", "pod")
    words = [a + b for a in ("ba", "do", "ki", "lu", "me", "no", "pi", "ra", "su", "te") for b in ends]

    def text(i: int) -> str:
        return f"{' '.join(chance.choices(words, k=14))} {i}."

    texts = [text(i) for i in range(count)]
    turns = [Memory(f"t{i:06}", f"Ann: {one}", session=f"s{i // 30}", author="Ann") for i, one in enumerate(texts)]
    memories = [Memory(f"m{i:06}", one if i % 2 else text(i)) for i, one in enumerate(texts)]
    started = time.process_time()
    with closing(opened(folder / "s", memories)) as store, closing(opened(folder / "t", turns)) as transcript:
        embedded, held = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found: TranscriptCoverage = coverage_of(store, transcript)
    took, grown = time.process_time() - embedded, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
    print(
        f"{count:,}: {embedded - started:.0f} s processor to import and embed, {took:.0f} s to compare, {grown / 1024:.0f} MB more held"
    )
    print(*found.lines, sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/locomo"))
    parser.add_argument("--part", choices=PARTS, default="set")
    parser.add_argument("--speed", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if asked.speed:
            return speed(asked.speed, Path(folder))
        counts, names = Counter[tuple[str, str]](), PARTS[asked.part]
        for i, name in enumerate(names):
            counts += measured(asked.data, name, names[i - 1], Path(folder) / name)
    for kind in dict.fromkeys(kind for kind, _ in sorted(counts)):
        of = {verdict: count for (one, verdict), count in counts.most_common() if one == kind}
        total = sum(of.values())
        shares = ", ".join(
            f"{verdict} {count} ({low:.2f} to {high:.2f})"
            for verdict, count in of.items()
            for low, high in [wilson(count, total)]
        )
        print(f"{kind}, {total}: {shares}")
    return None


if __name__ == "__main__":
    main()
