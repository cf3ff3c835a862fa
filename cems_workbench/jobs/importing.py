"""Import job: uploaded files, read one by one, so that a bad file affects no other, with a report of every row.

Judgments that follow their memories to other ids: by command, and after an import or a connect that replaced judged memories.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from cems_workbench import formats
from cems_workbench.errors import EmbedderMismatchError, InputError, ModelError, WorkbenchError, counted
from cems_workbench.formats import FORMATS
from cems_workbench.jobs.traces import add_input, import_traces, sets_traced_by, trace_format, undo_traces
from cems_workbench.platform.atomic_write import output_path
from cems_workbench.progress import Progress, silent
from cems_workbench.records import HUMAN, Judgment, ParsedInput, RowError, TextRule
from cems_workbench.results import Report, Table
from cems_workbench.store import ImportReport, Store
from cems_workbench.store.importing import DEFAULT_OPTIONS, ImportOptions
from cems_workbench.store.imports import STAGES, Undo
from cems_workbench.store.precomputed_embeddings import read_vectors
from cems_workbench.store.query_matching import MATCHES, parse_match
from cems_workbench.store.rebase import PERHAPS, Rebase
from cems_workbench.store.rows import check_name
from cems_workbench.store.scales import parse_scale
from cems_workbench.store.stated_grades import parse_grades

if TYPE_CHECKING:
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.store import RefreshReport
    from cems_workbench.store.precomputed_embeddings import PrecomputedVectors


SHOWN = 20


def texts_of(path: Path) -> Mapping[str, str]:
    """By id the texts of the memories of a file, a folder of files, or another store. Raises InputError if it has none, and StoreError."""
    if Store.exists(path):
        with Store.open(path, create=False) as other:
            texts = {memory.id: memory.content for memory in other.memories.iterate()}
    else:
        inputs = formats.read_path(path, "auto")
        texts = {memory.id: memory.content for parsed in inputs for memory in parsed.memories}
    if not texts:
        raise InputError(f"--texts: {path} has no memories; name the file or store whose memories were judged")
    return texts


def rebase(store: Store, texts: Mapping[str, str] | None = None, *, apply: bool = False) -> Report:
    """Where the judged memories of a store are now, and which judgments move; only with `apply` they do, as an import on record."""
    planned = store.plan_rebase(texts)
    moved = {key: one for key, one in planned.found.items() if one.status != "valid"}
    rows = [
        (key, one.status, ", ".join(one.targets or one.doubtful), one.how or PERHAPS * bool(one.doubtful))
        for key, one in moved.items()
    ]
    notes = []
    if planned.unkept:
        many = counted(len(planned.unkept), "memories")
        notes.append(f"{many} are not here and have no kept text, such as {planned.unkept[0]}: --texts OLD names what has them")
    number = 0
    if apply and planned.changes:
        done = store.rebase(planned)
        number, notes = done.event, [*notes, *done.notes, *map(str, done.errors)]
        if number:
            notes.append(f"on record as import {number}; import {number} --undo takes it back")
    elif planned.changes:
        notes.append(f"nothing is changed yet; {counted(len(planned.moved), 'judgments')} would be written, with --apply")
    values = {
        "counts": dict(planned.counts),
        "written": len(planned.moved),
        "taken_away": len(planned.stale),
        "doubtful": [list(pair) for pair in planned.doubtful],
        "memories": {key: asdict(one) for key, one in moved.items()},
        "no_kept_text": planned.unkept,
        "import": number or None,
    }
    tables = [Table(("judged memory", "status", "now", "how"), tuple(rows), shown=SHOWN)] if rows else []
    return Report(planned.words, (), tables, notes, values)


def followed(store: Store) -> tuple[Rebase, ImportReport | None]:
    """Move the judgments of memories that the store no longer has to those with their text, unless that was undone: the plan, and what was
    done where it changes something."""
    planned = store.plan_rebase(by_itself=True)
    return planned, store.rebase(planned) if planned.changes else None


def follow(store: Store) -> list[str]:
    """As `followed`; a line on it."""
    planned, done = followed(store)
    if done is None:
        return []
    queue = f"; labelling queue {done.queue}" if done.queue else ""
    undo = f"; import {done.event} --undo takes it back" if done.event else ""
    return [f"{planned.words}{queue}{undo}"]


UNJUDGED = "no judgments yet: import some, such as a qrels file of these query ids, or judge results on Label"
MAX_NAMES = 5
NAME_CHARS = 28
"""Of an input's name in a table."""
MAX_NAME_CHARS = 120
"""Used characters of an upload's name: the last ones, which include its suffix."""


@dataclass(frozen=True)
class FileImport:
    """Result of one file: the store's report, or one line why nothing could be read."""

    name: str
    report: ImportReport | None = None
    problem: str = ""


