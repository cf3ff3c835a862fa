"""claude-mem: observations, session_summaries and user_prompts, with their vectors in a Chroma folder beside the file.

A memory is a row of one of the three; its id is the one that its texts begin with in Chroma: obs_12, summary_3, prompt_7. An observation's
content is its text, narrative and facts; a summary's are its parts. memory_items, which claude-mem's server mode writes, are taken too
(item_ID) unless they are of an observation; that table was read from its schema and not recorded.

The list fts5 is that of `/api/search?type=observations` without Chroma: observations alone, the whole query as one phrase. The vector list
is Chroma's own over the texts. claude-mem shows of it what is younger than 90 days, newest first.

    ?chroma=FOLDER   the Chroma folder, if it is not `chroma` beside the file

Source: claude-mem 13.25.3 with chroma-mcp 0.2.6, run
"""

from __future__ import annotations

import re

from cems_workbench.formats.base.payload import Names
from cems_workbench.sources.address import Address
from workbench_stores.sqlite.chroma_beside import ChromaBeside
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Fts5, Layout, SqliteLayout
from workbench_stores.sqlite.schema import Schema

COLLECTION = "cm__claude-mem"
TABLES = ("observations", "session_summaries", "user_prompts")
FTS = "observations_fts"
FOLDER = "chroma"
PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
"""Texts of a summary."""
FIELDS = ("title", "category", "project", "session", "concepts", "created_at", "updated_at")
NOT_FIELDS = ("subtitle", "files_read", "files_modified")
"""Columns that a mapping can take."""
_TEXT = re.compile(r"(?:obs_\d+_(?:narrative|text|fact_\d+)|summary_\d+_\w+|prompt_\d+)")
FACTS = "CASE WHEN json_valid({0}.facts) THEN (SELECT group_concat('- ' || f.value, char(10)) FROM json_each({0}.facts) AS f) END"


def recognises(schema: Schema) -> bool:
    """Whether a file has claude-mem's tables."""
    return (
        schema.has("observations", ("id", "memory_session_id", "project", "narrative", "facts", "concepts"))
        and schema.has("session_summaries", ("id", "memory_session_id", "project", *PARTS))
        and schema.has("user_prompts", ("id", "prompt_text", "content_session_id"))
        and schema.has("sdk_sessions", ("content_session_id", "memory_session_id", "project"))
    )


def match(text: str) -> str | None:
    """The whole query as a phrase."""
    return '"' + text.replace('"', '""') + '"' if text.strip() else None


def place(row_id: str) -> tuple[str, int] | None:
    """(memory, number) of a text in Chroma; None if it is none of claude-mem's."""
    if not _TEXT.fullmatch(row_id):
        return None
    kind, number, *rest = row_id.split("_", 2)
    memory, part = f"{kind}_{number}", "".join(rest)
    if kind == "summary":
        return memory, PARTS.index(part) if part in PARTS else len(PARTS)
    fact = re.fullmatch(r"fact_(\d+)", part)
    return memory, 2 + int(fact[1]) if fact else int(part == "text")


def _joined(*texts: str) -> str:
    """SQL for texts below one another, without those that are missing."""
    parts = " || ".join(f"COALESCE(char(10) || nullif({text}, ''), '')" for text in texts)
    return f"trim({parts}, char(10))"


def _rows(source: str, **values: str) -> str:
    """SELECT of the rows of a table, with the names of all."""
    named = ", ".join(
        f"{values.get(name, 'NULL')} AS {name}" for name in ("id", "number", "content", *FIELDS, *NOT_FIELDS)
    )
    return f"SELECT {named} FROM {source}"


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The rows of all tables."""
    merged = {
        name: "merged_into_project" in schema.tables[name].columns for name in ("observations", "session_summaries")
    }
    projects = {
        name: f"COALESCE(nullif({alias}.merged_into_project, ''), {alias}.project)"
        if merged[name]
        else f"{alias}.project"
        for name, alias in (("observations", "o"), ("session_summaries", "s"))
    }
    of_session = "(SELECT min(y.id) FROM sdk_sessions AS y WHERE y.content_session_id = u.content_session_id)"
    if "session_db_id" in schema.tables["user_prompts"].columns:
        of_session = f"COALESCE(u.session_db_id, {of_session})"
    observations = _rows(
        "observations AS o",
        id="'obs_' || o.id",
        number="o.id",
        content=_joined("o.text", "o.narrative", FACTS.format("o")),
        title="o.title",
        category="o.type",
        project=projects["observations"],
        session="o.memory_session_id",
        concepts="o.concepts",
        created_at="o.created_at_epoch",
        **{name: f"o.{name}" for name in NOT_FIELDS},
    )
    summaries = _rows(
        "session_summaries AS s",
        id="'summary_' || s.id",
        content=_joined(*(f"s.{part}" for part in PARTS)),
        title="s.request",
        category="'session_summary'",
        project=projects["session_summaries"],
        session="s.memory_session_id",
        created_at="s.created_at_epoch",
        files_read="s.files_read",
        files_modified="s.files_edited",
    )
    prompts = _rows(
        f"user_prompts AS u LEFT JOIN sdk_sessions AS x ON x.id = {of_session}",
        id="'prompt_' || u.id",
        content="u.prompt_text",
        category="'user_prompt'",
        project="x.project",
        session="COALESCE(x.memory_session_id, u.content_session_id)",
        created_at="u.created_at_epoch",
    )
    selects = [observations, summaries, prompts]
    if schema.has("memory_items", ("id", "project_id", "legacy_observation_id", "kind", "text", "narrative", "facts")):
        items = _rows(
            "memory_items AS i WHERE i.legacy_observation_id IS NULL",
            id="'item_' || i.id",
            content=_joined("i.text", "i.narrative", FACTS.format("i")),
            title="i.title",
            category="i.type",
            project="i.project_id",
            session="i.server_session_id",
            concepts="i.concepts",
            created_at="i.created_at_epoch",
            updated_at="i.updated_at_epoch",
            **{name: f"i.{name}" for name in NOT_FIELDS},
        )
        selects.append(items)
    counts = [(name, reader.row(f"SELECT count(*) FROM {name}")[0]) for name in TABLES]
    return Layout(
        kind=LAYOUT.name,
        source=f"({' UNION ALL '.join(selects)}) AS m",
        key=None,
        id="m.id",
        text="m.content",
        columns={name: f"m.{name}" for name in (*FIELDS, *NOT_FIELDS)},
        names=Names({"tags": "concepts"}),
        fts5=Fts5(FTS, "m.number", match, source=f"({observations}) AS m") if schema.has(FTS) else None,
        notes=(f"rows: {', '.join(f'{count:,} {name}' for name, count in counts)}",),
    )


LAYOUT = SqliteLayout(
    "claude_mem",
    "claude-mem",
    recognises,
    read,
    options=("chroma",),
    beside=ChromaBeside(COLLECTION, FOLDER, "chroma", place),
)
