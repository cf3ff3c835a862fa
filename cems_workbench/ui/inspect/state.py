"""The state of the Inspect page: what is asked, what is set, the evidence at hand, and the only door into the page.

What was asked stands in the boxes of the page, the widgets `inspect:query` and so on, and is a `Request` to everybody else. All the
rest is one frozen `InspectState`. Controls never own a value: they show what is in the state and write back through these functions,
so that a control which is not on screen keeps its value; `generation` is part of every control's key, and raising it makes them show
new values. Another page reads with `present_config` and the like, and leads here with `open_in_inspect`.

Every change of config or preset is a step that can be undone. Changes of the same parameters within a moment of each other are one
step: a slider that is dragged reports every position it rests on. A new step drops what was undone; past `DEPTH` steps the oldest are
forgotten.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import streamlit as st

from cems_workbench.builtin import default_preset
from cems_workbench.config import PipelineConfig, difference, preset, with_values
from cems_workbench.errors import InputError
from cems_workbench.pipeline import Evidence, Trace
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.resources import TRY_AGAIN
from cems_workbench.records import Query, Returned
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.ui.kit.state import PageState

DEPTH = 100
DRAG_SECONDS = 1.5

QUERY, PROJECT, ONLY_PROJECT = "inspect:query", "inspect:project", "inspect:only_project"
AS_OF, MANUAL = "inspect:as_of", "inspect:manual"
FOLLOW, SECTION, VIEW, TOOL = "inspect:follow", "inspect:section", "inspect:view", "inspect:tool"
SCROLL = "inspect:scroll_to_tool"
"""Key of the session state: the tool was chosen elsewhere on the page, which then moves to it."""
HAPPENED, WHY = "What happened", "Why, and what if"
WHY_TOOL = "Why is it missing?"
"""The sections below the ranking."""
PRODUCTION = "Against production"
"""The tool that sets what a real system answered beside the trace."""


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


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Evidence, and what it was gathered for: the request, and the store's path and content version then."""

    request: Request
    store: str
    content_version: int
    evidence: Evidence
    until: float = math.inf
    """When to search again, because another process was building the indexes."""

    def answers(self, request: Request, store: Store) -> bool:
        """Was it gathered for this very request, from the store as it is now?"""
        if time.monotonic() > self.until:
            return False
        return (self.request, self.store, self.content_version) == (request, str(store.path), store.content_version)


@dataclass(frozen=True, slots=True)
class Baseline:
    """A pinned config and what it is called."""

    name: str
    config: PipelineConfig


@dataclass(frozen=True, slots=True, eq=False)
class BaselineReplay:
    """The trace of the baseline, and what it was replayed from."""

    evidence: Evidence
    config: PipelineConfig
    variants_off: frozenset[int]
    trace: Trace


@dataclass(frozen=True, slots=True)
class Link:
    """The saved page that the address names (`id`), while it is still true.

    `asked` is what was asked and set then, None until that is known; `variants_off` are to be switched off once it is. `messages` are
    lines about the link for the page.
    """

    id: str | None = None
    asked: object = None
    variants_off: tuple[int, ...] = ()
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class InspectState:
    """All that the page remembers between runs, but for what its widgets show."""

    preset: str
    """The preset that the config is compared with."""
    config: PipelineConfig
    """The config as tuned."""
    config_error: str | None = None
    """Why the last value of a control was refused."""
    generation: int = 0
    """Raised when controls are to show new values."""
    history: History = History()
    gathered: Gathered | None = None
    attempted: tuple[Request, PipelineConfig] | None = None
    """What was asked for last; a need that nobody can meet is asked for once."""
    variants_off: tuple[Request, frozenset[int]] | None = None
    """Query variants that are switched off, and for which request."""
    moment: datetime | None = None
    """The very moment of a stored query that was opened; it counts while the day box shows its day."""
    baseline: Baseline | None = None
    baseline_replay: BaselineReplay | None = None
    link: Link = Link()

    @property
    def setting(self) -> Setting:
        """Preset and config."""
        return Setting(self.preset, self.config)


def _first() -> InspectState:
    """What a session begins with: the preset that the settings name, or the default and what was wrong with it."""
    name, problem = default_preset(Settings().preset)
    return InspectState(name, preset(name).config, problem)


_page = PageState("inspect", _first)


def present() -> InspectState:
    """The state as it is now."""
    return _page.get()


