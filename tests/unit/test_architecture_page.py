"""docs/architecture.md names files and functions that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("architecture.md", "specification.md", "extending.md")] + [
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
]
_NAMED = re.compile(r"`([\w/]+\.py):(\w+)`")
_FILE = re.compile(
    r"`((?:pipeline|store|models|formats|config|evaluation|tuning|analysis|runs|ui|cli)/[\w/]*(?:\.py)?)`"
)
_LINK = re.compile(r"\]\(([^)#:]+)(#[^)]*)?\)")


def defined(file: Path) -> set[str]:
    """The names at the top of a module."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_every_name_is_where_the_page_says() -> None:
    named = _NAMED.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    wrong = []
    for path, name in named:
        file = ROOT / "cems_workbench" / path
        if not file.is_file() or name not in defined(file):
            wrong.append(f"{path}:{name}")
    assert not wrong


def test_every_folder_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert not [path for path in _FILE.findall(text) if not (ROOT / "cems_workbench" / path).exists()]


def test_every_section_of_the_specification_that_the_code_names_is_there() -> None:
    headings = set(
        re.findall(r"^## (.+)$", (ROOT / "docs" / "specification.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        name
        for file in (ROOT / "cems_workbench").rglob("*.py")
        for name in re.findall(r'docs/specification\.md, "([^"]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert named <= headings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    assert links or page.name == "CONTRIBUTING.md"
    for target, anchor in links:
        file = page.parent / target
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                anchor
            )
