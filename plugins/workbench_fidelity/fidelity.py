"""Fidelity job: the recorded answers of a real system compared with the workbench's, for every query of a recording, under a config.

    read a recording -> lay its settings over the config -> gather -> replay -> compare -> first divergence and its cause

What a recording says of a query is taken as given: the text that was searched, what an engine got, several wordings, project and moment
(`asked_queries`). `recorded_lists` says which lists are those of the recording.

The measured config is the chosen one with the settings of the recording, as a `.env` of CEMS would set them (`config.forms.targets`), its
token budget, and its moment as the moment of every query. Evidence is gathered as for any query set (`jobs.query_set_evidence`), and an
interrupted job resumes.

The store holds the memories of the system; from files alone it is a temporary one, `store_of_folder`.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from cems_workbench import formats
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.forms.targets import preset_behind, read_env
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.evaluate import number
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.formats.logs import not_recorded
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, request_for
from cems_workbench.jobs.recorded_answers import Production, productions_of
from cems_workbench.jobs.traced_sets import traced_sets
from cems_workbench.jobs.traces import read_traced
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.explained import answer_of
from cems_workbench.pipeline.gather import Request, gather_scores
from cems_workbench.pipeline.list_sources import equal_scores
from cems_workbench.pipeline.mismatches import mismatches_noted
from cems_workbench.pipeline.replay import run, to_table
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import ASSEMBLY, RERANK
from cems_workbench.pipeline.stages.result import plain_fields
from cems_workbench.pipeline.table import Ranking
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query, RecordedAnswer, Recording
from cems_workbench.results import Result, Table
from cems_workbench.settings import Settings
from cems_workbench.sources.address import SOURCE_KINDS, address_forms, askable, parse
from cems_workbench.sources.source import SourceError
from cems_workbench.store import Store
from workbench_fidelity.explain import Explanation, SetAgreement, SetReplays, single_changes
from workbench_fidelity.lists import (
    NO_LISTS,
    WORD_SOURCES,
    Divergence,
    ListMap,
    WhichLists,
    first_divergence,
    half_unit,
    list_map,
    with_lists,
    with_map,
    without_words,
)
from workbench_fidelity.measures import DEPTH, EXACT_PRECISION, Cause, Lists, QueryFidelity, SetFidelity, cause_of
from workbench_fidelity.recordings import read_recording

STORED_FORM = "query set"
"""The format of answers that the store keeps."""
TRACED_FORM = "external traces"
"""The form of a recording that is made of them."""
BASE_PRESET = "cems_head"
"""The preset of CEMS with its defaults, over which the settings of a recording are laid."""
COMPUTED_MODE = "vector"
"""The mode of CEMS that the pipeline computes; the others call a language model."""
CHUNK_RULE = "cems"
"""The chunking rule of a temporary store."""
MAX_EXPLANATIONS = 5
"""Parameters that are listed."""
_LINE = re.compile(r"line \d+: ")


@dataclass(frozen=True, slots=True)
class FidelitySetting:
    """One recording and the config it is measured under: with the recording's own settings, or as chosen.

    `warnings` are the settings of the recording that the config cannot express. `which_lists` and `list_map` say whose lists are
    replayed; `own_searches`: the config makes searched texts, engine queries and wordings, and those of the recording are not used.
    `tolerance` is the largest difference of equal scores, None for that of the recording's digits; `depth` the k of the overlap.
    """

    name: str
    recording: Recording
    config: PipelineConfig
    applied: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    which_lists: WhichLists = "own"
    list_map: ListMap = NO_LISTS
    own_searches: bool = False
    tolerance: float | None = None
    depth: int = DEPTH

    @property
    def searched(self) -> PipelineConfig:
        """The config that is gathered and replayed: without the judge, which is slow and changes no result. A recording
        that says which queries were conversational leaves nothing to detect."""
        changes = with_map(self.config, self.list_map) if self.which_lists == "recorded" else {}
        if not self.own_searches and any(answer.by_vector_alone is not None for answer in self.recording.answers):
            changes["query.conversational.enabled"] = False
        return with_values(self.config, {"judge.backend": "none", **changes})

    @property
    def given(self) -> dict[str, int]:
        """What of the recording is taken as given, and for how many of its queries."""
        answers = self.recording.answers
        counts = {
            "project": sum(answer.project is not None for answer in answers),
            "as_of": sum(answer.asked_at is not None for answer in answers),
        }
        if not self.own_searches:
            counts |= {
                "searched text": sum(answer.searched is not None for answer in answers),
                "engine query": sum(bool(_engine_queries(answer, self.config)) for answer in answers),
                "wordings": sum(len(answer.wordings) > 1 for answer in answers),
                "reranked text": 0 if RERANK.is_off(self.config) else sum(bool(answer.corrected) for answer in answers),
                "vector alone": sum(bool(answer.by_vector_alone) for answer in answers),
            }
        return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class Difference:
    """A query that differs: where its trace parts from the recorded order, and the cause as far as it can be shown.
    `parting` is None where the order is the same and a score is not."""

    query: QueryFidelity
    parting: Divergence | None
    cause: Cause

    @property
    def how(self) -> str:
        """Description of the difference."""
        if self.parting is not None:
            return f"{self.parting.memory_id}: {self.parting.reason}"
        return f"same order, a score differs by {self.query.score_difference or 0:.1e}"

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        names = "qid query recorded top_score ours same_order up_to_ties score_difference overlap rbo"
        parting = self.parting
        return plain_fields(self.query, names) | {
            "stage": parting and parting.stage,
            "memory": parting and parting.memory_id,
            "how": parting and parting.how,
            "reason": parting and parting.reason,
            "cause": self.cause.kind,
            "because": self.cause.text,
        }


@dataclass(frozen=True, eq=False, repr=False)
class MeasuredFidelity(Result):
    """The result of one setting."""

    setting: FidelitySetting
    fidelity: SetFidelity
    differences: tuple[Difference, ...]
    queries: Mapping[str, Query]
    evidence: EvidenceSet
    not_gathered: tuple[str, ...] = ()
    repeated: SetFidelity | None = None
    """The recording beside a second one of the same system: how far the system repeats itself."""
    explained: tuple[SetAgreement, list[Explanation[SetAgreement]]] | None = None
    """The present agreement, and the single changes that give more queries the recorded order; None if none was tried."""
    order: str = "departing"
    shown: int = 20
    """In which of ORDERS the queries that differ are listed, and how many."""

    def listed(self, order: str = "departing") -> list[Difference]:
        """The queries that differ, those without a recorded result first, in one of ORDERS, then by the overlap."""

        def key(one: Difference) -> tuple[bool, float, float]:
            return bool(one.query.recorded), ORDERS[order](one.query), round(one.query.rbo, 9)

        return sorted(self.differences, key=key)

    def request(self, qid: str) -> Request:
        """The request of a query, as Inspect makes it."""
        return request_for(self.queries[qid], self.evidence.header.moment)

    @property
    def title(self) -> str:
        """Which answers, under which config."""
        return f"{self.setting.name}: {len(self.fidelity.queries)} queries"

    @property
    def lines(self) -> tuple[str, ...]:
        """What of the recording was taken, whose lists were replayed, and whether anything differs."""
        setting = self.setting
        applied = ", ".join(f"{name} {value}" for name, value in setting.applied)
        given = ", ".join(f"{name} ({count})" for name, count in setting.given.items())
        own = "searched texts, engine queries and wordings are our own" if setting.own_searches else ""
        lists = ", ".join(setting.list_map.lines()) if setting.which_lists != "own" else ""
        of = "order of equal scores" if setting.which_lists == "ties" else "lists"
        same = "every query has the recorded order, and its scores where they were recorded"
        none = self.explained is not None and not self.explained[1]
        lines = (
            applied and f"laid over {setting.config.name}: {applied}",
            given and f"given by the recording (queries): {given}",
            own,
            lists and f"{of} of the recording: {lists}; the other lists are ours",
            self.evidence.answered and f"lists {self.evidence.answered}",
            "" if self.differences else same,
            "no single parameter gives more queries the recorded order" if none else "",
        )
        return tuple(line for line in lines if line)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The measures; the queries that differ; the changes that would explain it."""
        differing = []
        for one in self.listed(self.order):
            query, stage = one.query, one.parting.stage if one.parting else None
            score = query.top_score if query.recorded else "no results"
            differing.append((query.qid, query.rbo, score, stage, one.cause.kind, one.cause.text or one.how))
        columns = ("query", "RBO", "top score", "parts at", "cause", "because")
        now, changes = self.explained or (None, ())
        rows = tuple(
            (path, str(was), str(value), f"{now.same_order} to {one.agreement.same_order}", one.agreement.rbo)
            for one in changes
            for path, was, value in one.changes
            if now is not None
        )
        would = ("parameter", "is", "would be", "same order", "RBO")
        return (
            self.measures,
            Table(columns, tuple(differing), counted(len(differing), "differing queries"), shown=self.shown),
            Table(would, rows, "Which single change would explain it", shown=MAX_EXPLANATIONS),
        )

    @property
    def measures(self) -> Table:
        """A row a measure: how many queries, the mean, its interval, and how far the system repeats itself."""
        fidelity, repeats = self.fidelity, self.repeated.estimates if self.repeated else {}
        rows: list[tuple[Any, ...]] = []
        for name, one in fidelity.estimates.items():
            interval = None if math.isnan(one.mean) else f"{one.low:.3f} to {one.high:.3f}"
            again = number(repeats[name].mean) if name in repeats else None
            rows.append((name.replace("_", " "), one.count, number(one.mean), interval, again))
        to = f"to {fidelity.precision:g}"
        if fidelity.score_difference is not None:
            same, of = fidelity.precise
            most = f"differ by {fidelity.score_difference:.1e} at most"
            rows.append((f"scores {to}", same, same / of, most, None))
        by_id = fidelity.counted("equal_scores"), fidelity.counted("equal_before_cut")
        for name, (same, of) in zip(("scores by id", "before the cut, by id"), by_id, strict=True):
            if of:
                rows.append((name, None, same / of, f"{same} of {of} {to}", None))
        return Table(("measure", "queries", "mean", "95 % interval", "repeats itself"), tuple(rows), self.title)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the config cannot express, and what could not be searched."""
        lost = (f"{qid} could not be searched and is left out" for qid in self.not_gathered)
        noted = [line for one in self.evidence.evidences.values() for line in mismatches_noted(one.notes)]
        absent = sorted({*noted})
        return tuple(f"warning: {line}" for line in (*self.setting.warnings, *absent, *lost))

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        fidelity, setting, repeated = self.fidelity, self.setting, self.repeated
        changes = [] if self.explained is None else self.explained[1]
        explanations = [
            {"parameter": path, "value": value, "was": was} | plain_fields(one.agreement, "same_order rbo")
            for one in changes
            for path, was, value in one.changes[:1]
        ]
        return {
            "answers": setting.recording.name,
            "form": setting.recording.form,
            "config": setting.config.name,
            "applied": dict(setting.applied),
            "warnings": list(setting.warnings),
            "queries": len(fidelity.queries),
            "not_gathered": list(self.not_gathered),
            "measures": _means(fidelity, "mean low high"),
            "score_difference": fidelity.score_difference,
            "same_scores": dict(zip(("queries", "of"), fidelity.precise, strict=True)),
            "equal_scores": dict(zip(("scores", "of"), fidelity.counted("equal_scores"), strict=True)),
            "equal_before_cut": dict(zip(("scores", "of"), fidelity.counted("equal_before_cut"), strict=True)),
            "precision": fidelity.precision,
            "given": setting.given,
            "lists": {"which": setting.which_lists, "recorded": dict(setting.list_map.sources)},
            "repeat": repeated and {"queries": len(repeated.queries), "measures": _means(repeated, "mean")},
            "left_out": [str(error) for error in setting.recording.errors],
            "differing": [one.to_json() for one in self.differences],
            **({} if self.explained is None else {"explanations": explanations}),
        }


def _means(fidelity: SetFidelity, names: str) -> dict[str, dict[str, float | None]]:
    """By measure the numbers of its estimate that are named, and its count."""
    return {
        measure: {name: number(getattr(one, name)) for name in names.split()} | {"count": one.count}
        for measure, one in fidelity.estimates.items()
    }


def by_setting(measured: Sequence[MeasuredFidelity]) -> Table:
    """A row a setting: how many queries, and its measures."""
    names = ("same_order", "up_to_ties", "same_scores", "same_set", "same_first", "overlap")
    rows = (
        (one.setting.name, len(one.fidelity.queries), *(number(one.fidelity.value(name)) for name in names))
        for one in measured
    )
    return Table(("answers", "queries", *(name.replace("_", " ") for name in names)), tuple(rows), "By setting")


def causes_counted(differences: Iterable[Difference]) -> list[tuple[str, int]]:
    """How many queries differ by each cause, most first; without one by the stage from which they do, or by a score alone."""
    counts: Counter[str] = Counter()
    for one in differences:
        unexplained = f"other, from {one.parting.stage}" if one.parting else "a score alone"
        counts[unexplained if one.cause.kind == "other" else one.cause.kind] += 1
    return counts.most_common()


def read_answers(path: Path) -> Recording:
    """The answers of a file: a log in an import format, or a recording for `read_recording`. Raises InputError."""
    name = formats.log_format(path)
    if name is None:
        return read_recording(path)
    parsed = formats.read(path, name)
    return Recording(
        str(path),
        name,
        parsed.answers,
        rounded=True,
        log=True,
        id_length=parsed.extra.get("id_length"),
        errors=parsed.errors,
        doubts=(*_unanswered(len(parsed.queries), len(parsed.answers)), *parsed.extra.get("signs", ())),
    )


def _unanswered(queries: int, answers: int) -> tuple[str, ...]:
    """The line about queries whose answer was not recorded, if there are any."""
    return (not_recorded(queries - answers, queries),) if answers < queries else ()


def recorded_sets(store: Store) -> dict[str, int]:
    """The query sets with recorded answers, external traces among them, by name with their number of answers."""
    return store.recorded_answers.sets() | traced_sets(store)


def traced_recording(traced: EvidenceSet, name: str) -> Recording:
    """The results and lists of external traces, or of explained answers, as a recording."""
    found = (answer_of(row, qid, one) for row, (qid, one) in enumerate(traced.evidences.items(), 1))
    answers = [one for one in found if one is not None]
    return Recording(name, TRACED_FORM, tuple(answers), doubts=_unanswered(len(traced.evidences), len(answers)))


def kept_recording(store: Store, name: str) -> Recording:
    """The answers that the store keeps for a query set, the failing ones first; of external traces the recorded results
    and lists. Raises StoreError for an unknown set, InputError for one without any."""
    store.query_sets.get(name)
    traced = read_traced(store, name)
    if traced is not None:
        return traced_recording(traced, name)
    answers = store.recorded_answers.read(name)
    if not answers:
        known = ", ".join(recorded_sets(store)) or "none"
        raise InputError(f"query set {name} has no recorded answers; sets that have some: {known}")
    unanswered = _unanswered(len(store.query_sets.queries(name)), len(answers))
    return Recording(name, STORED_FORM, tuple(answers), rounded=True, doubts=unanswered)


def ask_server(address: str, queries: Sequence[Query], progress: Progress = silent) -> Recording:
    """The present answers of a server, such as one of CEMS, to these queries. Failed queries are among the recording's
    errors. Raises InputError for an address of another system or without a key, SourceError if the server is
    unavailable, and what `progress` raises."""
    place = parse(address)
    ask = SOURCE_KINDS[place.kind].ask
    if ask is None:
        raise InputError(f"{place.plain}: it cannot be asked; sources that answer: {address_forms(askable())}")
    return ask(place, queries, progress)


def setting_for(
    recording: Recording,
    config: PipelineConfig,
    *,
    as_chosen: bool = False,
    name: str | None = None,
    which_lists: WhichLists = "own",
    chosen_lists: Mapping[str, str] | None = None,
    own_searches: bool = False,
    own_limit: bool = False,
    tolerance: float | None = None,
    depth: int = DEPTH,
) -> FidelitySetting:
    """The config for a recording: with the recording's settings and token budget, unless it stays `as_chosen`. The
    limit that the recording states was an argument of each search: it is used, unless the config is to keep its own
    (`own_limit`). `chosen_lists` names our list for a recorded one. Raises InputError as `list_map` does."""
    title = name or f"{Path(recording.name).stem}, {config.name}"
    warnings = list(recording.doubts)
    scores = [one.score for answer in recording.answers for one in answer.returned if one.score is not None]
    if len(scores) > len(recording.answers) and min(scores) == max(scores):  # so that their order is no ranking
        of = f" of {len(recording.answers)} queries"
        warnings.append(f"what ranked last: {equal_scores(len(scores), scores[0], of)}")
    if recording.mode not in (None, COMPUTED_MODE):
        warnings.insert(0, f"answered in mode {recording.mode}; this computes {COMPUTED_MODE}")
    applied: dict[str, str] = {}
    if not as_chosen:
        if recording.settings:
            applied = dict(recording.settings)
            text = "".join(f"CEMS_{key.upper()}='{_unquoted(value)}'\n" for key, value in recording.settings.items())
            reading = read_env(text, config, f"{Path(recording.name).name}: config")
            config = reading.config
            warnings += [_LINE.sub("", line) for line in reading.warnings]
        if recording.max_tokens is not None:
            config = with_values(config, {"assembly.max_tokens": recording.max_tokens}, recording.name)
            applied["max_tokens"] = str(recording.max_tokens)
    limit = stated_limit(recording)
    if limit is not None and not own_limit and limit != config.assembly.limit:
        config = with_values(config, {"assembly.limit": limit}, recording.name)
        applied["limit"] = str(limit)
    if recording.own_settings.get("insertion_order") == "created" and config.lists.fts5.rows == "store":
        config = with_values(config, {"lists.fts5.rows": "created"}, recording.name)
        applied["insertion_order"] = "created"
    if recording.own_settings.get("dated") == "False" and preset_behind(config) == "engram_search":
        # engram's isEvergreen: of notes whose file name does not begin with a date no score falls.
        config = with_values(config, {"adjust.time_decay.mode": "none"}, recording.name)
        applied["dated"] = "False"
    mapping = list_map(recording, config, chosen_lists)
    if which_lists == "recorded":
        none = () if mapping.sources else ("the recording has no lists: they are ours",)
        warnings += mapping.doubts or none
    said = tuple(applied.items()), tuple(warnings)
    return FidelitySetting(title, recording, config, *said, which_lists, mapping, own_searches, tolerance, depth)


def stated_limit(recording: Recording) -> int | None:
    """The number of results that the recording says was asked for; None if it says nothing."""
    stated = (recording.own_settings.get(name, "") for name in ("limit", "top_k"))
    return next((int(text) for text in stated if text.isdecimal() and int(text) > 0), None)


def _unquoted(text: str) -> str:
    """A value between single quotes of a `.env`: what would end them, or the line, is none of a setting's."""
    return "".join(character for character in text if character.isprintable() and character not in "'\\")


