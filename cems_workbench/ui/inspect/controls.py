"""Controls generated from the config's field metadata: a slider, switch or select box per parameter, grouped by stage.

Basic shows what a first hour needs, All every parameter; a changed one is always shown, and the search box finds any. Of a list that is off
only its switch is shown. Above them: the preset, the parameters that differ from it, each with a reset, and undo and redo.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import streamlit as st

from cems_workbench.config import COST_HELP, FieldSpec, PipelineConfig, difference, field_spec, field_specs, preset
from cems_workbench.config.fields import short_value, specs
from cems_workbench.config.forms.targets import preset_groups
from cems_workbench.pipeline.effects import folded_words
from cems_workbench.pipeline.stages import STAGES
from cems_workbench.settings import SavedTarget
from cems_workbench.sources.score_meanings import THRESHOLDS, threshold_help
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.html import plain
from cems_workbench.ui.kit.widgets import switch

GROUPS: dict[str, str] = {
    section: title for stage in STAGES for section, title in {stage.name: stage.title, **stage.sections}.items()
}
"""Title by section of the config, in pipeline order."""
BASIC, ALL = "Basic", "All"
_BASIC = (
    *(
        "fusion.method",
        "rerank.backend",
        "rerank.depth",
        "rerank.bands",
        "adjust.time_decay.mode",
        "adjust.time_decay.half_life_days",
    ),
    *(
        "supersession.mode",
        "threshold.mode",
        "threshold.fixed",
        "filter.min_score",
        "assembly.limit",
        "assembly.max_tokens",
    ),
)
"""What Basic shows besides switch, weight and depth of the two searched lists and of those that are on."""
MAX_FOUND = 15
IDLE = "inspect:idle:"
"""Beginning of the keys of the folded parameters without effect, before the section."""

Change = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Control:
    """Input for drawing one parameter: metadata, value, widget key and texts, and change callback."""

    spec: FieldSpec
    value: Any
    key: str
    label: str
    help: str
    change: Change

    def commit(self, key: str, read: Callable[[Any], Any]) -> None:
        """Report the value of the widget `key`; called by Streamlit before the rerun."""
        self.change({self.spec.path: read(st.session_state[key])})

    def on_change(self, read: Callable[[Any], Any] = lambda value: value, key: str | None = None) -> dict[str, Any]:
        """The keyword arguments that make a widget report its changes."""
        widget = key or self.key
        return {"key": widget, "on_change": self.commit, "args": (widget, read)}

    @property
    def range(self) -> tuple[float, float]:
        """The range of the slider, widened to include the current value."""
        low, high = self.spec.soft or (self.spec.low, self.spec.high)
        if low is None or high is None:
            raise TypeError(f"{self.spec.path} declares no range for a slider")
        inside = [low, high] if self.value is None else [low, high, self.value]
        return min(inside), max(inside)


def draw_controls(
    config: PipelineConfig,
    base: PipelineConfig,
    generation: int,
    change: Change,
    inert: Mapping[str, str] = MappingProxyType({}),
    remarks: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Draw the choice between Basic and All, a search box, and one expander per stage with its controls. Closed expanders draw nothing,
    which keeps reruns fast.

    `base` is the preset: a control whose value differs from it is marked. `change` receives {path: value}. `inert` maps paths to
    the reason why the parameter has no effect: it is drawn below a changed one, and All folds the others into one line at the end of
    their stage. `remarks` maps paths to another line there.
    """

    def draw_each(chosen: Iterable[FieldSpec]) -> None:
        for spec in chosen:
            draw_control(spec, config.get(spec.path), base.get(spec.path), f"inspect:{generation}:{spec.path}", change)
            for icon, said in (("link_off", inert), ("straighten", remarks)):
                if spec.path in said:
                    st.caption(f":material/{icon}: {said[spec.path]}")

    view = switch("Parameters", (BASIC, ALL), "inspect:controls", width="stretch")
    hint: Any = {"placeholder": "Find a parameter", "label_visibility": "collapsed", "icon": ":material/search:"}
    words = st.text_input("Find a parameter", key="inspect:find", type="search", live=True, **hint)
    if words and words.strip():
        found = found_parameters(words)
        for title in dict.fromkeys(GROUPS[spec.section] for spec in found[:MAX_FOUND]):
            st.markdown(f"**{title}**")
            draw_each(spec for spec in found[:MAX_FOUND] if GROUPS[spec.section] == title)
        more = len(found) - MAX_FOUND
        st.caption(f"and {more} more: add a word" if more > 0 else "" if found else "No parameter has these words.")
        return
    shown = shown_parameters(view, config, base, inert)
    for section, title in GROUPS.items():
        direct, idle = ([spec for spec in part if spec.section == section] for part in shown)
        if not direct and not idle:
            continue
        # Label and icon must not change: they identify the expander, and a new expander starts closed.
        group = st.expander(title, key=f"inspect:group:{section}", on_change="rerun")
        if not group.open:
            continue
        with group:
            draw_each(direct)
            if idle:
                words = plain(folded_words([inert[spec.path] for spec in idle]))
                fold = st.expander(words, icon=":material/link_off:", key=f"{IDLE}{section}", on_change="rerun")
                if fold.open:
                    with fold:
                        draw_each(idle)


