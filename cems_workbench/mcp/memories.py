"""What the store holds: an overview, its memories, the parameters of a config, and labels of the agent."""

from __future__ import annotations

from collections import Counter

from pydantic import Field

from cems_workbench.builtin import default_preset, preset_names
from cems_workbench.config import field_specs
from cems_workbench.errors import InputError, nearest
from cems_workbench.jobs.access import may
from cems_workbench.jobs.labelling import add_to_set
from cems_workbench.jobs.query_grades import stored_query
from cems_workbench.mcp import protocol
from cems_workbench.pipeline.gather import Request
from cems_workbench.platform.parsing import parse_datetime
from cems_workbench.records import Judgment
from cems_workbench.store.statistics import Selection

MAX_PROJECTS, MAX_TAGS = 20, 20
MAX_PAGE_CHARS = 20_000
SECTION_HINT = "Name a section, such as the stage that dropped the memory, or words."
MODEL = "model"
AGENTS_QUERY_SET = "asked by agents"
"""The query set for queries that the agent grades and that are in no other set."""


def overview(served: protocol.ServedStore, asked: protocol.Arguments) -> protocol.Reply:
    """What the store holds, and the names that other tools take: query sets, presets, saved configs, projects."""
    store = served.resources.store
    projects, kept = store.memories.projects(), served.kept_configs()
    return protocol.reply(
        memories=store.memories.count(),
        query_sets=protocol.rows_of(served.store.tables[0]),
        default_config=default_preset(served.settings.preset)[0],
        presets=preset_names(),
        kept_configs=kept[: protocol.MAX_NAMES],
        more_kept_configs=max(0, len(kept) - protocol.MAX_NAMES) or None,
        labels=f"label saves a model's grades under the name {served.judge}"
        if may(served.role, "reviewer")
        else "read-only: the server was started without --write",
        untrusted=[
            {"project": protocol.cut(name, protocol.TITLE), "memories": count}
            for name, count in projects[:MAX_PROJECTS]
        ],
        more_projects=max(0, len(projects) - MAX_PROJECTS) or None,
        notes=[line for line in (*served.resources.notices, served.resources.behind) if line],
    )


class FindMemories(protocol.Page):
    """Arguments of `find_memories`."""

    words: str = Field(
        min_length=1,
        max_length=protocol.MAX_NAME,
        description="In id, title, text or tags, in any case.",
    )
    project: protocol.Name = Field("", description="org/repo.")


def find_memories(served: protocol.ServedStore, asked: FindMemories) -> protocol.Reply:
    """Ids of the memories that contain these words literally, newest first. It does not run the pipeline: search does."""
    memories = served.resources.store.memories
    if problem := memories.project_problem(asked.project or None):
        raise InputError(f"project: {problem}")
    projects = (asked.project,) if asked.project else ()
    found = memories.find(Selection(text=asked.words, projects=projects), asked.limit, asked.offset)
    return protocol.reply(
        **protocol.counted(found.total, asked),
        memories=[protocol.reply(memory_id=memory.id, untrusted=protocol.text_of(memory)) for memory in found.memories],
        said=[] if found.total else ["No memory contains these words literally: try fewer words, or search."],
    )


class ReadMemory(protocol.Arguments):
    """Arguments of `read_memory`."""

    memory_id: protocol.MemoryId
    offset: int = Field(0, ge=0, le=protocol.MAX_NUMBER, description="First character.")
    length: int = Field(4000, ge=1, le=MAX_PAGE_CHARS, description="Characters.")


def read_memory(served: protocol.ServedStore, asked: ReadMemory) -> protocol.Reply:
    """The text of a memory, with the dates, counters and priority that ranking uses."""
    memory = served.store.memory(asked.memory_id)
    if asked.offset and asked.offset >= len(memory.content):
        raise InputError(f"offset: {memory.id} has {len(memory.content)} characters, counted from 0")
    return protocol.reply(
        memory_id=memory.id,
        offset=asked.offset,
        created_at=memory.created_at and memory.created_at.isoformat(),
        last_accessed=memory.last_accessed and memory.last_accessed.isoformat(),
        **protocol.picked(memory, "access_count importance priority pinned"),
        untrusted=protocol.reply(
            **protocol.text_of(memory, asked.offset, asked.length),
            **{name: protocol.cut(getattr(memory, name), protocol.TITLE) for name in ("category", "session", "author")},
            tags=[protocol.cut(tag, protocol.EXCERPT) for tag in memory.tags[:MAX_TAGS]],
            scope=memory.scope,
        ),
    )