# What other pages may do


def open_in_inspect(
    request: Request,
    config: PipelineConfig,
    baseline: tuple[str, PipelineConfig] | None = None,
    *,
    answered: Sequence[Returned] = (),
) -> None:
    """Go to the Inspect page and show this very request under this config; does not return.

    With a `baseline` (name and config) that is pinned beside it; what is pinned stays otherwise. Every query variant is switched on.
    The config is a step that can be undone. `answered` is what a real system answered to it, which is then set beside the trace.
    """
    write_request(request)
    use_config(config)
    _page.update(variants_off=None)
    if baseline is not None:
        pin(*baseline)
    bring_answer(request.query, answered)
    st.switch_page("pages/inspect.py")


def explain(memory_id: str, tool: str) -> None:
    """Follow a memory and open the tool that says why it stands where it stands, instead of another that was chosen there."""
    follow(memory_id)
    st.session_state.pop("inspect:why:chosen", None)
    st.session_state[SECTION], st.session_state[TOOL] = WHY, tool
    st.session_state[SCROLL] = True


def bring_answer(query: str, answered: Sequence[Returned]) -> None:
    """Open the tool that sets what a real system answered to a query beside the trace, unless nothing was answered."""
    if not answered:
        return
    named = [{"id": row.memory_id, "score": row.score, "content": row.content} for row in answered]
    results = [{name: value for name, value in row.items() if value is not None} for row in named]
    st.session_state[f"{answer_key(query)}:text"] = json.dumps({"results": results}, ensure_ascii=False, indent=1)
    st.session_state[SECTION], st.session_state[TOOL] = WHY, PRODUCTION


def answer_key(query: str) -> str:
    """The begin of the keys of the boxes that hold what a real system answered to this query."""
    return f"inspect:production:{abs(hash(query))}"


def present_config() -> PipelineConfig:
    """The config as tuned."""
    return present().config


def present_preset() -> str:
    """The name of the preset that the config is compared with."""
    return present().preset


def changed_parameters() -> list[tuple[str, Any, Any]]:
    """The parameters that differ from the preset, as (path, preset's value, present value)."""
    return difference(preset_config(), present_config())


def use_config(config: PipelineConfig) -> None:
    """Set every parameter; the preset it is compared with stays."""
    with _step():
        _show(Setting(present().preset, config))


def apply(values: Mapping[str, Any]) -> None:
    """Set parameters from elsewhere than their controls, which then show them; one step of the history. Refuses as `change` does."""
    with _step():
        change(values)
    _page.update(generation=present().generation + 1)


def forget_evidence() -> None:
    """Drop the evidence at hand, so that it is gathered again."""
    _page.update(gathered=None, attempted=None)


def forget_store() -> None:
    """Drop what is of the store that was open: what was asked, and the evidence of it."""
    _page.update(gathered=None, attempted=None, variants_off=None, moment=None)
    for key in (QUERY, PROJECT, ONLY_PROJECT, AS_OF, MANUAL, FOLLOW):
        st.session_state.pop(key, None)


# What is asked


def written_request() -> Request:
    """What the boxes say, the further queries among it whether or not they are searched; the query may be empty."""
    boxes = st.session_state
    project: str | None = boxes.get(PROJECT)
    lines = (line.strip() for line in (boxes.get(MANUAL) or "").splitlines())
    return Request(
        query=(boxes.get(QUERY) or "").strip(),
        project=project,
        as_of=_moment(boxes.get(AS_OF)),
        project_only=bool(boxes.get(ONLY_PROJECT) and project),
        manual=tuple(line for line in lines if line),
    )


def present_request() -> Request | None:
    """What is searched; None while there is no query. Further queries are part of it where the config has them typed."""
    written = written_request()
    if not written.query:
        return None
    return written if present_config().expansion.backend == "manual" else replace(written, manual=())


def write_request(request: Request) -> None:
    """Make the boxes say this; before they are drawn, or from another page."""
    _write(request.query, request.project, request.as_of)
    st.session_state[ONLY_PROJECT] = request.project_only
    st.session_state[MANUAL] = "\n".join(request.manual)


def choose_query(query: Query) -> None:
    """Make the boxes say a stored query; where it is searched, and further queries, stay as they are."""
    _write(query.query, query.project, query.as_of)


