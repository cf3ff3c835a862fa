"""Letta on SQLite: `archival_passages`, whose embeddings are float32 BLOBs, filled up with zeros to 4,096 numbers.

`embedding_config` says how many numbers the model makes; the rest is cut off, which changes no cosine. A passage with is_deleted stays
in the table. Letta's own query of passages returns it all the same; here it counts as deleted, as with Letta on PostgreSQL.

Here: project is the archive's name, author the organisation. source_passages, parts of files, are not taken.

Source: letta 0.16.8, its ORM and managers run on SQLite (its server of that version opens PostgreSQL only)
"""

from __future__ import annotations

from dataclasses import replace

from cems_workbench.sources.address import Address
from cems_workbench.sources.recognised import SAMPLE_ROWS
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Layout, SqliteLayout, Vectors
from workbench_stores.sqlite.layouts._shared import rows_note
from workbench_stores.sqlite.schema import Schema
from workbench_stores.sqlite.table import ALIAS, table_layout
from workbench_stores.sqlite.vectors import VectorForm

TABLE = "archival_passages"
COLUMNS = ("id", "text", "embedding", "embedding_config", "is_deleted", "organization_id", "archive_id")


def recognises(schema: Schema) -> bool:
    """Whether a file has Letta's passages."""
    return schema.has(TABLE, COLUMNS)


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The passages of all archives."""
    stored = reader.rows(
        "SELECT width, model, bytes, count(*) FROM (SELECT json_extract(embedding_config, '$.embedding_dim') AS width, "
        f"json_extract(embedding_config, '$.embedding_model') AS model, length(embedding) AS bytes FROM {TABLE} "
        f"WHERE embedding IS NOT NULL LIMIT {SAMPLE_ROWS}) GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1"
    )
    vectors, model, notes = (
        None,
        None,
        rows_note(reader, schema, "source_passages", "parts of files are not taken: source_passages"),
    )
    if stored:
        width, model, size, _ = stored[0]
        value = f"{ALIAS}.embedding"
        if isinstance(width, int) and 0 < width * 4 < size:
            notes.append(
                f"vectors are filled up with zeros to {size // 4:,} numbers: cut to {width}, as embedding_config says"
            )
            value = f"substr({value}, 1, {width * 4})"
        else:
            width = size // 4
        vectors = Vectors(VectorForm("float32", width, "cosine"), value)
    layout = table_layout(
        reader,
        schema,
        schema.tables[TABLE],
        "id",
        "text",
        vectors,
        kind=LAYOUT.name,
        given={"project": "archive", "author": "organization_id"},
        known=("embedding", "embedding_config", "archive_id"),
    )
    archive = f"{ALIAS}.archive_id"
    if schema.has("archives", ("id", "name")):
        archive = f"COALESCE((SELECT a.name FROM archives AS a WHERE a.id = {archive}), {archive})"
    kept = {name: value for name, value in layout.columns.items() if name != "embedding_config"}
    return replace(
        layout,
        columns=kept | {"archive": archive, "organization_id": f"{ALIAS}.organization_id"},
        json=layout.json - {"embedding_config"},
        unread=tuple(
            name
            for name in layout.unread
            if name not in ("embedding", "embedding_config", "archive_id", "organization_id")
        ),
        model=model,
        notes=tuple(notes),
    )


LAYOUT = SqliteLayout("letta", "Letta", recognises, read)
