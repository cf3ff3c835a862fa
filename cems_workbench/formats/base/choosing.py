"""Choosing a format: which one a file is in, and the one of a name; reading and writing with it.

The names in a file and its shape decide. The formats are asked from the narrowest to the broadest; a file that fits two as broad, or none,
is refused with what decides. The name of a file decides only where its contents say nothing, and a note then says so.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cems_workbench.errors import InputError, one_line, suggestion
from cems_workbench.formats.base import files
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of
from cems_workbench.formats.base.format import (
    FORMATS,
    DataSet,
    Exported,
    Format,
    dataset_writers,
    judgment_writers,
    unknown,
)
from cems_workbench.formats.base.judgments import of_memories, one_grade_each, with_unique_words
from cems_workbench.formats.base.names import RETURNED, RUN, fields_of, named, plain
from cems_workbench.platform import start_up
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, ParsedInput, Query, RowError

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


def recognise(sample: files.Sample) -> Recognised:
    """The one format that a file fits. Raises InputError when it fits two of the same breadth, or none."""
    fitting = _fitting(sample)
    if len(fitting) > 1:
        raise InputError(f"{sample.path}: {_two(sample, fitting)}")
    if fitting:
        return Recognised(fitting[0])
    if not sample.rows and sample.document is None and not _header(sample):  # nothing contradicts the name
        name, suffix = sample.path.stem.lower(), sample.path.suffix.lower()
        named = [
            form for form in FORMATS.values() if name.startswith(form.name.split("-")[0]) and suffix in form.suffixes
        ]
        if len(named) == 1:
            return Recognised(named[0], f"nothing in it says what it is; its name decided for {named[0].name}")
    raise InputError(f"{sample.path}: {_none(sample)}")


def _fitting(sample: files.Sample) -> list[Format]:
    """The formats of the narrowest breadth that say yes."""
    found: list[Format] = []
    for form in sorted(FORMATS.values(), key=lambda form: form.breadth):
        if found and form.breadth > found[0].breadth:
            break
        with FORMATS.guarded(form.name, InputError):
            if form.sniff(sample):
                found.append(form)
    return found


def _two(sample: files.Sample, fitting: Sequence[Format]) -> str:
    """What a file says that fits several formats, and where they differ: in its rows, or in what each would read of all."""
    firsts = {form.name: _first_row(sample, form) for form in fitting}
    names = " and ".join(f"{form.name} ({form.shape})" if form.shape else form.name for form in fitting)
    if len({*firsts.values()}) == len(fitting) and None not in firsts.values():
        in_order = sorted(firsts.items(), key=lambda item: str(item[1]))
        rows = ", ".join(f"row {row} is of {name}" for name, row in in_order)
        return f"has rows of {' and '.join(firsts)}: {rows}; give each kind a file of its own, or {DECIDE}"
    return f"fits {names}: {DECIDE}"


def _first_row(sample: files.Sample, form: Format) -> int | None:
    """The first row, counted from 1, that makes a file one of this format; None if no row alone does."""
    for number, row in enumerate(sample.rows, start=1):
        alone = (
            files.Sample(sample.path, objects=(row,)) if sample.objects else files.Sample(sample.path, document=[row])
        )
        with FORMATS.guarded(form.name, InputError):
            if form.sniff(alone):
                return number
    return None


def _none(sample: files.Sample) -> str:
    """Why no format takes a file: what was found in it, and what the formats nearest to it need beside that."""
    with sample.path.open("rb") as file:
        head = file.read(1_000)
    if head.startswith(b"SQLite format 3"):
        return f"is a SQLite file: connect sqlite:{sample.path.absolute()} reads it, import does not"
    if b"\0" in head:
        return "is neither text nor in a known format"
    names = list(sample.rows[0]) if sample.rows else _header(sample)
    if run := _is_run(sample, names):
        return run
    for form in FORMATS.values():
        if doubt := form.doubt(sample):
            return f"{doubt}; --format {form.name} reads it as the former"
    said, near = _said(sample, names), "; ".join(_nearest(sample, names))
    return f"the format is not recognised{f': {said}' if said else ''}{f'; {near}' if near else ''}; {DECIDE}"


def _is_run(sample: files.Sample, names: Sequence[str]) -> str:
    """What to say of the results of a system, which have the names of judgments and are none."""
    lines = [line for line in sample.lines if not line.lstrip().startswith("#")]
    if lines and all(map(_RUN.fullmatch, lines)):
        return f"is a TREC run, qid Q0 docno rank score tag: {SYSTEM}. fidelity FILE reads it, import does not"
    found, there = [name for name in names if plain(name) in RUN], fields_of(names)
    if (found and {"qid", "memory_id"} <= there.keys()) or ("qid" in there and (found := named(names, RETURNED))):
        return f"has a column {found[0]}, so it is a run: {SYSTEM}, and no judgments. fidelity FILE reads it, import does not"
    return ""


def _header(sample: files.Sample) -> list[str]:
    """The names in the first line of a table, if a format knows at least one of them or the file's name says that it is a table."""
    line = sample.header
    tried = [line.split() if len(line) < 1_000 else [], *(columns_of(line, mark) for mark in DELIMITERS)]
    known = {plain(name) for form in FORMATS.values() for names in form.needs for name in names}
    counted = [(len({plain(name) for name in names} & known), names) for names in tried]
    best, names = max(counted, key=lambda pair: (pair[0], len(pair[1])))
    return [name for name in names if name.strip()] if best or sample.path.suffix.lower() in files.TABLES else []


