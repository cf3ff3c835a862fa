"""The pipeline strip: a cell per stage with candidates in -> out, time and warnings."""

from __future__ import annotations

from html import escape

from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import StageTrace, Trace
from cems_workbench.ui.inspect.glossary import about


def strip_html(trace: Trace, python_ms: float = 0.0) -> str:
    """The strip of a trace as HTML; every text is escaped. `python_ms`, the page's own time so far, is kept for benchmarks."""
    off = switched_off(trace.config)
    replay_ms = sum(stage.elapsed_ms or 0.0 for stage in trace.stages)
    cells = "".join(_cell(stage, trace, stage.name in off) for stage in trace.stages)
    return f'<div class="wb-strip" data-python-ms="{python_ms:.2f}" data-replay-ms="{replay_ms:.2f}">{cells}</div>'


def warnings_html(trace: Trace) -> str:
    """The warnings and unmet needs of a trace as a list; empty text when there are none."""
    notes = [(stage, text) for stage, text in trace.warnings]
    for need in trace.needs:
        if "parameter" in need:
            text = f"{need['parameter']} is {need['wanted']}, but the evidence was gathered with {need['gathered']}"
        else:
            text = f"{len(need['memory_ids'])} candidates were not scored by {need['model']}"
        notes.append((need["stage"], text))
    if not notes:
        return ""
    items = "".join(f"<div><b>{escape(stage)}</b><span>⚠ {escape(text)}</span></div>" for stage, text in notes)
    return f'<div class="wb-notes">{items}</div>'


def switched_off(config: PipelineConfig) -> set[str]:
    """The stages that this config lets pass everything."""
    off = {
        "threshold": config.threshold.mode == "none",
        "filter": config.query.raw or (config.filter.min_score is None and config.filter.percentile == 0),
        "rerank": config.rerank.backend == "none",
        "gap": config.gap.ratio == 0,
        "dedup": not config.dedup.enabled,
        "expansion": config.expansion.backend == "none",
    }
    return {name for name, is_off in off.items() if is_off}


def _cell(stage: StageTrace, trace: Trace, off: bool) -> str:
    warnings = len(stage.warnings)
    found = ", ".join(_signals(stage)) if stage.name == "query" else ""
    tooltip = "\n".join(
        [about(stage.name), *([f"Found: {found}"] if found else []), *(f"⚠ {text}" for text in stage.warnings)]
    )
    time = "" if stage.elapsed_ms is None else f"{stage.elapsed_ms:.2f} ms"
    meta = ["off" if off else time]
    if warnings:
        meta.append(f'<span class="wb-warn">⚠ {warnings}</span>')
    classes = "wb-cell wb-off" if off else "wb-cell"
    return (
        f'<div class="{classes}" title="{escape(tooltip)}"><div class="wb-name">{escape(stage.name)}</div>'
        f'<div class="wb-flow">{_flow(stage, trace)}</div><div class="wb-meta">{" · ".join(part for part in meta if part)}</div></div>'
    )


def _flow(stage: StageTrace, trace: Trace) -> str:
    if stage.name == "query":
        count = len(_signals(stage))
        return f"<b>{count}</b> signal{'s' if count != 1 else ''}" if count else "no signal"
    if stage.name == "expansion":
        count = len(trace.evidence.variants)
        return f"<b>{count}</b> variant{'s' if count != 1 else ''}"
    if stage.name == "judge":
        return f"<b>{stage.candidates_in}</b>" if stage.fields.get("model") else "–"
    arrow = '<span class="wb-arrow">→</span>'
    return f"{stage.candidates_in}{arrow}<b>{stage.candidates_out}</b>"


def _signals(stage: StageTrace) -> list[str]:
    return sorted({match["detector"] for match in stage.fields["matches"]})
