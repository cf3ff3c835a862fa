"""basic-memory: notes (`entity`, `note_content`), their parts with vectors, relations, and the FTS5 table search_index.

A memory is a note; its id is its permalink (external_id where it has none, or two projects have the same). Its chunks are the rows of
search_vector_chunks: parts of the note, its observations, its relations. A relation to a note that does not exist is left out.

`?project=NAME` takes the notes of one project. Both lists are those of `search_notes`, which searches notes alone unless it is asked
for more: the vector list is over parts of notes; its similarity is 1 - distance² / 2. The lexical list has notes in which one column
(title, stems, body) matches all words, as beginnings of words; their bm25 is that of the first such column. If there is none, and the
query has at least three words and no number, any word but stop words counts. Scripts without spaces, which basic-memory searches by
pairs of signs, are searched as words.

Times have no zone in the file; they are the local times of the machine that wrote it, and are read as UTC.

Source: basic-memory 0.24.1, run
"""

from __future__ import annotations

import re

from cems_workbench.formats.base.payload import Names
from cems_workbench.sources.address import Address
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Chunks, Fts5, Layout, SqliteLayout, Vectors
from workbench_stores.sqlite.layouts._shared import chosen
from workbench_stores.sqlite.schema import Schema

INDEX = "search_index"
COLUMNS = ("title", "content_stems", "content_snippet")
VECTORS = "search_vector_embeddings"
LEAST_RELAXED_WORDS = 3
STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by did do does for from had has have how i in is it of on or our that the their they "
        "this to was we were what when where which who whom whose why will with you your",
    )
)
"""Words that any_word leaves out."""
_OPERATOR = re.compile(r"(?<!\S)(AND|OR|NOT)(?!\S)")
_PIECE = re.compile(r'"[^"]*"|\S+')
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_EDGES = "?!.,;:"
_FRONT = "'---' || char(10)"


def recognises(schema: Schema) -> bool:
    """Whether a file has basic-memory's tables."""
    return (
        schema.has("entity", ("id", "title", "note_type", "permalink", "file_path", "project_id", "entity_metadata"))
        and schema.has("relation", ("from_id", "to_id", "relation_type"))
        and schema.has("observation")
        and schema.has(INDEX, COLUMNS)
    )


def match(text: str) -> str | None:
    """All words, as beginnings of words; with AND, OR or NOT, what they say."""
    if _OPERATOR.search(text):
        parts = [part.strip() for part in _OPERATOR.split(text)]
        return " ".join(part if part in ("AND", "OR", "NOT") else _grouped(part) for part in parts if part) or None
    return _terms(text, "*") or None


def any_word(text: str) -> str | None:
    """What is asked for if all words find nothing: any of at least three; None if nothing more is asked."""
    if '"' in text or _OPERATOR.search(text):
        return None
    words = _TOKEN.findall(text.lower())
    if len(words) < LEAST_RELAXED_WORDS or any(word.isnumeric() for word in words):
        return None
    kept = [word for word in words if word not in STOP_WORDS] or words
    return " OR ".join(_term(word, "*") for word in dict.fromkeys(kept))


def _grouped(text: str) -> str:
    """The terms between operators; parentheses stay, and what is between two is one phrase."""
    if not re.search(r"[()]", text):
        return _terms(text, "")
    pieces = [piece.strip() for piece in re.split(r"([()])", text)]
    return "".join(piece if piece in ("(", ")") else _term(piece, "") for piece in pieces if piece)


def _terms(text: str, ending: str) -> str:
    pieces = [piece if piece.startswith('"') else piece.strip(_EDGES) for piece in _PIECE.findall(text)]
    return " AND ".join(_term(piece, ending) for piece in pieces if any(sign.isalnum() for sign in piece))


def _term(word: str, ending: str) -> str:
    """A word, or what is between quotes, as a phrase where it has other signs than letters, digits and _."""
    if len(word) > 2 and word.startswith('"') and word.endswith('"'):
        return word + ending
    if word.endswith("*"):
        word, ending = word.rstrip("*"), "*"
    if re.fullmatch(r"\w+", word):
        return word + ending
    quoted_word = '"' + word.replace('"', '""') + '"'
    return quoted_word if "/" in word and word.endswith(".md") else quoted_word + ending


def _body(markdown: str) -> str:
    """SQL for a Markdown text without its front matter, as read_note gives it."""
    end = f"instr(substr({markdown}, 4), char(10) || {_FRONT})"
    after = f"CASE WHEN substr({markdown}, 1, 4) = {_FRONT} AND {end} > 0 THEN substr({markdown}, {end} + 8) ELSE {markdown} END"
    return f"trim({after}, char(10))"


