"""State of the Inspect page: request, settings and evidence; and the API for other pages.

The request is in the widgets `inspect:query` etc., and is a `Request` for other modules. The rest is one frozen `InspectState`. Controls
do not own their values: they show the state and write back through these functions, so that hidden controls keep their values.
`generation` is part of every control's key; incrementing it makes them show new values. Other pages read `present_config` etc. and call
`open_in_inspect`.

Every change of config or preset is an undo step. Changes of the same parameters in quick succession are one step, since a dragged
slider reports intermediate positions. A new step discards redo steps; beyond `DEPTH` steps the oldest are dropped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.builtin import default_preset, preset_names
from cems_workbench.config import PipelineConfig, difference, preset, with_values
from cems_workbench.config.forms.targets import completed, preset_behind
from cems_workbench.errors import InputError
from cems_workbench.records import Query, Request, Returned
from cems_workbench.settings import Settings, saved_target
from cems_workbench.ui.kit.address import STEP, go
from cems_workbench.ui.kit.session import PageState

if TYPE_CHECKING:
    from cems_workbench.pipeline import Evidence
    from cems_workbench.store import Store

MAX_STEPS = 100
DRAG_S = 1.5

QUERY, PROJECT, ONLY_PROJECT = "inspect:query", "inspect:project", "inspect:only_project"
AS_OF, MANUAL = "inspect:as_of", "inspect:manual"
FOLLOW, SECTION, VIEW, TOOL = "inspect:follow", "inspect:section", "inspect:view", "inspect:tool"
FORM = "inspect:form"
"""Key of the form of the ranking."""
SIDE_BY_SIDE, CARDS = "Side by side", "Cards"
FORMS = (SIDE_BY_SIDE, CARDS)
TARGET, CHOSEN = "inspect:why:k", "inspect:why:chosen"
"""Keys of the typed target rank, shared by all views and tools, and of the query and memory that Why is it missing? is asked about."""
PICKER = "inspect:picker"
"""Key of the popover of stored queries."""
SCROLL = "inspect:scroll_to_tool"
"""Session key: a tool was opened from elsewhere on the page, which then scrolls to it."""
HAPPENED, WHY = "What happened", "Why, and what if"
WHY_TOOL = "Why is it missing?"
"""The sections below the ranking."""
PRODUCTION = "Against production"
"""The tool that compares the trace with the answer of a live system."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The state of an undo step: preset name, and current config."""

    preset: str
    config: PipelineConfig


@dataclass(frozen=True, slots=True)
class History:
    """Undo steps (latest last) and redo steps (next last). `subject` is what the latest step changed, `at` its time in
    seconds of any clock; both None after undo and redo."""

    past: tuple[Setting, ...] = ()
    future: tuple[Setting, ...] = ()
    subject: str | None = None
    at: float | None = None

    def after(self, before: Setting, now: Setting, subject: str | None, at: float) -> History:
        """The history after a change from `before` to `now`; with `subject` None it never merges with the previous step."""
        if before == now:
            return self
        same = subject is not None and subject == self.subject and bool(self.past)
        if same and self.at is not None and 0 <= at - self.at <= DRAG_S:
            back = now == self.past[-1]  # dragged back to its start: nothing to undo
            return History(self.past[:-1]) if back else replace(self, future=(), at=at)
        return History((*self.past, before)[-MAX_STEPS:], (), subject, at)

    def undone(self, now: Setting) -> tuple[History, Setting]:
        """Undo one step from `now`: the new history and setting; unchanged if there is none."""
        return (History(self.past[:-1], (*self.future, now)), self.past[-1]) if self.past else (self, now)

    def redone(self, now: Setting) -> tuple[History, Setting]:
        """Redo one step; unchanged if there is none."""
        return (History((*self.past, now), self.future[:-1]), self.future[-1]) if self.future else (self, now)


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """Evidence, with the request, the store's path and its content version at that time."""

    request: Request
    store: str
    content_version: int
    evidence: Evidence
    until: float = math.inf
    """When to search again because another process was building the indexes."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A pinned config and its name."""

    name: str
    config: PipelineConfig


@dataclass(frozen=True, slots=True)
class TracedQuery:
    """A query of an external trace: its set, its id, and its text, which is in the query box while its stages are shown."""

    query_set: str
    qid: str
    query: str