def asked_queries(
    recording: Recording,
    known: Mapping[str, Query],
    as_of: datetime | None = None,
    query: str | None = None,
    setting: FidelitySetting | None = None,
) -> tuple[Query, ...]:
    """The query of each answer: from the recording, else the query of the store with the answer's qid. `query` is the
    text for a single answer without one. With a setting, what the recording says was searched is taken as given, unless
    the setting has `own_searches`. Raises InputError for an answer whose query is unknown."""
    found = []
    for answer in recording.answers:
        single = len(recording.answers) == 1
        named = query if single and answer.query is None else None
        stored = known.get(named or answer.qid)
        text = answer.query or (stored.query if stored is not None else named)
        if text is None:
            hint = "name it with --query TEXT" if single else f"the store has no query {ascii(answer.qid)[:60]}"
            raise InputError(f"{recording.name}:{answer.row}: query: unknown; {hint}")
        project = stored.project if stored is not None and answer.query is None else None
        moment = as_of or answer.asked_at or recording.answered_at or (stored.as_of if stored is not None else None)
        asked = Query(answer.qid, text, answer.project or project, moment)
        if setting is not None and not setting.own_searches:
            wordings = list(answer.wordings)
            if asked.query in wordings:
                wordings.remove(asked.query)  # once: a system that was given a wording twice searched it twice
            engines = _engine_queries(answer, setting.config)
            asked = replace(asked, searched=answer.searched, engine_queries=engines, wordings=tuple(wordings))
        found.append(asked)
    return tuple(found)


