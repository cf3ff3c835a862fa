"""The code and the documents keep to docs/internals/vocabulary.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "internals" / "vocabulary.md"
FOLDERS = ("cems_workbench", "pages", "docs", "benchmarks", "training")
"""What is read; the tests' own words are not."""


@cache
def section(title: str) -> str:
    """The text of a section of the page."""
    return PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def banned_names() -> frozenset[str]:
    """Identifiers that no module, class or function has."""
    return frozenset(re.findall(r"`(\w+)`", section("Banned names")))


def banned_phrases() -> dict[str, str]:
    """What to write, by the phrase to avoid."""
    rows = re.findall(r"^\|\s*(.+?)\s*\|\s*(.+?)\s*\|$", section("Banned phrases"), re.MULTILINE)
    return {phrase: better for phrase, better in rows if phrase not in ("not", "---")}


def modules() -> Iterator[Path]:
    """Every module of ours."""
    for folder in FOLDERS:
        yield from sorted((ROOT / folder).rglob("*.py"))


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"))


def definitions(module: Path) -> Iterator[tuple[str, int]]:
    """(name without leading underscores, line) of a module and of the classes and functions in it."""
    yield module.stem.lstrip("_"), 1
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name.lstrip("_"), node.lineno


def prose(module: Path) -> Iterator[tuple[str, int]]:
    """(text, line) of the docstrings, of strings that document a value, and of the comments of a module."""
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value, node.lineno
    for token in tokenize.generate_tokens(io.StringIO(module.read_text(encoding="utf-8")).readline):
        if token.type == tokenize.COMMENT:
            yield token.string, token.start[0]


def documents() -> Iterator[tuple[str, int, Path]]:
    """(line, number, page) of every document but the page of the vocabulary itself."""
    pages = [*ROOT.glob("*.md"), *(page for folder in ("docs", "benchmarks") for page in (ROOT / folder).rglob("*.md"))]
    for page in sorted(set(pages) - {PAGE}):
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            yield line, number, page


def test_banned_name_is_no_module_class_or_function() -> None:
    banned = banned_names()
    assert banned
    assert not [
        f"{module.relative_to(ROOT)}:{line}: {name}"
        for module in modules()
        for name, line in definitions(module)
        if name in banned
    ]


def test_banned_phrase_is_in_no_docstring_comment_or_document() -> None:
    better = banned_phrases()
    assert better
    pattern = re.compile(rf"\b({'|'.join(re.escape(phrase) for phrase in better)})\b", re.IGNORECASE)
    texts = [(text, line, module) for module in modules() for text, line in prose(module)]
    used = [
        f"{place.relative_to(ROOT)}:{line}: {match[0]!r}; write {better[match[0].lower()]}"
        for text, line, place in [*texts, *documents()]
        for match in pattern.finditer(" ".join(text.split()))
    ]
    assert not used, "\n".join(used)


def test_term_is_defined_once() -> None:
    terms = [
        term.strip() for row in re.findall(r"^\| ([^|]+) \|", section("Terms"), re.MULTILINE) for term in row.split(",")
    ]
    assert len(terms) > 50
    assert len(terms) == len(set(terms))