@dataclass(frozen=True, slots=True, eq=False)
class InspectState:
    """What the page remembers between reruns, besides widget values."""

    preset: str
    """The preset that the config is compared with."""
    config: PipelineConfig
    """The current config."""
    config_error: str | None = None
    """Why the last value of a control was rejected."""
    generation: int = 0
    """Incremented to make controls show new values."""
    history: History = History()
    gathered: Gathered | None = None
    attempted: tuple[Request, PipelineConfig] | None = None
    """The last fetch, so that an unmet need is requested only once."""
    variants_off: tuple[Request, frozenset[int]] | None = None
    """Disabled query variants, and their request."""
    moment: datetime | None = None
    """The exact time of an opened stored query; used while the date box shows its date."""
    given: Request | None = None
    """What is searched as given while its query is in the box: searched text, engine queries, and wordings as `manual`."""
    traced: TracedQuery | None = None
    """The query of an external trace that was opened."""
    baseline: Baseline | None = None

    @property
    def setting(self) -> Setting:
        """Preset and config."""
        return Setting(self.preset, self.config)


def _initial() -> InspectState:
    name, problem = default_preset(Settings().preset)
    return InspectState(name, preset_named(name), problem)


def usual_preset() -> str:
    """The preset that the page opens with."""
    return default_preset(Settings().preset)[0]


def preset_named(name: str) -> PipelineConfig:
    """A preset, with what the store knows of its target's installation."""
    return completed(preset(name).config, saved_target(Settings().store))


_page = PageState("inspect", _initial)
update = _page.update
"""Replace some of it; also for callbacks: `on_click=state.update, kwargs={"baseline": None}`."""


def present() -> InspectState:
    """The current state."""
    return _page.get()


# API for other pages


def open_in_inspect(
    request: Request,
    config: PipelineConfig,
    baseline: tuple[str, PipelineConfig] | None = None,
    *,
    answered: Sequence[Returned] = (),
    why: tuple[str, int] | None = None,
    switch: bool = True,
) -> None:
    """Open the Inspect page on a request and a config, and do not return; or, unless `switch`, set them before it is drawn.

    `baseline` (name and config) is pinned; None keeps the current one. All query variants are enabled. The config is an undo step.
    `answered` is a live system's answer to compare the trace with. `why` is a memory to follow, with the rank it should reach: the tool
    that explains its rank is opened.
    """
    write_request(request)
    use_config(config)
    update(variants_off=None)
    if baseline is not None:
        pin(*baseline)
    open_answer(request.query, answered)
    if why is not None:
        explain(why[0], request.query, why[1])
    if switch:
        go("pages/inspect.py")


show = partial(open_in_inspect, switch=False)


def open_traced_in_inspect(query: TracedQuery, *, why: tuple[str, int] | None = None, switch: bool = True) -> None:
    """Open the Inspect page on the recorded stages of a query of an external trace, as `open_in_inspect` does. The
    config of the page stays: recorded stages read none."""
    write_request(Request(query.query))
    update(traced=query, variants_off=None)
    if why is not None:
        explain(why[0], query.query, why[1])
    if switch:
        go("pages/inspect.py")


open_traced = partial(open_traced_in_inspect, switch=False)


def open_evidence(
    evidence: Evidence,
    config: PipelineConfig | None,
    store: Store,
    *,
    why: tuple[str, int] | None = None,
    switch: bool = False,
) -> None:
    """Show evidence that another system explained, under a config, as `open_in_inspect` does; the store is not searched."""
    write_request(Request(evidence.query, as_of=evidence.as_of))
    if config is not None:
        use_config(config)
    request = present_request()
    if request is not None:
        keep_evidence(request, store, evidence)
    if why is not None:
        explain(why[0], evidence.query, why[1])
    if switch:
        go("pages/inspect.py")


def traced() -> TracedQuery | None:
    """The query of an external trace that is shown: the opened one, while its text is in the query box."""
    opened = present().traced
    return opened if opened is not None and opened.query.strip() == written_request().query else None


def traced_names() -> list[str]:
    """The query set and id of the query of an external trace that is shown; empty without one."""
    shown = traced()
    return [] if shown is None else [shown.query_set, shown.qid]


def explain(memory_id: str, query: str | None = None, k: int | None = None) -> None:
    """Follow a memory and open the tool that explains its rank; `k` is the rank it should reach. With the query it is
    chosen in the tool as well, since a memory that is no candidate cannot be followed."""
    follow(memory_id)
    st.session_state[CHOSEN] = None if query is None else (query.strip(), memory_id)
    if k is not None:
        st.session_state[TARGET] = k
    st.session_state[SECTION], st.session_state[TOOL] = WHY, WHY_TOOL
    st.session_state[SCROLL] = True


