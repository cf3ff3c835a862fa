"""Access: the roles of users, and the files of this machine that a page may open.

Three roles, each with the rights of those before it: a reader sees everything; a reviewer labels, writes notes and saves sets and
configs; an operator changes memories and the store, and imports other people's labels. Without sign-in every user is an operator: the app
then listens on localhost. With sign-in the claim `role_claim` of the identity names the role.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from cems_workbench.errors import InputError
from cems_workbench.settings import Settings

Role = Literal["reader", "reviewer", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)
"""From the fewest rights to the most."""
RIGHTS: dict[Role, str] = {
    "reader": "see everything",
    "reviewer": "label, and keep sets and configs",
    "operator": "change memories and the store",
}
"""The rights that each role adds."""


def role_of(identity: Mapping[str, Any], settings: Settings) -> Role:
    """The role of a signed-in identity: operator if the settings list its address, else the highest role that its claim
    names. The claim is a word or a list of words; other words are ignored. Without `role_claim` it is a reviewer."""
    if identity.get("email") in _listed(settings.operators):
        return "operator"
    if not settings.role_claim:
        return "reviewer"
    claimed = identity.get(settings.role_claim)
    words = claimed if isinstance(claimed, list | tuple) else [claimed]
    return max((role for role in ROLES if role in words), key=ROLES.index, default="reader")


def may(role: Role, needed: Role) -> bool:
    """Whether this role has the rights of `needed`."""
    return ROLES.index(role) >= ROLES.index(needed)


def require(role: Role, needed: Role) -> None:
    """Raise InputError, with a line for the page, unless this role has the rights of `needed`."""
    if not may(role, needed):
        raise InputError(f"a {role} may not {RIGHTS[needed]}: it takes the role {needed}; nothing was changed")


def allowed_path(typed: str, settings: Settings) -> Path:
    """Resolve a path that a user typed on a page. Raises InputError unless it is in an allowed folder. Allowed are the
    folder that contains the store of the settings, and the setting `folders`."""
    try:
        place, *named = (Path(each).expanduser().resolve() for each in (typed, *_listed(settings.folders)))
        allowed = [settings.store.resolve().parent, *named]
    except (OSError, ValueError, RuntimeError) as error:  # too long, with a NUL, or an unknown user's home
        raise InputError(f"{typed[:80]!r} is not a path: {error}") from None
    if not any(place == folder or folder in place.parents for folder in allowed):
        there = f"{place} is not in a folder that pages may open ({', '.join(map(str, dict.fromkeys(allowed)))})"
        raise InputError(f"{there}; CEMS_WORKBENCH_FOLDERS names more of them")
    return place


def _listed(setting: str) -> list[str]:
    return [each for part in setting.split(",") if (each := part.strip())]
