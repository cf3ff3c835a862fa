"""Nearest preset: which preset, with which changed parameters, comes closest to the recorded answers; a section of Fidelity."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from cems_workbench.analysis.fidelity.causes import Lists
from cems_workbench.config import PipelineConfig, dump_config, field_spec, preset, preset_names
from cems_workbench.config.value_text import short_value
from cems_workbench.formats.recorded_answers import Recording
from cems_workbench.jobs.fidelity import FidelitySetting
from cems_workbench.jobs.nearest import REPORTED, Nearest, find_nearest
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import Query
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.tables import draw_table
from cems_workbench.ui.kit.widgets import cancellable

FOUND = "evaluate:nearest_found"
MAX_PRESETS = 5
"""Presets that are listed."""


def draw(
    recording: Recording,
    setting_of: Callable[[PipelineConfig], FidelitySetting],
    queries_of: Callable[[FidelitySetting], tuple[Query, ...]],
    lists: Mapping[str, Lists],
    resources: Resources,
) -> None:
    """Draw the button that searches, and what the last search for this recording found."""
    st.markdown(
        "## Nearest preset",
        help="Measures every preset, then changes the parameters of the nearest ones, one after the other. Half of the queries are not "
        "searched with: their agreement is the one to believe.",
    )
    key = _digest(recording, setting_of, resources)
    cached: tuple[str, Nearest] | None = st.session_state.get(FOUND)
    if cached is None or cached[0] != key:
        place = st.empty()
        if not place.button("Find the nearest preset", key="evaluate:nearest", icon=":material/near_me:"):
            st.caption(
                f"Takes some minutes for a hundred queries: {len(preset_names())} presets, then some thousand replays. Recorded lists are "
                "used where there are any."
            )
            return
        configs = [preset(name).config for name in preset_names()]
        with cancellable("evaluate:nearest_cancel", "Model scores are kept.", place=place) as progress:
            cached = (key, find_nearest(recording, configs, setting_of, queries_of, resources, progress, lists))
        st.session_state[FOUND] = cached
    _result(cached[1])


def _digest(recording: Recording, setting_of: Callable[[PipelineConfig], FidelitySetting], resources: Resources) -> str:
    parts = (recording, setting_of(preset(preset_names()[0]).config), resources.store.content_version)
    return hashlib.sha256(repr(parts).encode("utf-8", "backslashreplace")).hexdigest()


def _result(found: Nearest) -> None:
    """Draw the preset and its changes, the agreement of both halves, and what remains."""
    first, *others = found.lines()
    st.markdown(f"**{plain(first[0].upper() + first[1:])}**")
    if found.changes:
        draw_table(
            [_change(found.start, *change) for change in found.changes], key="evaluate:nearest_changes", width=900
        )
    draw_table(
        [dict(zip(("queries", "number", *REPORTED.values()), row, strict=True)) for row in found.agreement_rows()],
        key="evaluate:nearest_agreement",
        width=900,
    )
    for line in others:
        st.caption(plain(line[0].upper() + line[1:] + "."))
    with st.expander(f"{min(MAX_PRESETS, len(found.presets))} nearest presets, unchanged"):
        draw_table(
            [
                {
                    "preset": one.name,
                    "queries": one.agreement.queries,
                    "same order": one.agreement.same_order,
                    "overlap": round(one.agreement.overlap, 3),
                    "RBO": round(one.agreement.rbo, 3),
                }
                for one in found.presets[:MAX_PRESETS]
            ],
            key="evaluate:nearest_presets",
        )
        for name, why in found.left_out.items():
            st.caption(f":orange[⚠] {plain(name)} is left out: {plain(why)}")
    st.download_button(
        "Config (YAML)",
        dump_config(found.config, "\n".join(found.lines())),
        f"nearest-{Path(found.recording.name).stem}.yaml",
        "text/yaml",
        key="evaluate:nearest_yaml",
        on_click="ignore",
        help="A config file for every command, and for Configs › Upload.",
    )


def _change(start: str, path: str, was: Any, value: Any) -> dict[str, Any]:
    return {
        "parameter": f"{field_spec(path).label} ({path})",
        start: short_value(was),
        "nearest": short_value(value),
    }