def open_view(view: str) -> None:
    """Open a view of the stages, and move the page to it."""
    st.session_state[SECTION], st.session_state[VIEW] = HAPPENED, view
    st.session_state[SCROLL] = True


def open_answer(query: str, answered: Sequence[Returned]) -> None:
    """Open the tool that compares the trace with a live system's answer to a query, unless the answer is empty."""
    if not answered:
        return
    rows = [{"id": row.memory_id, "score": row.score, "content": row.content} for row in answered]
    results = [{name: value for name, value in row.items() if value is not None} for row in rows]
    st.session_state[f"{answer_key(query)}:text"] = json.dumps({"results": results}, ensure_ascii=False, indent=1)
    st.session_state[SECTION], st.session_state[TOOL] = WHY, PRODUCTION


def answer_key(query: str) -> str:
    """Key prefix of the boxes with a live system's answer to this query."""
    return f"inspect:production:{abs(hash(query))}"


def present_config() -> PipelineConfig:
    """The current config."""
    return present().config


def changed_parameters() -> list[tuple[str, Any, Any]]:
    """The parameters that differ from the preset, as (path, preset's value, current value)."""
    return difference(preset_config(), present_config())


def use_config(config: PipelineConfig) -> None:
    """Set all parameters, as changes to the preset that the config is named after, else to the one it differs least from."""
    present_name = present().preset

    def changes(name: str) -> tuple[int, bool]:
        return len(difference(preset_named(name), config)), name != present_name

    with _step():
        _show(Setting(preset_behind(config) or min(preset_names(), key=changes), config))


def apply(values: Mapping[str, Any]) -> None:
    """Set parameters from code, and update their controls; one undo step, and one of Back. Rejects values as `change` does."""
    with _step():
        change(values)
    st.session_state[STEP] = ["set"]
    update(generation=present().generation + 1)


def forget_evidence() -> None:
    """Drop the current evidence, so that it is gathered again."""
    update(gathered=None, attempted=None)


def forget_store() -> None:
    """Drop the state of the previous store: request and evidence."""
    update(gathered=None, attempted=None, variants_off=None, moment=None, traced=None)
    for key in (QUERY, PROJECT, ONLY_PROJECT, AS_OF, MANUAL, FOLLOW):
        st.session_state.pop(key, None)


# The request


def written_request() -> Request:
    """The content of the boxes, including further queries even if they are not searched; the query may be empty."""
    boxes, given = st.session_state, present().given
    project: str | None = boxes.get(PROJECT)
    lines = (line.strip() for line in (boxes.get(MANUAL) or "").splitlines())
    query: str = (boxes.get(QUERY) or "").strip()
    if given is None or given.query != query:  # what is searched as given, while its query is in the box
        given = Request(query)
    return Request(
        query=query,
        project=project,
        as_of=_moment(boxes.get(AS_OF)),
        only_project=bool(boxes.get(ONLY_PROJECT) and project),
        variants=tuple(line for line in lines if line),
        searched=given.searched,
        engine_queries=given.engine_queries,
    )


def present_request() -> Request | None:
    """The request to search; None while there is no query. Includes further queries only if the config uses typed ones."""
    written = written_request()
    if not written.query:
        return None
    # Unused further queries stay in the box but must not make it another request.
    backend, given = present_config().expansion.backend, present().given
    if backend == "manual":
        return written
    wordings = given.variants if given is not None and given.query == written.query and backend == "none" else ()
    return replace(written, variants=wordings)


def write_request(request: Request) -> None:
    """Fill the boxes; before they are drawn, or from another page."""
    st.session_state[ONLY_PROJECT] = request.only_project
    st.session_state[MANUAL] = "\n".join(request.variants)
    given = Request(request.query.strip(), searched=request.searched, engine_queries=request.engine_queries)
    _write(request, given if request.searched or request.engine_queries else None)


def choose_query(query: Query) -> None:
    """Fill the boxes with a stored query; the project restriction and further queries stay."""
    if query.wordings:
        st.session_state[MANUAL] = "\n".join(query.wordings)
    given = Request(
        query.query.strip(), variants=query.wordings, searched=query.searched, engine_queries=query.engine_queries
    )
    _write(query, given if query.given else None)


def _write(asked: Request | Query, given: Request | None) -> None:
    st.session_state[QUERY], st.session_state[PROJECT] = asked.query, asked.project
    st.session_state[AS_OF] = asked.as_of.date() if asked.as_of else None
    update(moment=asked.as_of, traced=None, given=given)


