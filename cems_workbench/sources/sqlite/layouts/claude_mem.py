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
from cems_workbench.sources.sqlite.chroma_beside import ChromaBeside
from cems_workbench.sources.sqlite.file import Reader
from cems_workbench.sources.sqlite.layout import Fts5, Layout, SqliteLayout
from cems_workbench.sources.sqlite.schema import Schema

COLLECTION = "cm__claude-mem"
FOLDER = "chroma"
PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
"""Texts of a summary."""
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


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The rows of all tables."""
    columns = (
        *(
            "id",
            "kind",
            "number",
            "content",
            "title",
            "category",
            "project",
            "session",
            "concepts",
            "created",
            "updated",
        ),
        *NOT_FIELDS,
    )
    merged = {
        name: "merged_into_project" in schema.tables[name].columns for name in ("observations", "session_summaries")
    }
    projects = {
        name: f"COALESCE(nullif({alias}.merged_into_project, ''), {alias}.project)"
        if merged[name]
        else f"{alias}.project"
        for name, alias in (("observations", "o"), ("session_summaries", "s"))
    }
    selects = [
        f"SELECT 'obs_' || o.id, 'observation', o.id, {_joined('o.text', 'o.narrative', FACTS.format('o'))}, o.title, o.type, "
        f"{projects['observations']}, o.memory_session_id, o.concepts, o.created_at_epoch, NULL, "
        "o.subtitle, o.files_read, o.files_modified FROM observations AS o",
        f"SELECT 'summary_' || s.id, 'summary', s.id, {_joined(*(f's.{part}' for part in PARTS))}, s.request, 'session_summary', "
        f"{projects['session_summaries']}, s.memory_session_id, NULL, s.created_at_epoch, NULL, "
        "NULL, s.files_read, s.files_edited FROM session_summaries AS s",
        "SELECT 'prompt_' || u.id, 'prompt', u.id, u.prompt_text, NULL, 'user_prompt', x.project, "
        "COALESCE(x.memory_session_id, u.content_session_id), NULL, u.created_at_epoch, NULL, "
        "NULL, NULL, NULL FROM user_prompts AS u "
        "LEFT JOIN sdk_sessions AS x ON x.id = (SELECT y.id FROM sdk_sessions AS y WHERE y.content_session_id = u.content_session_id "
        "ORDER BY y.id LIMIT 1)",
    ]
    if schema.has("memory_items", ("id", "project_id", "legacy_observation_id", "kind", "text", "narrative", "facts")):
        selects.append(
            f"SELECT 'item_' || i.id, i.kind, NULL, {_joined('i.text', 'i.narrative', FACTS.format('i'))}, i.title, i.type, i.project_id, "
            "i.server_session_id, i.concepts, i.created_at_epoch, i.updated_at_epoch, "
            "i.subtitle, i.files_read, i.files_modified FROM memory_items AS i "
            "WHERE i.legacy_observation_id IS NULL"
        )
    named = ", ".join(columns)
    # Its columns are those of the union.
    empty = f"SELECT * FROM (SELECT {', '.join(f'NULL AS {name}' for name in columns)}) WHERE 0"
    counts = reader.rows(
        f"WITH m({named}) AS ({' UNION ALL '.join(selects)}) SELECT kind, count(*) FROM m GROUP BY 1 ORDER BY 2 DESC"
    )
    return Layout(
        kind=LAYOUT.name,
        source=f"({empty} UNION ALL {' UNION ALL '.join(selects)}) AS m",
        key=None,
        id="m.id",
        text="m.content",
        columns={
            "title": "m.title",
            "category": "m.category",
            "project": "m.project",
            "session": "m.session",
            "concepts": "m.concepts",
            "created_at": "m.created",
            "updated_at": "m.updated",
            **{name: f"m.{name}" for name in NOT_FIELDS},
        },
        names=Names({"tags": "concepts"}),
        fts5=Fts5("observations_fts", "m.number", match, condition="m.kind = 'observation'")
        if schema.has("observations_fts")
        else None,
        notes=(f"memories: {', '.join(f'{count:,} of kind {kind}' for kind, count in counts)}",),
    )


LAYOUT = SqliteLayout(
    "claude_mem",
    "claude-mem",
    recognises,
    read,
    options=("chroma",),
    beside=ChromaBeside(COLLECTION, FOLDER, "chroma", place),
)
