"""Taking the present page elsewhere: a short link, the command line that does the same, the evidence to replay.

The link holds only an id; the state is in the store. It stays in the address while the page asks and sets what the state does, and
goes when something else is asked or set, so that a reload never takes a change back.
"""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import streamlit as st

from cems_workbench.pipeline import Evidence, bundle_from
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.redact import redacted
from cems_workbench.pipeline.resources import Resources
from cems_workbench.ui import state
from cems_workbench.ui.memories_escape import plain
from cems_workbench.ui.share_command import search_command
from cems_workbench.ui.share_state import PLACES, PageState, read_state

PARAMETER = "state"
LONGEST_ID = 40
"""Characters of an unknown id that are shown."""


def restore(resources: Resources) -> None:
    """Bring back the state that the address names, once; to be called before any widget of the page is drawn."""
    wanted = st.query_params.get(PARAMETER)
    kept = st.session_state.setdefault("link", {"id": None, "asked": None, "said": [], "off": None})
    if wanted is None or wanted == kept["id"]:
        return
    values = resources.store.kept_state(wanted)
    if values is None:
        shown = wanted if len(wanted) <= LONGEST_ID else wanted[:LONGEST_ID] + "…"
        kept |= {
            "id": None,
            "asked": None,
            "said": [f"This store has no saved state {shown}; the page opens as usual."],
        }
        del st.query_params[PARAMETER]
        return
    found, said = read_state(values)
    if found.follow is not None and resources.store.memory(found.follow) is None:
        said.append(f"the followed memory {found.follow} is not in this store any more")
    _set(found)
    kept |= {"id": wanted, "asked": None, "off": found.off, "said": [f"Of this link {line}." for line in said]}


def _set(found: PageState) -> None:
    """Put a state into the session."""
    state.start_from(found.preset, found.config)
    values: dict[str, Any] = {
        "query": found.query,
        "project": found.project,
        "only_project": found.only_project,
        "as_of": found.as_of,
        "manual": found.manual,
        "follow": found.follow,
    }
    for name, value in (values | dict(found.places)).items():
        st.session_state[name] = value


def settle(request: Request | None) -> None:
    """Once the request is known: switch off what the link says, and drop the link from the address when it is no longer true."""
    kept = st.session_state["link"]
    if request is not None and kept["off"]:
        state.switch_variants(request, frozenset(kept["off"]))
    kept["off"] = None
    now = _asked(request)
    if kept["asked"] is None:
        kept["asked"] = now
    elif kept["asked"] != now:
        kept |= {"id": None, "asked": now, "said": []}
        if PARAMETER in st.query_params:
            del st.query_params[PARAMETER]
    for line in kept["said"]:
        st.info(plain(line), icon=":material/link_off:")


def _asked(request: Request | None) -> object:
    off = state.switched_off(request) if request is not None else frozenset()
    return request, off, st.session_state["preset"], state.config()


def present(request: Request) -> PageState:
    """The state of the page as it is now."""
    kept = st.session_state
    day: date | None = kept.get("as_of")
    return PageState(
        query=request.query,
        preset=kept["preset"],
        config=state.config(),
        project=request.project,
        only_project=request.project_only,
        as_of=day,
        manual=kept.get("manual") or "",
        off=tuple(sorted(state.switched_off(request))),
        places=tuple((name, kept[name]) for name in PLACES if kept.get(name)),
        follow=kept.get("follow"),
    )


def _keep(request: Request, resources: Resources) -> None:
    """Save the present state and put its id into the address."""
    state_id = resources.store.keep_state(present(request).to_json())
    st.session_state["link"] |= {"id": state_id, "asked": _asked(request), "said": []}
    st.query_params[PARAMETER] = state_id


def draw_share(resources: Resources, request: Request, evidence: Evidence | None) -> None:
    """A popover with the link, the command, and the evidence."""
    popover = st.popover(
        "Share", icon=":material/share:", key="share", on_change="rerun",
        help="A link to this page, the command that does the same, and the evidence",
    )  # fmt: skip
    if not popover.open:
        return
    with popover:
        _link(resources, request)
        st.caption(
            "Command line",
            help="Does what the page shows, with the same numbers. One process holds a store: close the app first, or copy the store.",
        )
        command = search_command(
            request, st.session_state["preset"], state.config(), as_of=evidence.as_of if evidence else None,
            off=state.switched_off(request), store=resources.store.path,
        )  # fmt: skip
        st.code(command, language=None, wrap_lines=True)
        if evidence is not None:
            _bundle(evidence)


def _link(resources: Resources, request: Request) -> None:
    st.caption(
        "Link", help="The state is saved in this store; whoever opens the link sees this query with these settings."
    )
    state_id = st.session_state["link"]["id"]
    if state_id is None:
        st.button(
            "Save and make a link", key="save_link", icon=":material/link:", on_click=_keep, args=(request, resources)
        )
        return
    address = (st.context.url or "").partition("?")[0]
    st.code(f"{address}?{PARAMETER}={state_id}", language=None, wrap_lines=True)
    if request.as_of is None:
        st.caption("“As of” is empty: ages count from the moment the link is opened.")


def _bundle(evidence: Evidence) -> None:
    st.caption(
        "Evidence",
        help="Everything that was gathered for this query. `replay` makes the same numbers of it on any machine.",
    )
    without = st.toggle(
        "Without the texts", key="redact",
        help="Words, names and ids are replaced by others of the same length; every number of the replay stays. Kept: dates, counts, "
        "categories, scores, model names, and the words of the query that a detector looks for.",
    )  # fmt: skip
    name = "redacted" if without else _slug(evidence.query)
    st.download_button(
        "Download", lambda: json.dumps(bundle_from(redacted(evidence) if without else evidence), ensure_ascii=False),
        f"evidence-{name}.json", "application/json", key="bundle", icon=":material/download:", on_click="ignore",
    )  # fmt: skip


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:48] or "query"
