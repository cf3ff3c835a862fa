"""Recognising a file: the names in it and its shape decide, and one that fits two formats, or none, is refused with what decides.

The formats are asked from the narrowest to the broadest; two as broad that both say yes are a refusal. The name of a file decides only
where its contents say nothing, and a note then says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cems_workbench.errors import InputError, one_line
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of
from cems_workbench.formats.base.files import OBJECTS, TABLES, Sample, is_comment, parse_json, type_name
from cems_workbench.formats.base.format import FORMATS, Format
from cems_workbench.formats.base.names import RETURNED, RUN, fields_of, named, plain

MAX_NAMES = 8
"""Names of a header, or of an object, that a refusal shows."""
NEAREST = 3
LINES_OF_JSON = frozenset((".jsonl", ".ndjson"))
_RUN = re.compile(r"\S+\s+\S+\s+\S+\s+[0-9]+\s+\S*[0-9]\S*\s+\S+\s*")
SYSTEM = "what a system answered"
DECIDE = "--format NAME decides; docs/reference/formats.md has the formats"


@dataclass(frozen=True, slots=True)
class Recognised:
    """The format of a file; a note if nothing but its name decided."""

    form: Format
    note: str = ""


def recognise(sample: Sample) -> Recognised:
    """The one format that a file fits. Raises InputError when it fits two of the same breadth, or none."""
    fitting = _fitting(sample)
    if len(fitting) > 1:
        raise InputError(f"{sample.path}: {_two(sample, fitting)}")
    if fitting:
        return Recognised(fitting[0])
    named = _by_name(sample)
    if named is None:
        raise InputError(f"{sample.path}: {_none(sample)}")
    return Recognised(named, f"nothing in it says what it is; its name decided for {named.name}")


def _fitting(sample: Sample) -> list[Format]:
    """The formats of the narrowest breadth that say yes."""
    found: list[Format] = []
    for form in sorted(FORMATS.values(), key=lambda form: form.breadth):
        if found and form.breadth > found[0].breadth:
            break
        with FORMATS.guarded(form.name, InputError):
            if form.sniff(sample):
                found.append(form)
    return found


def _by_name(sample: Sample) -> Format | None:
    """The one format that begins as the file is called, if the file has neither an object nor a header to contradict it."""
    if sample.rows or sample.document is not None or _header(sample):
        return None
    name, suffix = sample.path.stem.lower(), sample.path.suffix.lower()
    named = [form for form in FORMATS.values() if name.startswith(form.name.split("-")[0]) and suffix in form.suffixes]
    return named[0] if len(named) == 1 else None


def _two(sample: Sample, fitting: Sequence[Format]) -> str:
    """What a file says that fits several formats, and where they differ: in its rows, or in what each would read of all."""
    firsts = {form.name: _first_row(sample, form) for form in fitting}
    names = " and ".join(f"{form.name} ({form.shape})" if form.shape else form.name for form in fitting)
    if len({*firsts.values()}) == len(fitting) and None not in firsts.values():
        rows = ", ".join(
            f"row {row} is of {name}" for name, row in sorted(firsts.items(), key=lambda item: str(item[1]))
        )
        return f"has rows of {' and '.join(firsts)}: {rows}; give each kind a file of its own, or {DECIDE}"
    return f"fits {names}: {DECIDE}"


def _first_row(sample: Sample, form: Format) -> int | None:
    """The first row, counted from 1, that makes a file one of this format; None if no row alone does."""
    for number, row in enumerate(sample.rows, start=1):
        alone = Sample(sample.path, objects=(row,)) if sample.objects else Sample(sample.path, document=[row])
        with FORMATS.guarded(form.name, InputError):
            if form.sniff(alone):
                return number
    return None


def _none(sample: Sample) -> str:
    """Why no format takes a file: what was found in it, and what the formats nearest to it need beside that."""
    with sample.path.open("rb") as file:
        head = file.read(1_000)
    if head.startswith(b"SQLite format 3"):
        return f"is a SQLite file: connect sqlite:{sample.path.absolute()} reads it, import does not"
    if b"\0" in head:
        return "is no text, and in no known format"
    names = _names(sample)
    if run := _is_run(sample, names):
        return run
    if doubts := [
        f"{doubt}; --format {form.name} reads it as the former"
        for form in FORMATS.values()
        if (doubt := form.doubt(sample))
    ]:
        return doubts[0]
    seen = f": {_said(sample, names)}" if _said(sample, names) else ""
    near = "; ".join(_nearest(sample, names))
    return f"the format is not recognised{seen}{f'; {near}' if near else ''}; {DECIDE}"


def _is_run(sample: Sample, names: Sequence[str]) -> str:
    """What to say of the results of a system, which have the names of judgments and are none."""
    lines = [line for line in sample.lines if not line.lstrip().startswith("#")]
    if lines and all(map(_RUN.fullmatch, lines)):
        return f"is a TREC run, qid Q0 docno rank score tag: {SYSTEM}. fidelity FILE reads it, import does not"
    found, there = [name for name in names if plain(name) in RUN], fields_of(names)
    if (found and {"qid", "memory_id"} <= there.keys()) or ("qid" in there and (found := named(names, RETURNED))):
        return f"has a column {found[0]}, so it is a run: {SYSTEM}, and no judgments. fidelity FILE reads it, import does not"
    return ""


def _header(sample: Sample) -> list[str]:
    """The names in the first line of a table, if it has at least one that a format knows."""
    line = sample.header
    tried = [line.split() if len(line) < 1_000 else [], *(columns_of(line, mark) for mark in DELIMITERS)]
    known = {plain(name) for form in FORMATS.values() for names in form.needs for name in names}
    counted = [(len({plain(name) for name in names} & known), names) for names in tried]
    best, names = max(counted, key=lambda pair: pair[0])
    return [name for name in names if name.strip()] if best else []


def _names(sample: Sample) -> list[str]:
    return list(sample.rows[0]) if sample.rows else _header(sample)


def _said(sample: Sample, names: Sequence[str]) -> str:
    """What a file begins with, in words; empty for one of plain text."""
    if names or sample.rows:
        where = "its first object has" if sample.rows else "its header has"
        return f"{where} {one_line(', '.join(names[:MAX_NAMES])) or 'no field'}{' …' if names[MAX_NAMES:] else ''}"
    if sample.lines and all(map(is_comment, sample.lines)):
        return "it has nothing but comments"
    if not sample.lines:
        return "" if sample.document is not None else "it has no line of text"
    if sample.path.suffix.lower() not in LINES_OF_JSON:
        widths = {len(line.split("\t") if "\t" in line else line.split()) for line in sample.lines}
        width = widths.pop() if len(widths) == 1 and len(sample.lines) > 1 else 0
        return f"its lines have {width} columns without a header" if width > 1 else ""
    try:
        return f"its first line is {type_name(parse_json(sample.lines[0]))}, not an object"
    except ValueError as error:
        return f"its first line {error}"


def _nearest(sample: Sample, names: Iterable[str]) -> list[str]:
    """The formats of which the fewest names are missing, each with what is missing of it."""
    there = {plain(name) for name in names}
    carriers = {*(OBJECTS if sample.rows else TABLES)}
    found = []
    for form in FORMATS.values():
        missing = [need for need in form.needs if not there & {plain(name) for name in need}]
        met = len(form.needs) - len(missing)
        other = not carriers & {*form.suffixes}
        if met * 2 >= len(form.needs) > 0 and not (other and missing):
            found.append(
                (-met / (len(form.needs) + other), form.place, _wanting(form, missing, other, bool(sample.rows)))
            )
    return [line for *_, line in sorted(found)[:NEAREST]]


def _wanting(form: Format, missing: Sequence[tuple[str, ...]], other: bool, objects: bool) -> str:
    kind = "field" if objects else "column"
    wanted = " and ".join(f"a {kind} {need[0]}" for need in missing)
    if other:
        wanted = f"{wanted} and " if wanted else ""
        wanted += "a table instead of objects" if objects else "JSON objects instead of a table"
    return f"{form.name} needs {wanted or form.shape}"