def _said(sample: files.Sample, names: Sequence[str]) -> str:
    if names or sample.rows:
        where = "its first object has" if sample.rows else "its header has"
        return f"{where} {one_line(', '.join(names[:MAX_NAMES])) or 'no field'}{' …' if names[MAX_NAMES:] else ''}"
    if sample.lines and all(map(files.is_comment, sample.lines)):
        return "it has nothing but comments"
    if not sample.lines:
        return "" if sample.document is not None else "it has no line of text"
    if sample.path.suffix.lower() not in LINES_OF_JSON:
        widths = {len(line.split("\t") if "\t" in line else line.split()) for line in sample.lines}
        width = widths.pop() if len(widths) == 1 and len(sample.lines) > 1 else 0
        return f"its lines have {width} columns without a header" if width > 1 else ""
    try:
        return f"its first line is {files.type_name(files.parse_json(sample.lines[0]))}, not an object"
    except ValueError as error:
        return f"its first line {error}"


def _nearest(sample: files.Sample, names: Iterable[str]) -> list[str]:
    """The formats of which the fewest names are missing, each with what is missing of it."""
    there = {plain(name) for name in names}
    carriers = {*(files.OBJECTS if sample.rows else files.TABLES)}
    kind = "field" if sample.rows else "column"
    instead = "a table instead of objects" if sample.rows else "JSON objects instead of a table"
    found = []
    for form in FORMATS.values():
        missing = [need for need in form.needs if not there & {plain(name) for name in need}]
        met = len(form.needs) - len(missing)
        other = not carriers & {*form.suffixes}
        if met * 2 >= len(form.needs) > 0 and not (other and missing):
            wanted = [f"a {kind} {need[0]}" for need in missing] + ([instead] if other else [])
            line = f"{form.name} needs {' and '.join(wanted) or form.shape}"
            found.append((-met / (len(form.needs) + other), form.place, line))
    return [line for *_, line in sorted(found)[:NEAREST]]


MOST_ALIKE, MOST_LINES, MOST_IN_ERROR, MOST_ENDINGS = 3, 20, 8, 4
"""Of entries of a folder that were not read: of one ending and reason before they share a line, lines in all, those in an error, and
endings named of a directory in it."""


def detect(path: Path) -> str:
    """The name of the format of a file, by what is in it and, when that says nothing, by its name. Raises InputError
    for a file that cannot be read, that fits two formats, or that none recognises, with what the nearest need."""
    with files.unpacked(Path(path)) as plain:
        return recognise(files.take_sample(plain)).form.name


def log_format(path: Path) -> str | None:
    """The name of the log format that a file is in; None for any other file, and for one that cannot be read."""
    try:
        name = detect(path)
    except InputError:
        return None
    return name if FORMATS[name].answers else None


def read(path: Path, format: str = "auto", progress: Progress = silent) -> ParsedInput:
    """Read one file. `format` is a name in FORMATS or "auto". Raises InputError when the file is unusable."""
    return _read(None if format == "auto" else Recognised(_named(format)), Path(path), progress)


