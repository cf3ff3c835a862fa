"""What a session of the app holds: each page's state, the store and models of the server, the cache of jobs, and who the user is.

A page's state is one frozen dataclass under the page's name: what it remembers between reruns. Widget values stay under widget keys,
`<page>:<name>`. Other modules access either only through functions of the page's `state` module. Store and models are shared by all
sessions, as are the last few evidence sets and labelled batches.

The user is the signed-in name if `st.login` is configured, otherwise a name typed once, which the browser keeps. With sign-in configured,
nothing is shown before it and no name can be typed: the author is the provider's identity, and the role belongs to that identity
(`jobs.access`).
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from urllib.parse import unquote

import streamlit as st
from streamlit.runtime.scriptrunner import add_script_run_ctx, get_script_run_ctx

from cems_workbench.errors import StoreError, WorkbenchError
from cems_workbench.jobs import access
from cems_workbench.jobs.access import RIGHTS, Role, allowed_path
from cems_workbench.jobs.foreground import FOREGROUND
from cems_workbench.platform.waiting import NOTICES
from cems_workbench.settings import Settings
from cems_workbench.ui.kit.html import plain, write_script

if TYPE_CHECKING:
    from cems_workbench.jobs.background import BackgroundChroma
    from cems_workbench.pipeline.resources import Resources

State = TypeVar("State")


class PageState(Generic[State]):
    """The state of one page in the current session; a frozen dataclass, replaced as a whole."""

    def __init__(self, page: str, first: Callable[[], State]) -> None:
        """`page` is the key in the session; `first` creates the initial value."""
        self._key = f"{page}:state"
        self._first = first

    def get(self) -> State:
        """The current value."""
        if self._key not in st.session_state:
            st.session_state[self._key] = self._first()
        value: State = st.session_state[self._key]
        return value

    def update(self, **changes: Any) -> None:
        """Replace some fields. Raises TypeError for an unknown field."""
        st.session_state[self._key] = replace(self.get(), **changes)  # type: ignore[type-var]

    @contextmanager
    def guarded(self, needed: Role, problem: str = "problem") -> Iterator[None]:
        """A change that needs a role; an error becomes the field `problem`, which the page shows."""
        try:
            require(needed)
            yield
        except WorkbenchError as error:
            self.update(**{problem: str(error)})


Value = TypeVar("Value")


_last: dict[str, tuple[object, Any]] = {}
"""Of all sessions, by slot: what `kept` kept last with `shared`."""


def kept(slot: str, key: object, make: Callable[[], Value], *, shared: bool = False) -> Value:
    """The value of `make`, kept in the session under `slot` until it is asked for with another key; `shared`: other sessions, such as
    this one after a reload, get it too if they ask with the same key."""
    if not is_kept(slot, key, shared=shared):
        st.session_state[slot] = (key, make())
        if shared:
            _last[slot] = st.session_state[slot]
    value: Value = st.session_state[slot][1]
    return value


def is_kept(slot: str, key: object, *, shared: bool = False) -> bool:
    """Whether `kept` has a value for this key."""
    if shared and slot in _last and _last[slot][0] == key:
        st.session_state[slot] = _last[slot]
    return slot in st.session_state and bool(st.session_state[slot][0] == key)


def for_all_sessions(key: Hashable, make: Callable[[], Value], /) -> Value:
    """A `Cache` for evidence and batches; `key` is a tuple whose first item is the kind ("evidence" or other)."""
    kind = key[0] if isinstance(key, tuple) else key
    value: Value = (_evidence if kind == "evidence" else _batch)(key, make)
    return value


@st.cache_resource(show_spinner=False, max_entries=8)
def _evidence(key: Hashable, _make: Callable[[], Any]) -> Any:
    return _make()


@st.cache_resource(show_spinner=False, max_entries=8)
def _batch(key: Hashable, _make: Callable[[], Any]) -> Any:
    return _make()


NAME, COOKIE = "reviewer:name", "cems_workbench_reviewer"
"""Keys of the typed name: in the session, and in the browser, where `assets/reviewer.js` keeps it."""


def _user() -> dict[str, Any]:
    return dict(st.user.to_dict())


def sign_in_configured() -> bool:
    """Whether Streamlit's secrets have an [auth] section; then `st.user` holds the signed-in user."""
    return "is_logged_in" in _user()


