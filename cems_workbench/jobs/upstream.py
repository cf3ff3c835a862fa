"""What a fault of a program costs on the judged queries of a store, before its mend ships: `what-if --upstream`.

The faults are data beside the presets (`config/presets/upstream.json`): of which presets, where and when it was seen, what it does, and the
changes of a config as the program is and as it is mended. In these `limit` and `2 limit` stand for the config's own result limit.

What the program found is replayed where it is known (`Found`): the lists of a recording, those of a traced query set of the store, or
explanations. Both sides then have the program's own lists, and only a list that it does not have, such as one that the mend adds, is the
store's. Otherwise all lists are the store's, and the forecast is called a guess.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from cems_workbench import extensions
from cems_workbench.config import PipelineConfig, portable_yaml, with_values
from cems_workbench.config.forms.targets import preset_behind
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.assertions import Asserted
from cems_workbench.evaluation.comparison import compare
from cems_workbench.evaluation.evidence_file import EvidenceSet, Header
from cems_workbench.evaluation.metrics import standard_measures
from cems_workbench.jobs import evaluation as evaluating
from cems_workbench.jobs.catalogue import named
from cems_workbench.jobs.query_set_evidence import ensure_evidence, selected
from cems_workbench.jobs.regression import Regression, got_worse
from cems_workbench.jobs.scoring import read_again, score_evidence
from cems_workbench.jobs.traces import read_traced
from cems_workbench.pipeline import Evidence
from cems_workbench.pipeline.explained import explained, explained_config, read_explanations
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Query, RowError

FILE = Path(__file__).parents[1] / "config" / "presets" / "upstream.json"
MEASURE = "nDCG@10"
MET = 0.9
"""The share of recorded answers that the config as it is must give: of fewer, the recording does not show the fault as described."""
GUESS = "a guess: nothing is recorded of the program (--recorded FILE), so that the lists are the store's own"
SHOWN = 10


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of a program; the fields are those of the file. `basis` says what was run to know that the forecast holds."""

    id: str
    presets: Sequence[str]
    url: str
    seen: str
    state: str
    what: str
    as_it_is: Mapping[str, Any]
    as_mended: Mapping[str, Any]
    basis: str
    both: Mapping[str, Any] = field(default_factory=dict)

    def configs(self, config: PipelineConfig) -> list[PipelineConfig]:
        """The config as the program is, and as it is mended."""
        limit = config.assembly.limit
        depths = {"limit": limit, "2 limit": None if limit is None else 2 * limit}
        sides = {f"{self.id} as it is": self.as_it_is, f"{self.id} mended": self.as_mended}
        return [
            named(
                name,
                with_values(
                    config,
                    {
                        key: depths.get(value, value) if isinstance(value, str) else value
                        for key, value in changes.items()
                    },
                ),
            )
            for name, changes in ((name, {**self.both, **changes}) for name, changes in sides.items())
        ]


@cache
def faults() -> tuple[Fault, ...]:
    """Every known fault."""
    return tuple(Fault(**values) for values in json.loads(FILE.read_text("utf-8")))


def faults_of(preset: str | None) -> tuple[Fault, ...]:
    """Those of the program of a preset."""
    return tuple(fault for fault in faults() if preset in fault.presets)


def fault_named(name: str, config: PipelineConfig) -> Fault:
    """The fault `name` of the config's program. Raises InputError for another, with those that there are."""
    found = next((fault for fault in faults_of(preset_behind(config)) if fault.id == name), None)
    if found is not None:
        return found
    every = "; ".join(f"{fault.id} ({', '.join(fault.presets)})" for fault in faults())
    raise InputError(f"--upstream {name[:60]}: no known fault of {config.name}; known are {every}")


@dataclass(frozen=True, slots=True)
class Found:
    """What a program found for queries of the store.

    `config` is the program's with the settings that are known of it, `answers` have by qid what it returned, best first, `said` are lines
    about whose lists are used. `evidence` is that of a side, with the lists as the program as it is (the second config) gave them.
    """

    config: PipelineConfig
    answers: Mapping[str, Sequence[str]]
    said: tuple[str, ...]
    evidence: Callable[[PipelineConfig, PipelineConfig, Progress], EvidenceSet]


