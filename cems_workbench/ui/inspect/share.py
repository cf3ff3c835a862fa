"""Taking the present page elsewhere: a short link, the command line that does the same, the evidence to replay.

The link holds only an id; the state is in the store. It stays in the address while the page asks and sets what the state does, and
goes when something else is asked or set, so that a reload never takes a change back.

The state of the Inspect page as a value that a link keeps: what was asked, what was set, and what was looked at.

A state that another version kept is read as far as it can be; what had to be left out is said, a line each.

The command line that does what the page shows: `python -m cems_workbench search …`, quoted for a shell.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import streamlit as st

from cems_workbench.config import DEFAULT, PipelineConfig, difference, nested, preset, preset_names
from cems_workbench.config.forms.reading import salvaged
from cems_workbench.pipeline import Evidence, bundle_from
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.redact import redacted
from cems_workbench.pipeline.resources import Resources
from cems_workbench.settings import Settings
from cems_workbench.ui.inspect import state
from cems_workbench.ui.kit.escape import plain

PLACES = ("section", "view", "tool")


@dataclass(frozen=True, slots=True)
class PageState:
    """`as_of` None is now, whenever that is. `off` are switched-off query variants; `places` say what is looked at."""

    query: str
    preset: str
    config: PipelineConfig
    project: str | None = None
    only_project: bool = False
    as_of: date | None = None
    manual: str = ""
    off: tuple[int, ...] = ()
    places: tuple[tuple[str, str], ...] = ()
    follow: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values. The config is text, since the order of its half-life tiers counts and that of keys does not."""
        return {
            "version": 1,
            "query": self.query,
            "project": self.project,
            "only_project": self.only_project,
            "as_of": self.as_of.isoformat() if self.as_of else None,
            "manual": self.manual,
            "preset": self.preset,
            "config": json.dumps(nested(self.config), ensure_ascii=False),
            "off": list(self.off),
            "places": dict(self.places),
            "follow": self.follow,
        }


def read_state(values: Mapping[str, Any]) -> tuple[PageState, list[str]]:
    """The state of plain values, and a line for each thing that was left out."""
    said: list[str] = []

    def read(name: str, kind: type, default: Any) -> Any:
        value = values.get(name)
        if value is None or isinstance(value, kind):
            return default if value is None else value
        said.append(f"{name} could not be read and was left out")
        return default

    name = read("preset", str, DEFAULT)
    if name not in preset_names():
        said.append(f"the preset {name} is not there any more; {DEFAULT} stands in its place")
        name = DEFAULT
    as_of = read("as_of", str, None)
    places = read("places", dict, {})
    return PageState(
        query=read("query", str, ""),
        preset=name,
        config=_config(read("config", str, ""), name, said),
        project=read("project", str, None),
        only_project=read("only_project", bool, False),
        as_of=_day(as_of, said) if as_of else None,
        manual=read("manual", str, ""),
        off=tuple(item for item in read("off", list, []) if type(item) is int and item >= 0),
        places=tuple((place, str(places[place])) for place in PLACES if places.get(place)),
        follow=read("follow", str, None),
    ), said


def _day(text: str, said: list[str]) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        said.append(f"the day {text} could not be read and was left out")
        return None


def _config(text: str, name: str, said: list[str]) -> PipelineConfig:
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        said.append(f"the parameters could not be read; those of the preset {name} are set")
        return preset(name).config
    config, left_out = salvaged(values)
    if left_out:
        said.append(f"not known, or not allowed, in this version and left out: {', '.join(left_out)}")
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
    """The command, on one line.

    `name` is the preset that `config` is compared with; `as_of` is the moment of the evidence (None: the request's). `store` is
    named unless it is the one the command would take by itself.
    """
    moment = as_of or request.as_of
    words = ["python", "-m", "cems_workbench", "search", "--preset", name]
    for path, _, _ in difference(preset(name).config, config):
        words += ["--set", f"{path}={assigned(config, path)}"]
    if request.project is not None:
        words.append(f"--project={request.project}")
    words += ["--only-project"] if request.project_only else []
    words += [f"--as-of={moment.isoformat()}"] if moment else []
    words += [f"--expand={text}" for text in request.manual]
    words += [f"--off={number}" for number in sorted(off)]
    if store is not None and store.resolve() != Path(Settings.model_fields["store"].default).resolve():
        words.append(f"--store={store.resolve()}")
    words += ["--", request.query] if request.query.startswith("-") else [request.query]
    return shlex.join(words)


def assigned(config: PipelineConfig, path: str) -> str:
    """A parameter's value as `--set` reads it: JSON, which is YAML but for characters that YAML wants escaped."""
    value: Any = nested(config)
    for segment in path.split("."):
        value = value[segment]
    if (
        isinstance(value, str)
        and value.isidentifier()
        and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
    ):
        return value  # a choice is readable without quotes
    text = json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in text)


PARAMETER = "state"
LONGEST_ID = 40
"""Characters of an unknown id that are shown."""


def restore(resources: Resources) -> None:
    """Bring back the state that the address names, once; to be called before any widget of the page is drawn."""
    wanted = st.query_params.get(PARAMETER)
    kept = st.session_state.setdefault("link", {"id": None, "asked": None, "said": [], "off": None})
    if wanted is None or wanted == kept["id"]:
        return
    values = resources.store.links.read(wanted)
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
    if found.follow is not None and resources.store.memories.get(found.follow) is None:
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
    state_id = resources.store.links.save(present(request).to_json())
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
