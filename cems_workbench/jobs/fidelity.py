"""Fidelity job: the recorded answers of a real system compared with the workbench's, for every query of a recording, under a config.

    read a recording -> lay its settings over the config -> gather -> replay -> compare -> first divergence and its cause

The measured config is the chosen one with the settings of the recording, as a `.env` of CEMS would set them (`config.forms.env_form`), its
token budget, and its moment as the moment of every query. Evidence is gathered as for any query set (`jobs.query_set_evidence`), and an
interrupted job resumes.

The store holds the memories of the system; from files alone it is a temporary one, `store_of_folder`.
"""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from cems_workbench import formats
from cems_workbench.analysis.fidelity.answer import Production, RecordedResult, half_unit, match_results
from cems_workbench.analysis.fidelity.causes import Cause, Lists, cause_of
from cems_workbench.analysis.fidelity.divergence import Divergence, first_divergence
from cems_workbench.analysis.fidelity.explain import Explanation, SetAgreement, SetReplays, single_changes
from cems_workbench.analysis.fidelity.measures import EXACT_PRECISION, QueryFidelity, SetFidelity
from cems_workbench.analysis.why.side_effects import rbo
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.config.forms.env_form import read_env
from cems_workbench.errors import InputError
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.formats.recorded_answers import Recording, read_recording
from cems_workbench.jobs.factory import open_resources
from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, request_for
from cems_workbench.pipeline import Evidence, Trace, replay
from cems_workbench.pipeline.gather import Request
from cems_workbench.pipeline.replay import run
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.stages import ASSEMBLY
from cems_workbench.pipeline.tabulate import to_table
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Memory, Query, RecordedAnswer, Returned
from cems_workbench.settings import Settings
from cems_workbench.sources.address import parse
from cems_workbench.sources.cems_api import CemsApi
from cems_workbench.store import Store

STORED_FORM = "query set"
"""The format of answers that the store keeps."""
BASE_PRESET = "cems_head"
"""The preset of CEMS with its defaults, over which the settings of a recording are laid."""
COMPUTED_MODE = "vector"
"""The mode of CEMS that the pipeline computes; the others call a language model."""
CHUNK_RULE = "cems"
"""The chunking rule of a temporary store."""
_LINE = re.compile(r"line \d+: ")