@dataclass(frozen=True, slots=True)
class RecordedLists:
    """Reads what a program found for some queries: in the recording of a path, or in the query set of a name. None where that has no lists.
    Raises InputError for a file that is no recording."""

    name: str
    read: Callable[[Path | str, Sequence[Query], PipelineConfig, Resources], Found | None]


RECORDED = extensions.Registry(extensions.RECORDINGS, RecordedLists)


def recorded_in(
    where: Path | str, queries: Sequence[Query], config: PipelineConfig, resources: Resources
) -> Found | None:
    """What a program found for some queries: in a file, or in a query set, None where that has no recorded lists. Raises InputError for a
    file without lists of one of the queries."""
    kept: Mapping[str, Evidence] = {}
    if isinstance(where, Path):
        kept = _explanations(where, queries)
    elif (traced := read_traced(resources.store, where, queries)) is not None and not traced.external:
        kept = traced.evidences
    if kept:
        return _explained(where, kept, queries, resources)
    for reader in RECORDED.values():
        if (read := reader.read(where, queries, config, resources)) is not None:
            return read
    if isinstance(where, Path):
        raise InputError(f"{where}: it has no lists of the program; record them, or leave --recorded out")
    return None


def _explanations(path: Path, queries: Sequence[Query]) -> dict[str, Evidence]:
    """The explanations of some queries by qid; none for a file without explanations."""
    asked: dict[str, list[Query]] = {}
    for query in queries:
        asked.setdefault(query.query, []).append(query)
    kept: dict[str, Evidence] = {}
    errors: list[RowError] = []
    seen = 0
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as text:
            for evidence in read_explanations(text, str(path), errors):
                seen += 1
                of = asked.get(evidence.query, ())
                qid = (explained(evidence) or {}).get("qid")
                for query in [one for one in of if one.qid == qid] or of:
                    kept.setdefault(query.qid, evidence)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or 'cannot be read'}") from None
    if seen and not kept:
        raise InputError(f"{path}: none of its {counted(seen, 'explanations')} is of a judged query")
    return kept


def _explained(
    where: Path | str, kept: Mapping[str, Evidence], queries: Sequence[Query], resources: Resources
) -> Found:
    """Explanations by qid, those of the settings that most of them have."""
    configs = {qid: config for qid, evidence in kept.items() if (config := explained_config(evidence)) is not None}
    # A list that is on and was not searched for a query is empty there, so that on in one is on in all.
    alike: dict[str, Any] = {
        f"lists.{one.source}.enabled": True for evidence in kept.values() for one in evidence.lists
    }
    alike["assembly.limit"] = max(config.assembly.limit or 0 for config in configs.values())
    configs = {qid: with_values(config, alike) for qid, config in configs.items()}
    config, count = Counter(configs.values()).most_common(1)[0]
    evidences = {
        query.qid: _dated(kept[query.qid], query, resources) for query in queries if configs.get(query.qid) == config
    }
    header = Header(str(where), "explained", 0, "", portable_yaml(config), datetime.now(UTC).isoformat())
    of_file = tuple(query for query in queries if query.qid in evidences)
    evidence_set = EvidenceSet(Path(where), header, of_file, (), evidences, "", True, 0.0)
    left = counted(len(kept) - count, "explanations")
    others = [f"{left} of other settings are left out"] if count < len(kept) else []
    answers = {qid: (explained(one) or {}).get("order", ()) for qid, one in evidences.items()}
    return Found(config, answers, (f"the lists are those that {where} explains", *others), lambda *_: evidence_set)


