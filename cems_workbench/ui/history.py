"""Undo and redo of what was set: the config and the preset it is compared with, step by step, for this session.

A step is one change of either. Changes of the same parameters within a moment of each other are one step: a slider that is dragged
reports every position it rests on. A new step drops what was undone; past `DEPTH` steps the oldest are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import streamlit as st

from cems_workbench.config import PipelineConfig

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
