"""Who may do what, and which files a page may open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cems_workbench.errors import InputError
from cems_workbench.jobs.access import ROLES, allowed_path, may, require, role_of
from cems_workbench.settings import Settings


@pytest.mark.parametrize(
    ("identity", "settings", "role"),
    [
        ({"email": "ada@x.example"}, {}, "reviewer"),
        ({"email": "ada@x.example"}, {"operators": "bob@x.example, ada@x.example"}, "operator"),
        ({"email": None}, {"operators": ""}, "reviewer"),
        ({"groups": "operator"}, {"role_claim": "groups"}, "operator"),
        ({"groups": ["staff", "reader", "reviewer"]}, {"role_claim": "groups"}, "reviewer"),
        ({"groups": ["Operator", "admin"]}, {"role_claim": "groups"}, "reader"),
        ({"groups": {"operator": True}}, {"role_claim": "groups"}, "reader"),
        ({}, {"role_claim": "groups"}, "reader"),
        ({"email": "ada@x.example"}, {"role_claim": "groups", "operators": "ada@x.example"}, "operator"),
    ],
)
def test_the_highest_role_that_the_claim_names(identity: dict[str, Any], settings: dict[str, str], role: str) -> None:
    assert role_of(identity, Settings(**settings)) == role  # type: ignore[arg-type]


def test_each_role_has_the_rights_of_those_before_it() -> None:
    assert [[may(role, needed) for needed in ROLES] for role in ROLES] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    require("operator", "operator")
    with pytest.raises(
        InputError, match="a reviewer may not change memories and the store: it takes the role operator"
    ):
        require("reviewer", "operator")


def test_only_named_folders_are_opened(tmp_path: Path) -> None:
    home, more, other = tmp_path / "home", tmp_path / "more", tmp_path / "other"
    for folder in (home, more, other):
        folder.mkdir()
    (home / "out").symlink_to(other)
    settings = Settings(store=home / "store", folders=f"{more}, {tmp_path / 'none'}")
    for inside in (home / "store", home / "another" / "store", more, more / "a.evidence"):
        assert allowed_path(str(inside), settings) == inside
    for outside in (other, tmp_path, home / ".." / "other", home / "out" / "x", more.with_name("more2"), Path("/")):
        with pytest.raises(InputError, match=r"is not in a folder that pages may open .*CEMS_WORKBENCH_FOLDERS"):
            allowed_path(str(outside), settings)
    for no_path in ("a\0b", "~nobody-of-this-name/x", "x" * 5_000):
        with pytest.raises(InputError):
            allowed_path(no_path, settings)