def _dated(evidence: Evidence, query: Query, resources: Resources) -> Evidence:
    """An explanation that has no ages, with the dates of the store's memories at the query's moment."""
    if any(memory.created_at is not None for memory in evidence.memories.values()):
        return evidence
    known = resources.store.memories.read(evidence.memories)
    memories = {
        key: replace(own, created_at=known[key].created_at) if key in known else own
        for key, own in evidence.memories.items()
    }
    return replace(evidence, memories=memories, as_of=query.as_of or evidence.as_of)


def _given(evidence: evaluating.LabelledEvidence, _: PipelineConfig) -> evaluating.LabelledEvidence:
    return evidence


def forecast(
    fault: Fault,
    config: PipelineConfig,
    query_set: str,
    resources: Resources,
    progress: Progress = silent,
    recorded: Path | None = None,
) -> Regression:
    """The config as mended against it as it is: the paired test, the verdict, and the queries that change.

    `recorded` is a recording with lists, or explanations; without one the lists of a traced query set are taken, else each side is
    gathered, unless it was: a mend may change what the lists find. Raises InputError for a set without judged queries, a file without
    lists of one of them, or of another program, and ModelError if a reranker is unavailable.
    """
    selection, judgments = selected(query_set, resources, judged=True)
    grades = evaluating.agreed(judgments, None)
    measures = standard_measures(resources.store.query_sets.relevant_from(query_set))
    found = recorded_in(query_set if recorded is None else recorded, selection.queries, config, resources)
    base = config if found is None else found.config
    if preset_behind(base) not in fault.presets:
        raise InputError(
            f"{recorded or query_set}: it is of {base.name}, and {fault.id} a fault of {', '.join(fault.presets)}"
        )
    sides, reports = fault.configs(base), []
    for side in sides:
        if found is not None:
            evidence = found.evidence(side, sides[0], progress)
        else:
            evidence = ensure_evidence(side, selection, judgments, resources, progress)
            if side.rerank.backend != "none":  # both sides may share evidence that has the scores of one
                score_evidence(evidence, [side], resources, progress)
                evidence = read_again(evidence)
        of_set = evaluating.labelled(evidence, grades, timed=False)
        evaluating.refuse_nothing(of_set.batch.queries, query_set if recorded is None else recorded)
        (report,), _ = evaluating.evaluate_configs([(side.name, side)], partial(_given, of_set), measures)
        reports.append(report)
    first, second = (report.evaluation for report in reports)
    comparison = compare([first, second])
    moved = [qid for qid, before, now in zip(first.qids, first.results, second.results, strict=True) if before != now]
    told = f"{len(moved)} of {len(first.qids)} queries get other results: {', '.join(moved[:SHOWN])}{'…' if len(moved) > SHOWN else ''}"
    said = (*comparison.changed(SHOWN), told) if moved else ("no query gets other results",)
    ran = "" if fault.basis.startswith("read") else "measured by the project on its sample, not on these lists: "
    source = f"{fault.what}; {fault.state}; seen {fault.seen}, {fault.url}; {ran}{fault.basis}"
    basis: tuple[str, ...] = (GUESS,)
    verdict = got_worse(comparison, Asserted(no_loss=(MEASURE,)))
    shown: bool | None = None
    if found is not None:
        met = sum(
            list(ours[:SHOWN]) == list(found.answers[qid][:SHOWN])
            for qid, ours in zip(first.qids, first.results, strict=True)
        )
        basis = (*found.said, f"as it is, the first ten of {met} of {len(first.qids)} recorded answers come out")
        shown = met >= MET * len(first.qids)
        if not shown:
            of = f"{recorded or query_set} does not show {fault.id} as described"
            none = f"{of}: {basis[-1]}. The forecast says nothing of this program."
            verdict, said = Regression(comparison=comparison), (none, told)
    values = {"fault": fault.id, "url": fault.url, "seen": fault.seen, "state": fault.state, "basis": fault.basis}
    return replace(
        verdict,
        said=said,
        tables=comparison.tables,
        notes=(*basis, source, *comparison.notes),
        values={**values, "lists": list(basis), "shown": shown, "changed": moved, **comparison.to_json()},
    )