def _indexed_text(reader: Reader) -> str:
    """SQL for the text of a note in the search index, which older files have alone."""
    # The index has no key for it but the rowid: one look at all rows, not one for each note.
    rows: dict[int, int] = dict(reader.rows(f"SELECT id, rowid FROM {INDEX} WHERE type = 'entity'"))
    reader.connection.create_function("basic_memory_row", 1, rows.get, deterministic=True)
    return f"(SELECT i.content_snippet FROM {INDEX} AS i WHERE i.rowid = basic_memory_row(e.id))"


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The notes, of all projects or one."""
    listed = reader.rows("SELECT name, id FROM project ORDER BY name") if schema.has("project") else []
    projects: dict[str, int] = dict(listed)
    project = chosen(address, "project", list(projects))
    own = schema.tables["entity"].columns
    external = "e.external_id" if "external_id" in own else "'note ' || e.id"

    def id_of(alias: str) -> str:
        other = external.replace("e.", f"{alias}.")
        twice = f"EXISTS (SELECT 1 FROM entity AS o WHERE o.permalink = {alias}.permalink AND o.id <> {alias}.id)"
        return f"(CASE WHEN {alias}.permalink IS NULL OR {twice} THEN {other} ELSE {alias}.permalink END)"

    text, lacking = "NULL", "1"
    if schema.has("note_content", ("entity_id", "markdown_content")):
        text = _body("(SELECT n.markdown_content FROM note_content AS n WHERE n.entity_id = e.id)")
        lacking = "NOT EXISTS (SELECT 1 FROM note_content AS n WHERE n.entity_id = e.id)"
    if reader.rows(f"SELECT 1 FROM entity AS e WHERE {lacking} LIMIT 1"):
        text = f"COALESCE({text}, {_indexed_text(reader)})"
    (nowhere,) = reader.row("SELECT count(*) FROM relation WHERE to_id IS NULL")
    notes = [f"{nowhere:,} relations lead to notes that do not exist; they are left out"] if nowhere else []
    if len(projects) > 1 and project is None:
        notes.append(f"projects: {', '.join(projects)}; ?project= chooses one")
    columns = {
        name: f"e.{name}"
        for name in ("title", "note_type", "file_path", "created_at", "updated_at", "created_by")
        if name in own
    }
    ends = "JOIN entity AS a ON a.id = r.from_id JOIN entity AS b ON b.id = r.to_id"
    within = " WHERE a.project_id = :project AND b.project_id = :project" if project is not None else ""
    chunks, model = _chunks(reader, schema, projects[project] if project is not None else None)
    return Layout(
        kind=LAYOUT.name,
        source="entity AS e",
        key="e.id",
        id=id_of("e"),
        text=text,
        columns=columns
        | {"entity_metadata": "e.entity_metadata"}
        | ({"project": "(SELECT p.name FROM project AS p WHERE p.id = e.project_id)"} if projects else {}),
        json=frozenset(("entity_metadata",)),
        names=Names(
            {"category": "note_type", "source_ref": "file_path", "tags": "entity_metadata.tags", "author": "created_by"}
        ),
        condition="e.project_id = :project" if project is not None else "1",
        values={"project": projects[project]} if project is not None else {},
        chunks=chunks,
        fts5=Fts5(
            INDEX,
            "fts.rowid",
            match,
            columns=COLUMNS,
            relaxed=any_word,
            condition="fts.type = 'entity' AND e.id = fts.id",
        ),
        relations=f"SELECT {id_of('a')}, {id_of('b')}, r.relation_type FROM relation AS r {ends}{within} ORDER BY r.id",
        model=model,
        known=frozenset(f"entity_metadata.{name}" for name in ("title", "type", "permalink")),
        notes=tuple(notes),
    )


def _chunks(reader: Reader, schema: Schema, project: int | None) -> tuple[Chunks | None, str | None]:
    """The parts of notes, and the model that their vectors are of."""
    if not schema.has("search_vector_chunks", ("id", "entity_id", "chunk_text", "source_type")):
        return None, None
    columns = schema.tables["search_vector_chunks"].columns
    table = schema.table(VECTORS)
    vectors = None
    if table is not None and table.module == "vec0":
        own = vec0.parsed(table)
        column = own.vector("embedding")
        searched = "c.source_type = 'entity'" + (
            " AND c.embedding_status = 'ready'" if "embedding_status" in columns else ""
        )
        partitioned = project is not None and any(each.role == "partition" for each in own.others)
        if column.form is not None:
            vectors = Vectors(
                column.form,
                vec0=(own, column),
                rowid="c.id",
                condition=searched,
                partition={"project_id": project} if partitioned else {},
            )
    model = None
    if "embedding_model" in columns:
        rows = reader.rows(
            "SELECT embedding_model, count(*) FROM search_vector_chunks GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
        )
        # Provider:model:dimension.
        found = re.fullmatch(r"[^:]*:(.+):\d+", rows[0][0]) if rows else None
        model = found[1] if found else None
    return Chunks(
        "search_vector_chunks AS c",
        key="c.id",
        memory="c.entity_id",
        number="c.id",
        text="c.chunk_text",
        vectors=vectors,
    ), model


LAYOUT = SqliteLayout("basic_memory", "basic-memory", recognises, read, options=("project",))
