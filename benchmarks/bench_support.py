"""Support: on annotated pairs of a claim and a memory, how often `blame` is right when it says that the memory supports the claim.

    python -m benchmarks.bench_support [--data ../shared/data/locomo] [--part "held out"] [--details]

benchmarks/data/support_pairs.csv has the claim, the id of the memory (of the sample set; those with a slash are turns of LoCoMo, which is
read from --data and left out without it) and the kind, annotated by reading both. *verbatim* and *paraphrase*: the memory says the claim.
The rest are not supported. Near misses: another *number*, *date*, *name* or *subject*, a *negation*, another *tense* (planned, not done).
*chance*: words in common, nothing else; *topic*: about the same, but not said; *half*: one half of it is in the memory; *foreign*: the
closest memory to a claim about something else. The part "set" set the thresholds and the rules; "held out" was written after them.
Intervals are Wilson's, 95 %.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from cems_workbench import formats
from cems_workbench.analysis.blame import VERDICTS, Support, judged_memories
from cems_workbench.analysis.support import Claim
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.evaluation.labelling.judge_calibration import wilson
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import ENGLISH
from cems_workbench.settings import Settings

PAIRS = Path(__file__).parent / "data" / "support_pairs.csv"
SUPPORTED = ("verbatim", "paraphrase")
NEAR_MISSES = ("number", "date", "name", "subject", "negation", "tense")
OTHERS = ("chance", "topic", "half", "foreign")


@dataclass(frozen=True, slots=True)
class Pair:
    """A claim and a memory, annotated; `kind` says whether the memory supports it."""

    part: str
    kind: str
    memory: str
    claim: str

    @property
    def supported(self) -> bool:
        """Whether the memory says the claim."""
        return self.kind in SUPPORTED


def pairs(of_sample: bool) -> list[Pair]:
    """The pairs of the sample set, or those of LoCoMo."""
    with PAIRS.open(encoding="utf-8", newline="") as file:
        return [pair for row in csv.DictReader(file) if ("/" not in (pair := Pair(**row)).memory) == of_sample]


def judged_pairs(found: Iterable[Pair], resources: Resources) -> list[tuple[Pair, Support]]:
    """Each pair as `blame` judges it in the store that has the memory."""
    rows = list(found)
    vectors = resources.embedder.encode([pair.claim for pair in rows])
    return [
        (pair, support)
        for pair, vector in zip(rows, vectors, strict=True)
        for support in judged_memories(Claim(pair.claim), vector, [pair.memory], ENGLISH, resources)
    ]


def precision(judged: Iterable[tuple[Pair, Support]]) -> tuple[int, int]:
    """Of the pairs that are said to be supported: how many are, and how many there are."""
    said = [pair.supported for pair, support in judged if support.verdict == "supports"]
    return sum(said), len(said)


def main() -> None:
    """Print the tables of docs/use/blame.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/locomo"))
    parser.add_argument("--part", help="only this part of the pairs")
    parser.add_argument("--details", action="store_true", help="print the pairs that are judged wrongly or not at all")
    options = parser.parse_args()
    judged: list[tuple[Pair, Support]] = []
    for of_sample, data in ((True, SAMPLE_DATA), (False, options.data)):
        if not data.exists():
            print(f"left out: {len(pairs(of_sample))} pairs of {data}, which is not there")
            continue
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(open_resources(Settings(store=Path(folder)))) as resources,
        ):
            for parsed in formats.read_path(data):
                resources.store.add(parsed)
            resources.refresh()
            judged += judged_pairs(pairs(of_sample), resources)
    for part in [options.part] if options.part else ["set", "held out"]:
        report(part, [one for one in judged if one[0].part == part], options.details)


def report(part: str, judged: list[tuple[Pair, Support]], details: bool) -> None:
    """Print precision, recall and the verdicts by kind of a part."""
    right, said = precision(judged)
    supported = sum(pair.supported for pair, _ in judged)
    silent = [pair for pair, support in judged if support.verdict == "no"]
    print(f"{part}: {len(judged)} pairs, {supported} of them supported")
    for name, successes, trials in (
        ("precision of “supports”", right, said),
        ("recall of “supports”", right, supported),
        ("precision of “no”", sum(not pair.supported for pair in silent), len(silent)),
    ):
        low, high = wilson(successes, trials)
        print(f"  {name}: {successes} of {trials}, {successes / max(trials, 1):.3f} ({low:.3f} to {high:.3f})")
    print("| kind | pairs | supports | cannot tell | no |\n|---|---|---|---|---|")
    for kind in (*SUPPORTED, *NEAR_MISSES, *OTHERS):
        counts = Counter(support.verdict for pair, support in judged if pair.kind == kind)
        print(f"| {kind} | {counts.total()} | " + " | ".join(str(counts[verdict]) for verdict in VERDICTS) + " |")
    for pair, support in judged if details else ():
        if (support.verdict == "supports") != pair.supported:
            print(
                f"    {pair.kind} {pair.memory} {support.verdict}: {support.reason} "
                f"[{support.overlap.share:.2f} {support.cosine or 0:.2f}] {pair.claim}"
            )


if __name__ == "__main__":
    main()