def _moment(day: date | None) -> datetime | None:
    """The time meant by the date box."""
    if day is None:
        return None
    # The box holds only a day; an opened query keeps its time until the day changes.
    exact = present().moment
    return exact if exact is not None and exact.date() == day else datetime(day.year, day.month, day.day, tzinfo=UTC)


def followed() -> str | None:
    """The followed memory."""
    memory_id: str | None = st.session_state.get(FOLLOW)
    return memory_id


def follow(memory_id: str | None) -> None:
    """Follow a memory, or none; before the box is drawn, or from a callback."""
    st.session_state[FOLLOW] = memory_id


def variants_off(request: Request) -> frozenset[int]:
    """The disabled query variants of this request."""
    off = present().variants_off
    # Indices of variants mean nothing for another request.
    return off[1] if off is not None and off[0] == request else frozenset()


def switch_variants(request: Request, off: frozenset[int]) -> None:
    """Disable these query variants, and enable the others."""
    update(variants_off=(request, off))


# Settings


def preset_config() -> PipelineConfig:
    """The config of the preset."""
    return preset_named(present().preset)


def choose_preset(name: str) -> None:
    """Start from a preset."""
    with _step():
        _show(Setting(name, preset_named(name)))


def reset() -> None:
    """Reset all parameters to the preset's values."""
    use_config(preset_config())


def reset_parameter(path: str) -> None:
    """Reset one parameter to the preset's value."""
    apply({path: preset_config().get(path)})


def change(values: Mapping[str, Any]) -> None:
    """Set parameters; a rejected value changes nothing and sets `config_error`, shown at the controls."""
    with _step(" ".join(sorted(values))):
        try:
            update(config=with_values(present_config(), values, source="control"), config_error=None)
        except InputError as error:
            update(config_error=str(error).removeprefix("control: "))


def open_setting(setting: Setting) -> None:
    """Set preset and config to those of an address; an undo step unless the page was only just opened."""
    before = present()
    _show(setting)
    if before.history != History():
        _remember(before.history.after(before.setting, setting, None, time.monotonic()))
    elif (kept := _histories().get(_browser())) is not None and kept[0] == setting:  # the page was reloaded
        update(history=kept[1])


def undo() -> None:
    """Undo the last step."""
    history, setting = present().history.undone(present().setting)
    _show(setting)
    _remember(history)


def redo() -> None:
    """Redo one step."""
    history, setting = present().history.redone(present().setting)
    _show(setting)
    _remember(history)


@contextmanager
def _step(subject: str | None = None) -> Iterator[None]:
    """Make the changes within one undo step; steps with the same `subject` in quick succession are merged."""
    before = present()
    yield
    now = present().setting
    _remember(before.history.after(before.setting, now, subject, time.monotonic()))


MAX_BROWSERS = 50
"""Browsers whose undo steps are kept over a reload."""


@st.cache_resource(show_spinner=False)
def _histories() -> dict[tuple[str | None, ...], tuple[Setting, History]]:
    """The last setting of each browser with its undo steps."""
    return {}


def _browser() -> tuple[str | None, ...]:
    return str(Settings().store), st.context.ip_address, st.context.headers.get("User-Agent")


def _remember(history: History) -> None:
    update(history=history)
    kept = _histories()
    kept.pop(_browser(), None)
    kept[_browser()] = (present().setting, replace(history, subject=None, at=None))
    while len(kept) > MAX_BROWSERS:
        kept.pop(next(iter(kept)))


def _show(setting: Setting) -> None:
    update(preset=setting.preset, config=setting.config, config_error=None, generation=present().generation + 1)


# The pinned baseline


def pin(name: str, config: PipelineConfig) -> None:
    """Make a config the baseline."""
    update(baseline=Baseline(name, config))


# Current evidence


def evidence_for(request: Request, store: Store) -> Evidence | None:
    """The current evidence, if it was gathered for this request and store content."""
    gathered = present().gathered
    if gathered is None or time.monotonic() > gathered.until:
        return None
    asked = (request, str(store.path), store.content_version)
    return gathered.evidence if (gathered.request, gathered.store, gathered.content_version) == asked else None


def keep_evidence(request: Request, store: Store, evidence: Evidence) -> None:
    """Store the evidence of a request."""
    from cems_workbench.pipeline.resources import TRY_AGAIN

    # Evidence of outdated indexes expires; other evidence stays valid.
    until = time.monotonic() + TRY_AGAIN if store.indexes.stale_reason else math.inf
    update(gathered=Gathered(request, str(store.path), store.content_version, evidence, until))
