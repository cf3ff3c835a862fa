"""The lists of a recording, or of a traced query set, for the forecast of what mending a program does (`jobs/upstream.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError, counted, some
from cems_workbench.evaluation.evidence_file import EvidenceSet
from cems_workbench.jobs.query_set_evidence import ensure_evidence
from cems_workbench.jobs.traced_sets import is_traced
from cems_workbench.jobs.upstream import Found, RecordedLists
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import Query
from workbench_fidelity.fidelity import (
    as_recorded,
    asked_queries,
    kept_recording,
    productions_in,
    read_answers,
    require_usable,
    selection_for,
    setting_for,
)


def read(where: Path | str, queries: Sequence[Query], config: PipelineConfig, resources: Resources) -> Found | None:
    """As `RecordedLists` says. Answers go to queries of their qid and text, else to those of their text."""
    if isinstance(where, str) and not is_traced(resources.store, where):
        return None
    recording = kept_recording(resources.store, where) if isinstance(where, str) else read_answers(where)
    require_usable(recording)
    by_qid = {(answer.qid, answer.query or ""): answer for answer in recording.answers}
    by_text = {answer.query: answer for answer in recording.answers if answer.query is not None}
    answers = {
        one.qid: by_qid.get((one.qid, one.query)) or by_qid.get((one.qid, "")) or by_text.get(one.query)
        for one in queries
    }
    taken = tuple(replace(answer, qid=qid) for qid, answer in answers.items() if answer is not None)
    if not taken:
        raise InputError(
            f"{recording.name}: none of its {counted(len(recording.answers), 'answers')} is to a judged query"
        )
    recording = replace(recording, answers=taken)
    setting = setting_for(recording, config, which_lists="recorded")
    if not setting.list_map.sources:
        return None
    asked = asked_queries(recording, {query.qid: query for query in queries}, setting=setting)
    orders = {qid: found.recorded for qid, found in productions_in(resources, recording).items()}

    def evidence(side: PipelineConfig, as_it_is: PipelineConfig, progress: Progress) -> EvidenceSet:
        under = replace(setting, config=side)
        gathered = ensure_evidence(under.searched, selection_for(under, asked), (), resources, progress)
        # Recorded vector scores are on the scale of the program as it was.
        read_as = replace(setting, config=with_values(side, {"lists.vector.scale": as_it_is.lists.vector.scale}))
        used = {
            answer.qid: as_recorded(gathered.evidences[answer.qid], answer, read_as, resources)
            for answer in recording.answers
            if answer.qid in gathered.evidences
        }
        return replace(gathered, evidences=used)

    lists = f"the lists {some(setting.list_map.lines(), 6)}"
    return Found(setting.searched, orders, (f"{lists} of {recording.name}", *setting.warnings), evidence)


READER = RecordedLists("recordings", read)
