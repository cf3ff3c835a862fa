"""Labels of the agent, saved as those of a model; only if the server was started with `--write`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cems_workbench.api.results import collect_warnings
from cems_workbench.errors import InputError, nearest
from cems_workbench.jobs.labelling import add_to_set
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.mcp.arguments import MOST_NAME, MOST_QUERY, AsOf, MemoryId, Project
from cems_workbench.mcp.responses import Reply
from cems_workbench.mcp.served_store import ServedStore
from cems_workbench.pipeline.gather import Request
from cems_workbench.platform.parsing import parse_datetime
from cems_workbench.records import Judgment, Query

MODEL = "model"
AGENTS_QUERY_SET = "asked by agents"
"""The query set for queries that the agent grades and that are in no other set."""


class Labelled(Reply):
    """A saved grade. `replaced` is the previous one. It counts unless a person graded the pair."""

    qid: str
    memory_id: str
    grade: int
    judge: str
    kind: str = MODEL
    replaced: int | None = None
    scale: dict[int, str]
    said: tuple[str, ...] = ()


class TakenBack(Reply):
    """The latest label under this name, now removed."""

    qid: str | None = None
    memory_id: str | None = None
    grade_again: int | None = None
    said: tuple[str, ...] = ()


class LabellingTools:
    """`label` and `undo_label` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def label(
        self,
        memory_id: MemoryId,
        grade: Annotated[
            int, Field(ge=-100, le=100, description="How relevant: by default 0 not at all to 3 perfectly.")
        ],
        query: Annotated[
            str,
            Field(
                max_length=MOST_QUERY, description="The query's words; one that is not stored is added to query_set."
            ),
        ] = "",
        qid: Annotated[str, Field(max_length=MOST_NAME, description="Or the id of a stored query.")] = "",
        project: Project = "",
        as_of: AsOf = "",
        query_set: Annotated[
            str, Field(max_length=MOST_NAME, description="Set of a query that is new.")
        ] = AGENTS_QUERY_SET,
        note: Annotated[str, Field(max_length=2000, description="Why.")] = "",
    ) -> Labelled:
        """Grade how relevant a memory is to a query. Saved as a model's judgment, which counts unless a person has judged."""
        self._served.require_writing()
        store = self._served.resources.store
        if bool(query.strip()) == bool(qid):
            raise InputError("query: pass the text of the query, or the qid of a stored one")
        self._served.store.memory(memory_id)
        known = self._stored(qid) if qid else stored_query(_request(query, project, as_of), store)
        scale = store.query_sets.scale_of(known.qid if known else "")
        if grade not in scale:
            raise InputError(f"grade: {grade} is not on the scale, which has {scale}")
        said = []
        if known is None:
            known = add_to_set(_request(query, project, as_of), query_set, store)
            said.append(f"The query is new: it is {known.qid} of the query set {query_set}.")
        before = [one for one in store.judgments.read(known.qid) if one.memory_id == memory_id]
        own = next((one.grade for one in before if (one.judge, one.kind) == (self._served.judge, MODEL)), None)
        with collect_warnings():
            store.labels.give(
                Judgment(known.qid, memory_id, grade, self._served.judge, MODEL, note=note or None),
                {"shown": "over MCP"},
            )
        people = sorted({one.grade for one in before if one.kind != MODEL})
        if people:
            said.append(f"People graded this pair {', '.join(map(str, people))}: that counts, not this grade.")
        return Labelled(
            qid=known.qid,
            memory_id=memory_id,
            grade=grade,
            judge=self._served.judge,
            replaced=own,
            scale=dict(scale.grades),
            said=said,
        )

    def undo_label(self) -> TakenBack:
        """Undo the latest label of this name and restore the one it replaced. Call again to undo the one before."""
        self._served.require_writing()
        event = self._served.resources.store.labels.undo(self._served.judge, MODEL)
        if event is None:
            return TakenBack(said=[f"There is no label of {self._served.judge} to take back."])
        again = event.before["grade"] if event.before else None
        return TakenBack(qid=event.qid, memory_id=event.memory_id, grade_again=again, said=["It is taken back."])

    def _stored(self, qid: str) -> Query:
        queries = {query.qid: query for query in self._served.resources.store.queries.read()}
        if qid not in queries:
            close = nearest(qid, queries)
            raise InputError(
                f"qid: no query {qid[:80]!r}" + (f"; did you mean {close}?" if close else "") + " evaluate lists qids"
            )
        return queries[qid]


def _request(query: str, project: str, as_of: str) -> Request:
    return Request(query.strip(), project or None, parse_datetime(as_of, "as_of") if as_of else None)