def _engine_queries(answer: RecordedAnswer, config: PipelineConfig) -> dict[str, str]:
    """What engines got that the config has too: a query in the words of another engine means nothing to it."""
    return {
        name: text
        for name, text in answer.engine_queries.items()
        if name in WORD_SOURCES and config.get(f"lists.{name}.enabled")
    }


def require_usable(recording: Recording) -> None:
    """Raises InputError for a recording without a usable answer, with its first bad row; `bad_rows` says what else was left out."""
    if not recording.answers:
        why = recording.errors[:1] or recording.doubts[:1]
        raise InputError(f"{recording.name}: there are no answers" + "".join(f": {line}" for line in why))


def bad_rows(recording: Recording) -> str | None:
    """One line about the rows that could not be used, with the first of them; None if all could."""
    if not recording.errors:
        return None
    count = len(recording.errors)
    more = f" ({counted(count - 1, 'more such rows')})" if count > 1 else ""
    return f"left out: {recording.errors[0]}{more}"


def selection_for(setting: FidelitySetting, queries: Sequence[Query]) -> QuerySelection:
    """The query selection of a recording."""
    return QuerySelection(f"fidelity {Path(setting.recording.name).stem}", tuple(queries))


def measure_fidelity(
    setting: FidelitySetting,
    queries: Sequence[Query],
    resources: Resources,
    progress: Progress = silent,
    lists: Mapping[str, Lists] | None = None,
    repeat: Recording | None = None,
) -> MeasuredFidelity:
    """Gather the queries of a recording, or resume, and compare the answers query by query; `lists` are those of `lexical_lists`.

    `repeat` is a second recording of the same system and queries: how far it agrees with the first is as far as anything can.

    Raises InputError if no recorded memory is in the store, and as gathering does; a `Cancelled` of `progress` passes through, and
    gathered queries are kept.
    """
    productions = productions_in(resources, setting.recording)
    evidence = ensure_evidence(setting.searched, selection_for(setting, queries), (), resources, progress)
    measured = compared(setting, queries, productions, evidence, resources, progress, lists)
    return measured if repeat is None else replace(measured, repeated=repeat_fidelity(setting, repeat, resources))