def read_path(path: Path, format: str = "auto", progress: Progress = silent) -> list[ParsedInput]:
    """Read a file, or every file of a directory in a known format, memories before what refers to them.

    A folder that is one data set in a known form (BEIR) is read as one, be it `path` itself or in it; no other directory is descended
    into, as ids of other data would mix with these. `skipped` of the first input names what was not read, with the reason, many entries
    with one reason in a line. Raises InputError, with what was seen, when there is nothing to read.
    """
    path = Path(path)
    if not os.path.isdir(path):  # unlike Path.is_dir, for a name that is too long too
        return [read(path, format, progress)]
    _check_name(path.absolute())
    wanted = None if format == "auto" else _named(format)
    parsed: list[ParsedInput] = []
    skipped: list[tuple[str, str]] = []
    errors: list[RowError] = []
    for place, found in _sources(path, skipped, errors):
        if wanted not in (None, found.form):
            skipped.append((place.name, f"its format is {found.form.name}"))
            continue
        try:
            parsed.append(_read(found, place, progress))
        except InputError as error:
            if place == path:  # a data set; a file's neighbours are read all the same
                raise
            errors.append(RowError(str(place), 0, _without_path(error, place)))
    if not parsed and errors and not skipped:
        raise InputError(f"{errors[0]}{f' (and {len(errors) - 1} more files)' if errors[1:] else ''}")
    if not parsed:
        seen = [*(f"{Path(error.source).name}: {error.reason}" for error in errors), *_lines(skipped)]
        more = f"; and {len(seen) - MOST_IN_ERROR} more" if seen[MOST_IN_ERROR:] else ""
        raise InputError(f"{path} has no file to read: {'; '.join(seen[:MOST_IN_ERROR]) or 'it is empty'}{more}")
    parsed.sort(key=_order)
    first = replace(parsed[0], skipped=tuple(_lines(skipped)), errors=(*errors, *parsed[0].errors))
    return [first, *parsed[1:]]


def _read(found: Recognised | None, path: Path, progress: Progress) -> ParsedInput:
    """What a file or data set holds, read in a format, or in the one that it is recognised as."""
    if os.path.isdir(path) and found is not None:
        return _read_plain(found, path, progress)
    with files.unpacked(path) as plain:
        parsed = _read_plain(found or recognise(files.take_sample(plain)), plain, progress)
    if plain == path:
        return parsed
    errors = (replace(error, source=str(path)) for error in parsed.errors)
    return replace(parsed, source=str(path), errors=tuple(errors))


def _read_plain(found: Recognised, path: Path, progress: Progress) -> ParsedInput:
    # Rows have no cycles, and of so many a collection takes a third of the time.
    with start_up.paused(), FORMATS.guarded(found.form.name, InputError):
        parsed = found.form.read(path, progress)
    return replace(parsed, notes=(found.note, *parsed.notes)) if found.note else parsed


def _order(parsed: ParsedInput) -> int:
    """When an input can be imported: by the kind of rows it brings, after what such rows refer to."""
    kinds = (parsed.memories, parsed.relations, parsed.queries, parsed.judgments)
    first = next((order for order, rows in enumerate(kinds) if rows), 0)
    return max(first, FORMATS[parsed.format].order)


def _sources(
    directory: Path, skipped: list[tuple[str, str]], errors: list[RowError]
) -> Iterator[tuple[Path, Recognised]]:
    """The entries of a directory in a known format, by name; others go to `skipped` with the reason, hidden ones
    together. An entry that is not a regular file, is too large or has a name that is not UTF-8 is an error."""
    whole = _as_folder(directory)
    if whole is not None:
        yield directory, Recognised(whole[0])
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise InputError(f"{directory} cannot be read: {error.strerror or error}") from None
    hidden = sum(entry.name.startswith(".") for entry in entries)
    if hidden:
        skipped.append((f"{hidden} hidden", "names that begin with a dot are not looked at"))
    for entry in entries:
        if entry.name.startswith(".") or (whole is not None and entry.name in whole[1]):
            continue
        try:
            _check_name(entry)
            if not entry.is_dir():
                files.regular_file(entry)
        except InputError as error:
            errors.append(RowError(_encodable(entry), 0, _without_path(error, Path(_encodable(entry)))))
            continue
        if entry.is_dir():
            inner = _as_folder(entry)
            if inner is not None and inner[0].inside:
                yield entry, Recognised(inner[0])
            else:
                skipped.append((entry.name, f"is a directory{_inside(entry)}; import it by its own path"))
            continue
        try:
            with files.unpacked(entry) as plain:
                found = recognise(files.take_sample(plain))
        except InputError as error:
            skipped.append((entry.name, _without_path(error, entry).removesuffix(f"; {DECIDE}")))
            continue
        if found.form.inside:
            yield entry, found
        else:
            name = found.form.name
            skipped.append((entry.name, f"{name} is read from a file alone, or from a folder without other data"))


def _inside(directory: Path) -> str:
    try:
        names = [entry for entry in directory.iterdir() if not entry.name.startswith(".")]
    except OSError:
        return ""
    counts = Counter("folder" if entry.is_dir() else _ending(entry.name) for entry in names)
    said = [f"{count:,} {ending}" for ending, count in counts.most_common(MOST_ENDINGS)]
    return f" of {', '.join(said)}" if said else " with nothing in it"


