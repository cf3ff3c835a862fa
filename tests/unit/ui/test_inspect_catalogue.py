"""Views and tools of Inspect are discovered in their folders: adding one is one file, and an unopened section is not imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from pkgutil import iter_modules

import pytest

from cems_workbench.ui.inspect.context import views_in
from cems_workbench.ui.inspect.searched import TOOLS, VIEWS

MODULE = """
from cems_workbench.ui.inspect.context import View

def draw(context):
    pass

VIEW = View({title!r}, {place}, draw, {question!r})
"""
NUMBERS = count()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Make a package of views, by module name; the text of a module, or (title, place, question) of one with a record."""

    def make(**modules: str | tuple[str, int, str]) -> str:
        name = f"views_of_a_test_{next(NUMBERS)}"
        folder = tmp_path / name
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for module, of in modules.items():
            text = of if isinstance(of, str) else MODULE.format(title=of[0], place=of[1], question=of[2])
            (folder / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(str(tmp_path))
        return name

    return make


def test_a_view_is_one_file_with_a_record_and_stands_at_its_place(package: Callable[..., str]) -> None:
    views = views_in(package(zebra=("First", 5, "Why?"), ant=("Last", 20, ""), middle=("Middle", 10, "")))
    assert list(views) == ["First", "Middle", "Last"]
    assert views["First"].question == "Why?"


def test_a_module_without_a_record_is_a_part_of_others(package: Callable[..., str]) -> None:
    assert list(views_in(package(shared="X = 1", view=("Only", 1, "")))) == ["Only"]


@pytest.mark.parametrize(("other", "what"), [(("Same", 2, ""), "title"), (("Other", 1, ""), "place")])
def test_two_views_of_one_title_or_place_are_an_error(
    package: Callable[..., str], other: tuple[str, int, str], what: str
) -> None:
    with pytest.raises(ValueError, match=f"two views have the same {what}"):
        views_in(package(one=("Same", 1, ""), two=other))


@pytest.mark.parametrize("section", [VIEWS, TOOLS])
def test_catalogue_lists_every_record_once_in_the_order_of_places(section: str) -> None:
    package = import_module(section)
    modules = [import_module(f"{section}.{module.name}") for module in iter_modules(package.__path__)]
    records = [one for module in modules for one in getattr(module, "VIEWS", (getattr(module, "VIEW", None),)) if one]
    listed = list(views_in(section).values())
    assert listed == sorted(records, key=lambda view: view.place)
    assert len({view.title for view in listed}) == len({view.place for view in listed}) == len(records)
    assert all(view.title and callable(view.draw) for view in listed)


def test_every_tool_asks_a_question() -> None:
    assert all(tool.question.endswith("?") for tool in views_in(TOOLS).values())


def test_the_page_is_imported_without_its_views_and_tools() -> None:
    script = (
        "import sys; import cems_workbench.ui.inspect.page; "
        "print([name for name in sys.modules if name.startswith(('cems_workbench.ui.inspect.views', 'cems_workbench.ui.inspect.tools'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
