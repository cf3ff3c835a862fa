"""Sharing of the Inspect page: a short link, the equivalent command line, the ranking side by side as a file, and a bundle for replay.

A link holds only an id; the page state (request, settings, open view) is in the store. The id stays in the address while the page has
that state, and is removed once it changes, so that a reload never reverts a change. A state saved by another version is read as far as
possible, with one line per omission.

The command line is `python -m cems_workbench search …`, quoted for a shell.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.builtin import DEFAULT_PRESET
from cems_workbench.command_words import asked_options
from cems_workbench.config import PipelineConfig, assigned, difference, nested, preset, preset_names
from cems_workbench.config.forms.files import salvaged
from cems_workbench.errors import InputError, one_line
from cems_workbench.pipeline.evidence import Request
from cems_workbench.platform.parsing import json_values
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.state import Link, Setting
from cems_workbench.ui.kit.html import csv_bytes, plain
from cems_workbench.ui.kit.widgets import download, opened_popover

if TYPE_CHECKING:
    from cems_workbench.analysis.side_by_side import SideBySide
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.resources import Resources

PLACES = {"form": state.FORM, "section": state.SECTION, "view": state.VIEW, "tool": state.TOOL}
"""Parts of the open view: their names in a link, and their widget keys."""


@dataclass(frozen=True, slots=True)
class SavedPage:
    """State saved for a link: request (`as_of` None: the time of opening), settings, open view."""

    request: Request
    setting: Setting
    variants_off: tuple[int, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    follow: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values. The config is text, to keep the order of its half-life tiers."""
        asked, as_of = self.request, self.request.as_of
        midnight = as_of and datetime(as_of.year, as_of.month, as_of.day, tzinfo=UTC)
        moment = as_of and (as_of.date() if as_of == midnight else as_of)  # all versions can read a date
        return {
            "version": 1,
            "query": asked.query,
            "project": asked.project,
            "only_project": asked.only_project,
            "as_of": moment and moment.isoformat(),
            "manual": "\n".join(asked.variants),
            "searched": asked.searched,
            "engine_queries": dict(asked.engine_queries),
            "preset": self.setting.preset,
            "config": json.dumps(nested(self.setting.config), ensure_ascii=False),
            "off": list(self.variants_off),
            "places": dict(self.places),
            "follow": self.follow,
        }


def read_saved(values: Mapping[str, Any]) -> tuple[SavedPage, list[str]]:
    """The page from plain values, and one line per omission."""
    omissions: list[str] = []

    def read(name: str, kind: type, default: Any) -> Any:
        value = values.get(name)
        if value is None or isinstance(value, kind):
            return default if value is None else value
        omissions.append(f"{name} could not be read and is ignored")
        return default

    name = read("preset", str, DEFAULT_PRESET)
    if name not in preset_names():
        omissions.append(f"there is no preset {name}; {DEFAULT_PRESET} is used instead")
        name = DEFAULT_PRESET
    moment, as_of = None, read("as_of", str, "")
    try:
        moment = datetime.fromisoformat(as_of) if as_of else None
    except ValueError:
        omissions.append(f"the date {as_of} could not be read and is ignored")
    request = Request(
        query=read("query", str, ""),
        project=read("project", str, None),
        as_of=moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment,
        only_project=read("only_project", bool, False),
        variants=tuple(read("manual", str, "").splitlines()),
        searched=read("searched", str, None),
        engine_queries={str(name): str(text) for name, text in read("engine_queries", dict, {}).items()},
    )
    setting, places = Setting(name, _config(read("config", str, ""), name, omissions)), read("places", dict, {})
    # bool is a subclass of int; `type` excludes JSON's true.
    off = tuple(item for item in read("off", list, []) if type(item) is int and item >= 0)
    opened = tuple((place, str(places[place])) for place in PLACES if places.get(place))
    return SavedPage(request, setting, off, opened, read("follow", str, None)), omissions


def _config(text: str, name: str, omissions: list[str]) -> PipelineConfig:
    try:
        values = json_values(text, "link")
    except InputError:
        values = None
    if not isinstance(values, dict):
        omissions.append(f"the parameters could not be read; those of the preset {name} are set")
        return preset(name).config
    config, left_out = salvaged(values)
    if left_out:
        omissions.append(f"unknown or not allowed in this version, and ignored: {one_line(', '.join(left_out))}")
    return config


def search_command(
    request: Request,
    name: str,
    config: PipelineConfig,
    *,
    as_of: datetime | None = None,
    off: Iterable[int] = (),
    store: Path | None = None,
) -> str:
    """The command line. `name` is the preset that `config` is compared with; `as_of` is the time of the evidence (None:
    the request's). `store` is included unless it is the command's default."""
    words = ["python", "-m", "cems_workbench", "search", "--preset", name]
    for path, _, _ in difference(preset(name).config, config):
        words += ["--set", f"{path}={assigned(config, path)}"]
    words += asked_options(
        request.project,
        as_of or request.as_of,
        request.only_project,
        request.variants,
        request.searched,
        request.engine_queries,
        sorted(off),
    )
    if store is not None and store.resolve() != Path(Settings.model_fields["store"].default).resolve():
        words.append(f"--store={store.resolve()}")
    # A query that begins with a dash would be read as an option.
    words += ["--", request.query] if request.query.startswith("-") else [request.query]
    return shlex.join(words)


PARAMETER = "state"
MAX_ID_CHARS = 40
"""Maximum characters shown of an unknown id."""