def import_files(
    files: Iterable[tuple[str, IO[bytes]]],
    store: Store,
    progress: Progress,
    format: str = "auto",
    judge: str | None = None,
    options: ImportOptions = DEFAULT_OPTIONS,
) -> Iterator[FileImport]:
    """Import (name, content) files, memories first; yields the result of each once it is committed.

    A file of traces brings its queries with their recorded stages (`jobs.traces`). With a `judge`, a reviewer, only this person's labels
    and their queries are imported (`own_labels`). Raises what `progress` raises (Cancelled): the present file is then left out as a whole,
    earlier ones stay. The files are one import on record.
    """
    options = replace(options, when=options.when or datetime.now(UTC))
    with tempfile.TemporaryDirectory(prefix="cems-upload-") as folder:
        paths = [_saved(Path(folder) / str(i), name, content) for i, (name, content) in enumerate(files)]
        for path in sorted(paths, key=lambda path: _order(path, format)):
            try:
                if judge is None and (of_traces := trace_format(path, format)):
                    yield FileImport(path.name, import_traces(path, of_traces, store, progress, options, path.name))
                    continue
                parsed = formats.read(path, format, progress)
                # The name of the upload instead of its temporary path.
                errors = tuple(replace(error, source=path.name) for error in parsed.errors)
                parsed = replace(parsed, source=path.name, errors=errors)
                parsed = parsed if judge is None else own_labels(parsed, judge)
                yield FileImport(path.name, store.add(parsed, progress, options))
            except WorkbenchError as error:
                line = str(error).replace(str(path), path.name)
                yield FileImport(path.name, problem=line)


def replaces(reports: Iterable[ImportReport]) -> bool:
    """Whether an import may have brought judged texts under other ids."""
    return any(report.memories.added or report.memories.updated for report in reports)


def moved_labels(imports: Sequence[FileImport], store: Store) -> tuple[Rebase, ImportReport | None] | None:
    """As `rebase.followed`, where files brought memories and not every judged text is where it was."""
    if not replaces([one.report for one in imports if one.report is not None]):
        return None
    found = followed(store)
    return found if found[0].counts.keys() - {"valid"} else None


