"""A page shows one line if a part of the store cannot be read."""

from __future__ import annotations

import pytest

from cems_workbench.errors import StoreError
from cems_workbench.store.query_sets import QuerySets

from .pages import OpenPage, drawn, plainly


def test_a_damaged_block_met_while_a_page_is_drawn_is_one_line(
    open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: QuerySets) -> None:
        raise StoreError("store s is damaged: workbench.duckdb cannot be read (block 7); doctor --recover-to NEW_STORE")

    monkeypatch.setattr(QuerySets, "latest", damaged)
    page = drawn(open_page().switch_page("pages/evaluate.py").run())
    assert [plainly(error.value) for error in page.error] == [
        "store s is damaged: workbench.duckdb cannot be read (block 7); doctor --recover-to NEW_STORE"
    ]