def signed_in() -> str | None:
    """The e-mail address, else the name, of the signed-in user; None without `st.login`, or before sign-in."""
    user = _user()
    if not user.get("is_logged_in"):
        return None
    name = next((user[key] for key in ("email", "preferred_username", "name", "sub") if user.get(key)), "")
    return str(name).strip() or None


def reviewer() -> str | None:
    """The name that labels and configs are saved under; None until it is known."""
    name = signed_in() if sign_in_configured() else st.session_state.setdefault(NAME, _kept_name())
    return name.strip() or None if isinstance(name, str) else None


def _kept_name() -> str:
    kept = st.context.cookies.get(COOKIE)
    return unquote(kept).strip() if isinstance(kept, str) else ""  # under AppTest it is a mock


def gate() -> None:
    """If sign-in is configured and nobody is signed in: draw the sign-in buttons and stop the page."""
    if sign_in_configured() and signed_in() is None:
        with st.container(width=420):
            st.info("Sign in to see this store.", icon=":material/lock:")
            ask()
        st.stop()


def role() -> Role:
    """The user's role; the highest without sign-in."""
    return access.role_of(_user(), Settings()) if sign_in_configured() else "operator"


def may(needed: Role) -> bool:
    """Whether the user has the rights of this role."""
    return access.may(role(), needed)


def require(needed: Role) -> None:
    """Raise InputError, with a line for the page, unless the user has the rights of this role."""
    access.require(role(), needed)


def draw_right(needed: Role) -> bool:
    """Whether the user has the rights of this role; otherwise a notice is drawn."""
    if may(needed):
        return True
    st.info(f"Only the role {needed} may {RIGHTS[needed]}; your role is {role()}.", icon=":material/lock:")
    return False


def ask() -> None:
    """Draw the signed-in name with Sign out, the sign-in buttons, or, without sign-in, a box for a name."""
    if not sign_in_configured():
        help = "Keeps the labels of reviewers apart. If sign-in is configured, the signed-in name is used."
        hint: Any = {"placeholder": "saved with every label", "persist_state": "session", "max_chars": 120}
        write_script("reviewer")
        st.session_state.setdefault(NAME, _kept_name())
        st.text_input("Your name", key=NAME, help=help, **hint)
        return
    who = signed_in()
    if who is not None:
        box = st.container(horizontal=True, vertical_alignment="center")
        box.caption(f"Signed in as {plain(who)}")
        box.button("Sign out", key="reviewer:sign_out", type="tertiary", on_click=st.logout)
        return
    section: Mapping[str, Any] = st.secrets["auth"]
    named = [name for name, value in section.items() if isinstance(value, Mapping)]
    for provider in named or [""]:  # a single provider has no name
        label, args = f"Sign in with {plain(provider)}" if provider else "Sign in", (provider,) if provider else ()
        sign: Any = {"icon": ":material/login:", "on_click": st.login, "args": args, "width": "stretch"}
        st.button(label, f"reviewer:sign_in:{provider}", "Labels carry the name you sign in with.", **sign)


WARM_UP_DELAY_S = 2.0
"""Delay before models are loaded: loading holds the interpreter lock and would delay the first paint."""

OF_A_QUERY = (
    "cems_workbench.ui.inspect.searched",
    "cems_workbench.ui.inspect.views.contributions",
    "cems_workbench.jobs.background",
)
"""Imports of the first query's page, and of what writes the Chroma collection."""


@dataclass
class WarmUpState:
    """State of the background loading of models and indexes, and what then writes the Chroma collection."""

    state: Literal["cold", "loading", "ready", "failed"] = "cold"
    problem: str = ""
    chroma: BackgroundChroma | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_next_resources: list[Resources] = []
_switching = threading.Lock()


@st.cache_resource(show_spinner=False)
def resources() -> Resources:
    """The open store: the one from the settings until `switch` opens another. Raises StoreError with a line for the page."""
    from cems_workbench.jobs.factory import open_resources

    NOTICES.notify(_toast, _session)
    return _next_resources.pop() if _next_resources else open_resources(Settings())


def _session() -> str:
    context = get_script_run_ctx(suppress_warning=True)
    return "" if context is None else context.session_id


def _toast(line: str) -> None:
    """Show a toast on the page that waits for this thread, e.g. that another process holds the store's lock. From a
    separate thread: Streamlit replays elements drawn inside a cached function on every cache hit."""
    context = get_script_run_ctx(suppress_warning=True)
    if context is not None:
        words = plain(f"{line[0].upper()}{line[1:]}")
        saying = threading.Thread(target=st.toast, args=(words,), kwargs={"icon": ":material/hourglass_top:"})
        add_script_run_ctx(saying, context)
        saying.start()


