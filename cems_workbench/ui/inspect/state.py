"""Page state: the config being tuned, the request, and the evidence they were last gathered for.

Widgets never own a value: they show what is here and write back through these functions, so that a control which is
not on screen keeps its value. `generation` is part of every control's key; raising it makes them show new values. Every change of
config or preset goes through here, and can be undone.

Undo and redo of what was set: the config and the preset it is compared with, step by step, for this session.

A step is one change of either. Changes of the same parameters within a moment of each other are one step: a slider that is dragged
reports every position it rests on. A new step drops what was undone; past `DEPTH` steps the oldest are forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from cems_workbench.config import DEFAULT, PipelineConfig, difference, preset, preset_names, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.gather import Request
from cems_workbench.settings import Settings
from cems_workbench.store import Store

DEPTH = 100
DRAG_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Setting:
    """What is undone and redone: the preset's name, and the config as tuned."""

    preset: str
    config: PipelineConfig


@dataclass(frozen=True, slots=True)
class History:
    """What was set before (the latest last) and what was undone (the next to redo last).

    `subject` names what the latest step changed, `at` says when, in seconds of any clock; both None after undo and redo.
    """

    past: tuple[Setting, ...] = ()
    future: tuple[Setting, ...] = ()
    subject: str | None = None
    at: float | None = None

    def after(self, before: Setting, now: Setting, subject: str | None, at: float) -> History:
        """The history once `before` became `now`; `subject` None never joins the step before it."""
        if before == now:
            return self
        same = subject is not None and subject == self.subject and bool(self.past)
        if same and self.at is not None and 0 <= at - self.at <= DRAG_SECONDS:
            back = now == self.past[-1]  # dragged to and fro: nothing is left to undo
            return History(self.past[:-1]) if back else replace(self, future=(), at=at)
        return History((*self.past, before)[-DEPTH:], (), subject, at)

    def undone(self, now: Setting) -> tuple[History, Setting]:
        """One step back from `now`: the history then, and what to set; unchanged at the beginning."""
        if not self.past:
            return self, now
        return History(self.past[:-1], (*self.future, now)), self.past[-1]

    def redone(self, now: Setting) -> tuple[History, Setting]:
        """One step forward again; unchanged when nothing was undone."""
        if not self.future:
            return self, now
        return History((*self.past, now), self.future[:-1]), self.future[-1]


def draw_buttons(history: History, undo: Callable[[], None], redo: Callable[[], None]) -> None:
    """Undo and redo, side by side; each is disabled while there is nothing to do."""
    with st.container(horizontal=True, gap="xsmall", key="history"):
        for name, icon, steps, act, keys in (
            ("undo", ":material/undo:", len(history.past), undo, "Alt+Z"),
            ("redo", ":material/redo:", len(history.future), redo, "Alt+Shift+Z"),
        ):
            st.button(
                name.capitalize(), key=name, on_click=act, disabled=not steps, icon=icon, shortcut=keys, width="stretch",
                help=f"{name.capitalize()} the last change of parameters or preset ({keys}). Steps: {steps}.",
            )  # fmt: skip


def prepare() -> None:
    """Give every key of the page state its first value."""
    if "preset" not in st.session_state:
        name, problem = _opening()
        st.session_state["preset"], st.session_state["config_error"] = name, problem
        st.session_state["config"] = preset(name).config
    st.session_state.setdefault("generation", 0)
    st.session_state.setdefault("gathered", None)
    st.session_state.setdefault("attempted", None)
    st.session_state.setdefault("follow", None)
    st.session_state.setdefault("off", {})
    st.session_state.setdefault("history", History())


def _opening() -> tuple[str, str | None]:
    """The preset a session begins with, and what was wrong with the one that the settings name."""
    name = Settings().preset
    if name in preset_names():
        return name, None
    return DEFAULT, f"CEMS_WORKBENCH_PRESET: there is no preset {name}; known are {', '.join(preset_names())}"


def config() -> PipelineConfig:
    """The config as tuned."""
    value: PipelineConfig = st.session_state["config"]
    return value


def base() -> PipelineConfig:
    """The preset the config started from."""
    return preset(st.session_state["preset"]).config