def repeat_fidelity(setting: FidelitySetting, repeat: Recording, resources: Resources) -> SetFidelity:
    """The recording of a setting beside a second one, query by query. Raises InputError if they have no query in common."""
    first, second = productions_in(resources, setting.recording), productions_in(resources, repeat)
    precision = setting.tolerance or precision_of(setting.recording)
    rows = []
    for answer in setting.recording.answers:
        if (other := second.get(answer.qid)) is not None:
            one, text = first[answer.qid], answer.query or ""
            row = QueryFidelity(answer.qid, text, one.recorded, other.recorded, one.scores, other.scores)
            rows.append(replace(row, precision=precision, before_cut=dict(answer.scored), depth=setting.depth))
    if not rows:
        raise InputError(f"{repeat.name}: none of its queries is in {setting.recording.name}, by qid")
    return SetFidelity(tuple(rows))


def productions_in(resources: Resources, recording: Recording) -> dict[str, Production]:
    """Every answer with the store's memories. Raises InputError if the store has none of them."""
    answers = resources.store.recorded_answers.resolved(recording.answers, recording.id_length)
    found = productions_of(answers, resources.store)
    if not any(one.order for one in found.values()) and any(one.unknown for one in found.values()):
        raise InputError(
            f"{recording.name}: none of its memories is in the store {resources.store.path}, by id or by text; "
            "--data FOLDER takes the memories of a folder"
        )
    return found