def _ending(name: str) -> str:
    return one_line(Path(name).suffix.lower(), 20) or "without ending"


def _lines(skipped: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each entry that was not read; for many of one ending and one reason, or simply many of one ending, a line together."""
    alike = Counter((_ending(name), reason) for name, reason in skipped)
    lines = [f"{count:,} {ending}: {reason}" for (ending, reason), count in alike.items() if count > MOST_ALIKE]
    place = {pair: n for n, (pair, count) in enumerate(alike.items()) if count <= MOST_ALIKE}
    few = [(name, reason) for name, reason in skipped if (_ending(name), reason) in place]
    single = sorted(few, key=lambda one: place[_ending(one[0]), one[1]])
    if len(single) <= MOST_LINES:
        return [*(f"{name}: {reason}" for name, reason in single), *lines]
    by_ending: dict[str, list[tuple[str, str]]] = {}
    for name, reason in single:
        by_ending.setdefault(_ending(name), []).append((name, reason))
    for ending, entries in by_ending.items():
        name, reason = entries[0]
        lines.append(f"{len(entries):,} {ending}, such as {name}: {reason}" if entries[1:] else f"{name}: {reason}")
    return lines


def _as_folder(directory: Path) -> tuple[Format, frozenset[str]] | None:
    """The format that reads the directory as one, and which of its entries that takes in."""
    for form in FORMATS.values():
        if names := form.folder(directory):
            return form, names
    return None


def _encodable(path: Path) -> str:
    return str(path).encode(errors="replace").decode()


def _check_name(path: Path) -> None:
    if _encodable(path) != str(path):
        raise InputError(f"{_encodable(path)}: its name is not UTF-8; rename it")


def _without_path(error: InputError, file: Path) -> str:
    return str(error).removeprefix(str(file)).lstrip(": ")


def _named(name: str) -> Format:
    if name in FORMATS:
        return FORMATS[name]
    raise InputError(f"format: {name!r} is not one of auto, {', '.join(sorted(FORMATS))}{suggestion(name, FORMATS)}")


@dataclass(frozen=True, slots=True)
class Written:
    """A file's text, how many judgments are in it, and what is not, with the reason."""

    text: str
    rows: int
    left_out: tuple[str, ...] = ()


def write_judgments(format: str, judgments: Sequence[Judgment], queries: Mapping[str, Query]) -> Written:
    """The judgments in a format that has a writer for them, with a line for each that the format cannot hold. `queries`
    gives the words of each qid. What is written reads back unchanged. Raises InputError for another format."""
    writers = judgment_writers()
    if format not in writers:
        raise unknown(format, writers)
    writer = writers[format]
    left_out: list[str] = []
    fitting = list(judgments)
    if not writer.whole_store:
        fitting, of_store = of_memories(fitting)
        left_out += [f"{one.qid}: whether anything answers it has no place in this format" for one in of_store]
    if writer.by_words:
        fitting = with_unique_words(fitting, queries, left_out)
    words = {qid: query.query for qid, query in queries.items()}
    reasons = [(one, writer.refused(one, words.get(one.qid, ""))) for one in fitting]
    left_out += [f"{one.qid} {one.memory_id}: {reason}" for one, reason in reasons if reason]
    fitting = writer.fitting([one for one, reason in reasons if not reason], left_out)
    if not writer.judges:
        fitting = one_grade_each(fitting, left_out)
    with FORMATS.guarded(format, InputError):
        return Written(writer.write(fitting, words), len(fitting), tuple(left_out))


def write_dataset(format: str, dataset: DataSet, path: Path, progress: Progress = silent) -> Exported:
    """Write memories, queries and judgments to a file, or a new folder, in a format that has a writer for them.

    What is written reads back unchanged: what would come back as another record is left out with a line each, and fields a format
    has no place for are counted by name. Raises InputError for another format, when there is nothing the format can hold, or when
    `path` cannot be written; it then has what it had.
    """
    writers = dataset_writers()
    if format not in writers:
        if format in judgment_writers():
            raise InputError(f"format: {format!r} holds judgments alone; `judgments --format {format}` writes them")
        raise unknown(format, writers)
    judgments, of_store = of_memories(dataset.judgments)
    with FORMATS.guarded(format, InputError):
        exported = writers[format].write(replace(dataset, judgments=judgments), Path(path), progress)
    lines = [
        f"{one.qid}: whether anything answers it: `judgments --format judgments-jsonl` writes it" for one in of_store
    ]
    return replace(exported, left_out=(*exported.left_out, *lines))
