"""Notes in Markdown, one memory a file: a file, or a folder with everything below it (basic-memory, Obsidian, Claude's memory folders).

    ---
    title: Deploys
    type: note
    tags: [infra, release]
    permalink: main/deploys
    ---
    Releases reach the cluster through the deploy bot.

    - replaces [[Old deploys]]

The id is basic-memory's `permalink`, else the path in the folder without its ending; `id` in the front matter is one more name, by which
links and `superseded_by` find the note. Fields of the front matter are read by the names that `connect` knows
(`base/memory_fields.py:NAMES`), also within `metadata`. The title is `title` or `name`, else the heading at the top, else the name of the
file. A link `[[Note]]` to another note of the folder is a relation `links_to`; at the end of an item of a list that
names it, as basic-memory writes relations, it is of that kind. `superseded_by` in the front matter names the note that replaces this one.
The time of a file is not read: copying changes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from cems_workbench.errors import InputError
from cems_workbench.formats.base import fields, payload
from cems_workbench.formats.base.files import Sample, as_object, open_file
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.records import MemoryRead, memories_of
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, Relation, RowError

NAME = "markdown-notes"
SUFFIXES = (".md", ".markdown")
ANY_NAME = payload.names_of(None)
LINKS_TO, SUPERSEDED_BY, OWN = "links_to", "superseded_by", "id"
TEXT, PATH, LINKS = "\0text", "\0path", "\0links"
"""Keys of a row that no front matter can have."""
MAX_NOTES = 200_000
VAULT = ".obsidian"
MOST_FOLDERS = 1_000
"""Folders that are looked at to recognise a folder of notes."""
DATA = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".qrels")
"""In a folder of data a Markdown file is its description."""
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"\A\s*#[ \t]+(.+?)[ \t]*#*[ \t]*$", re.MULTILINE)
_LINK = re.compile(r"(?<!!)\[\[([^\[\]|#^\n]+)(?:[#^][^\[\]|\n]*)?(?:\|[^\[\]\n]*)?\]\]")
_RELATION = re.compile(
    r"^[ \t]*[-*+][ \t]+(?P<kind>[^\[\]\n(]{1,80}?)[ \t]*\[\[(?P<to>[^\[\]|#^\n]+)[^\[\]\n]*\]\][ \t]*(?:\([^)\n]*\)[ \t]*)?$"
)
_FENCE = re.compile(r"^[ \t]*(```|~~~)")


class _TextLoader(yaml.SafeLoader):
    """Leaves times as they are written: one that cannot be read costs its field alone."""


_TextLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read a note, or all notes of a folder; raises InputError when there is none."""
    errors: list[RowError] = []
    files = _notes_below(path) if path.is_dir() else [path]
    names: list[Path] = []
    links: dict[str, list[tuple[str, str]]] = {}
    by_name: dict[str, list[str]] = {}

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        for number, file in enumerate(files, start=1):
            if number % 1_000 == 1:
                progress(f"reading {path.name}", number - 1, len(files))
            row = _row(path, file, errors)
            if row is not None:
                names.append(file)
                yield len(names), row
        progress(f"reading {path.name}", len(files), len(files))

    def parse(row: dict[str, Any]) -> MemoryRead:
        memory, problems = _parse(row)
        newer = row.get(SUPERSEDED_BY)
        links[memory.id] = row[LINKS] + ([(SUPERSEDED_BY, newer.strip(" []"))] if isinstance(newer, str) else [])
        own = str(row[OWN]) if isinstance(row.get(OWN), str | int) else ""
        for name in {memory.id, row[PATH], Path(row[PATH]).name, memory.title or "", own} - {""}:
            by_name.setdefault(name.casefold(), []).append(memory.id)
        return memory, problems

    collected = memories_of(path, rows(), parse, _unread, errors)
    kept = {memory.id for memory in collected.records}
    edges, outside = _edges(links, by_name, kept)
    parsed = collected.parsed(path, NAME, "memories", [_named(each, path, names) for each in errors])
    notes = [f"links that lead to no note: {outside}"] if outside else []
    return replace(parsed, relations=edges, notes=(*parsed.notes, *notes))


def _named(error: RowError, path: Path, names: list[Path]) -> RowError:
    """The error of a note by its number as that of its file."""
    known = error.source == str(path) and 0 < error.row <= len(names)
    return replace(error, source=str(names[error.row - 1]), row=0) if known else error


def _notes_below(folder: Path) -> list[Path]:
    """Every Markdown file below a folder, by path; hidden ones are left out, as Obsidian leaves them out."""
    found: list[Path] = []
    for directory, _, files in _folders(folder):
        found += [Path(directory, name) for name in files if name.lower().endswith(SUFFIXES)]
        if len(found) > MAX_NOTES:
            raise InputError(f"{folder}: has more than {MAX_NOTES:,} notes; import its folders one by one")
    if not found:
        raise InputError(f"{folder}: is a directory without Markdown files")
    return found


