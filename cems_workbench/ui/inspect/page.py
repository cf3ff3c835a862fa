"""The Inspect page: run a query, see what each stage did, and change settings to see what would have happened.

The first screen: what the app is for, what store is open, and what to do next.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st

from cems_workbench.builtin import SAMPLE_QUERY
from cems_workbench.errors import counted
from cems_workbench.settings import saved_target
from cems_workbench.ui.inspect import pasted, state
from cems_workbench.ui.inspect.share import ADDRESS, draw_share
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.address import followed
from cems_workbench.ui.kit.html import begin_page, draw, excerpt, plain
from cems_workbench.ui.kit.widgets import opened_popover, remembered

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from cems_workbench.pipeline.effects import Effect
    from cems_workbench.pipeline.evidence import Request
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.records import Query
    from cems_workbench.store import Store
    from cems_workbench.ui.inspect.controls import Change


MAX_EXAMPLES = 8
MAX_NAMED = 2
"""Sources named in the line on the store; of more only the number."""
MIN_TOOLTIP_CHARS = 48
"""Characters from which a button label may be truncated, and gets a tooltip."""
PLACEHOLDER = f"What did your agent look for? For example: {SAMPLE_QUERY}"
"""What the empty query box says."""


def draw_start(resources: Resources) -> None:
    """Draw what is open and the three steps, then queries of the store to begin with, or what to type."""
    store = resources.store
    count = counted(store.memories.count(), "memories")
    draw("inspect/start.html", path=store.path, count=count, origin=_origin(store))
    queries = store.queries.read()
    if not queries:
        for memory in store.memories.read(store.memories.newest_by_creation(1)).values():
            about = plain(excerpt(memory.content, 100))
            st.caption(f"This store has no queries yet. Type what your agent would ask, for example about: *{about}*")
        return
    st.markdown("**Or begin with a query of this store:**")
    with st.container(horizontal=True, gap="small"):
        for query in _examples(queries):
            text = plain(query.query)  # labels are Markdown
            whole = text if len(text) > MIN_TOOLTIP_CHARS else None
            st.button(text, key=f"inspect:example:{query.qid}", on_click=state.choose_query, args=(query,), help=whole)


def _examples(queries: Sequence[Query]) -> list[Query]:
    """The sample's query that the guide begins with, then queries of each type in turn."""
    by_type: dict[str | None, list[Query]] = {}
    for query in queries:
        by_type.setdefault(query.type, []).append(query)
    first = [query for query in queries if query.query == SAMPLE_QUERY]
    turns = [of[turn] for turn in range(MAX_EXAMPLES) for of in by_type.values() if turn < len(of)]
    return [*first, *(query for query in turns if query not in first)][:MAX_EXAMPLES]


def _origin(store: Store) -> str:
    """Where the memories are from: live systems, else imported files."""
    sources = [f"{record.probe.get('engine', '')} at {record.address}" for record in store.sources.with_memories()]
    files = [] if sources else [event.name for event in store.imports.read() if event.undone_at is None]
    named = sources or files
    return ", ".join(named[:MAX_NAMED]) + (
        f" and {counted(len(named) - MAX_NAMED, 'more sources' if sources else 'more files')}"
        if len(named) > MAX_NAMED
        else ""
    )


NO_SOURCE = "No effect: this store has no live source. Connect one under Memories → Sources."


@session.show_errors
def main() -> None:
    """Draw the page: first the ranking, then the controls, then the charts."""
    started = time.perf_counter()
    begin_page("Inspect", "inspect")
    session.gate()
    with followed("inspect", *ADDRESS):
        # The box first: it is painted while the modules of a search are imported and the store is opened.
        hidden: Any = {"label_visibility": "collapsed", "icon": ":material/search:", "persist_state": "session"}
        box = st.empty()
        box.text_input("Query", key=state.QUERY, placeholder=PLACEHOLDER, **hidden)
        resources = session.open_or_explain()
        count = resources.store.memories.count() if resources else 0
        pasted_here = resources is not None and pasted.shown(resources)
        if not count and not pasted_here:
            box.empty()
        if resources is None:
            st.caption(
                "Close the other process, or set CEMS_WORKBENCH_STORE to another directory, and reload this page."
            )
            return
        if not count and not pasted_here:
            from cems_workbench.ui.memories.sources import draw_empty

            draw_empty(resources, st.empty())
            pasted.draw_paste(resources, type="tertiary")
            return
        _draw(resources, started)
    session.warm_up(resources)


