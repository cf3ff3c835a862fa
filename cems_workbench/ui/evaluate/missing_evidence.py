"""Missing evidence of the chosen configs: what is finished, an estimate of the rest, and a gather with progress, cancel and resume."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.jobs.evaluation import EvaluatedConfig
from cems_workbench.jobs.query_set_evidence import (
    PendingGather,
    discard_evidence,
    gather_evidence,
    pending_gathers,
    seconds_left,
)
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.ui.evaluate.state import Choice, page
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import draw_provenance, offer_gather, search_cost_text

Missing = Sequence[tuple[str, PipelineConfig]]


def offer(missing: Missing, measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> bool:
    """Show what is missing and gather it on request; True once everything is gathered."""
    for line in page.get().left_out:
        st.warning(plain(f"{line} (left out)"))
    page.update(left_out=())
    if not missing:
        return False
    pending = pending_gathers(missing, choice.selection, resources)
    total = len(choice.selection.queries)
    names = ", ".join(
        plain(config.name) + (f" ({config.finished} of {total} are there)" if config.finished else "")
        for config in pending
    )
    left = seconds_left(pending, _paces(measured))
    once = search_cost_text(total, left, [config.config for config in pending])
    return offer_gather(
        "evaluate",
        f"Not gathered yet: {names}. {once}; after that every change of a weight or threshold is measured at once.",
        lambda progress: _gather(pending, choice, resources, progress),
        resumable=any(config.finished for config in pending),
    )


def draw_answered(measured: Sequence[EvaluatedConfig], choice: Choice, resources: Resources) -> None:
    """Show the configs whose lists a running system answered, and when, with a button to ask again, except for an evidence file."""
    asked = [row for row in measured if row.answered]
    if not asked:
        return

    def ask_again() -> None:
        for row in asked:
            discard_evidence(row.evaluation.config, choice.selection, resources)

    said = "; ".join(f"{row.name}: lists {row.answered}" for row in asked)
    draw_provenance("evaluate", said, None if choice.opened is not None else ask_again)


def _paces(measured: Sequence[EvaluatedConfig]) -> list[tuple[PipelineConfig, float]]:
    """Seconds per query of the gathers of the measured configs."""
    paces = [(row.evaluation.config, row.evaluation.cost.get("ms_per_query")) for row in measured]
    return [(config, pace / 1000) for config, pace in paces if pace]


def _gather(pending: Sequence[PendingGather], choice: Choice, resources: Resources, progress: Progress) -> None:
    judgments = resources.store.judgments.read()
    left_out: list[str] = []
    for i, config in enumerate(pending):
        which = f"{config.name} ({i + 1} of {len(pending)})" if len(pending) > 1 else config.name
        report = gather_evidence(config.config, choice.selection, judgments, resources, under(which, progress))
        left_out += [str(error) for error in report.left_out]
    page.update(left_out=tuple(left_out))


def under(name: str, progress: Progress) -> Progress:
    """A progress labelled with the name of a config."""
    return lambda _, done, total: progress(name, done, total)