@dataclass(frozen=True, slots=True)
class FidelitySetting:
    """One recording and the config it is measured under: with the recording's own settings, or as chosen.

    `warnings` are the settings of the recording that the config cannot express.
    """

    name: str
    recording: Recording
    config: PipelineConfig
    applied: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def searched(self) -> PipelineConfig:
        """The config that is gathered and replayed: without the judge, which is slow and changes no result."""
        return with_values(self.config, {"judge.backend": "none"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A query that differs: where its trace parts from the recorded order, and the cause as far as it can be shown.

    `parting` is None where the order is the same and a score is not.
    """

    query: QueryFidelity
    parting: Divergence | None
    cause: Cause

    @property
    def how(self) -> str:
        """Description of the difference."""
        if self.parting is not None:
            return f"{self.parting.memory_id}: {self.parting.reason}"
        return f"same order, a score differs by {self.query.score_difference or 0:.1e}"


@dataclass(frozen=True, eq=False)
class MeasuredFidelity:
    """The result of one setting."""

    setting: FidelitySetting
    fidelity: SetFidelity
    differences: tuple[Difference, ...]
    queries: Mapping[str, Query]
    evidence: EvidenceSet
    not_gathered: tuple[str, ...] = ()

    def listed(self, order: str = "departing") -> list[Difference]:
        """The queries that differ, in one of ORDERS."""
        return sorted(self.differences, key=ORDERS[order])

    def request(self, qid: str) -> Request:
        """The request of a query, as Inspect makes it."""
        return request_for(self.queries[qid], self.evidence.header.moment)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        fidelity = self.fidelity
        return {
            "answers": self.setting.recording.name,
            "form": self.setting.recording.form,
            "config": self.setting.config.name,
            "applied": dict(self.setting.applied),
            "warnings": list(self.setting.warnings),
            "queries": len(fidelity.queries),
            "not_gathered": list(self.not_gathered),
            "measures": {
                name: {"mean": one.mean, "low": one.low, "high": one.high, "count": one.count}
                for name, one in fidelity.estimates.items()
            },
            "score_difference": fidelity.score_difference,
            "same_scores": dict(zip(("queries", "of"), fidelity.precise, strict=True)),
            "differing": [_difference_json(one) for one in self.differences],
        }


def _difference_json(one: Difference) -> dict[str, Any]:
    query = one.query
    return {
        "qid": query.qid,
        "query": query.query,
        "recorded": list(query.recorded),
        "top_score": query.top_score,
        "ours": list(query.ours),
        "same_order": query.same_order,
        "score_difference": query.score_difference,
        "overlap": query.overlap,
        "rbo": query.rbo,
        "stage": one.parting.stage if one.parting else None,
        "memory": one.parting.memory_id if one.parting else None,
        "how": one.parting.how if one.parting else None,
        "reason": one.parting.reason if one.parting else None,
        "cause": one.cause.kind,
        "because": one.cause.text,
    }


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
    )


def kept_recording(store: Store, name: str) -> Recording:
    """The answers that the store keeps for a query set, the failing ones first. Raises StoreError for an unknown set, InputError for one
    without any."""
    store.query_sets.get(name)
    answers = store.recorded_answers.read(name)
    if not answers:
        known = ", ".join(store.recorded_answers.sets()) or "none"
        raise InputError(f"query set {name} has no recorded answers; sets that have some: {known}")
    return Recording(name, STORED_FORM, tuple(answers), rounded=True)


def ask_server(address: str, queries: Sequence[Query], progress: Progress = silent) -> Recording:
    """The present answers of the CEMS server at `address` to these queries. Failed queries are among the recording's errors.

    Raises InputError for an address of another system or without a key, SourceError if the server is unavailable, and what `progress`
    raises.
    """
    place = parse(address)
    if place.kind != "cems":
        raise InputError(f"{place.plain}: answers come from the REST API of a CEMS server, such as https://HOST:8765")
    with CemsApi(place) as server:
        return server.recording(list(server.answers(queries, progress)))


def setting_for(
    recording: Recording, config: PipelineConfig, *, as_chosen: bool = False, name: str | None = None
) -> FidelitySetting:
    """The config for a recording: with the recording's settings and token budget, unless it stays `as_chosen`."""
    title = name or f"{Path(recording.name).stem}, {config.name}"
    warnings = (
        []
        if recording.mode in (None, COMPUTED_MODE)
        else [f"answered in mode {recording.mode}; this computes {COMPUTED_MODE}"]
    )
    if as_chosen:
        return FidelitySetting(title, recording, config, (), tuple(warnings))
    applied = dict(recording.settings)
    if recording.settings:
        text = "".join(f"CEMS_{key.upper()}='{_unquoted(value)}'\n" for key, value in recording.settings.items())
        reading = read_env(text, config, f"{Path(recording.name).name}: config")
        config = reading.config
        warnings += [_LINE.sub("", line) for line in reading.warnings]
    if recording.max_tokens is not None:
        config = with_values(config, {"assembly.max_tokens": recording.max_tokens}, recording.name)
        applied["max_tokens"] = str(recording.max_tokens)
    return FidelitySetting(title, recording, config, tuple(applied.items()), tuple(warnings))


def _unquoted(text: str) -> str:
    """A value between single quotes of a `.env`: what would end them, or the line, is none of a setting's."""
    return "".join(character for character in text if character.isprintable() and character not in "'\\")


def asked_queries(
    recording: Recording, known: Mapping[str, Query], as_of: datetime | None = None, query: str | None = None
) -> tuple[Query, ...]:
    """The query of each answer: from the recording, else the query of the store with the answer's qid.

    `query` is the text for a single answer without one. Raises InputError for an answer whose query is unknown.
    """
    return tuple(_asked(answer, recording, known, as_of, query) for answer in recording.answers)


def _asked(
    answer: RecordedAnswer, recording: Recording, known: Mapping[str, Query], as_of: datetime | None, query: str | None
) -> Query:
    stored = known.get(answer.qid)
    text, project = answer.query, answer.project
    if text is None and query is not None and len(recording.answers) == 1:
        stored = known.get(query)
        text = stored.query if stored is not None else query
    if text is None and stored is not None:
        text = stored.query
    if text is None:
        single = len(recording.answers) == 1
        hint = "name it with --query TEXT" if single else f"the store has no query {ascii(answer.qid)[:60]}"
        raise InputError(f"{recording.name}:{answer.row}: query: unknown; {hint}")
    if project is None and answer.query is None and stored is not None:
        project = stored.project
    moment = as_of or answer.asked_at or recording.answered_at or (stored.as_of if stored is not None else None)
    return Query(answer.qid, text, project, moment)


def require_usable(recording: Recording) -> None:
    """Raises InputError with the first invalid row: a measurement covers all answers."""
    if recording.errors:
        more = f" (and {len(recording.errors) - 1} more rows)" if len(recording.errors) > 1 else ""
        hint = "; import the log, which keeps the good rows, and name its query set" if recording.log else ""
        raise InputError(f"{recording.errors[0]}{more}{hint}")
    if not recording.answers:
        raise InputError(f"{recording.name}: there are no answers")


def selection_for(setting: FidelitySetting, queries: Sequence[Query]) -> QuerySelection:
    """The query selection of a recording."""
    return QuerySelection(f"fidelity {Path(setting.recording.name).stem}", tuple(queries))


def measure_fidelity(
    setting: FidelitySetting,
    queries: Sequence[Query],
    resources: Resources,
    progress: Progress = silent,
    lists: Mapping[str, Lists] | None = None,
) -> MeasuredFidelity:
    """Gather the queries of a recording, or resume, and compare the answers query by query; `lists` are those of `lexical_lists`.

    Raises InputError if no recorded memory is in the store, and as gathering does; a `Cancelled` of `progress` passes through, and
    gathered queries are kept.
    """
    productions = productions_in(resources, setting.recording)
    evidence = ensure_evidence(setting.searched, selection_for(setting, queries), (), resources, progress)
    return compared(setting, queries, productions, evidence, progress, lists)


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


def productions_of(answers: Sequence[RecordedAnswer], store: Store) -> dict[str, Production]:
    """Answers with the store's memories, by qid. All memories are read only if one must be found by its text."""
    known = store.memories.read({row.memory_id for answer in answers for row in answer.returned if row.memory_id})
    every = cache(store.memories.read)

    def find(ids: Iterable[str] | None) -> Mapping[str, Memory]:
        return every() if ids is None else {key: known[key] for key in ids if key in known}

    def answered(row: Returned) -> RecordedResult:
        return RecordedResult(row.memory_id, row.content, row.score)

    return {answer.qid: match_results([answered(row) for row in answer.returned], find) for answer in answers}


def compared(
    setting: FidelitySetting,
    queries: Sequence[Query],
    productions: Mapping[str, Production],
    evidence: EvidenceSet,
    progress: Progress = silent,
    lists: Mapping[str, Lists] | None = None,
) -> MeasuredFidelity:
    """Compare the recording with the replay of its evidence."""
    limit, searched = limit_of(setting.recording), setting.searched
    precision = precision_of(setting.recording)
    answers = {answer.qid: answer for answer in setting.recording.answers}
    rows, differences = [], []
    gathered = [query for query in queries if query.qid in evidence.evidences]
    for i, query in enumerate(gathered):
        progress("comparing answers", i, len(gathered))
        trace = replay(evidence.evidences[query.qid], searched)
        row = _beside(query, productions[query.qid], trace, limit, precision)
        rows.append(row)
        if not row.same:
            found = first_divergence(trace, row.recorded, row.ours)
            differences.append(
                Difference(
                    row, found, cause_of(row, trace, answers[query.qid].lists or (lists or {}).get(query.query, {}))
                )
            )
    progress("comparing answers", len(gathered), len(gathered))
    differences.sort(key=_departing)
    missing = tuple(query.qid for query in queries if query.qid not in evidence.evidences)
    by_qid = {query.qid: query for query in queries}
    return MeasuredFidelity(setting, SetFidelity(tuple(rows)), tuple(differences), by_qid, evidence, missing)


def lexical_lists(recordings: Sequence[Recording]) -> dict[str, Lists]:
    """The lexical list of each query text in any of the recordings: it depends on memories and query text only.

    So recordings of one system under several settings share the lists of the one that has them.
    """
    found: dict[str, Lists] = {}
    for recording in recordings:
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
    return (
        max(EXACT_PRECISION, half_unit(scores) + EXACT_PRECISION) if recording.rounded and scores else EXACT_PRECISION
    )


def _departing(one: Difference) -> tuple[bool, float]:
    return bool(one.query.recorded), round(one.query.rbo, 9)


def _lowest(one: Difference) -> tuple[bool, float, float]:
    top = one.query.top_score
    return bool(one.query.recorded), math.inf if top is None else top, round(one.query.rbo, 9)


def nearness(
    recording: Recording, productions: Mapping[str, Production], evidences: Sequence[Evidence], config: PipelineConfig
) -> dict[str, float]:
    """Rank-biased overlap of each recorded answer with our results under a config, by qid, as in `compared`.

    All queries are replayed as one batch; `evidences` has that of each answer, in order.
    """
    if not recording.answers:
        return {}
    table = to_table(evidences)
    results = run(table, config).of(ASSEMBLY).after
    limit = limit_of(recording)
    return {
        answer.qid: rbo(productions[answer.qid].recorded, [table.ids[q][int(c)] for c in results.order(q)][:limit])
        for q, answer in enumerate(recording.answers)
    }


def failing_first(answers: Sequence[RecordedAnswer], near: Mapping[str, float]) -> list[RecordedAnswer]:
    """The answers, empty ones first, then by least overlap with ours, ties by lowest best score."""

    def key(answer: RecordedAnswer) -> tuple[bool, float, float]:
        top = answer.top_score
        return bool(answer.returned), round(near[answer.qid], 9), math.inf if top is None else top

    return sorted(answers, key=key)


ORDERS: Mapping[str, Callable[[Difference], tuple[float, ...]]] = {"departing": _departing, "lowest": _lowest}
"""Orders of differing queries, after the empty answers: the largest departure from the recorded answer first, or the lowest best recorded
score first."""


def _beside(query: Query, production: Production, trace: Trace, limit: int | None, precision: float) -> QueryFidelity:
    results = trace.results[:limit]
    return QueryFidelity(
        query.qid,
        query.query,
        production.recorded,
        tuple(result.memory_id for result in results),
        production.scores,
        {result.memory_id: result.score for result in results},
        tuple(production.strangers.values()),
        precision,
    )


def explained(
    measured: MeasuredFidelity, progress: Progress = silent
) -> tuple[SetAgreement, list[Explanation[SetAgreement]]]:
    """The present agreement of the set, and the single parameter changes that give more queries the recorded order, best first."""
    gathered = [row for row in measured.fidelity.queries if row.qid in measured.evidence.evidences]
    evidences: list[Evidence] = [measured.evidence.evidences[row.qid] for row in gathered]
    limit = limit_of(measured.setting.recording)
    replays = SetReplays([row.recorded for row in gathered], evidences, [limit] * len(gathered))
    config = measured.setting.searched
    return replays.agreement(config), single_changes(replays, config, progress)


@contextmanager
def store_of_folder(
    folder: Path, settings: Settings, progress: Progress = silent
) -> Iterator[tuple[Resources, Mapping[str, Query]]]:
    """A temporary store with the memories and relations of a folder, imported as CEMS stores them, and the folder's queries by qid.

    The store is deleted afterwards. Raises InputError for a folder without memories, and for the first invalid row.
    """
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
            resources.store.chunks.choose(CHUNK_RULE)
            for parsed in inputs:
                resources.store.add(parsed, progress)
            resources.refresh(progress)
            yield resources, {query.qid: query for parsed in inputs for query in parsed.queries}
        finally:
            resources.close()
