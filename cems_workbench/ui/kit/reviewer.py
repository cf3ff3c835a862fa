"""Who works with the app: the name that is signed in where `st.login` is configured, else a name that is asked for once.

Where sign-in is configured nothing is shown or done without it, and no name can be typed: the author is then who the provider says,
and the role is that of the identity (`runs.access`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from cems_workbench.jobs import access
from cems_workbench.jobs.access import RIGHTS, Role
from cems_workbench.settings import Settings
from cems_workbench.ui.kit.escape import plain

NAME = "reviewer:name"


def sign_in_configured() -> bool:
    """Is there an [auth] section in Streamlit's secrets? Then `st.user` says whether somebody is signed in."""
    return "is_logged_in" in _user()


def signed_in() -> str | None:
    """The address, else the name, of whoever is signed in; None without `st.login`, or before it."""
    user = _user()
    if not user.get("is_logged_in"):
        return None
    name = user.get("email") or user.get("preferred_username") or user.get("name") or user.get("sub")
    return str(name).strip() or None if name else None


def reviewer() -> str | None:
    """The name that labels and configs are kept under; None until it is known."""
    name = signed_in() if sign_in_configured() else st.session_state.get(NAME)
    return name.strip() or None if isinstance(name, str) else None


def gate() -> None:
    """Where sign-in is configured and nobody is signed in: the way in, and the end of the page."""
    if sign_in_configured() and signed_in() is None:
        with st.container(width=420):
            st.info("Sign in to see this store.", icon=":material/lock:")
            ask()
        st.stop()


def role() -> Role:
    """What whoever works here may do; everything where there is no sign-in."""
    return access.role_of(_user(), Settings()) if sign_in_configured() else "operator"


def may(needed: Role) -> bool:
    """Whether whoever works here has the rights of this role."""
    return access.may(role(), needed)


def require(needed: Role) -> None:
    """Raise InputError, with a line for the page, unless whoever works here has the rights of this role."""
    access.require(role(), needed)


def draw_right(needed: Role) -> bool:
    """Whether whoever works here has the rights of this role; a line says so where not."""
    if may(needed):
        return True
    st.info(f"Only a person with the role {needed} may {RIGHTS[needed]}; yours is {role()}.", icon=":material/lock:")
    return False


def ask() -> None:
    """Who is signed in, with a way out; the way in; or, where there is no sign-in, a box for a name."""
    if not sign_in_configured():
        st.text_input(
            "Your name",
            key=NAME,
            persist_state="session",
            max_chars=120,
            placeholder="kept with every label",
            help="So that each reviewer’s labels stay apart. Where sign-in is configured, the signed-in name is used.",
        )
        return
    who = signed_in()
    if who is not None:
        box = st.container(horizontal=True, vertical_alignment="center")
        box.caption(f"Signed in as {plain(who)}")
        box.button("Sign out", key="reviewer:sign_out", type="tertiary", on_click=st.logout)
        return
    for provider in _providers():
        words = "Sign in" if provider is None else f"Sign in with {plain(provider)}"
        st.button(
            words,
            key=f"reviewer:sign_in:{provider or ''}",
            icon=":material/login:",
            on_click=st.login,
            width="stretch",
            args=() if provider is None else (provider,),
            help="Labels carry the name you sign in with.",
        )


def _user() -> dict[str, Any]:
    return dict(st.user.to_dict())


def _providers() -> list[str | None]:
    """The named providers of the [auth] section; None alone where it has one without a name."""
    section: Mapping[str, Any] = st.secrets["auth"]
    return [name for name, value in section.items() if isinstance(value, Mapping)] or [None]
