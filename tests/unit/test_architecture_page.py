"""docs/internals/architecture.md names files and functions that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERNALS = ROOT / "docs" / "internals"
PAGES = [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md") if (ROOT / name).exists()
] + [page for folder in ("docs", "benchmarks") for page in sorted((ROOT / folder).rglob("*.md"))]
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
    named = _NAMED.findall((INTERNALS / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    wrong = []
    for path, name in named:
        file = ROOT / path if path.startswith("plugins/") else ROOT / "cems_workbench" / path
        if not file.is_file() or name not in defined(file):
            wrong.append(f"{path}:{name}")
    assert not wrong


def test_every_folder_is_there() -> None:
    text = (INTERNALS / "architecture.md").read_text(encoding="utf-8")
    assert not [path for path in _FILE.findall(text) if not (ROOT / "cems_workbench" / path).exists()]


def test_every_section_of_the_specification_that_the_code_names_is_there() -> None:
    headings = set(re.findall(r"^## (.+)$", (INTERNALS / "specification.md").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        name
        for file in (ROOT / "cems_workbench").rglob("*.py")
        for name in re.findall(r'docs/internals/specification\.md, "([^"]+)"', file.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert named <= headings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_the_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        file = page.parent / target
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                anchor
            )
