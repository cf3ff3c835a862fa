"""The address of a page: what the page shows, as query parameters, so that reload, Back, a second tab and a colleague's link show it again.

A page names the parts of its address. It is read when a session first opens the page and on Back or Forward; otherwise the session is
right, and the address is written once the page is drawn. What is at its default is left out. A part that cannot be read is left out too
and named in one line; the others apply.

`bind="query-params"` of Streamlit's widgets is not used: it always replaces the entry of the browser's history, so that Back leaves the
page, and cannot hold what no single widget holds, such as a config. Here `ui/assets/address.js` decides which changes make an entry.
"""

from __future__ import annotations

import math
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, NoReturn
from urllib.parse import urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from cems_workbench.errors import InputError, one_line
from cems_workbench.ui.kit import session
from cems_workbench.ui.kit.html import plain, write_script

Values = Mapping[str, Sequence[str]]
"""The values of parameters by name; one that is missing is at its default."""
MAX_SHOWN = 60
"""Characters shown of a value that cannot be read."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some parameters: `get` gives their values, and `put` sets the page to values, or those missing to their defaults.
    `put` raises InputError. `entry` is the one of them whose change makes an entry of the browser's history, if any."""

    names: tuple[str, ...]
    get: Callable[[], Values]
    put: Callable[[Values], None]
    entry: str = ""


def widget(
    name: str,
    key: str,
    kind: type = str,
    *,
    entry: bool = False,
    usual: object = None,
    many: int = 0,
    choices: Callable[[], Collection[str]] | None = None,
    span: tuple[float, float] = (-math.inf, math.inf),
) -> Part:
    """The parameter of a widget's value: a text, or of `kind` int, float, bool or date; at most `many` of them in a list.
    `choices` are the allowed texts, `span` the allowed numbers. Empty, false and `usual` are left out."""

    def get() -> Values:
        value = st.session_state.get(key)
        values = [
            one for one in (value if many else [value]) or () if one is not None and one is not False and one != ""
        ]
        return {name: ["1" if one is True else str(one) for one in values]} if values and value != usual else {}

    def put(values: Values) -> None:
        texts = values.get(name, ())
        if not texts and choices is not None and usual is None and not many:
            st.session_state.pop(key, None)  # the page chooses
            return
        if not texts:  # a key that is only removed comes back with the widget's value
            empty = [] if many else {bool: False, str: ""}.get(kind)
            st.session_state[key] = empty if usual is None else usual
            return
        allowed = texts if choices is None else choices()
        read = [_read(name, text, kind, allowed, span) for text in texts]
        if many and len(read) > many:
            refuse(name, ", ".join(texts), f"at most {many}")
        st.session_state[key] = read if many else read[-1]

    return Part((name,), get, put, name if entry else "")


def _read(name: str, text: str, kind: type, allowed: Collection[str], span: tuple[float, float]) -> Any:
    if text not in allowed:
        refuse(name, text, f"one of {', '.join(allowed)}")
    try:
        if kind is date:
            return date.fromisoformat(text)
        if kind in (int, float) and not span[0] <= float(text) <= span[1]:
            raise ValueError
        return text == "1" if kind is bool else kind(text)
    except ValueError:
        refuse(name, text, "a day such as 2026-01-31" if kind is date else f"a number from {span[0]:g} to {span[1]:g}")


def memory(name: str, get: Callable[[], str | None], put: Callable[[str | None], None], *, entry: bool = False) -> Part:
    """The parameter of a chosen memory, which must be in the store."""

    def checked(values: Values) -> None:
        memory_id = values.get(name, [None])[-1]
        if memory_id is not None and session.resources().store.memories.get(memory_id) is None:
            refuse(name, memory_id, "the id of a memory of this store")
        put(memory_id)

    return Part((name,), lambda: {name: [chosen]} if (chosen := get()) else {}, checked, name if entry else "")