def compared(
    setting: FidelitySetting,
    queries: Sequence[Query],
    productions: Mapping[str, Production],
    evidence: EvidenceSet,
    resources: Resources,
    progress: Progress = silent,
    lists: Mapping[str, Lists] | None = None,
) -> MeasuredFidelity:
    """Compare the recording with the replay of its evidence, all queries as one batch. Raises what scoring raises, for
    memories that only the recorded lists bring to a reranker."""
    searched = setting.searched
    answers = {answer.qid: answer for answer in setting.recording.answers}
    gathered = [query for query in queries if query.qid in evidence.evidences]
    measured, settled = [], []
    for i, query in enumerate(gathered):
        progress("comparing answers", i, len(gathered))
        measured.append(as_recorded(evidence.evidences[query.qid], answers[query.qid], setting, resources))
        settled.append(settled_as_recorded(measured[-1], answers[query.qid], setting, resources))
    limit = limit_of(setting.recording)
    ours = _replayed(measured, searched, limit)
    changed = [i for i, (one, other) in enumerate(zip(measured, settled, strict=True)) if other is not one]
    resettled = dict(zip(changed, _replayed([settled[i] for i in changed], searched, limit), strict=True))
    rows, differences = [], []
    for i, query in enumerate(gathered):
        answer = answers[query.qid]
        production, other = productions[query.qid], resettled.get(i)
        row = QueryFidelity(
            query.qid,
            query.query,
            production.recorded,
            tuple(ours[i][0]),
            production.scores,
            ours[i][0],
            tuple(production.strangers.values()),
            setting.tolerance or precision_of(setting.recording),
            other and other[0],
            dict(answer.scored),
            (other or ours[i])[1],
            setting.depth,
        )
        rows.append(row)
        if not row.same:
            trace = replay(measured[i], searched)
            parting = first_divergence(trace, row.recorded, row.ours)
            theirs = _lists_by_source(setting, answer) or (lists or {}).get(query.query, {})
            cause = cause_of(row, trace, theirs)
            if cause.kind == "other":
                cause = _user_filter(row, measured[i], resources) or cause
            differences.append(Difference(row, parting, cause))
    progress("comparing answers", len(gathered), len(gathered))
    used = {query.qid: found for query, found in zip(gathered, measured, strict=True)}
    found = MeasuredFidelity(
        setting,
        SetFidelity(tuple(rows)),
        tuple(differences),
        {query.qid: query for query in queries},
        replace(evidence, evidences={**evidence.evidences, **used}),
        tuple(query.qid for query in queries if query.qid not in evidence.evidences),
    )
    return replace(found, differences=tuple(found.listed()))


