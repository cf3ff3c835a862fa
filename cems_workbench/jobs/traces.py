"""External traces and explained answers: imported as evidence that was recorded, and read back by the name of their query set.

A format of traces (`Format.traces`) gives `import_traces` the queries of a file of any size, a portion at a time; the queries and the ids
of memories stay in memory.

- A document is the memory of its id, if that has its text; else the memory of the store with just this text, if there is one: pipelines
  number what they found, or have separate ids. Other memories with a text are added to the store. None of it is changed: where a trace
  has another text for an id, and no memory has that, the store's stays, and a note says so.
- The queries are put into a query set, and their evidence into a file in the folder `evidence` of the store, which `read_traced` finds by
  the set's name. A query that is imported again replaces its former trace; the others of the file stay.
- No config changes recorded stages: `require_replayable` is the one line for what needs that. The lists of an explained answer replay
  under any config; that of the set is its first answer's, with the lists of all and the largest limit.
"""

from __future__ import annotations

import glob
import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cems_workbench import formats
from cems_workbench.analysis.losses_of_set import DEFAULT_K
from cems_workbench.analysis.stage_mistakes import KnownMistake, StageMistakes
from cems_workbench.config import PipelineConfig, portable_yaml, with_values
from cems_workbench.errors import InputError
from cems_workbench.evaluation import evidence_rows
from cems_workbench.evaluation.evidence_file import EvidenceFile, EvidenceSet, Header, PortionedFile, read_evidence_file
from cems_workbench.evaluation.evidence_stream import EvidenceStream
from cems_workbench.formats import FORMATS
from cems_workbench.formats.base.files import is_packed
from cems_workbench.formats.base.records import NameOf, Trace, TracedDocument, TracedQuery, Traces, memory_id_of
from cems_workbench.jobs.factory import Cache, uncached
from cems_workbench.jobs.traced_sets import CONFIG_NAME, NOT_REPLAYED
from cems_workbench.jobs.traced_sets import is_traced as is_traced
from cems_workbench.jobs.traced_sets import traced_header as traced_header
from cems_workbench.jobs.traced_sets import traced_path as traced_path
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.explained import explained, explained_config
from cems_workbench.pipeline.recorded import ASKED, HEADS, OWN_IDS, RECORDED
from cems_workbench.pipeline.replay import blocks_of, run, to_table
from cems_workbench.platform.atomic_write import write_atomically
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, ParsedInput, Query, RowError
from cems_workbench.store import ImportReport, Store
from cems_workbench.store.importing import DEFAULT_OPTIONS, ImportOptions, set_name
from cems_workbench.store.imports import ImportEvent
from cems_workbench.store.rows import RowCounts

TYPE = "traced"
"""The type of the queries of external traces and of explained answers."""
PORTION_TRACES = 256
"""Evidence that is replayed at a time."""
SHOWING = 2_000
"""Queries of a set from which a page and `why` tell what its stages show of themselves."""


def traced_config() -> PipelineConfig:
    """The config of external traces: its limit is the cutoff of losses, and nothing else of it has an effect."""
    return with_values(PipelineConfig(), {"name": CONFIG_NAME, "assembly.limit": DEFAULT_K})


def read_traced(
    store: Store, query_set: str, queries: Sequence[Query] | None = None, cache: Cache = uncached
) -> EvidenceSet | None:
    """The recorded stages of a set, of these queries if they are named; None if the set is none of external traces.
    Raises InputError for a damaged file."""
    if not is_traced(store, query_set):
        return None
    path = traced_path(store.path, query_set)
    found = cache(("evidence", path, path.stat().st_mtime_ns), lambda: read_evidence_file(path))
    if queries is None:
        return found
    evidences = {query.qid: found.evidences[query.qid] for query in queries if query.qid in found.evidences}
    return replace(found, queries=tuple(queries), evidences=evidences)


def is_judged(store: Store, query_set: str) -> bool:
    """Whether a query of the set has a judgment in the store."""
    judged = {row.qid for row in store.judgments.read()}
    return any(query.qid in judged for query in store.query_sets.queries(query_set))


def traced_query(store: Store, query_set: str, qid: str) -> tuple[Evidence, PipelineConfig] | None:
    """The recorded stages of one query, and the config of its set; None if it is not there. The rest of the file is not
    read. Raises InputError for a damaged file."""
    if not is_traced(store, query_set):
        return None
    with EvidenceStream([traced_path(store.path, query_set)]) as stream:
        found = stream.of_queries([qid]).evidences
        return None if qid not in found else (found[qid], stream.header.config)