def _write(query: str, project: str | None, as_of: datetime | None) -> None:
    st.session_state[QUERY] = query
    st.session_state[PROJECT] = project
    st.session_state[AS_OF] = as_of.date() if as_of else None
    _page.update(moment=as_of)


def _moment(day: date | None) -> datetime | None:
    """The moment that the day box means."""
    if day is None:
        return None
    exact = present().moment
    return exact if exact is not None and exact.date() == day else datetime(day.year, day.month, day.day, tzinfo=UTC)


def followed() -> str | None:
    """The memory that is followed through every stage."""
    memory_id: str | None = st.session_state.get(FOLLOW)
    return memory_id


def follow(memory_id: str | None) -> None:
    """Follow a memory, or none; before the box is drawn, or from a callback."""
    st.session_state[FOLLOW] = memory_id


def variants_off(request: Request) -> frozenset[int]:
    """The query variants that are switched off for this request."""
    off = present().variants_off
    return off[1] if off is not None and off[0] == request else frozenset()


def switch_variants(request: Request, off: frozenset[int]) -> None:
    """Switch query variants off; the others are on."""
    _page.update(variants_off=(request, off))


# What is set


def preset_config() -> PipelineConfig:
    """The preset the config started from."""
    return preset(present().preset).config


def choose_preset(name: str) -> None:
    """Start again from a preset."""
    with _step():
        _show(Setting(name, preset(name).config))


def reset() -> None:
    """Back to the preset's values."""
    use_config(preset_config())


def reset_parameter(path: str) -> None:
    """One parameter back to the preset's value."""
    apply({path: preset_config().get(path)})


def change(values: Mapping[str, Any]) -> None:
    """Set parameters; a refused value changes nothing and is `config_error`, which is said beside the controls."""
    with _step(" ".join(sorted(values))):
        try:
            _page.update(config=with_values(present_config(), values, source="control"), config_error=None)
        except InputError as error:
            _page.update(config_error=str(error).removeprefix("control: "))


def start_from(setting: Setting) -> None:
    """Begin with a preset and a config, as a link opens; there is nothing before it to go back to."""
    _page.update(history=History())
    _show(setting)


def undo() -> None:
    """Back to what was set before the last step."""
    history, setting = present().history.undone(present().setting)
    _page.update(history=history)
    _show(setting)


def redo() -> None:
    """Forward again by one undone step."""
    history, setting = present().history.redone(present().setting)
    _page.update(history=history)
    _show(setting)


@contextmanager
def _step(subject: str | None = None) -> Iterator[None]:
    """What happens within is one step of the history; `subject` names the parameters that a drag changes again and again."""
    before = present()
    yield
    now = present().setting
    _page.update(history=before.history.after(before.setting, now, subject, time.monotonic()))


def _show(setting: Setting) -> None:
    """Set preset and config, and make every control show them."""
    _page.update(preset=setting.preset, config=setting.config, config_error=None, generation=present().generation + 1)


# The pinned baseline


def pin(name: str, config: PipelineConfig) -> None:
    """Make a config the baseline."""
    _page.update(baseline=Baseline(name, config))


def unpin() -> None:
    """Compare with nothing."""
    _page.update(baseline=None, baseline_replay=None)


def keep_baseline_replay(replay: BaselineReplay) -> None:
    """Remember the trace of the baseline."""
    _page.update(baseline_replay=replay)


# The evidence at hand


def evidence_for(request: Request, store: Store) -> Evidence | None:
    """The evidence at hand, when it was gathered for this very request from the store as it is now."""
    gathered = present().gathered
    return gathered.evidence if gathered is not None and gathered.answers(request, store) else None


def keep_evidence(request: Request, store: Store, evidence: Evidence) -> None:
    """Remember the evidence of a request."""
    until = time.monotonic() + TRY_AGAIN if store.indexes.behind else math.inf
    _page.update(gathered=Gathered(request, str(store.path), store.content_version, evidence, until))


def attempted(request: Request) -> bool:
    """True when what this config needs for the request was asked for already: a need nobody can meet is asked once."""
    return present().attempted == (request, present_config())


def attempt(request: Request) -> None:
    """Remember that what this config needs for the request is being asked for."""
    _page.update(attempted=(request, present_config()))


def try_again() -> None:
    """Let a need that was given up, or cancelled, be fetched once more."""
    _page.update(attempted=None)


# The link


def set_link(link: Link) -> None:
    """Remember what the address names."""
    _page.update(link=link)