DEFAULT_ROWS = 5
"""What mem0's search of a vector store asks for unless told otherwise."""


def _user_filter(row: QueryFidelity, evidence: Evidence, resources: Resources) -> Cause | None:
    """The cause where a source filters by user after its search: it is asked for as many results as were recorded, and
    by default. None if it does not, cannot be asked, or has other results than the recorded ones."""
    engine = resources.engine()
    if engine is None or not set(row.recorded) < set(row.ours):
        return None
    try:
        if not any(one.name == "filter" and one.value == "after" for one in engine.info().settings):
            return None
        vector = resources.embedder.encode_query(evidence.query)
        for rows in dict.fromkeys((len(row.recorded) or DEFAULT_ROWS, DEFAULT_ROWS)):
            found = engine.search(evidence.query, vector, {"vector": rows}, None)["vector"]
            if found.notes and {key for key, *_ in found.hits} == set(row.recorded):
                return Cause("user filter", f"asked for {rows}, {found.notes[0]}")
    except SourceError:
        return None
    return None


def as_recorded(evidence: Evidence, answer: RecordedAnswer, setting: FidelitySetting, resources: Resources) -> Evidence:
    """The evidence with what the recording gives of its lists, and the model scores that it needs then."""
    found = evidence
    if setting.which_lists != "own":
        found = with_lists(found, answer, setting.list_map, setting.which_lists, setting.searched, resources)
    if answer.by_vector_alone and not setting.own_searches:
        found = without_words(found)  # last, as a list that was not searched is not an empty one
    reranks = not RERANK.is_off(setting.searched)
    if answer.corrected and not setting.own_searches and reranks and found.corrected != answer.corrected:
        # Rerankers read the query in another form: the scores of the form before are not theirs.
        understood = {**found.notes.get("query", {}), "corrected": answer.corrected}
        found = replace(found, notes={**found.notes, "query": understood}, model_scores={})
    return _scored(found, evidence, setting, resources)