def open_link(resources: Resources) -> None:
    """Restore the page from the id in the address, once; called before any widget is drawn."""
    wanted, link = st.query_params.get(PARAMETER), state.present().link
    if wanted is None or wanted == link.id:
        return
    values = resources.store.links.read(wanted)
    if values is None:
        shown = wanted if len(wanted) <= MAX_ID_CHARS else wanted[:MAX_ID_CHARS] + "…"
        line = f"This store has no saved state {shown}; the page opens as usual."
        state.update(link=replace(link, id=None, asked=None, messages=(line,)))
        del st.query_params[PARAMETER]
        return
    saved, omissions = read_saved(values)
    if saved.follow is not None and resources.store.memories.get(saved.follow) is None:
        omissions.append(f"the followed memory {saved.follow} is no longer in this store")
    state.start_from(saved.setting)
    state.write_request(saved.request)
    state.follow(saved.follow)
    for place, name in saved.places:
        st.session_state[PLACES[place]] = name
    messages = tuple(f"Of this link {line}." for line in omissions)
    state.update(link=Link(wanted, None, saved.variants_off, messages))


def follow_link(request: Request | None) -> None:
    """Once the request is known: disable the link's variants, and remove the id from the address if the page has changed."""
    link = state.present().link
    if request is not None and link.variants_off:
        state.switch_variants(request, frozenset(link.variants_off))
    now = _request_key(request)
    if link.asked is None:
        link = replace(link, asked=now)
    elif link.asked != now:
        link = Link(asked=now)
        if PARAMETER in st.query_params:
            del st.query_params[PARAMETER]
    state.update(link=replace(link, variants_off=()))
    for line in link.messages:
        st.info(plain(line), icon=":material/link_off:")


def _request_key(request: Request | None) -> object:
    off = state.variants_off(request) if request is not None else frozenset()
    return request, off, state.present().setting


def present_page(request: Request) -> SavedPage:
    """The current page."""
    places = ((name, st.session_state.get(key)) for name, key in PLACES.items())
    return SavedPage(
        replace(request, variants=state.written_request().variants),
        state.present().setting,
        tuple(sorted(state.variants_off(request))),
        tuple((name, str(place)) for name, place in places if place),
        state.followed(),
    )


def _save(request: Request, resources: Resources) -> None:
    saved = resources.store.links.save(present_page(request).to_json())
    state.update(link=Link(saved, _request_key(request)))
    st.query_params[PARAMETER] = saved


def draw_share(resources: Resources, request: Request, evidence: Evidence | None) -> None:
    """Draw a popover with the link, the command line, the ranking side by side, and the evidence."""
    help = "A link to this page, the equivalent command, the ranking as a file, and the evidence"
    box = opened_popover("Share", "inspect:share", ":material/share:", help, type="tertiary")
    if box is None:
        return
    with box:
        _link(resources, request)
        st.caption("Command line", help="Gives the same numbers as the page.")
        command = search_command(
            request,
            state.present().preset,
            state.present_config(),
            as_of=evidence.as_of if evidence else None,
            off=state.variants_off(request),
            store=resources.store.path,
        )
        st.code(command, language=None, wrap_lines=True)
        if evidence is not None:
            _ranking(resources, request, evidence)
            _bundle(evidence)


def _link(resources: Resources, request: Request) -> None:
    st.caption("Link", help="The state is saved in this store; the link opens this query with these settings.")
    state_id = state.present().link.id
    if state_id is None:
        save: Any = {"icon": ":material/link:", "on_click": _save, "args": (request, resources)}
        st.button("Save and create link", key="inspect:save_link", **save)
        return
    address = (st.context.url or "").partition("?")[0]
    st.code(f"{address}?{PARAMETER}={state_id}", language=None, wrap_lines=True)
    if request.as_of is None:
        st.caption("“As of” is empty: ages count from the moment the link is opened.")


def _ranking(resources: Resources, request: Request, evidence: Evidence) -> None:
    st.caption(
        "Ranking side by side",
        help="Every candidate: rank and score in each list and after each stage that did something, what the scores are made of, and "
        "the stage that dropped it.",
    )
    from cems_workbench.analysis.side_by_side import side_by_side
    from cems_workbench.jobs.query_grades import query_grades
    from cems_workbench.pipeline import replay

    config, off = state.present_config(), state.variants_off(request)
    grades = query_grades(request, resources.store).grades
    name = f"ranking-{_slug(evidence.query)}"

    def table() -> SideBySide:
        return side_by_side(replay(evidence, config, switched_off=off), grades)

    buttons = st.container(horizontal=True)
    download("CSV", lambda: csv_bytes(*table().to_table()), f"{name}.csv", "inspect:ranking:csv", buttons)
    of = f"{name}.json", "inspect:ranking:json", buttons
    download("JSON", lambda: json.dumps(table().to_json(), ensure_ascii=False), *of)


def _bundle(evidence: Evidence) -> None:
    from cems_workbench.pipeline import bundle_from
    from cems_workbench.pipeline.redact import redacted

    st.caption(
        "Evidence",
        help="All evidence gathered for this query. `replay` computes the same numbers from it on any machine.",
    )
    without = st.toggle(
        "Without the texts",
        key="inspect:redact",
        help="Replaces words, names and ids by others of the same length; replay gives the same numbers. Kept: dates, counts, "
        "categories, scores, model names, and query words that a detector matches.",
    )
    name = "redacted" if without else _slug(evidence.query)
    download(
        "Download",
        lambda: json.dumps(bundle_from(redacted(evidence) if without else evidence), ensure_ascii=False),
        f"evidence-{name}.json",
        "inspect:bundle",
    )


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48] or "query"
