"""The pipeline strip: a cell per stage with candidates in -> out, time and warnings."""

from __future__ import annotations

from html import escape

from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.needs import ParameterNeed
from cems_workbench.pipeline.stages import EXPANSION, JUDGE, QUERY, STAGES
from cems_workbench.pipeline.stages.stage import AnyStage


def strip_html(trace: Trace, python_ms: float = 0.0) -> str:
    """The strip of a trace as HTML; every text is escaped. `python_ms`, the page's own time so far, is kept for benchmarks."""
    replay_ms = sum(stage.elapsed_ms or 0.0 for stage in trace.stages)
    cells = "".join(_cell(stage, trace) for stage in STAGES)
    return f'<div class="wb-strip" data-python-ms="{python_ms:.2f}" data-replay-ms="{replay_ms:.2f}">{cells}</div>'


def warnings_html(trace: Trace) -> str:
    """The warnings and unmet needs of a trace as a list; empty text when there are none."""
    notes = [(stage, text) for stage, text in trace.warnings]
    for need in trace.needs:
        if isinstance(need, ParameterNeed):
            text = f"{need.parameter} is {need.wanted}, but the evidence was gathered with {need.gathered}"
        else:
            text = f"{len(need.memory_ids)} candidates were not scored by {need.model}"
        notes.append((need.stage, text))
    if not notes:
        return ""
    items = "".join(f"<div><b>{escape(stage)}</b><span>⚠ {escape(text)}</span></div>" for stage, text in notes)
    return f'<div class="wb-notes">{items}</div>'


def _cell(stage: AnyStage, trace: Trace) -> str:
    done, off = trace.stage(stage), stage.is_off(trace.config)
    warnings = len(done.warnings)
    found = ", ".join(_signals(trace)) if stage is QUERY else ""
    tooltip = "\n".join(
        [stage.description, *([f"Found: {found}"] if found else []), *(f"⚠ {text}" for text in done.warnings)]
    )
    time = "" if done.elapsed_ms is None else f"{done.elapsed_ms:.2f} ms"
    meta = ["off" if off else time]
    if warnings:
        meta.append(f'<span class="wb-warn">⚠ {warnings}</span>')
    classes = "wb-cell wb-off" if off else "wb-cell"
    return (
        f'<div class="{classes}" title="{escape(tooltip)}"><div class="wb-name">{escape(stage.name)}</div>'
        f'<div class="wb-flow">{_flow(stage, trace)}</div><div class="wb-meta">{" · ".join(part for part in meta if part)}</div></div>'
    )


def _flow(stage: AnyStage, trace: Trace) -> str:
    """Candidates in and out; of a stage that has none, what it counts instead."""
    if stage is QUERY:
        count = len(_signals(trace))
        return f"<b>{count}</b> signal{'s' if count != 1 else ''}" if count else "no signal"
    if stage is EXPANSION:
        count = len(trace.evidence.variants)
        return f"<b>{count}</b> variant{'s' if count != 1 else ''}"
    done = trace.stage(stage)
    if stage is JUDGE:
        return f"<b>{done.candidates_in}</b>" if trace.stage(JUDGE).fields.model else "–"
    arrow = '<span class="wb-arrow">→</span>'
    return f"{done.candidates_in}{arrow}<b>{done.candidates_out}</b>"


def _signals(trace: Trace) -> list[str]:
    return sorted({match.detector for match in trace.stage(QUERY).fields.matches})
