"""Gathering what the chosen configs lack: what is there already, about how long the rest takes, progress, cancel, and going on."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from cems_workbench.config import PipelineConfig
from cems_workbench.errors import WorkbenchError
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.runs.gathering import begun_for, gather_for
from cems_workbench.ui.evaluate.state import Choice, Measured
from cems_workbench.ui.kit.escape import plain
from cems_workbench.ui.kit.progress import progress_in

Missing = Sequence[tuple[str, PipelineConfig]]


def offer(missing: Missing, found: Sequence[Measured], choice: Choice, resources: Resources) -> bool:
    """Say what is missing and gather it on request; True when everything is there now."""
    for line in st.session_state.pop("ev:left_out", ()):
        st.warning(plain(f"{line} (left out)"))
    if not missing:
        return False
    total = len(choice.wanted.queries)
    begun = [begun_for(config, choice.wanted, resources) for _, config in missing]
    names = ", ".join(
        plain(name) + (f" ({done} of {total} are there)" if done else "")
        for (name, _), (done, _) in zip(missing, begun, strict=True)
    )
    went_on = any(done for done, _ in begun)
    left, right = st.columns([5, 1], vertical_alignment="center")
    left.info(
        f"Not gathered yet: {names}. Each of {total} queries is searched once{_about(missing, begun, found, total)}; after that every "
        "change of a weight or threshold is measured at once.",
        icon=":material/pause_circle:" if went_on else ":material/hourglass_empty:",
    )
    label = "Go on" if went_on else "Gather"
    if not right.button(label, key="ev:gather", type="primary", icon=":material/play_arrow:", width="stretch"):
        return False
    return _gather(missing, choice, resources)


def _about(missing: Missing, begun: Sequence[tuple[int, float]], found: Sequence[Measured], total: int) -> str:
    """About how long it takes, at the pace of what was gathered alike; nothing while that would be a guess."""
    left = 0.0
    for (_, config), (done, seconds) in zip(missing, begun, strict=True):
        pace = seconds / done if done else _pace(config, found)
        if pace is None:
            return ""
        left += pace * (total - done)
    return f", about {max(1, round(left))} s in all" if left < 90 else f", about {left / 60:.0f} min in all"


def _pace(config: PipelineConfig, found: Sequence[Measured]) -> float | None:
    """Seconds a query took under a config with the same reranker and judge, which are what takes long; the slowest of them."""
    alike = [one for one in found if _slow_parts(one.evaluation.config) == _slow_parts(config)]
    paces = [pace for one in alike if (pace := one.evaluation.cost.get("ms_per_query"))]
    return max(paces) / 1000 if paces else None


def _slow_parts(config: PipelineConfig) -> tuple[object, ...]:
    rerank = config.rerank
    head = (rerank.model, rerank.input_limit) if rerank.backend != "none" else ()
    return rerank.backend, *head, config.judge.backend, config.expansion.backend


def _gather(missing: Missing, choice: Choice, resources: Resources) -> bool:
    judgments = resources.store.judgments()
    place = st.empty()
    left_out: list[str] = []
    try:
        with place.container():
            bar, button = st.columns([6, 1], vertical_alignment="center")
            button.button(
                "Cancel", key="ev:cancel", width="stretch", help="What was gathered is kept, and can be gone on with"
            )
            progress = progress_in(bar.empty())
            for i, (name, config) in enumerate(missing):
                which = f"{name} ({i + 1} of {len(missing)})" if len(missing) > 1 else name
                done = gather_for(config, choice.wanted, judgments, resources, _under(plain(which), progress))
                left_out += [str(error) for error in done.left_out]
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/block:")
        return False
    finally:
        place.empty()
    st.session_state["ev:left_out"] = left_out
    return True


def _under(name: str, progress: Progress) -> Progress:
    """The progress of one config, under its name."""
    return lambda _, done, total: progress(name, done, total)
