"""Pinned baseline: a config that all ranks are compared with until it is unpinned.

Its replay runs on the current evidence, or on lists gathered for it if it needs others, and is cached by evidence, baseline and
disabled variants, so that moving a slider only reads its ranks. Rank differences are shown as signs and words, never only by colour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st
from markupsafe import Markup

from cems_workbench.config import PipelineConfig, difference, preset, preset_names
from cems_workbench.config.fields import short_value
from cems_workbench.errors import counted
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.state import Baseline
from cems_workbench.ui.kit.html import plain, render
from cems_workbench.ui.kit.session import kept
from cems_workbench.ui.kit.tables import Column, draw_table
from cems_workbench.ui.kit.widgets import opened_popover

if TYPE_CHECKING:
    from cems_workbench.analysis.ranks import RankComparison, RankDelta
    from cems_workbench.pipeline import Evidence, Trace

REPLAYED = "inspect:baseline:replayed"
"""Session key of the baseline's trace."""
MAX_NAMED = 2
"""Maximum parameters named in the line above the ranking; the tooltip lists all."""


Gather = Callable[[PipelineConfig], "Evidence | None"]
"""Returns the evidence of the current request for a config; None if it could not be gathered."""


def against(trace: Trace, variants_off: frozenset[int], gather: Gather) -> RankComparison | None:
    """The comparison with the baseline's trace; None if nothing is pinned. `gather` returns evidence for the baseline."""
    base = state.present().baseline
    if base is None:
        return None
    from cems_workbench.analysis.ranks import RankComparison

    return RankComparison(base.name, trace, _replayed(trace.evidence, base.config, variants_off, gather))


def _replayed(evidence: Evidence, config: PipelineConfig, off: frozenset[int], gather: Gather) -> Trace:
    from cems_workbench.pipeline import replay

    def replayed() -> Trace:
        trace, expansion = replay(evidence, config, switched_off=off), config.expansion
        # The baseline's own expansion would call a model, and disabled variants could not be matched to it.
        if _parameters(trace) and expansion.backend == "none" and not (expansion.hyde or expansion.decompose):
            own = gather(config)
            trace = trace if own is None else replay(own, config, switched_off=off)
        return trace

    return kept(REPLAYED, (evidence, config, off), replayed)


def against_html(against: RankComparison) -> Markup:
    """One line above the ranking: the baseline; and a second one if evidence is missing for it."""
    differ = counted(len(difference(against.before.config, against.now.config)), "different parameters")
    missing = missing_line(against.before)
    every = ", ".join(_parameters(against.before)) or missing
    return render("inspect/against.html", name=against.name, differ=differ, missing=missing, every=every)


def missing_line(baseline: Trace) -> str:
    """One line on evidence missing for the baseline; empty if complete."""
    from cems_workbench.pipeline.stages.result import ScoreNeed

    asks, unscored = _parameters(baseline), [need for need in baseline.needs if isinstance(need, ScoreNeed)]
    parts = [", ".join(asks[:MAX_NAMED]) + (f" and {len(asks) - MAX_NAMED} more" if len(asks) > MAX_NAMED else "")]
    if unscored:
        scores = sum(len(need.memory_ids) for need in unscored)
        parts.append(f"{scores} scores by {', '.join(sorted({need.model for need in unscored}))}")
    said = "; ".join(filter(None, parts))
    return f"Not gathered for the baseline: {said}. Its ranks are computed without it." if said else ""


def _parameters(baseline: Trace) -> list[str]:
    """The parameters gathered with other values, those of the lists first: they determine the candidates."""
    from cems_workbench.pipeline.missing_evidence import ParameterNeed

    asks = [need.parameter for need in baseline.needs if isinstance(need, ParameterNeed)]
    return sorted(asks, key=lambda path: not path.startswith("lists."))


