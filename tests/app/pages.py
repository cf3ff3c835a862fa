"""Helpers for all pages under AppTest: press widgets, read texts, and check that there is no error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamlit.testing.v1 import AppTest

OpenPage = Callable[..., AppTest]
"""Opens the app on the sample store, or on another one: the fixture `open_page`."""


def checked(page: AppTest) -> AppTest:
    """The page, which shows no error."""
    assert not page.error, page.error
    return page


def press(page: AppTest, key: str) -> AppTest:
    """Press the button of this key; keys of a card's buttons may end with a colon and the card's number."""
    next(button for button in page.button if button.key == key or str(button.key).startswith(f"{key}:")).click()
    return checked(page.run())


def buttons(page: AppTest, prefix: str = "") -> list[str]:
    """Keys of the buttons that begin with `prefix`, in their order on the page."""
    return [button.key for button in page.button if button.key and button.key.startswith(prefix)]


def field(page: AppTest, kind: str, name: str) -> Any:
    """A widget of a form, whose key holds the field's name between colons."""
    return next(widget for widget in page.get(kind) if widget.key and f":{name}:" in widget.key)


def plainly(text: str) -> str:
    """Markdown without escapes."""
    return text.replace("\\", "")


def captions(page: AppTest) -> str:
    """All captions, without escapes."""
    return plainly(" ".join(caption.value for caption in page.caption))


def markdown(page: AppTest) -> str:
    """All markdown texts, without escapes."""
    return plainly(" ".join(element.value for element in page.markdown))


def bodies(page: AppTest) -> list[str]:
    """The HTML elements, stylesheets left out."""
    return [str(element.proto.body) for element in page.get("html") if "<style>" not in element.proto.body]


def html(page: AppTest, marker: str) -> str:
    """The body of the one HTML element that has `marker`."""
    found = [body for body in bodies(page) if marker in body]
    assert len(found) == 1, f"{len(found)} elements with {marker}"
    return found[0]


def all_html(page: AppTest) -> str:
    """All HTML elements in one text."""
    return " ".join(bodies(page))


def table_with(page: AppTest, column: str) -> Any:
    """The first table that has a column of this name."""
    return next(table.value for table in page.dataframe if column in table.value.columns)