def choose_preset(name: str) -> None:
    """Start again from a preset."""
    with _step():
        _show(Setting(name, preset(name).config))


def reset() -> None:
    """Back to the preset's values."""
    with _step():
        _show(Setting(st.session_state["preset"], base()))


def reset_one(path: str) -> None:
    """One parameter back to the preset's value."""
    with _step():
        change({path: base().get(path)})
    st.session_state["generation"] += 1


def take(imported: PipelineConfig) -> None:
    """Use an imported config; the preset it is compared with stays."""
    with _step():
        _show(Setting(st.session_state["preset"], imported))


def change(values: Mapping[str, Any]) -> None:
    """Set parameters; a refused value is said beside the controls and changes nothing."""
    with _step(" ".join(sorted(values))):
        try:
            st.session_state["config"] = with_values(config(), values, source="control")
            st.session_state["config_error"] = None
        except InputError as error:
            st.session_state["config_error"] = str(error).removeprefix("control: ")


def apply(values: Mapping[str, Any]) -> None:
    """Set parameters from elsewhere than their controls, which then show them; one step of the history."""
    with _step():
        change(values)
    st.session_state["generation"] += 1


def start_from(name: str, tuned: PipelineConfig) -> None:
    """Begin with a preset and a config, as a link opens; there is nothing before it to go back to."""
    st.session_state["history"] = History()
    _show(Setting(name, tuned))


def history() -> History:
    """What can be undone and redone."""
    value: History = st.session_state["history"]
    return value


def undo() -> None:
    """Back to what was set before the last step."""
    st.session_state["history"], setting = history().undone(_setting())
    _show(setting)


def redo() -> None:
    """Forward again by one undone step."""
    st.session_state["history"], setting = history().redone(_setting())
    _show(setting)


@contextmanager
def _step(subject: str | None = None) -> Iterator[None]:
    """What happens within is one step of the history; `subject` names the parameters that a drag changes again and again."""
    before, past = _setting(), history()
    yield
    st.session_state["history"] = past.after(before, _setting(), subject, time.monotonic())


def _setting() -> Setting:
    return Setting(st.session_state["preset"], config())


def _show(setting: Setting) -> None:
    """Set preset and config, and make every control show them."""
    st.session_state["preset"] = setting.preset
    st.session_state["config"] = setting.config
    st.session_state["config_error"] = None
    st.session_state["generation"] += 1


def changed() -> list[tuple[str, Any, Any]]:
    """The parameters that differ from the preset, as (path, preset's value, present value)."""
    return difference(base(), config())


def evidence_for(request: Request, store: Store) -> Evidence | None:
    """The evidence at hand, when it was gathered for this very request from the store as it is now."""
    kept: tuple[object, Evidence] | None = st.session_state["gathered"]
    return kept[1] if kept is not None and kept[0] == (request, *_content(store)) else None


def keep(request: Request, store: Store, evidence: Evidence) -> None:
    """Remember the evidence of a request."""
    st.session_state["gathered"] = ((request, *_content(store)), evidence)


def _content(store: Store) -> tuple[str, int]:
    return str(store.path), store.content_version


def forget() -> None:
    """Drop the evidence at hand, so that it is gathered again."""
    st.session_state["gathered"] = None
    st.session_state["attempted"] = None


def try_again() -> None:
    """Let a need that was given up, or cancelled, be fetched once more."""
    st.session_state["attempted"] = None


def switched_off(request: Request) -> frozenset[int]:
    """The query variants that are switched off for this request."""
    off: dict[Request, frozenset[int]] = st.session_state["off"]
    return off.get(request, frozenset())


def switch_variants(request: Request, off: frozenset[int]) -> None:
    """Switch query variants off; the others are on."""
    st.session_state["off"] = {request: off}


def attempted(request: Request) -> bool:
    """True when what this config needs for the request was asked for already: a need nobody can meet is asked once."""
    attempt: object = st.session_state["attempted"]
    return attempt == (request, config())


def attempt(request: Request) -> None:
    """Remember that what this config needs for the request is being asked for."""
    st.session_state["attempted"] = (request, config())
