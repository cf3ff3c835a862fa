"""FTS5 tables of a SQLite file, asked through Python's own SQLite.

The score is -bm25(), so that greater is better, as in the workbench's list of that name.

Source: https://www.sqlite.org/fts5.html
"""

from __future__ import annotations

import re

from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.schema import Schema, Table, options_of, quoted

MOST_WORDS = 64
"""Words of a query that are searched for."""
_WORDS = re.compile(r"\w+")


def any_word(text: str) -> str | None:
    """A query that any of the words matches, each quoted: "deploy" OR "keys"."""
    words = [quoted(word) for word in dict.fromkeys(_WORDS.findall(text))][:MOST_WORDS]
    return " OR ".join(words) or None


def content_table(table: Table) -> str | None:
    """The table whose rows an external-content FTS5 table indexes; "" if it is contentless, None if it has the texts itself."""
    return options_of(table.arguments).get("content")


def content_rowid(table: Table) -> str:
    """The column of the content table that is the rowid of an external-content table."""
    return options_of(table.arguments).get("content_rowid", "rowid")


def over(schema: Schema, table: Table) -> list[Table]:
    """The FTS5 tables whose external content is this table."""
    return [each for each in schema.virtual("fts5") if (content_table(each) or "").lower() == table.name.lower()]


def reason_against(reader: Reader, table: Table) -> str | None:
    """Why this table cannot be searched here, such as a tokenizer that SQLite does not have; None if it can be."""
    from cems_workbench.sources.source import SourceError

    try:
        reader.rows(f"SELECT rowid FROM {table.quoted} WHERE {table.quoted} MATCH '\"a\"' LIMIT 1")
    except SourceError as error:
        return str(error).removeprefix(f"{reader.plain}: ")
    return None