def _draw(resources: Resources, started: float) -> None:
    toolbar = _draw_scope_and_given(resources)
    request = state.present_request()
    recorded = False
    beginning = st.empty()  # so that its queries go at once, not when the first search has ended
    if request is None:
        with beginning.container():
            draw_start(resources)
        _draw_sidebar(resources)
    else:
        from cems_workbench.ui.inspect import searched

        recorded = searched.draw_traced(request, resources, started)
        if not recorded:
            searched.draw_searched(request, resources, started, _draw_sidebar)
    with toolbar:
        _draw_toolbar(request, resources, recorded)


def _draw_sidebar(resources: Resources, change: Change = state.change) -> None:
    """Draw the preset, its notes, and the controls of every stage."""
    # Imported below the query box, which is painted meanwhile: the stages, by which the controls are grouped, take a tenth of a second.
    from cems_workbench.pipeline.effects import idle_parameters
    from cems_workbench.pipeline.list_sources import cosine_remarks
    from cems_workbench.ui.inspect.controls import draw_changed, draw_controls, draw_presets

    present = state.present()
    inert = idle_parameters(present.config)
    if resources.engine() is None:
        inert |= dict.fromkeys(("lists.answered_by", "lists.source_hybrid.enabled"), NO_SOURCE)
    with st.sidebar:
        draw_presets(saved_target(resources.store.path))
        draw_changed(inert)
        with st.container():
            if present.config_error:
                st.error(plain(present.config_error))
        remarks = cosine_remarks(present.config)
        draw_controls(present.config, state.preset_config(), present.generation, change, inert, remarks)


def _draw_toolbar(request: Request | None, resources: Resources, recorded: bool) -> None:
    from cems_workbench.ui.inspect import baseline
    from cems_workbench.ui.inspect.toolbar import draw_dictionary, draw_picker, draw_transfer, draw_typos

    config = state.present_config()
    draw_picker(resources)
    pasted.draw_paste(resources, type="tertiary")
    if recorded:
        return
    if config.expansion.backend == "dictionary":
        draw_dictionary(resources)
    if config.query.typo_correction.enabled:
        draw_typos(resources)
    baseline.draw_baseline()
    draw_transfer(resources)
    if request is not None:
        from cems_workbench.ui.inspect import next_step

        next_step.draw_add_to_set(request, resources)
        draw_share(resources, request, state.evidence_for(request, resources.store))


def _draw_scope_and_given(resources: Resources) -> DeltaGenerator:
    """Draw below the query box, as the first of the toolbar, project and date; the toolbar, for what the request decides."""
    toolbar = st.container(horizontal=True, gap="xsmall", key="inspect:toolbar")
    if state.traced() is not None:  # neither project nor date nor expansion changes recorded stages
        return toolbar
    # The label must not change: it identifies the popover, and a new one starts closed.
    about = "Project, user and date of the query, and their effect under these settings"
    with toolbar:
        box = opened_popover("Project, user and date", "inspect:scope", ":material/folder:", about, type="tertiary")
    if box is not None:
        with box:
            _draw_scope(resources)
    _draw_given()
    if not pasted.shown(resources):
        _draw_users(resources)
    expansion = state.present_config().expansion
    if expansion.backend == "manual":
        most = f"{expansion.max_expansions} at most (Expansion → Max expansions)"
        help = f"Each is searched as a variant of the query; {most}. Contributions shows the contribution of each."
        st.text_area("Further queries, one per line", height=90, **remembered(state.MANUAL, help))
    return toolbar