def require_replayable(name: object, external: bool, what: str) -> None:
    """Raises InputError for external traces; `what` needs a pipeline that can be replayed: "tuning"."""
    if external:
        raise InputError(
            f"{name} {NOT_REPLAYED}; {what} needs a pipeline that can be replayed: `fidelity --nearest` looks for the nearest preset"
        )


def trace_format(path: Path, format: str = "auto") -> str | None:
    """The format of a file of traces, by its content or the one that was asked for; None for anything else. Raises
    InputError as `formats.detect`."""
    if os.path.isdir(path) or not _reads_traces(name := formats.detect(path) if format == "auto" else format):
        return None
    if is_packed(path):
        raise InputError(f"{path}: holds traces, which are read twice; unpack it first")
    return name


def _reads_traces(format: str) -> bool:
    return format in FORMATS and FORMATS[format].traces is not None


def inputs_of(path: Path, format: str) -> list[ParsedInput]:
    """As `formats.read_path`, but that of a file of traces there is only its name: `add_input` reads it. Raises InputError."""
    if name := trace_format(path, format):
        return [ParsedInput(str(path), name)]
    return formats.read_path(path, format)


def add_input(
    parsed: ParsedInput, store: Store, progress: Progress = silent, options: ImportOptions = DEFAULT_OPTIONS
) -> ImportReport:
    """Put one of `inputs_of` into the store, a file of traces with the stages of its queries. Raises as `import_traces` and `Store.add`."""
    if _reads_traces(parsed.format):
        return import_traces(Path(parsed.source), parsed.format, store, progress, options)
    return store.add(parsed, progress, options)


def import_traces(
    path: Path,
    format: str,
    store: Store,
    progress: Progress = silent,
    options: ImportOptions = DEFAULT_OPTIONS,
    source: str | None = None,
) -> ImportReport:
    """Import a file of traces (see the module). Raises InputError when it cannot be read or has no query, and what
    `progress` raises. `source` is what the file is called on record and in the report, by default its path."""
    source = source or str(path)
    read = FORMATS[format].traces
    assert read is not None
    name = options.query_set or set_name(source)
    when = options.when or datetime.now(UTC)
    options = replace(options, query_set=name, when=when)
    errors: list[RowError] = []
    with tempfile.TemporaryFile(dir=store.path) as file:
        with FORMATS.guarded(format, InputError):
            traces = read(path, source, file, errors, progress)
        target = traced_path(store.path, name)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            # A new file beside the old one, so that a cancelled import leaves that as it was.
            with write_atomically(target) as part:
                part.unlink()
                report = _Import(source, format, store, name, errors, progress, when, options).run(traces, part, target)
                _keep_before(target, report.event)
                return report
        except OSError as error:
            raise InputError(f"{target}: cannot be written: {error.strerror or error}") from None


KEPT_BEFORE = 3
"""Former files of recorded stages that are kept of a set, for undo."""


def _keep_before(target: Path, event: int) -> None:
    """Keep the file that an import is about to replace; the oldest ones go. Raises OSError."""
    found = target.parent.glob(f"{glob.escape(target.name)}.before-*")
    kept = sorted(found, key=lambda path: int(path.suffix[8:] or 0))
    for old in kept[: max(0, len(kept) - KEPT_BEFORE + 1)]:
        old.unlink()
    if target.is_file() and event:
        former = _before(target, event)
        former.unlink(missing_ok=True)
        # The new file gets the name by a rename, so the old one needs no copy.
        former.hardlink_to(target)


def _before(target: Path, event: int) -> Path:
    return target.with_name(f"{target.name}.before-{event}")


def sets_traced_by(event: ImportEvent) -> list[str]:
    """The query sets of an import into which it put external traces."""
    return sorted({str(each.options.get("query_set")) for each in event.inputs if _reads_traces(each.format)})


def undo_traces(store: Store, query_set: str, event: ImportEvent, *, dry: bool = False) -> str | None:
    """Put back the recorded stages that a set had before an import; `dry`: only say so. Returns an empty text if that
    is done, a line why they stay, or None if the import left none. Raises InputError."""
    target, former = traced_path(store.path, query_set), _before(traced_path(store.path, query_set), event.number)
    header = traced_header(store.path, query_set)
    if header is None:
        return None
    if header.created_at != event.imported_at.isoformat():
        return f"the recorded stages of {query_set} stay, because a later import replaced them"
    if not dry:
        try:
            former.replace(target) if former.exists() else target.unlink()
        except OSError as error:
            raise InputError(f"{target}: cannot be restored: {error.strerror or error}") from None
    return ""