def _row(root: Path, file: Path, errors: list[RowError]) -> dict[str, Any] | None:
    """The front matter of a note with its text, path and links; None if the file cannot be read."""
    try:
        text = open_file(file).read_bytes().decode("utf-8-sig")
    except InputError as error:
        if file == root:
            raise
        errors.append(RowError(str(file), 0, str(error).removeprefix(str(file)).lstrip(": ")))
        return None
    except UnicodeDecodeError as error:
        errors.append(RowError(str(file), 0, f"is not UTF-8 (byte {error.start})"))
        return None
    front = _FRONT.match(text)
    values: dict[str, Any] = {}
    if front is not None:
        try:
            loaded = yaml.load(front[1], Loader=_TextLoader)  # noqa: S506  (a SafeLoader)
            if isinstance(loaded, dict):
                values = {str(name): _plain(value) for name, value in loaded.items()}
            elif loaded is not None:
                raise ValueError
            text = text[front.end() :]
        except (yaml.YAMLError, ValueError, RecursionError):
            reason = "its front matter is no YAML of names and values; it was left as text"
            errors.append(RowError(str(file), 0, reason))
    if file == root and not text.strip():
        raise InputError(f"{file} is empty")
    place = file.relative_to(root).with_suffix("").as_posix() if file != root else file.stem
    return {**values, TEXT: text.strip(), PATH: place, LINKS: _links(text)}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [each if each is None or isinstance(each, str | date | dict) else str(each) for each in value]
    return value


def _parse(row: dict[str, Any]) -> MemoryRead:
    permalink = row.get("permalink")
    text = row[TEXT]
    name = permalink if isinstance(permalink, str) and permalink.strip() else row[PATH]
    heading = _HEADING.match(text)
    title = next((row[key] for key in ("title", "name") if isinstance(row.get(key), str) and row[key].strip()), None)
    title = title or (heading[1] if heading else Path(row[PATH]).name)
    values = {key: value for key, value in row.items() if key not in (TEXT, PATH, LINKS)}
    # basic-memory has the kind of a note as `type`, Claude as `type` of metadata.
    kind = values.get("type") or as_object(values.get("metadata")).get("type")
    category = {} if ANY_NAME.found(values, "category") else {"category": kind}
    content = text or fields.required_text({"content": row.get("description")}, "content")
    return payload.memory_of(name, content, {**values, **category, "title": title}, ANY_NAME)


def _unread(row: dict[str, Any]) -> list[str]:
    read = [TEXT, PATH, LINKS, "permalink", "title", "name", "type", "metadata.type", SUPERSEDED_BY, OWN]
    return payload.unread(row, ANY_NAME, read if row[TEXT] else [*read, "description"])


def _links(text: str) -> list[tuple[str, str]]:
    found = []
    code = False
    for line in text.splitlines():
        if _FENCE.match(line):
            code = not code
        if code or "[[" not in line:
            continue
        relation = _RELATION.match(line)
        if relation is not None and "]" not in relation["kind"]:
            found.append((relation["kind"].strip(), relation["to"].strip()))
        else:
            found += [(LINKS_TO, name.strip()) for name in _LINK.findall(line)]
    return list(dict.fromkeys(found))


def _edges(
    links: Mapping[str, list[tuple[str, str]]], by_name: Mapping[str, list[str]], kept: set[str]
) -> tuple[tuple[Relation, ...], int]:
    """The relations between notes, and how many links lead to none. A name that several notes have is that of the first."""
    edges: dict[Relation, None] = {}
    outside = 0
    for note in kept:
        for kind, name in links.get(note, ()):
            targets = by_name.get(name.removesuffix(".md").casefold(), [])
            target = next((each for each in targets if each in kept), None)
            if target is None:
                outside += 1
            elif target != note:
                edges[Relation(note, target, kind)] = None
    return tuple(sorted(edges, key=lambda edge: (edge.source_id, edge.target_id, edge.kind))), outside


def folder(directory: Path) -> frozenset[str]:
    """All entries of a folder of notes: a vault of Obsidian, or one with Markdown files in or below it and no file of data."""
    try:
        names = [each.name for each in directory.iterdir()]
    except OSError:
        return frozenset()
    if VAULT in names:
        return frozenset(names)
    seen = [name.lower() for _, _, files in islice(_folders(directory), MOST_FOLDERS) for name in files]
    data = any(name.endswith(DATA) for name in seen)
    return frozenset(names) if not data and any(name.endswith(SUFFIXES) for name in seen) else frozenset()


def _folders(directory: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for place, inner, files in os.walk(directory):
        inner[:] = sorted(name for name in inner if not name.startswith("."))
        yield place, inner, sorted(name for name in files if not name.startswith("."))


def sniff(sample: Sample) -> bool:
    """A file with the ending of Markdown."""
    return sample.path.suffix.lower() in SUFFIXES


FORMAT = described(__file__, NAME, sniff, read, folder=folder)