def shown_parameters(
    view: str, config: PipelineConfig, base: PipelineConfig, inert: Mapping[str, str]
) -> tuple[list[FieldSpec], list[FieldSpec]]:
    """The parameters that Basic or All shows under a config, and those that All folds since they are `inert`."""
    on = {spec.path.split(".")[1]: config.get(spec.path) for spec in field_specs() if _is_switch(spec)}
    lists = {"vector", "lexical", *(name for name, enabled in on.items() if enabled)}
    basic = {*_BASIC, *(f"lists.{name}.{what}" for name in lists for what in ("enabled", "weight", "depth"))}
    changed = {path for path, _, _ in difference(base, config)}
    direct, idle = [], []
    for spec in field_specs():
        if spec.path not in changed:
            off = spec.section == "lists" and not _is_switch(spec) and not on.get(spec.path.split(".")[1], True)
            if spec.path in inert or (view == BASIC and spec.path not in basic):
                if view == ALL and not off:
                    idle.append(spec)
                continue
        direct.append(spec)
    return direct, idle


def _is_switch(spec: FieldSpec) -> bool:
    return spec.section == "lists" and spec.path.endswith(".enabled") and spec.path.count(".") == 2


def found_parameters(words: str) -> list[FieldSpec]:
    """The parameters with all of these words in label, name, stage or help; those with all in the label first."""
    wanted = words.lower().split()

    def has(text: str) -> bool:
        return all(word in text.lower() for word in wanted)

    found = [spec for spec in field_specs() if has(f"{spec.label} {spec.path} {GROUPS[spec.section]} {spec.help}")]
    return sorted(found, key=lambda spec: (not has(spec.label), not has(f"{spec.label} {spec.path}")))


def draw_presets(runs: SavedTarget | None) -> None:
    """Draw the present preset as a popover that lists all by kind, with a line each; those of the store's target, `runs`, first."""
    present = state.present()
    # Of each generation its own, so that it closes once one is chosen.
    key = f"inspect:preset:{present.generation}"
    more: Any = {"icon": ":material/tune:", "on_change": "rerun", "width": "stretch"}
    box = st.popover(f"Preset: {present.preset}", key=key, **more)
    if box.open:
        with box.container(width=430, height=520, border=False):
            st.caption("Known systems, expressed as configs of this pipeline. Choosing one sets all parameters.")
            for title, names in preset_groups(runs).items():
                own, at = f"{key}:{title}", names.index(present.preset) if present.preset in names else None

                def chosen(own: str = own) -> None:
                    state.choose_preset(st.session_state[own])

                lines = [plain(preset(name).summary) for name in names]
                st.radio(title, names, at, key=own, captions=lines, on_change=chosen)
    st.caption(preset(present.preset).summary, help=preset(present.preset).notes)


def draw_control(spec: FieldSpec, value: Any, preset_value: Any, key: str, change: Change) -> None:
    """Draw the control of one parameter; a new value is passed to `change` before the rerun."""
    differs = value != preset_value
    label = spec.label + (f" ({spec.unit})" if spec.unit else "") + (" ●" if differs else "")
    scales = threshold_help() if spec.path in THRESHOLDS else ""
    lines = [spec.help, scales, COST_HELP[spec.cost], f"`{spec.path}`", f"Preset: {preset_value}" if differs else ""]
    help = "\n\n".join(line for line in lines if line)
    control = Control(spec, value, key, label, help, change)
    null = spec.null if spec.optional else None
    if spec.type is bool:
        st.toggle(label, value, help=help, **control.on_change())
    elif spec.choices:
        if spec.choices != (value,):  # there is something to choose
            shown = spec.choices if value in spec.choices else (*spec.choices, value)
            st.selectbox(label, shown, shown.index(value), help=help, **control.on_change())
    elif spec.row is not None:
        _bands(control)
    elif spec.path == "adjust.time_decay.tiers":
        _tiers(control)
    elif typing.get_origin(spec.type) is tuple:
        of = typing.get_args(spec.type)[0]
        if of is float:
            _numbers(control)
        else:
            st.multiselect(label, typing.get_args(of), list(value), help=help, **control.on_change(tuple))
    elif spec.type in (int, float):
        if spec.optional:
            _optional_number(control)
        else:
            _slider(control, label, value, help=help)
    else:
        read = control.on_change(lambda text: text.strip() or (None if spec.optional else ""))
        st.text_input(label, value or "", help=help, placeholder=null, **read)


def _numbers(control: Control) -> None:
    """Numbers in one line; invalid parts are passed on, and the config rejects them by name."""
    optional = control.spec.optional
    text = " ".join(f"{value:g}" for value in control.value or ())
    st.text_input(
        control.label,
        text,
        help=control.help,
        placeholder=control.spec.null if optional else None,
        **control.on_change(lambda typed: None if optional and not typed.strip() else _read_numbers(typed)),
    )


def _read_numbers(text: str) -> list[Any]:
    parts = text.replace(",", " ").split()
    try:
        return [float(part) for part in parts]
    except ValueError:
        return parts