NOTED = (
    REPEATED := "queries traced more than once, of which the last trace counts",
    WARNED := "queries with stages that contradict themselves, which their traces name",
    REMARKED := "queries with a stage that says of its candidates",
    RENAMED := "documents with the text of stored memories under another id, taken for these",
    CHANGED := "memories with another text in a trace than the one that is kept",
    UNLIKE := "explained answers whose order does not replay",
    OTHERWISE := "explained answers with other settings than the config of the set",
    EMPTY := "explained answers without a memory, which count as queries that found nothing",
    SHARED := "queries that are in another set too and keep their date there; the date of this file stays with its lists",
)
"""What an import notes of queries and documents."""


@dataclass
class _Import:
    """One import: what was seen so far of memories and queries."""

    source: str
    format: str
    store: Store
    name: str
    errors: list[RowError]
    progress: Progress
    when: datetime
    options: ImportOptions
    numbers: dict[str, int] = field(default_factory=dict)
    """By id the number of a memory in the evidence file."""
    blank: set[str] = field(default_factory=set)
    """Memories of the evidence file that have no text yet."""
    queries: dict[str, Query] = field(default_factory=dict)
    stored: dict[str, Query] = field(default_factory=dict)
    """The store's own queries, which keep their project, moment and type; those of earlier traces are replaced."""
    traced: dict[str, Query] = field(default_factory=dict)
    """The queries of earlier traces."""
    brought: set[str] = field(default_factory=set)
    """The memories that this import added."""
    noted: dict[str, dict[str, str]] = field(default_factory=lambda: {what: {} for what in NOTED})
    """By what of `NOTED` it is, the queries or documents, with what the note names of each."""
    added: int = 0
    mistakes: StageMistakes = field(default_factory=StageMistakes)
    config: PipelineConfig | None = None
    """Of explained answers that of the set: what the first says, with every list that one of them has."""
    settings: dict[str, Any] = field(default_factory=dict)
    lists: set[str] = field(default_factory=set)

    def run(self, traces: Traces, part: Path, target: Path) -> ImportReport:
        for query in self.store.queries.read():
            (self.traced if query.type == TYPE else self.stored)[query.qid] = query
        store, text, least = self.store, portable_yaml(traced_config()), self.store.query_sets.relevant_from(self.name)
        state, when = store.content_version, self.when.isoformat()
        header = Header(self.name, store.identity, state, "", text, when, relevant_from=least)
        with EvidenceFile.create(part, header, (), ()) as file:
            done = 0
            for portion in traces.portions:
                self.progress("importing traces", done, max(done, traces.count))
                name_of = self._name_of(portion)
                self._write(file, [query for trace in portion for query in trace.queries(name_of)])
                done += len(portion)
            if not self.queries:
                nothing = f"{self.source}: no query of it has lists or stages"
                raise InputError(str(self.errors[0]) if self.errors else nothing)
            self._take_over(file, target)
            if self.config is not None:
                file.use_config(portable_yaml(self.config))
            # Those that were given before; a set is measured with the store's present ones.
            judgments = [row for row in self.store.judgments.read() if row.qid in self.queries and row.memory_id]
            with file.writing() as cursor:
                evidence_rows.write_query_set(cursor, list(self.queries.values()), judgments, str(part))
            file.finish()
        self.progress("importing traces", traces.count, traces.count)
        return self._report()

    def _write(self, file: EvidenceFile, batch: Sequence[TracedQuery]) -> None:
        """Add a portion of queries: their new memories to the store, their evidence to the file."""
        fresh: dict[str, TracedQuery] = {}
        replaced = []
        for query in batch:
            judged = self.stored.get(query.qid)
            there = judged or (None if self.options.replace else self.traced.get(query.qid))
            if there is not None and there.query != query.query:
                reason = f"{query.qid!r} is another query in the store: {there.query[:60]!r}"
                reason += "" if judged else "; --replace takes this row"
                self.errors.append(RowError(self.source, query.row, reason))
                continue
            if query.qid in self.queries:
                self.noted[REPEATED][query.qid] = query.qid
                if query.qid not in fresh:
                    replaced.append(query.qid)
            own = Query(query.qid, query.query, None, query.asked_at, TYPE)
            if judged is None and there is not None and there != own and self._in_another(query.qid):
                self.noted[SHARED][query.qid] = query.qid
                own = there
            self.queries[query.qid] = judged or own
            fresh[query.qid] = query
            for what, lines_of in ((WARNED, query.warnings), (REMARKED, query.remarks)):
                self.noted[what].pop(query.qid, None)
                for stage, lines in itertools.islice(lines_of.items(), 1):
                    self.noted[what][query.qid] = f"{stage}: {lines[0]}"
        if not fresh:
            return
        memories = self._memories(list(fresh.values()))
        evidences = [(qid, _evidence(query, memories)) for qid, query in fresh.items()]
        _add_runs(self.mistakes, [evidence for _, evidence in evidences if evidence.external])
        for qid, evidence in evidences:
            self._note_explained(qid, evidence)
        late = [memories[key] for key in self.blank.intersection(memories) if memories[key].content]
        with file.writing() as cursor:
            evidence_rows.remove_external(cursor, replaced)
            evidence_rows.write_external(cursor, evidences, self.numbers)
            for memory in late:
                evidence_rows.write_text(cursor, self.numbers[memory.id], memory)
        self.blank |= {key for key, memory in memories.items() if not memory.content}
        self.blank -= {memory.id for memory in late}

    def _in_another(self, qid: str) -> bool:
        return any(name != self.name for name in self.store.query_sets.holding(qid))

    def _note_explained(self, qid: str, evidence: Evidence) -> None:
        note, own = explained(evidence), explained_config(evidence)
        if note is None or own is None:
            return
        if not evidence.lists:
            self.noted[EMPTY][qid] = qid
            return
        lists = {one.source for one in evidence.lists}
        most = {"assembly.limit": max(own.assembly.limit or 1, self.settings.get("assembly.limit", 1))}
        # What the first says of all, and of a list the first that has it.
        new = {path: value for path, value in note["values"].items() if path.split(".")[1] in lists - self.lists}
        new |= {f"lists.{name}.enabled": True for name in lists - self.lists}
        self.settings |= (new if self.settings else dict(note["values"]) | new) | most
        self.lists |= lists
        self.config = with_values(self.config or own, self.settings)
        if not note.get("same_order"):
            self.noted[UNLIKE][qid] = f"{qid}: {next(iter(note['lines']), '')}"
        apart = {f"lists.{name}." for name in self.lists - lists}
        said = {path for path in (*self.settings, *note["values"]) if not path.startswith((*apart, *most))}
        if any(own.get(path) != self.config.get(path) for path in said):
            self.noted[OTHERWISE][qid] = qid

    def _name_of(self, portion: Sequence[Trace]) -> NameOf:
        """The memory of a document (see the module)."""
        texts: dict[tuple[str, str], str] = {}
        for trace in portion:
            for document in trace.documents:
                if document.content is not None:
                    key = memory_id_of(document)
                    texts.setdefault((key, document.content), key)
        stored = self.store.memories.read({key for key, _ in texts})
        others = [pair for pair in texts if pair[0] not in stored or stored[pair[0]].content != pair[1]]
        found = self.store.memories.with_contents(list({content for _, content in others})) if others else {}
        for key, content in others:
            # What the import itself brought is no memory that was there: of these ids both are the pipeline's.
            if (known := found.get(content)) is not None and known not in self.brought:
                texts[key, content] = known

        def name_of(document: TracedDocument) -> str:
            key = memory_id_of(document)
            named = texts.get((key, document.content or ""), key)
            if named != key and document.id is not None:
                self.noted[RENAMED].setdefault(key, f"{key} for {named}")
            return named

        return name_of

    def _memories(self, batch: Sequence[TracedQuery]) -> dict[str, Memory]:
        """The memories of the queries by id: those of the store, and those of the traces, which are added to it if they have a text."""
        ids = {key for query in batch for key in _ids(query)}
        known = self.store.memories.read(ids)
        found, new = dict[str, Memory](), dict[str, Memory]()
        for query in batch:
            for key, document in query.contents.items():
                memory = known.get(key) or new.get(key)
                if memory is None:
                    new[key] = Memory(key, document.content or "", title=document.title)
                elif memory.content != document.content:
                    self.noted[CHANGED][key] = key
        stored = self.store.memories.stored(new)  # the deleted ones
        brought = [memory for key, memory in new.items() if key not in stored]
        if brought:
            parsed = ParsedInput(self.source, self.format, memories=tuple(brought))
            self.added += self.store.add(parsed, silent, self.options).memories.added
            self.brought |= {memory.id for memory in brought}
        for key in ids:
            found[key] = known.get(key) or new.get(key) or Memory(key, "")
        return found

    def _take_over(self, file: EvidenceFile, target: Path) -> None:
        if not target.is_file():
            return
        with suppress(InputError), closing(PortionedFile(target)) as former:
            if (former.header.store_id, former.header.query_set) != (self.store.identity, self.name):
                return
            for portion in former.portions():
                kept = [query for query in portion.queries if query.qid not in self.queries]
                self.queries |= {query.qid: query for query in kept}
                evidences = [(query.qid, portion.evidences[query.qid]) for query in kept]
                with file.writing() as cursor:
                    evidence_rows.write_external(cursor, evidences, self.numbers)

    def _report(self) -> ImportReport:
        rows, queries = {"rows": {"queries": [0] * len(self.queries)}}, tuple(self.queries.values())
        parsed = ParsedInput(self.source, self.format, queries=queries, errors=tuple(self.errors), extra=rows)
        # The latest trace of a query counts, whichever file brought the one before.
        report = self.store.add(parsed, self.progress, replace(self.options, replace=True))
        what = "stages that were recorded" if self.config is None else "lists that it explained"
        notes = [f"{len(self.queries):,} queries of another pipeline, with the {what}"]
        notes += [one.line for one in self.mistakes.found()]
        noted = ((what, found) for what, found in self.noted.items() if found)
        notes += [f"{what}: {len(found):,}, such as {next(iter(found.values()))}" for what, found in noted]
        return replace(report, memories=RowCounts(added=self.added), notes=(*notes, *report.notes))