def settled_as_recorded(
    evidence: Evidence, answer: RecordedAnswer, setting: FidelitySetting, resources: Resources
) -> Evidence:
    """The evidence with equal scores of our lists in the recorded order; the same object where that changes nothing."""
    if setting.which_lists != "own" or not answer.lists:
        return evidence
    found = with_lists(evidence, answer, setting.list_map, "ties", setting.searched, resources)
    return _scored(found, evidence, setting, resources)


def _scored(found: Evidence, before: Evidence, setting: FidelitySetting, resources: Resources) -> Evidence:
    """Other lists bring other memories to a reranker, whose scores are then missing. No judge is asked: it moves nothing."""
    if found is before or RERANK.is_off(setting.searched):
        return found
    return gather_scores(found, setting.searched, resources, judge="decisive")


Scores = dict[str, float]


def _replayed(evidences: Sequence[Evidence], config: PipelineConfig, limit: int | None) -> list[tuple[Scores, Scores]]:
    """Of each evidence our results with their scores, cut to the limit, and the scores before the last cut; replayed as one batch."""
    if not evidences:
        return []
    table = to_table(evidences)
    stages = run(table, config)
    cut = stages.of(ASSEMBLY)
    # A reranker of what is returned reads what the cut has left: the scores before both are those that it gets.
    before = cut.before if RERANK.is_off(config) else stages.of(RERANK).before

    def scores(ranking: Ranking, q: int, most: int | None = None) -> Scores:
        return {table.ids[q][int(c)]: float(ranking.score[q, int(c)]) for c in list(ranking.order(q))[:most]}

    return [(scores(cut.after, q, limit), scores(before, q)) for q in range(len(evidences))]