class Parameters(protocol.Page, protocol.WithConfig):
    """Arguments of `parameters`."""

    section: protocol.Name = Field("", description="Such as fusion.")
    words: protocol.Name = Field("", description="Words of the name or help.")
    limit: int = Field(30, ge=1, le=100)


def parameters(served: protocol.ServedStore, asked: Parameters) -> protocol.Reply:
    """The parameters for changes: value, allowed values and help of each. gathers: a change searches again."""
    chosen = served.config(asked.config, asked.changes)
    sections = Counter(spec.section for spec in field_specs())
    if asked.section and asked.section not in sections:
        raise InputError(f"section: there is no section {asked.section[:80]!r}; there are {', '.join(sections)}")
    wanted = asked.words.lower().split()
    within = [spec for spec in field_specs() if asked.section in ("", spec.section)]
    texts = [f"{spec.path} {spec.label} {spec.help}".lower() for spec in within]
    found = [spec for spec, text in zip(within, texts, strict=True) if all(word in text for word in wanted)]
    if not asked.section and not wanted:
        return protocol.reply(total=len(found), config=chosen.name, said=[SECTION_HINT], sections=sections)
    rows, counts = protocol.page(found, asked)
    return protocol.reply(
        **counts,
        config=chosen.name,
        parameters=[
            protocol.picked(spec, "path help", allowed=spec.range_text)
            | {"value": chosen.get(spec.path), "gathers": spec.cost == "gather"}
            for spec in rows
        ],
    )


class Label(protocol.Arguments):
    """Arguments of `label`."""

    memory_id: protocol.MemoryId
    grade: int = Field(ge=-100, le=100, description="Relevance; by default 0 not at all to 3 perfectly.")
    query: str = Field(
        "", max_length=protocol.MAX_QUERY, description="A new one is added to query_set."
    )
    qid: protocol.Name = Field("", description="Or the id of a stored query.")
    project: protocol.Name = Field("", description="org/repo.")
    as_of: str = Field("", max_length=60, description="ISO 8601.")
    query_set: protocol.Name = Field(AGENTS_QUERY_SET, description="Set of a new query.")
    note: str = Field("", max_length=2000, description="Why.")


def label(served: protocol.ServedStore, asked: Label) -> protocol.Reply:
    """Grade how relevant a memory is to a query. Saved as a model's judgment, which counts unless a person has judged."""
    served.require_writing()
    store, qid, memory_id = served.resources.store, asked.qid, asked.memory_id
    if bool(asked.query.strip()) == bool(qid):
        raise InputError("query: pass the text of the query, or the qid of a stored one")
    served.store.memory(memory_id)
    moment = parse_datetime(asked.as_of, "as_of") if asked.as_of else None
    request = Request(asked.query.strip(), asked.project or None, moment)
    if qid:
        queries = {query.qid: query for query in store.queries.read()}
        if (known := queries.get(qid)) is None:
            hint = f"did you mean {close}? " if (close := nearest(qid, queries)) else ""
            raise InputError(f"qid: no query {qid[:80]!r}; {hint}evaluate lists qids")
    else:
        known = stored_query(request, store)
    scale = store.query_sets.scale_of(known.qid if known else "")
    if asked.grade not in scale:
        raise InputError(f"grade: {asked.grade} is not on the scale, which has {scale}")
    said = []
    if known is None:
        known = add_to_set(request, asked.query_set, store)
        said.append(f"The query is new: it is {known.qid} of the query set {asked.query_set}.")
    before = [one for one in store.judgments.read(known.qid) if one.memory_id == memory_id]
    judgment = Judgment(known.qid, memory_id, asked.grade, served.judge, MODEL, note=asked.note or None)
    store.labels.give(judgment, {"shown": "over MCP"})
    people = sorted({one.grade for one in before if one.kind != MODEL})
    if people:
        said.append(f"People graded this pair {', '.join(map(str, people))}: that counts, not this grade.")
    return protocol.reply(
        qid=known.qid,
        memory_id=memory_id,
        grade=asked.grade,
        judge=served.judge,
        kind=MODEL,
        replaced=next((one.grade for one in before if (one.judge, one.kind) == (served.judge, MODEL)), None),
        scale=dict(scale.grades),
        said=said,
    )


def undo_label(served: protocol.ServedStore, asked: protocol.Arguments) -> protocol.Reply:
    """Undo the latest label of this name and restore the one it replaced. Call again to undo the one before."""
    served.require_writing()
    event = served.resources.store.labels.undo(served.judge, MODEL)
    if event is None:
        return {"said": [f"There is no label of {served.judge} to take back."]}
    again = event.before["grade"] if event.before else None
    return protocol.reply(qid=event.qid, memory_id=event.memory_id, grade_again=again, said=["It is taken back."])