def _optional_number(control: Control) -> None:
    """A switch for null, and the slider if it is on."""
    low, high = control.range
    usual = control.spec.default if control.spec.default is not None else control.spec.on
    default = usual if usual is not None else control.spec.type(max(low, min(0, high)))
    st.toggle(
        control.label,
        control.value is not None,
        help=f"{control.help}\n\nOff is null: {control.spec.null}.",
        **control.on_change(lambda on: default if on else None, f"{control.key}:on"),
    )
    if control.value is not None:
        _slider(control, control.label, control.value, label_visibility="collapsed")


def _slider(control: Control, label: str, value: float, **arguments: Any) -> None:
    of, whole = control.spec.type, control.spec.type is int
    low, high, now, step = (
        of(number) for number in (*control.range, value, control.spec.step or (1 if whole else 0.01))
    )
    form = "%g" if step == int(step) else f"%.{max(1, len(f'{step:g}'.partition('.')[2]))}f"
    rounded = control.on_change(lambda picked: round(picked, 10))
    st.slider(label, low, high, now, step, format=None if whole else form, **rounded, **arguments)


def _bands(control: Control) -> None:
    """One slider per band and number: of `rerank.bands` the share of the retrieval score; the rest is the reranker's."""
    st.caption(control.label, help=control.help)
    assert control.spec.row is not None
    ends, *columns = specs(control.spec.row)
    of = ends.path.removeprefix("max_").removesuffix("s") + "s"
    bands = [band.model_dump() for band in control.value]
    first = 1
    for i, band in enumerate(bands):
        last = band[ends.path]
        covers = f"{of} {first}–{last}" if last else f"{of} {first} and on"
        for column in columns:

            def replaced(value: float, at: int = i, name: str = column.path) -> list[dict[str, Any]]:
                return [{**other, name: round(value, 10)} if at == j else other for j, other in enumerate(bands)]

            now, (low, high) = float(band[column.path]), column.soft or (column.low or 0.0, column.high or 1.0)
            key = f"{control.key}:{i}" if len(columns) == 1 else f"{control.key}:{i}:{column.path}"
            st.slider(
                f"{column.label}, {covers}",
                min(float(low), now),
                max(float(high), now),
                now,
                column.step or 0.01,
                **control.on_change(replaced, key),
            )
        first = (last or first) + 1


def _tiers(control: Control) -> None:
    import pandas as pd

    st.caption(control.label, help=control.help)
    names, days = [name for name, _ in control.value], [value for _, value in control.value]
    frame = pd.DataFrame({"category": pd.Series(names, dtype="object"), "days": pd.Series(days, dtype="float64")})
    edited = st.data_editor(
        frame,
        key=control.key,
        num_rows="dynamic",
        hide_index=True,
        column_config={
            "category": st.column_config.TextColumn("Category"),
            "days": st.column_config.NumberColumn("Days", help="Half-life in days", min_value=0.1, max_value=36500.0),
        },
    )
    rows = {str(name): float(days) for name, days in edited.dropna().to_numpy().tolist()}
    if tuple(rows.items()) != tuple(control.value):
        control.change({control.spec.path: rows})
        st.rerun()


MAX_CHANGED = 12


def draw_changed(inert: Mapping[str, str]) -> None:
    """Draw Reset, undo and redo, then a reset per changed parameter, with why it has no effect where it is in `inert`. The first three
    are always drawn, so that nothing moves."""
    changed, history = state.changed_parameters(), state.present().history
    wide: Any = {"width": "stretch"}
    reset = {"on_click": state.reset, "disabled": not changed, "icon": ":material/restart_alt:"} | wide
    help = "Sets all parameters to the preset’s values."
    st.button(f"Reset to preset (changed: {len(changed)})", key="inspect:reset", help=help, **reset)
    with st.container(horizontal=True, gap="xsmall", key="inspect:history"):
        for name, steps, act, keys in (
            ("undo", len(history.past), state.undo, "Alt+Z"),
            ("redo", len(history.future), state.redo, "Alt+Shift+Z"),
        ):
            help = f"{name.capitalize()} the last change of parameters or preset ({keys}). Steps: {steps}."
            more = {"disabled": not steps, "icon": f":material/{name}:", "shortcut": keys} | wide
            st.button(name.capitalize(), key=f"inspect:{name}", on_click=act, help=help, **more)
    with st.container(gap="xsmall"):
        for path, was, now in changed[:MAX_CHANGED]:
            spec, before = field_spec(path), plain(short_value(was))
            instant = "" if spec.cost == "replay" or path in inert else " · new search"
            st.button(
                f"{spec.label}: {before} → {plain(short_value(now))}{instant}",
                key=f"inspect:reset:{path}",
                on_click=state.reset_parameter,
                args=(path,),
                type="tertiary",
                icon=":material/restart_alt:",
                help=f"`{path}`: back to {before}. {COST_HELP[spec.cost]}",
            )
            if path in inert:
                st.caption(f":material/link_off: {inert[path]}")
        if len(changed) > MAX_CHANGED:
            st.caption(f"and {len(changed) - MAX_CHANGED} more")