def _add_runs(mistakes: StageMistakes, evidences: Sequence[Evidence]) -> None:
    config = traced_config()
    for places in blocks_of(evidences, PORTION_TRACES):
        table = to_table([evidences[place] for place in places])
        mistakes.add(run(table, config), table, config)


def traced_mistakes(path: Path) -> list[KnownMistake]:
    """What the stages of external traces show of themselves over the first `SHOWING` queries of their evidence file.
    Raises InputError for a damaged file."""
    mistakes, seen = StageMistakes(), 0
    with EvidenceStream([path]) as stream:
        for portion in stream.portions():
            evidences = [one for one in portion.evidences.values() if one.external]
            _add_runs(mistakes, evidences)
            seen += len(evidences)
            if seen >= SHOWING:
                break
    return mistakes.found()


def _ids(query: TracedQuery) -> set[str]:
    return set(query.evidence.memories) if isinstance(query.evidence, Evidence) else query.recorded.ids


def _evidence(query: TracedQuery, memories: dict[str, Memory]) -> Evidence:
    if isinstance(query.evidence, Evidence):
        there = {key: (one, memories[key]) for key, one in query.evidence.memories.items()}
        # The text is the store's; what the replay computes with stays as it was explained.
        texts = {key: replace(one, content=kept.content or one.content, title=kept.title) for key, (one, kept) in there.items()}
        return replace(query.evidence, memories=texts)
    notes: dict[str, object] = {RECORDED: query.recorded.to_json()}
    if query.warnings or query.remarks:
        stages = dict.fromkeys((*query.warnings, *query.remarks))
        said = {name: [*query.warnings.get(name, ()), *query.remarks.get(name, ())] for name in stages}
        notes["warnings"] = said
    if query.own_ids:
        notes[OWN_IDS] = query.own_ids
    if heads := _heads(query, memories):
        notes[HEADS] = heads
    if query.asked:
        notes[ASKED] = query.asked
    return Evidence(query.query, {key: memories[key] for key in sorted(_ids(query))}, as_of=query.asked_at, notes=notes)


