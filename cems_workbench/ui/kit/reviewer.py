"""Identity of the user: the signed-in name if `st.login` is configured, otherwise a name typed once.

With sign-in configured, nothing is shown before it and no name can be typed: the author is the provider's identity, and the role
belongs to that identity (`jobs.access`).
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
    """Whether Streamlit's secrets have an [auth] section; then `st.user` holds the signed-in user."""
    return "is_logged_in" in _user()


def signed_in() -> str | None:
    """The e-mail address, else the name, of the signed-in user; None without `st.login`, or before sign-in."""
    user = _user()
    if not user.get("is_logged_in"):
        return None
    name = user.get("email") or user.get("preferred_username") or user.get("name") or user.get("sub")
    return str(name).strip() or None if name else None


def reviewer() -> str | None:
    """The name that labels and configs are saved under; None until it is known."""
    name = signed_in() if sign_in_configured() else st.session_state.get(NAME)
    return name.strip() or None if isinstance(name, str) else None


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
        st.text_input(
            "Your name",
            key=NAME,
            persist_state="session",
            max_chars=120,
            placeholder="saved with every label",
            help="Keeps the labels of reviewers apart. If sign-in is configured, the signed-in name is used.",
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
    """The named providers of the [auth] section; only None if its single provider has no name."""
    section: Mapping[str, Any] = st.secrets["auth"]
    return [name for name, value in section.items() if isinstance(value, Mapping)] or [None]