def query_set(name: str, key: str) -> Part:
    """The parameter of a chosen query set of the store."""
    sets = session.resources
    return widget(name, key, entry=True, choices=lambda: [known.name for known in sets().store.query_sets.latest()])


def refuse(name: str, text: str, expected: str) -> NoReturn:
    """Raise InputError: the parameter has not what is expected."""
    raise InputError(f"{name}={one_line(text, MAX_SHOWN)} (expected {one_line(expected, 4 * MAX_SHOWN)})")


@contextmanager
def followed(page: str, *parts: Part) -> Iterator[None]:
    """The context that draws a page: its address is read before, if it is to be, and written after."""
    stepped: list[str] = st.session_state.pop(STEP, [])
    write_script("address", entries=[*(part.entry for part in parts if part.entry), *stepped])
    key, context = f"address:{page}", get_script_run_ctx()
    back = context is not None and context.is_history_navigation
    if st.session_state.pop(ARRIVING, False):  # opened by `go`: the address is still that of the page before
        st.session_state.setdefault(key, "")
    elif back or key not in st.session_state:
        st.session_state[key] = read(parts, _present(), whole=back)
    if st.session_state[key]:
        st.info(plain(st.session_state[key]), icon=":material/link_off:")
    yield
    if (values := written(parts)) != _present():
        st.query_params.from_dict(values)


def written(parts: Sequence[Part]) -> dict[str, list[str]]:
    """The address of the page as it is now."""
    values = {name: texts for part in parts for name, texts in part.get().items() if texts}
    return {name: [text.encode(errors="replace").decode() for text in texts] for name, texts in values.items()}


def link(*parts: Part) -> str:
    """The address of the page as it is now, to copy."""
    return f"{(st.context.url or '').partition('?')[0]}?{urlencode(written(parts), doseq=True)}"


ARRIVING, STEP = "address:arriving", "address:step"
"""Session keys: that `go` opened this page, and parameters whose change in the next run makes an entry of the browser's history too."""


def go(page: str) -> NoReturn:
    """Go to another page, as `st.switch_page`, which would clear the address of this one and so make an entry of it that shows nothing."""
    st.session_state[ARRIVING] = True
    st.switch_page(page, query_params=_present())


def _present() -> dict[str, list[str]]:
    return {name: st.query_params.get_all(name) for name in st.query_params}


def read(parts: Sequence[Part], address: Values, *, whole: bool) -> str:
    """Set the page to an address; without `whole` only what that has. Returns a line on what cannot be read, or nothing."""
    given, problems = dict(address), []
    for part in parts:
        mine = {name: given.pop(name) for name in part.names if name in given}
        if mine or whole:
            try:
                part.put(mine)
            except InputError as error:
                problems.append(str(error).removeprefix("--"))
    problems += [f"{one_line(name, MAX_SHOWN)} (not known here)" for name in given]
    return f"Left out of this address: {'; '.join(problems)}." if problems else ""


PACKED, MAX_PLAIN, MAX_UNPACKED = "z.", 600, 200_000
"""The prefix of packed lines; characters from which they are packed, and which they may have."""


def packed(lines: Sequence[str]) -> list[str]:
    """Lines of text for a parameter: as they are while they are short, else one value, compressed."""
    if len(text := "\n".join(lines)) <= MAX_PLAIN:
        return list(lines)
    return [PACKED + urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")]


def unpacked(name: str, values: Sequence[str]) -> list[str]:
    """The lines of `packed`. Raises InputError for a value that was cut or is too large."""
    if len(values) != 1 or not values[0].startswith(PACKED):
        return list(values)
    body, reader = values[0].removeprefix(PACKED), zlib.decompressobj()
    try:
        if not re.fullmatch(r"[\w-]*", body, re.ASCII):
            raise ValueError
        text = reader.decompress(urlsafe_b64decode(body + "=" * (-len(body) % 4)), MAX_UNPACKED).decode()
        if not reader.eof:
            raise ValueError
    except (ValueError, zlib.error):
        refuse(name, values[0], "the whole of what was copied")
    return text.split("\n")