def _heads(query: TracedQuery, memories: Mapping[str, Memory]) -> list[dict[str, Any]]:
    """The lists and stages with texts that are but the beginning of the memory's, or of what another has of it: in characters the
    shortest and the longest (`least`, `most`), how many texts are cut so (`cut`), and how many are not though longer (`whole`)."""
    longest = {key: memory.content for key, memory in memories.items()}
    for texts in query.texts.values():
        longest |= {key: text for key, text in texts.items() if len(text) > len(longest.get(key, ""))}
    listed = {one.name for one in query.recorded.lists}
    found, known = list[dict[str, Any]](), set[str]()
    for name, texts in query.texts.items():
        bare = {key: text.rstrip().removesuffix("...").rstrip("… ") for key, text in texts.items()}
        cut = {key: text for key, text in bare.items() if text and longest[key].rstrip() != text}
        cut = {key: text for key, text in cut.items() if longest[key].startswith(text) and text not in known}
        if cut:  # a later stage that reads them so is not the one that cut them
            known |= set(cut.values())
            size = {key: len(texts[key]) for key in cut}
            least, most = min(size.values()), max(size.values())
            whole = sum(len(text) > most for key, text in texts.items() if key not in cut)
            own = {"stage": name, "list": name in listed, "least": least, "most": most, "cut": len(cut), "whole": whole}
            found.append(own)
    return found