def show_errors(main: Callable[[], None]) -> Callable[[], None]:
    """Decorate a page so that a WorkbenchError is shown as one line where it occurred. Background jobs yield to the
    page while it is drawn."""

    @wraps(main)
    def draw() -> None:
        try:
            with FOREGROUND.foreground_work():
                main()
        except WorkbenchError as error:
            st.error(plain(str(error)), icon=":material/error:")

    return draw


def open_or_explain() -> Resources | None:
    """The open store; None if it cannot be opened (the error is drawn). Stops the page before sign-in."""
    gate()
    try:
        found = resources()
    except WorkbenchError as error:
        st.error(plain(str(error)), icon=":material/lock:")
        return None
    for line in found.notices:
        st.warning(plain(line), icon=":material/healing:")
    return found


@st.cache_resource(show_spinner=False)
def warm_up_state() -> WarmUpState:
    """The loading state, one per process."""
    return WarmUpState()


def switch(folder: str, *, create: bool) -> Resources:
    """Close the open store and open or create the one in `folder`, for every session of this process. Raises StoreError
    or InputError with a line for the page; the previous store then stays open."""
    if not folder:
        raise StoreError("type the path of a folder first")
    from cems_workbench.jobs.factory import embedder, for_store, servers
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.store import Store

    path = allowed_path(folder, Settings())
    there = Store.exists(path)
    with _switching:
        try:
            present: Resources | None = resources()
        except StoreError:  # the one that is open could not be opened
            present = None
        if there == create:
            hint = "a store already exists; press Open" if there else "there is no store; press Create to make one"
            raise StoreError(f"{path}: {hint}")
        if present is not None and present.store.path.resolve() == path.resolve():
            return present
        settings = Settings()
        store = Store.open(path, create=create, chroma_url=settings.chroma_url, team=settings.team)
        wanted = for_store(settings, store)
        if present is not None and for_store(settings, present.store).embedder == wanted.embedder:
            model = present.embedder  # already loaded
        else:
            model = embedder(wanted)
        _next_resources.append(Resources(store, model, servers(settings)))
        resources.clear()
        warm_up_state.clear()
        opened = resources()
        if present is not None:
            present.close()
    return opened


def warm_up(opened: Resources) -> None:
    """Load models and indexes in the background, once, then keep the Chroma collection up to date. Called after the
    page is drawn so that it is shown first; a page that edits the store is drawn after it."""
    state = warm_up_state()
    with state.lock:
        if state.state != "cold":
            _keep_chroma(opened, state)
            return
        state.state = "loading"
    threading.Thread(target=_load, args=(opened, state), name="warm-up", daemon=True).start()


def _load(opened: Resources, state: WarmUpState) -> None:
    time.sleep(WARM_UP_DELAY_S)
    try:
        for name in OF_A_QUERY:
            importlib.import_module(name)
        opened.embedder.encode_query("warm up")
        opened.refresh()
        with state.lock:
            state.state = "ready"
            _keep_chroma(opened, state)
    except Exception as error:
        # The next search meets the same error in the foreground and shows it.
        state.state, state.problem = "failed", str(error)


def _keep_chroma(opened: Resources, state: WarmUpState) -> None:
    """Bring the Chroma collection up to date in the background, unless it is that, or the models still load."""
    writer = state.chroma
    if state.state == "ready" and (writer is None or (writer.over and writer.version != opened.indexed)):
        from cems_workbench.jobs.background import BackgroundChroma

        state.chroma = BackgroundChroma(opened).start()


def chroma_writer(opened: Resources) -> BackgroundChroma | None:
    """What brings the Chroma collection up to date, or did; None until the models are loaded."""
    state = warm_up_state()
    with state.lock:
        _keep_chroma(opened, state)
        return state.chroma


def chroma_line(opened: Resources) -> str:
    """Why the Chroma collection is not open here, or not current; empty if it is both."""
    if opened.graph_open:
        return ""
    writer = warm_up_state().chroma
    if writer is not None and writer.over and writer.problem:
        return f"Chroma’s graph cannot be searched: {writer.problem}"
    if writer is None or not writer.total:
        return "Chroma’s collection is brought up to date in the background, once the models are loaded"
    return f"Chroma’s collection is being written in the background: {writer.done:,} of {writer.total:,} changes"
