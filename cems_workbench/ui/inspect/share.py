"""Sharing of the Inspect page: its address, the equivalent command line, the ranking side by side as a file, and a bundle for replay.

The address (`ui.kit.address`) holds the request, the preset with the parameters that differ from it, and the open view. What this version
or store does not know of it is left out and named.

The command line is `python -m cems_workbench search …`, quoted for a shell.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st

from cems_workbench.command_words import asked_options
from cems_workbench.config import PipelineConfig, assigned, difference, preset, preset_names, with_values
from cems_workbench.config.forms.yaml_form import parse_assignment
from cems_workbench.errors import InputError, one_line
from cems_workbench.records import Request
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.inspect.state import Setting, TracedQuery
from cems_workbench.ui.kit.address import MAX_SHOWN, Part, Values, link, memory, packed, refuse, unpacked, widget
from cems_workbench.ui.kit.html import csv_bytes
from cems_workbench.ui.kit.views import views_in
from cems_workbench.ui.kit.widgets import download, opened_popover

if TYPE_CHECKING:
    from cems_workbench.analysis.side_by_side import SideBySide
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.resources import Resources


def put_setting(values: Values) -> None:
    """Set the preset and config of an address. Raises InputError, naming what was left out, or for values that were cut."""
    name, problems = values.get("preset", [state.usual_preset()])[-1], []
    if name not in preset_names():
        problems.append(f"there is no preset {one_line(name, MAX_SHOWN)}")
        name = state.usual_preset()
    config = state.preset_named(name)
    for line in unpacked("set", values.get("set", ())):
        try:
            config = with_values(config, dict([parse_assignment(line)]), "set")
        except InputError as error:
            problems.append(str(error))
    setting = Setting(name, config)
    if setting != state.present().setting:
        state.open_setting(setting)
    if problems:
        raise InputError("; ".join(problems))


def _setting() -> Values:
    present, changed = state.present(), [path for path, _, _ in state.changed_parameters()]
    changed += ["name"] if present.config.name != state.preset_config().name else []
    if not changed and present.preset == state.usual_preset() and not st.session_state.get(state.QUERY):
        return {}
    return {"preset": [present.preset], "set": packed([f"{path}={assigned(present.config, path)}" for path in changed])}


def _as_of() -> Values:
    moment = state.written_request().as_of
    midnight = moment is not None and moment.time() == time()
    return {} if moment is None else {"as_of": [(moment.date() if midnight else moment).isoformat()]}


def _put_as_of(values: Values) -> None:
    text, moment = values.get("as_of", [""])[-1], None
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        refuse("as_of", text, "a date such as 2026-01-31")
    finally:
        exact = moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        st.session_state[state.AS_OF] = exact and exact.date()
        state.update(moment=exact)


def _given() -> Values:
    asked = state.written_request()
    searched = {"searched": [asked.searched]} if asked.searched else {}
    return searched | {"engine": [f"{name}={text}" for name, text in asked.engine_queries.items()]}


def _put_given(values: Values) -> None:
    engine = dict(text.partition("=")[::2] for text in values.get("engine", ()))
    query, searched = (st.session_state.get(state.QUERY) or "").strip(), values.get("searched", [None])[-1]
    state.update(given=Request(query, searched=searched, engine_queries=engine) if values else None)


def _put_traced(values: Values) -> None:
    names = values.get("traced", ())
    if names and len(names) != 2:
        refuse("traced", names[0], "a query set and the id of a query of it")
    query = (st.session_state.get(state.QUERY) or "").strip()
    state.update(traced=TracedQuery(names[0], names[1], query) if names else None)


def _off() -> Values:
    request = state.present_request()
    return {} if request is None else {"off": [str(i) for i in sorted(state.variants_off(request))]}


def _put_off(values: Values) -> None:
    request, numbers = state.present_request(), values.get("off", ())
    if any(not (text.isascii() and text.isdigit() and len(text) < 5) for text in numbers):
        refuse("off", " ".join(numbers), "numbers of variants")
    if request is not None:
        state.switch_variants(request, frozenset(map(int, numbers)))


def _chosen() -> str | None:
    chosen: tuple[str, str] | None = st.session_state.get(state.CHOSEN)
    return chosen[1] if chosen and chosen[0] == st.session_state.get(state.QUERY) else None


def _choose(memory_id: str | None) -> None:
    query = (st.session_state.get(state.QUERY) or "").strip()
    st.session_state[state.CHOSEN] = None if memory_id is None else (query, memory_id)


def _lines() -> Values:
    return {"also": list(state.written_request().variants)}


SETTING = Part(("preset", "set"), _setting, put_setting, "preset")
"""The preset, and the parameters that differ from it."""
ADDRESS = (
    widget("query", state.QUERY, entry=True),
    SETTING,
    widget("project", state.PROJECT),
    widget("only_project", state.ONLY_PROJECT, bool),
    Part(("also",), _lines, lambda values: st.session_state.update({state.MANUAL: "\n".join(values.get("also", ()))})),
    Part(("as_of",), _as_of, _put_as_of),
    Part(("searched", "engine"), _given, _put_given),
    Part(("traced",), lambda: {"traced": state.traced_names()}, _put_traced, "traced"),
    Part(("off",), _off, _put_off),
    widget("form", state.FORM, choices=lambda: state.FORMS, usual=state.SIDE_BY_SIDE),
    widget("section", state.SECTION, entry=True, choices=lambda: (state.HAPPENED, state.WHY), usual=state.HAPPENED),
    widget("view", state.VIEW, entry=True, choices=lambda: views_in("inspect.views")),
    widget("tool", state.TOOL, entry=True, choices=lambda: views_in("inspect.tools")),
    widget("k", state.TARGET, int, span=(1, 1000)),
    memory("memory", state.followed, state.follow, entry=True),
    memory("why", _chosen, _choose),
)
"""What the page shows: settings, the request, the open view, and the chosen memories."""


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


def draw_share(resources: Resources, request: Request, evidence: Evidence | None) -> None:
    """Draw a popover with the link, the command line, the ranking side by side, and the evidence."""
    help = "A link to this page, the equivalent command, the ranking as a file, and the evidence"
    box = opened_popover("Share", "inspect:share", ":material/share:", help, type="tertiary")
    if box is None:
        return
    with box:
        _link(request)
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


def _link(request: Request) -> None:
    st.caption(
        "Link", help="The address of this page: it opens this query with these settings in any app on this store."
    )
    st.code(link(*ADDRESS), language=None, wrap_lines=True)
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
