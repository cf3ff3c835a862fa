"""The pipeline strip: one cell per stage with candidates in -> out, time and warnings; and the list of warnings."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from cems_workbench.analysis.known_mistakes import known_mistakes
from cems_workbench.analysis.stage_mistakes import KnownMistake, with_those_of_set
from cems_workbench.pipeline import Trace
from cems_workbench.pipeline.missing_evidence import ParameterNeed
from cems_workbench.pipeline.stages import EXPANSION, JUDGE, QUERY
from cems_workbench.pipeline.stages.stage import AnyStage
from cems_workbench.ui.kit.html import render


def strip_html(trace: Trace, python_ms: float = 0.0) -> Markup:
    """The strip of a trace. Its replay time and `python_ms`, the page's time so far, are attributes for benchmarks."""
    replay_ms = sum(stage.elapsed_ms or 0.0 for stage in trace.stages)
    cells = [_cell(stage, trace) for stage in trace.run.stages]
    return render(
        "inspect/strip.html",
        cells=cells,
        python_ms=f"{python_ms:.2f}",
        replay_ms=f"{replay_ms:.2f}",
    )


def warnings_html(trace: Trace) -> Markup:
    """The warnings and unmet needs of a trace as a list; empty if there are none."""
    mistakes = {mistake.words for mistake in known_mistakes(trace)}
    notes = [(stage, text) for stage, text in trace.warnings if text not in mistakes]
    for need in trace.needs:
        if isinstance(need, ParameterNeed):
            text = f"{need.parameter} is {need.wanted}, but the evidence was gathered with {need.gathered}"
        else:
            text = f"{len(need.memory_ids)} candidates were not scored by {need.model}"
        notes.append((need.stage, text))
    return notes_html([(stage, f"⚠ {text}") for stage, text in notes]) if notes else Markup("")


def mistakes_html(trace: Trace, of_set: Sequence[KnownMistake] = ()) -> Markup:
    """The known mistakes of the config and its stages in this query and in its set, with their parameters; empty if there are none."""
    found = with_those_of_set(known_mistakes(trace), of_set)
    return render("inspect/mistakes.html", mistakes=found) if found else Markup("")


def notes_html(notes: list[tuple[str, str]] | list[str]) -> Markup:
    """One line per note; of a pair (heading, note), the heading is in bold."""
    return render("inspect/notes.html", notes=[("", note) if isinstance(note, str) else note for note in notes])


def _cell(stage: AnyStage, trace: Trace) -> tuple[AnyStage, bool, str, Flow, str, int]:
    """A stage: whether it is off, its tooltip, its counts, its time, and its number of warnings."""
    done, off = trace.stage(stage), stage.is_off(trace.config)
    signals = ", ".join(_signals(trace)) if stage is QUERY else ""
    lines = [stage.description, *([f"Found: {signals}"] if signals else []), *(f"⚠ {text}" for text in done.warnings)]
    took = done.elapsed_ms
    # Three digits, which is what a cell of 14 has room for.
    time = "off" if off else "" if took is None else f"{took:.{2 if took < 9.995 else 1 if took < 99.95 else 0}f} ms"
    return stage, off, "\n".join(lines), _flow(stage, trace), time, len(done.warnings)


Flow = tuple[int | None, int | None, str]
"""Candidates in (if any), the count out, then words."""


def _flow(stage: AnyStage, trace: Trace) -> Flow:
    """Candidates in and out; for a stage without candidates, its own count."""
    if stage is QUERY:
        count = len(_signals(trace))
        return (None, count, f" signal{'s' if count != 1 else ''}") if count else (None, None, "no signal")
    if stage is EXPANSION:
        count = len(trace.evidence.variants)
        return None, count, f" variant{'s' if count != 1 else ''}"
    done = trace.stage(stage)
    if stage is JUDGE:
        return (None, done.candidates_in, "") if trace.stage(JUDGE).fields.model else (None, None, "–")
    return done.candidates_in, done.candidates_out, ""


def _signals(trace: Trace) -> list[str]:
    return sorted({match.detector for match in trace.stage(QUERY).fields.matches})
