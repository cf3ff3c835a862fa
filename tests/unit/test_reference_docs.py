"""The generated pages of docs/reference are current."""

from __future__ import annotations

import pytest

from docs.make_reference import FOLDER, PAGES
from docs.reference_pages.markdown import COMMAND


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), (
        f"docs/reference/{name} is stale: run {COMMAND}"
    )


def test_reference_folder_has_no_other_generated_page() -> None:
    generated = {path.name for path in FOLDER.glob("*.md") if COMMAND in path.read_text(encoding="utf-8")}
    assert generated == set(PAGES)
