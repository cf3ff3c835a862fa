"""Claims about papers, with the abstract that bears on them: PubMedQA (MIT), Evidence Inference (MIT), SciTLDR (Apache-2.0).

PubMedQA: Jin et al. 2019, a question, the abstract and its conclusion. Evidence Inference: DeYoung et al. 2020, abstracts of
randomised trials and what each compared. SciTLDR: Cachola et al. 2020, abstracts and one-sentence summaries of papers on machine
learning. A claim is a question, a title, a conclusion that is then left out of the abstract, a summary, or what a trial compared
put as a finding: whether the abstract supports or refutes it makes no difference, it is the one to read.
"""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from training.passages import Asked, Passage, clean, sentence_bounds

FINDINGS = (
    "{i} reduces {o} compared with {c}.",
    "{i} increases {o} compared to {c}.",
    "{i} has no effect on {o}.",
    "{o} is higher with {i} than with {c}.",
    "{i} improves {o}.",
    "Treatment with {i} decreases {o}.",
    "{i} does not change {o} relative to {c}.",
    "{o} is affected by {i}.",
)
"""How a comparison is put as a finding; intervention, outcome and comparator."""
A_TRIAL = 2
"""Comparisons that are taken of each trial: there are up to a dozen, much alike."""
_SECTION = re.compile(r"^(TITLE|ABSTRACT|BODY)[^\n]*[:.]\s*$", re.MULTILINE)


def pubmedqa(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    """The abstracts of data/ori_pqal.json below `folder`: asked by their question, and by what they conclude."""
    rows = json.loads((folder / "data/ori_pqal.json").read_text(encoding="utf-8"))
    for row in rows.values():
        sentences = _sentences(" ".join(row["CONTEXTS"]))
        support = tuple(range(len(sentences)))
        concluded = _sentences(row["LONG_ANSWER"])[0]
        yield Passage("pubmedqa", sentences), [(clean(row["QUESTION"]), support, ()), (concluded, support, ())]


def evidence_inference(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    """The abstracts of annotations/abstracts below `folder`: asked by title, by conclusion, and by what was compared."""
    compared: dict[str, list[tuple[str, str, str]]] = {}
    with (folder / "annotations/prompts_merged.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            parts = tuple(clean(row[name]).strip(" .") for name in ("Intervention", "Outcome", "Comparator"))
            if all(2 < len(part) < 90 for part in parts):
                compared.setdefault(row["PMCID"], []).append((parts[0], parts[1], parts[2]))
    for path in sorted((folder / "annotations/abstracts").glob("*.abst")):
        found = _SECTION.split(path.read_text(encoding="utf-8"))[1:]
        sections = [(name, clean(text)) for name, text in zip(found[::2], found[1::2], strict=True) if clean(text)]
        title = next((text for name, text in sections if name == "TITLE"), "")
        abstract = [_sentences(text) for name, text in sections if name == "ABSTRACT"]
        if not title or sum(map(len, abstract)) < 3:
            continue
        concluded = abstract[-1] if len(abstract) > 1 else abstract[-1][-1:]
        sentences = (title, *(sentence for part in abstract for sentence in part))
        everything = tuple(range(len(sentences)))
        asked: Asked = [(title, everything[1:], ()), (concluded[0], everything[: -len(concluded)], ())]
        chance = random.Random(path.stem)
        trial = compared.get(path.stem.removeprefix("PMC"), [])
        for i, o, c in chance.sample(trial, min(A_TRIAL, len(trial))):
            finding = chance.choice(FINDINGS).format(i=i, o=o, c=c)
            asked.append((finding[0].upper() + finding[1:], everything, ()))
        yield Passage("evidence_inference", sentences), asked


def scitldr(folder: Path) -> Iterator[tuple[Passage, Asked]]:
    """The abstracts of SciTLDR-Data/SciTLDR-A/*.jsonl below `folder`: asked by title and by their first summary."""
    for path in sorted((folder / "SciTLDR-Data/SciTLDR-A").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            title, summary = clean(row["title"]), clean(row["target"][0])
            sentences = (title, *(clean(sentence) for sentence in row["source"] if clean(sentence)))
            everything = tuple(range(len(sentences)))
            yield Passage("scitldr", sentences), [(title, everything[1:], ()), (summary, everything, ())]


def _sentences(text: str) -> tuple[str, ...]:
    return tuple(clean(text[start:end]) for start, end in sentence_bounds(text)) or (text,)
