"""From a file of a conversation and one of memories to the first turn that was not written, on a store that has nothing yet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .accessibility import violations
from .conftest import serving

SAID = (
    "Mira: I signed the lease for the flat in Pankow, the rent is 940 euros.",
    "Jo: Congratulations! My knee surgery is at the Charité on 12 June.",
    "Mira: My brother Elias works as a baker in Flensburg now.",
    "Jo: I adopted a greyhound named Pixel from the shelter.",
)
MEMORIES = (
    "Mira signed the lease for the flat in Pankow, the rent is 490 euros.",
    "Mira's brother Elias works as a baker in Flensburg.",
    "Jo adopted a greyhound named Pixel from the shelter.",
)


@pytest.mark.thorough
def test_a_new_user_comes_from_two_files_to_the_first_gap(browser: Browser, tmp_path: Path) -> None:
    talk, memories = tmp_path / "talk.txt", tmp_path / "memories.jsonl"
    talk.write_text("\n".join(SAID), "utf-8")
    memories.write_text(
        "\n".join(json.dumps({"id": f"m{i}", "content": text}) for i, text in enumerate(MEMORIES)), "utf-8"
    )
    with serving(tmp_path / "store") as url, browser.new_context(viewport={"width": 1440, "height": 1000}) as context:
        page = context.new_page()
        page.set_default_timeout(120_000)
        expect.set_options(timeout=120_000)
        page.goto(f"{url}/memories?view=Import")
        page.locator('input[type="file"]').set_input_files(memories)
        page.get_by_role("button", name="Import", exact=True).click()
        expect(page.get_by_text("Last import")).to_be_visible()
        expect(page.locator('input[type="file"]')).to_have_count(1)  # that of the first file has gone
        page.locator('input[type="file"]').set_input_files(talk)
        page.get_by_role("button", name="Import as what was said").click()
        expect(page.get_by_text("talk.txt: 4 turns")).to_be_visible()
        page.get_by_text("Coverage", exact=True).click()
        page.get_by_role("button", name="Compare turns and memories").click()
        expect(page.locator(".wb-cov line.wb-cov-otherwise")).to_have_count(1)
        gap = page.locator(".wb-cov-gap", has_text="knee surgery")
        gap.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".wb-cov-pair")).to_contain_text("No memory covers this turn.")
        expect(gap).to_be_focused()  # also where the rows were drawn anew
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        expect(page.locator(".wb-cov-pair mark.wb-cov-other").first).to_have_text("940")
        assert not violations(page)