def _draw_scope(resources: Resources) -> None:
    from cems_workbench.pipeline.effects import as_of_effect, project_effect

    config = state.present_config()
    project = st.selectbox(
        "Project",
        [name for name, _ in resources.store.memories.projects() if name],
        index=None,
        placeholder="none",
        accept_new_options=True,
        **remembered(state.PROJECT, "Project of the query. Its effect is set under Adjust → Project factors."),
    )
    only = remembered(state.ONLY_PROJECT, "Search only that project's memories.")
    st.toggle("Only this project", wrap=True, disabled=not project, **only)
    st.caption(_words(project_effect(config, bool(project and st.session_state.get(state.ONLY_PROJECT)))))
    author, users = config.query.author, _users(resources)
    if len(users) > 1 or author is not None:
        st.selectbox(
            "User",
            [None, *dict.fromkeys([*users, *([author] if author else [])])],
            index=None if author is None else [None, *users, author].index(author),
            format_func=lambda name: name or "everybody",
            placeholder="everybody",
            key=(key := f"inspect:author:{state.present().generation}:{author}"),
            on_change=lambda: state.change({"query.author": st.session_state[key]}),
            help="Only memories of this author are searched (`query.author`), as systems that filter by user do.",
        )
    when = (
        "Date of the query (midnight UTC, or the exact time of a stored query). Empty: now. Later results are marked."
    )
    st.date_input("As of", value=None, format="YYYY-MM-DD", **remembered(state.AS_OF, when))
    st.caption(_words(as_of_effect(config)))


def _draw_given() -> None:
    """Draw what is searched instead of the query in the box, as it was given with it, and a way back; then project and
    date. Project and date are named where the query has them, with their effect under the current config."""
    request, config = state.written_request(), state.present_config()
    lines = [f"**{plain(name)}** searches: {plain(text)}" for name, text in request.engine_queries.items()]
    if request.searched:
        lines.insert(0, f"Searched instead, as given: {plain(request.searched)}")
    if lines:
        box, button = st.columns([5, 2], vertical_alignment="center")
        read = "The stored query came with this text; rerankers and judges read the query."
        box.caption("  \n".join(lines), help=read)
        forget: Any = {"on_click": state.update, "kwargs": {"given": None}, "width": "stretch"}
        help = "Search the text in the box, with typo correction and expansion as configured."
        button.button("Search the query itself", key="inspect:forget_given", help=help, **forget)
    parts = []
    if request.project is None and request.as_of is None:
        return
    from cems_workbench.pipeline.effects import as_of_effect, project_effect

    if request.project is not None:
        effect = _words(project_effect(config, request.only_project))
        parts.append(f"{'only ' if request.only_project else ''}project **{plain(request.project)}**: {effect}")
    if request.as_of is not None:
        parts.append(f"as of **{request.as_of.date().isoformat()}**: {_words(as_of_effect(config))}")
    st.caption(" · ".join(parts))


def _users(resources: Resources) -> list[str]:
    return [name for name, _ in resources.store.memories.facets().authors if name is not None]


def _draw_users(resources: Resources) -> None:
    """Draw whose memories are searched: of one author, or of several users though the store's target always filters by user."""
    from cems_workbench.config.forms.targets import SYSTEMS

    if author := state.present_config().query.author:
        st.caption(f":material/person: only memories of **{plain(author)}** are searched")
        return
    runs = saved_target(resources.store.path)
    system = None if runs is None else SYSTEMS.get(runs.target)
    if system is None or not system.by_user:
        return
    if len(users := _users(resources)) > 1:
        help = f"{system.title} always filters by {system.filter}. For its ranking of one user’s memories, choose the user there."
        together = f"memories of {len(users)} users are searched together; {system.title} searches those of one: Project, user and date"
        st.caption(f":material/group: {plain(together)}", help=help)


def _words(effect: Effect) -> str:
    return f"{':material/link_off: ' if effect.ignored else ''}{plain(effect.words)}"