def draw_baseline() -> None:
    """Draw a popover to pin the current config or a preset; while pinned, the differences, and Unpin."""
    base = state.present().baseline
    help = "Pin a config as the baseline; all ranks then show their difference from it."
    label, key = "Baseline pinned" if base else "Baseline", f"inspect:baseline:{base is not None}"
    box = opened_popover(label, key, ":material/keep:", help, type="tertiary")
    if box is None:
        return
    with box:
        if base is not None:
            _draw_comparison(base)
            return
        st.button(
            "Pin as baseline",
            key="inspect:pin",
            icon=":material/keep:",
            on_click=_pin,
            type="primary",
            width="stretch",
            help="Pins the current config. Then move a slider: each rank shows the places gained or lost.",
        )
        st.selectbox(
            "Or pin a preset",
            preset_names(),
            index=None,
            key="inspect:pin_preset",
            placeholder="choose one",
            on_change=lambda: _pin(st.session_state["inspect:pin_preset"]),
        )


def _pin(name: str | None = None) -> None:
    if name is not None:
        state.pin(name, preset(name).config)
        return
    changed = len(state.changed_parameters())
    state.pin(state.present().preset + (f" with {changed} changed" if changed else ""), state.present_config())


def _draw_comparison(base: Baseline) -> None:
    differing = difference(base.config, state.present_config())
    st.markdown(f"Baseline **{plain(base.name)}**")
    if differing:
        draw_table(differing, differences("baseline", "now"), key="inspect:baseline_diff", width=520, most=9)
    else:
        st.caption("The config equals the baseline. Move a slider to see rank differences.")
    unpinned, same = {"baseline": None}, not differing
    with st.container(horizontal=True):
        st.button("Unpin", key="inspect:unpin", icon=":material/keep_off:", on_click=state.update, kwargs=unpinned)
        st.button("Pin the current config", key="inspect:pin", icon=":material/keep:", on_click=_pin, disabled=same)
        back: Any = {"on_click": state.use_config, "args": (base.config,), "disabled": same}
        st.button("Back to the baseline", key="inspect:to_baseline", icon=":material/undo:", **back)


def differences(before: str, after: str) -> list[Column[tuple[str, object, object]]]:
    """The columns of parameters that differ, with both values under these names."""
    return [
        Column("parameter", lambda row: row[0], 220),
        Column(before, lambda row: short_value(row[1]), 130),
        Column(after, lambda row: short_value(row[2]), 130),
    ]


COLUMN = "vs. baseline"
HELP = (
    "Places gained ▲ or lost ▼ relative to the pinned baseline, at this point of the pipeline. =: same rank. new: not ranked by the "
    "baseline. gone: ranked only by the baseline, with its rank. —: ranked by neither."
)


SIGNS = {"up": "▲ {}", "down": "▼ {}", "gone": "gone, was {1}", "same": "=", "new": "new"}
"""Cell text by kind of move, with the places and the rank in the baseline."""
WORDS = {
    "up": "Up from rank {} in the baseline {}",
    "down": "Down from rank {} in the baseline {}",
    "gone": "Rank {} in the baseline {}, none now",
    "same": "Same rank as in the baseline {1}",
    "new": "Not ranked by the baseline {1}",
}
"""Tooltip by kind of move, with the rank in the baseline and the baseline's name."""


def delta_sign(delta: RankDelta) -> str:
    """The rank difference as a cell text."""
    return SIGNS.get(delta.move, "—").format(abs(delta.places), delta.before)


def delta_text(delta: RankDelta, name: str) -> str:
    """The rank difference as a tooltip; `name` is the baseline's."""
    return WORDS.get(delta.move, "Ranked by neither").format(delta.before, name)


def lost_results_html(against: RankComparison) -> Markup:
    """Memories that are only in the baseline's results, with its rank and where each is lost now; empty if none."""
    from cems_workbench.analysis.ranks import loss

    gone = [(memory_id, against.delta(memory_id).before, loss(against.now, memory_id)) for memory_id in against.gone()]
    memories = against.before.evidence.memories
    return render("inspect/gone.html", name=against.name, gone=gone, memories=memories) if gone else Markup("")
