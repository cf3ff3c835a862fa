"""The report of an investigation: why a memory is not among the results, what would bring it there, and what lists gave whom.

Every figure is one of `analysis.why.report.explain` and of the trace; the parts of a score are those of `pipeline.stages.fusion`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cems_workbench.analysis.supersession import stale_words
from cems_workbench.analysis.why.report import Why
from cems_workbench.config import config_hash
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.bundle import bundle_from
from cems_workbench.pipeline.list_sources import list_label
from cems_workbench.pipeline.stages.fusion import FUSION, FusionRow
from cems_workbench.pipeline.stages.result import ScorePart
from cems_workbench.records import Memory
from cems_workbench.report.page import DASH, Facts, Part, Row, Scale, Texts, made, number, render

FIRST, AROUND = 5, 3
"""Candidates whose contributions are shown: the first, and so many on either side of the memory."""
LIST_COLOURS = 6
"""Colours of lists in the style sheet, taken in turn."""


def investigation_report(
    found: Why, trace: Trace, moment: datetime, *, memory: Memory | None = None, redact: bool = False
) -> str:
    """Why a memory is missing as one HTML page.

    Args:
        found: what `analysis.why.report.explain` said.
        trace: the replay it is of.
        moment: when the report is made.
        memory: the memory itself, which may be no candidate; None is that of the evidence.
        redact: leave texts out; ids stay.
    """
    texts, path = Texts(redact), found.path
    memory = memory or trace.evidence.memories.get(path.memory_id)
    if redact:
        found = found.redacted
    bars, legend = _bars(trace, path.memory_id, texts)
    warnings = [f"{stage}: {texts.line(text)}" for stage, text in trace.warnings]
    return render(
        "why.html",
        title=f"Why {path.memory_id} is " + ("among the results" if path.status == "in the top k" else "missing"),
        query=texts.line(found.query),
        found=found,
        memory_title=texts.title(memory.title) if memory else "",
        memory_text=texts.excerpt(memory.content) if memory else "",
        facts=(
            (path.status, "where it is"),
            (number(path.rank, "d"), f"rank; the first {path.k} count"),
            (path.lost_at or DASH, "stage that lost it"),
            (str(len(found.counterfactuals)), "changes that bring it in"),
        ),
        bars=bars,
        legend=legend,
        results=[(one, stale_words(trace, one.memory_id, path.k)) for one in trace.results[: path.k]],
        texts=texts,
        warnings=tuple(dict.fromkeys(warnings)),
        origin=_origin(trace) + made(moment),
        redact=redact,
    )


def _bars(trace: Trace, memory_id: str, texts: Texts) -> tuple[tuple[Row, ...], tuple[tuple[str, str], ...]]:
    """Stacked bars of the first candidates after fusion and of those around the memory, and what each colour is."""
    stage = trace.stage(FUSION)
    kept = stage.kept
    here = next((i for i, row in enumerate(kept) if row.memory_id == memory_id), None)
    around = range(0) if here is None else range(max(0, here - AROUND), min(len(kept), here + AROUND + 1))
    rows = [kept[i] for i in sorted({*range(min(FIRST, len(kept))), *around})]
    split = {row.memory_id: stage.score_parts(row.memory_id) for row in rows}
    names = list(dict.fromkeys(_name(part) for parts in split.values() for part in parts))
    colours = {name: f"c{i % LIST_COLOURS}" for i, name in enumerate(names)}
    sums = [sum(part.value for part in parts if part.value > 0) for parts in split.values()]
    scale = Scale(0.0, max([*sums, 0.0]) or 1.0)
    bars = tuple(_bar(trace, row, split[row.memory_id], colours, scale, memory_id, texts) for row in rows)
    return bars, tuple((name, colours[name]) for name in names)


def _name(part: ScorePart) -> str:
    return part.kind if part.list is None else f"{list_label(part.list)} {part.kind}"


def _bar(
    trace: Trace,
    row: FusionRow,
    parts: Sequence[ScorePart],
    colours: dict[str, str],
    scale: Scale,
    memory_id: str,
    texts: Texts,
) -> Row:
    place, drawn = 0.0, []
    for part in parts:
        width = scale.share(part.value) if part.value > 0 else 0.0
        drawn.append(Part(round(place, 2), width, colours[_name(part)], f"{_name(part)} {number(part.value)}"))
        place += width
    words = ", ".join(part.words for part in drawn) or "nothing"
    title = texts.title(trace.evidence.memories[row.memory_id].title)
    about = {"rank": number(row.rank_out, "d"), "memory_id": row.memory_id, "title": title, "score": number(row.score)}
    return about | {"parts": tuple(drawn), "here": row.memory_id == memory_id, "words": words}


def evidence_hash(trace: Trace) -> str:
    """SHA-256, in hex, of the query's evidence: the same evidence and config give the same report."""
    values: dict[str, Any] = bundle_from(trace.evidence)
    text = json.dumps(values, ensure_ascii=True, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _origin(trace: Trace) -> Facts:
    evidence = trace.evidence
    models = evidence.notes.get("models") or {}
    facts = [
        ("evidence", f"SHA-256 {evidence_hash(trace)}"),
        ("moment of the query", evidence.as_of.isoformat() if evidence.as_of else DASH),
        ("content version", str(evidence.notes.get("content_version", DASH))),
        *((f"model: {role}", str(name)) for role, name in models.items() if name),
        (f"config {trace.config.name}", f"SHA-256 {config_hash(trace.config)}"),
    ]
    return tuple(facts)