def import_options(
    query_set: str | None = None,
    scale: str | None = None,
    match: str = MATCHES[0],
    grades: Sequence[str] = (),
    relevant_from: int | str | None = None,
    *,
    replace: bool = False,
    queue: str | None = None,
    texts: Path | None = None,
) -> ImportOptions:
    """The options of one import, from the texts that a person gave, with one moment for all of its files. Raises InputError."""
    for name in (query_set, queue):
        if name is not None:
            check_name(name)
    try:
        lowest = None if relevant_from is None else int(relevant_from)
    except ValueError:
        raise InputError(f"--relevant-from: {relevant_from!r} is not a grade, such as 2") from None
    return ImportOptions(
        query_set,
        None if scale is None else parse_scale(scale),
        datetime.now(UTC),
        match=parse_match(match),
        grades=parse_grades(grades) or None,
        relevant_from=lowest,
        replace=replace,
        queue=queue,
        texts=None if texts is None else texts_of(texts),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Imported(Report):
    """What an import brought, input by input, and what the store has then.

    Attributes:
        reports: of the inputs.
        errors: rows that were left out, or taken in part, of the inputs and of vectors.
        unsearchable: why the indexes could not be made; `problems` also says that nothing was taken.
    """

    reports: Sequence[ImportReport] = ()
    errors: Sequence[RowError] = ()
    unsearchable: str = ""
    problems: Sequence[str] = ()


def import_inputs(
    path: Path,
    inputs: Sequence[ParsedInput],
    resources: Resources,
    options: ImportOptions,
    rules: tuple[str | None, TextRule | None, str | None] = (None, None, None),
    vectors: Path | None = None,
    progress: Progress = silent,
    *,
    briefly: bool = False,
) -> Imported:
    """Put the inputs of a file or folder (`traces.inputs_of`) into the store, with vectors for them, and refresh its
    indexes. `rules` are those of chunks, of searched text and the language that the store has from now on; None: its
    own. `briefly` says what is no news of the bundled sample. Raises InputError and StoreError."""
    store, changed = resources.store, []
    chosen: tuple[tuple[Any, str], ...] = (
        (store.chunks, "memories are cut by the rule {} from now on; what that changes is embedded again"),
        (store.texts, "searched is {} from now on; what that changes is embedded again"),
        (store.language, "lexical search works in {} from now on; its index is rebuilt"),
    )
    for (kept, line), rule in zip(chosen, rules, strict=True):
        if rule is not None and kept.choose(rule) and store.memories.count():
            changed.append(line.format(rule))
    reports = [add_input(parsed, store, progress, options) for parsed in inputs]
    labels = follow(store) if replaces(reports) else []
    brought = [memory.id for parsed in inputs for memory in parsed.memories]
    given, wrong = None, list[RowError]()

    def read_given() -> PrecomputedVectors | None:
        nonlocal given, wrong
        if vectors is not None:
            given, wrong = read_vectors(vectors, brought, resources.embedder.dimension)
            given = given.restrict_to(brought)
        return given

    refreshed, unsearchable, late = refresh(resources, progress, read_given)
    total, cut, language = store.memories.count(), store.chunks.statistics(), store.language.choice()
    sets = {one.name: one for report in reports for one in report.query_sets}
    judged = {row.qid for row in store.judgments.read()} if sets else set()
    notes = []
    for of in sets.values():
        known = any(query.qid in judged for query in store.query_sets.queries(of.name))
        grades = f"grades {of.scale}" if known else UNJUDGED
        notes.append(f"query set {of.name}, version {of.version}: {of.size} queries, {grades}")
    for form in () if briefly else dict.fromkeys(report.format for report in reports):
        names = [Path(report.source).name for report in reports if report.format == form]
        more = f" and {len(names) - MAX_NAMES} more" if names[MAX_NAMES:] else ""
        notes.append(f"read as {form}: {', '.join(names[:MAX_NAMES])}{more}")
    skipped = () if briefly else inputs[0].skipped
    notes += [f"not imported from {path.name or path}: {line}" for line in skipped]
    notes += [f"{Path(report.source).name}: {note}" for report in reports for note in report.notes]
    notes += [*labels, *changed, *(line for line in (refreshed.notes if refreshed else ()) if line not in store.notices)]
    notes += [late] if late else []
    if not briefly:
        notes += [*([str(cut)] if cut.chunks else []), f"language: {language}"]
    # Without any that are embedded they were known, came with vectors, or an app that has the store open was quicker.
    embedded = f"{refreshed.embedded} embedded now" if refreshed and refreshed.embedded else "nothing left to embed"
    texts = "" if refreshed is None else ", ready to search" if briefly else f", {embedded}"
    taken = "" if given is None else f", {given.used} of {len(given)} given vectors taken"
    errors = [*(error for report in reports for error in report.errors), *wrong]
    problems = [line for line in (unsearchable, took_nothing(reports)) if line]
    rows = tuple(
        (input_name(report.source, path), kind, counts.added, counts.updated, counts.unchanged)
        for report in reports
        for kind, counts in report.counts.items()
        if counts.total
    )
    values = {
        "inputs": [_plain(report, () if i else skipped) for i, report in enumerate(reports)],
        "errors": [asdict(error) for error in errors],
        "memories_in_store": total,
        "chunks": asdict(cut),
        "text": asdict(store.texts.rule),
        "language": asdict(language),
        "changed": changed,
        "embedded": refreshed.embedded if refreshed else 0,
        "vectors_taken": given.used if given else 0,
        "problem": next(iter(problems), None),
    }
    said = f"{total} memories in the store{texts}{taken}"
    tables = [Table(("input", "rows", "added", "updated", "unchanged"), rows)]
    return Imported(said, (), tables, [*dict.fromkeys(notes), said], values, reports, errors, unsearchable, problems)


def _plain(report: ImportReport, skipped: tuple[str, ...]) -> dict[str, Any]:
    sets = [{name: getattr(one, name) for name in ("name", "version", "size", "digest")} for one in report.query_sets]
    counts = {kind: asdict(rows) for kind, rows in report.counts.items()}
    notes = [*skipped, *report.notes]
    return {"source": report.source, "format": report.format, **counts, "notes": notes, "query_sets": sets}


def input_name(source: str, given: Path) -> str:
    """What an input is called in a table: its path below the folder that was given, else its name."""
    path = Path(source)
    return shortened(str(path.relative_to(given) if path != given and path.is_relative_to(given) else path.name))


def shortened(name: str) -> str:
    """A name of at most `NAME_CHARS`, a longer one without its middle."""
    return name if len(name) <= NAME_CHARS else f"{name[: NAME_CHARS // 2 - 1]}…{name[-NAME_CHARS // 2 :]}"


def refresh(
    resources: Resources, progress: Progress, given: Callable[[], PrecomputedVectors | None] = lambda: None
) -> tuple[RefreshReport | None, str, str]:
    """Refresh the indexes, and write to Chroma: the report, and a line if they could not be, and one of what Chroma
    lacks. What is in the store stays there all the same."""
    try:
        report = resources.refresh(progress, given())
    except EmbedderMismatchError as refusal:
        return None, f"not embedded: {refusal}", ""
    except (InputError, ModelError) as refusal:
        return None, f"not embedded yet, the next search continues: {refusal}", ""
    from cems_workbench.models.minilm_embedder import MiniLMEmbedder

    if isinstance(resources.embedder, MiniLMEmbedder):
        resources.embedder.unload()  # before Chroma is loaded
    return report, "", resources.store.indexes.catch_up_chroma(resources.embedder.model_id, progress)


def took_nothing(reports: Iterable[ImportReport]) -> str:
    """One line if an import put nothing into the store and found nothing there; empty if it did."""
    reports = list(reports)
    counted = [counts.total for report in reports for counts in report.counts.values()]
    if any(counted) or any(report.changed or report.queue for report in reports):
        return ""
    left_out = sum(not error.taken for report in reports for error in report.errors)
    if not left_out:
        return "nothing was imported: it has no rows for a store"
    return f"nothing was imported: {'the only row was' if left_out == 1 else f'all {left_out:,} rows were'} left out"


def plan_undo(store: Store, number: int | None = None) -> Undo:
    """What `undo_import` would do. Raises InputError and StoreError."""
    return _with_traces(store, store.imports.plan(number), undo=False)


def undo_import(store: Store, number: int | None = None, progress: Progress = silent) -> Undo:
    """Undo an import, by default the last that was not undone: `Imports.undo`, and the recorded stages of external
    traces. Raises InputError, StoreError, and what `progress` raises: another call continues."""
    # The file first: repeated after a crash it is found restored, and the store's part is not done before.
    planned = _with_traces(store, store.imports.plan(number), undo=True)
    done = store.imports.undo(planned.event.number, progress)
    return replace(done, restored=planned.restored, stay=planned.stay)


def _with_traces(store: Store, undo_of: Undo, *, undo: bool) -> Undo:
    event = undo_of.event
    restored, stay = dict(undo_of.restored), list(undo_of.stay)
    for query_set in sets_traced_by(event):
        said = undo_traces(store, query_set, event, dry=not undo)
        restored[STAGES] = restored.get(STAGES, 0) + (said == "")
        stay += [said] if said else []
    return replace(undo_of, restored=restored, stay=tuple(stay))


@contextmanager
def upload(name: str, content: bytes) -> Iterator[Path]:
    """An uploaded file on disk within the block; an InputError inside names the upload, not its temporary path."""
    with tempfile.TemporaryDirectory(prefix="cems-upload-") as folder:
        path = _saved(Path(folder) / "0", name, io.BytesIO(content))
        try:
            yield path
        except InputError as error:
            raise InputError(str(error).replace(str(path), name)) from None


def own_labels(parsed: ParsedInput, judge: str) -> ParsedInput:
    """This person's judgments, with their queries; judgments of a file without judges count as theirs. Others are reported."""
    own, errors = list[tuple[int, Judgment]](), list(parsed.errors)
    for row, judgment in parsed.numbered("judgments"):
        if judgment.kind == HUMAN and judgment.judge in (judge, HUMAN):
            own.append((row, replace(judgment, judge=judge)))
        else:
            reason = f"the labels of {judgment.judge!r} are brought by an operator; yours are those of {judge!r}"
            errors.append(RowError(parsed.source, row, reason, "judge"))
    ungraded = [
        replace(one, judgment=replace(one.judgment, judge=judge))
        for one in parsed.ungraded
        if one.judgment.kind == HUMAN and one.judgment.judge in (judge, HUMAN)
    ]
    others = ("memories", "relations", "chunks", "answers")
    left = [f"{len(getattr(parsed, name)):,} {name}" for name in others if getattr(parsed, name)]
    notes = [f"{' and '.join(left)} of the file were left out: an operator imports them"] if left else []
    kept = parsed.with_rows(**dict.fromkeys(others, ()), judgments=own)
    return replace(kept, ungraded=tuple(ungraded), errors=tuple(errors), notes=(*parsed.notes, *notes))


def _saved(folder: Path, name: str, content: IO[bytes]) -> Path:
    """Save the upload in a separate folder, because names may repeat, under its own name, which formats read."""
    folder.mkdir()
    base = PurePosixPath(name.replace("\\", "/")).name.replace("\0", "").lstrip(".")
    path = folder / (base[-MAX_NAME_CHARS:] or "upload")
    with output_path(path) as part, part.open("wb") as file:
        shutil.copyfileobj(content, file)
    return path


def _order(path: Path, format: str) -> int:
    """Sort key: memories first. An unreadable file is reported later, when it is imported."""
    try:
        return FORMATS[formats.detect(path) if format == "auto" else format].order
    except WorkbenchError:
        return 0