def _lists_by_source(setting: FidelitySetting, answer: RecordedAnswer) -> Lists:
    """The recorded lists by the names of ours, that of the query itself last; none where they are the evidence's own."""
    if setting.which_lists == "recorded":
        return {}
    sources = setting.list_map.sources
    if not sources:
        return answer.lists
    return {source: answer.lists[name][:1] for name, source in sources.items() if answer.lists.get(name)}


def lexical_lists(recordings: Sequence[Recording]) -> dict[str, Lists]:
    """The lexical list of each query text in any of the recordings: it depends on memories and query text only. So
    recordings of one system under several settings share the lists of the one that has them."""
    found: dict[str, Lists] = {}
    for recording in recordings:
        if recording.system is not None and not recording.system.startswith("CEMS"):
            continue  # of another system each tool has its words
        for answer in recording.answers:
            if answer.query is not None and "lexical" in answer.lists:
                found.setdefault(answer.query, {"lexical": answer.lists["lexical"]})
    return found


def limit_of(recording: Recording) -> int | None:
    """The limit of our results: none for a recording; otherwise the longest answer of the file, which does not state a limit."""
    longest = max((len(answer.returned) for answer in recording.answers), default=0)
    return None if recording.whole else longest or None


def precision_of(recording: Recording) -> float:
    """Tolerance of equal scores: half a unit of the last digit in the recording, if its scores are rounded."""
    scores = [row.score for answer in recording.answers for row in answer.returned if row.score is not None]
    return EXACT_PRECISION + (half_unit(scores) if recording.rounded and scores else 0.0)


ORDERS: Mapping[str, Callable[[QueryFidelity], float]] = {
    "departing": lambda query: 0.0,
    "lowest": lambda query: math.inf if query.top_score is None else query.top_score,
}
"""Orders of differing queries, after the empty answers: the largest departure from the recorded answer first, or the lowest best recorded
score first."""


def explained(
    measured: MeasuredFidelity, progress: Progress = silent
) -> tuple[SetAgreement, list[Explanation[SetAgreement]]]:
    """The present agreement of the set, and the single parameter changes that give more queries the recorded order, best first."""
    rows = measured.fidelity.queries
    evidences = [measured.evidence.evidences[row.qid] for row in rows]
    limit = limit_of(measured.setting.recording)
    replays = SetReplays([row.recorded for row in rows], evidences, [limit] * len(rows))
    config = measured.setting.searched
    return replays.agreement(config), single_changes(replays, config, progress)


@contextmanager
def store_of_folder(
    folder: Path, settings: Settings, progress: Progress = silent, chunk_rule: str = CHUNK_RULE, *, title: bool = True
) -> Iterator[tuple[Resources, Mapping[str, Query]]]:
    """A temporary store with the memories and relations of a folder, cut by a chunking rule, with their `title` before
    the content or without, and the folder's queries by qid. The store is deleted afterwards. Raises InputError for a
    folder without memories, and for the first invalid row."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; --data names one with memories, relations and queries")
    inputs = formats.read_path(folder)
    for parsed in inputs:
        if parsed.errors:
            raise InputError(str(parsed.errors[0]))
    if not any(parsed.memories for parsed in inputs):
        raise InputError(f"{folder}: no file with memories in it")
    with tempfile.TemporaryDirectory(prefix="cems-fidelity-") as place:
        resources = open_resources(settings.model_copy(update={"store": Path(place) / "store"}))
        try:
            resources.store.chunks.choose(chunk_rule)
            resources.store.texts.choose(replace(resources.store.texts.rule, title=title))
            for parsed in inputs:
                resources.store.add(parsed, progress)
            resources.refresh(progress)
            yield resources, {query.qid: query for parsed in inputs for query in parsed.queries}
        finally:
            resources.close()
