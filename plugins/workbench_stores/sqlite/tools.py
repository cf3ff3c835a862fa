"""SQLite files of memory tools, known by their tables; each tool was run.

basic-memory   basic-memory 0.24.1
claude-mem     claude-mem 13.25.3 with chroma-mcp 0.2.6
QMD            @tobilu/qmd 2.8.3, under bun 1.4.5
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cems_workbench.formats.base.files import data_beside
from cems_workbench.formats.base.payload import Names
from cems_workbench.records import EmbeddedText
from cems_workbench.sources.address import Address
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Chunks, Fts5, Layout, Vectors, chosen, layouts
from workbench_stores.sqlite.schema import Schema

INDEX = "search_index"
COLUMNS = ("title", "content_stems", "content_snippet")
LEAST_RELAXED_WORDS = 3
STOP_WORDS = frozenset(data_beside(__file__, "names.json")["stop_words"])
"""Words that any_word leaves out."""
_OPERATOR = re.compile(r"(?<!\S)(AND|OR|NOT)(?!\S)")
_PIECE = re.compile(r'"[^"]*"|\S+')
_TOKEN = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_EDGES = "?!.,;:"
_FRONT = "'---' || char(10)"


def basic_memory_match(text: str) -> str | None:
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


def _basic_memory(reader: Reader, schema: Schema, address: Address) -> Layout:
    """Notes (`entity`, `note_content`), their parts with vectors, relations, and the FTS5 table search_index.

    A memory is a note; its id is its permalink (external_id where it has none, or two projects have the same). Its chunks are the rows
    of search_vector_chunks: parts of the note, its observations, its relations. A relation to a note that does not exist is left out.

    `?project=NAME` takes the notes of one project. Both lists are those of `search_notes`, which searches notes alone unless it is
    asked for more: the vector list is over parts of notes; its similarity is 1 - distance² / 2. The lexical list has notes in which one
    column (title, stems, body) matches all words, as beginnings of words; their bm25 is that of the first such column. If there is
    none, and the query has at least three words and no number, any word but stop words counts. Scripts without spaces, which
    basic-memory searches by pairs of signs, are searched as words.

    Times have no zone in the file; they are the local times of the machine that wrote it, and are read as UTC.
    """
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
    names = ("title", "note_type", "file_path", "created_at", "updated_at", "created_by")
    columns = {name: f"e.{name}" for name in names if name in own}
    ends = "JOIN entity AS a ON a.id = r.from_id JOIN entity AS b ON b.id = r.to_id"
    within = " WHERE a.project_id = :project AND b.project_id = :project" if project is not None else ""
    chunks, model = _chunks(reader, schema, projects[project] if project is not None else None)
    return Layout(
        kind="basic_memory",
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
            basic_memory_match,
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
    if not schema.has("search_vector_chunks", ("id", "entity_id", "chunk_text", "source_type")):
        return None, None
    columns = schema.tables["search_vector_chunks"].columns
    table = schema.table("search_vector_embeddings")
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


TABLES = ("observations", "session_summaries", "user_prompts")
FTS = "observations_fts"
PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
"""Texts of a summary."""
FIELDS = ("title", "category", "project", "session", "concepts", "created_at", "updated_at")
NOT_FIELDS = ("subtitle", "files_read", "files_modified")
"""Columns that a mapping can take."""
_TEXT = re.compile(r"(?:obs_\d+_(?:narrative|text|fact_\d+)|summary_\d+_\w+|prompt_\d+)")
FACTS = "CASE WHEN json_valid({0}.facts) THEN (SELECT group_concat('- ' || f.value, char(10)) FROM json_each({0}.facts) AS f) END"


def claude_mem_match(text: str) -> str | None:
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
    parts = " || ".join(f"COALESCE(char(10) || nullif({text}, ''), '')" for text in texts)
    return f"trim({parts}, char(10))"


def _claude_mem(reader: Reader, schema: Schema, address: Address) -> Layout:
    """Observations, session_summaries and user_prompts, with their vectors in a Chroma folder beside the file.

    A memory is a row of one of the three; its id is the one that its texts begin with in Chroma: obs_12, summary_3, prompt_7. An
    observation's content is its text, narrative and facts; a summary's are its parts. memory_items, which claude-mem's server mode
    writes, are taken too (item_ID) unless they are of an observation; that table was read from its schema and not recorded.

    The list fts5 is that of `/api/search?type=observations` without Chroma: observations alone, the whole query as one phrase. The
    vector list is Chroma's own over the texts. claude-mem shows of it what is younger than 90 days, newest first.

        ?chroma=FOLDER   the Chroma folder, if it is not `chroma` beside the file
    """

    def project(alias: str, table: str) -> str:
        merged = "merged_into_project" in schema.tables[table].columns
        return f"COALESCE(nullif({alias}.merged_into_project, ''), {alias}.project)" if merged else f"{alias}.project"

    of_session = "(SELECT min(y.id) FROM sdk_sessions AS y WHERE y.content_session_id = u.content_session_id)"
    if "session_db_id" in schema.tables["user_prompts"].columns:
        of_session = f"COALESCE(u.session_db_id, {of_session})"
    observations = (
        f"SELECT 'obs_' || o.id AS id, o.id AS number, {_joined('o.text', 'o.narrative', FACTS.format('o'))} AS content, o.title, "
        f"o.type AS category, {project('o', 'observations')} AS project, o.memory_session_id AS session, o.concepts, "
        "o.created_at_epoch AS created_at, NULL AS updated_at, o.subtitle, o.files_read, o.files_modified FROM observations AS o"
    )
    # A UNION takes the columns by their places.
    summaries = (
        f"SELECT 'summary_' || s.id, NULL, {_joined(*(f's.{part}' for part in PARTS))}, s.request, 'session_summary', "
        f"{project('s', 'session_summaries')}, s.memory_session_id, NULL, s.created_at_epoch, NULL, NULL, s.files_read, s.files_edited "
        "FROM session_summaries AS s"
    )
    prompts = (
        "SELECT 'prompt_' || u.id, NULL, u.prompt_text, NULL, 'user_prompt', x.project, COALESCE(x.memory_session_id, "
        "u.content_session_id), NULL, u.created_at_epoch, NULL, NULL, NULL, NULL "
        f"FROM user_prompts AS u LEFT JOIN sdk_sessions AS x ON x.id = {of_session}"
    )
    selects = [observations, summaries, prompts]
    if schema.has("memory_items", ("id", "project_id", "legacy_observation_id", "kind", "text", "narrative", "facts")):
        items = (
            f"SELECT 'item_' || i.id, NULL, {_joined('i.text', 'i.narrative', FACTS.format('i'))}, i.title, i.type, i.project_id, "
            "i.server_session_id, i.concepts, i.created_at_epoch, i.updated_at_epoch, i.subtitle, i.files_read, i.files_modified "
            "FROM memory_items AS i WHERE i.legacy_observation_id IS NULL"
        )
        selects.append(items)
    counts = [(name, reader.row(f"SELECT count(*) FROM {name}")[0]) for name in TABLES]
    return Layout(
        kind="claude_mem",
        source=f"({' UNION ALL '.join(selects)}) AS m",
        key=None,
        id="m.id",
        text="m.content",
        columns={name: f"m.{name}" for name in (*FIELDS, *NOT_FIELDS)},
        names=Names({"tags": "concepts"}),
        fts5=Fts5(FTS, "m.number", claude_mem_match, source=f"({observations}) AS m") if schema.has(FTS) else None,
        notes=(f"rows: {', '.join(f'{count:,} {name}' for name, count in counts)}",),
    )


OVERLAP = 405
"""Characters that a chunk shares with the next: 15 % of 900 tokens, of 3 characters each."""
WEIGHTS = (1.5, 4.0, 1.0)
"""Of bm25: filepath, title, body."""
EMBEDDED = "QMD's text: title: TITLE | text: TEXT"
_PART = re.compile(r'(-?)(?:"([^"]*)(?:"|$)|([^\s"]+))')
_WORD = r"[^\W_]"
_HYPHENATED = re.compile(rf"{_WORD}(?:{_WORD}|['-])*-{_WORD}(?:{_WORD}|['-])*")
_DOTTED = re.compile(r"\w+(?:\.\w+)+")
_NO_WORD = re.compile(r"[^\w']")
_CJK = re.compile(
    "[\u2e80-\u2eff\u2f00-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af\U00020000-\U0003ffff]+"
)


def qmd_match(text: str) -> str | None:
    """The FTS5 query that QMD makes of words; None if there is no word to find."""
    wanted, unwanted = [], []
    for minus, phrase, word in _PART.findall(text):
        parts = [f'"{found}"'] if (found := _phrase(phrase)) else [] if phrase or not word else list(_word(word))
        if minus:
            unwanted += [f"({' AND '.join(parts)})" if _DOTTED.fullmatch(word) else part for part in parts[:1]]
        else:
            wanted += parts
    return " NOT ".join([" AND ".join(wanted), *unwanted]) if wanted else None


def _phrase(text: str) -> str:
    spaced = _CJK.sub(lambda run: f" {' '.join(run[0])} ", text)
    words = [part for each in spaced.split() for part in (each.split(".") if _DOTTED.fullmatch(each) else [each])]
    return " ".join(found for word in words if (found := _bare(word)))


def _word(word: str) -> Iterator[str]:
    """What a word becomes: a phrase of the parts of one with hyphens or of CJK signs, else beginnings of words."""
    if _HYPHENATED.fullmatch(word):
        if found := " ".join(part for each in word.split("-") if (part := _bare(each))):
            yield f'"{found}"'
    elif not _DOTTED.fullmatch(word) and _CJK.search(word):
        if found := _phrase(word):
            yield f'"{found}"'
    else:
        for each in word.split(".") if _DOTTED.fullmatch(word) else [word]:
            if found := _bare(each):
                yield f'"{found}"*'


def _bare(word: str) -> str:
    return _NO_WORD.sub("", word).lower()


def cut(content: str, starts: Sequence[int]) -> list[tuple[int, str]]:
    """(start in characters, text) of the chunks that begin at these UTF-16 units."""
    places = _characters(content, starts)
    ends = [min(start + OVERLAP, len(content)) for start in places[1:]]
    return [(start, content[start:end]) for start, end in zip(places, [*ends, len(content)], strict=True)]


def _characters(content: str, units: Sequence[int]) -> list[int]:
    if content.isascii() or max(content) <= "\uffff":
        return list(units)
    sizes = np.fromiter((1 + (sign > "\uffff") for sign in content), np.int64, len(content))
    return [int(place) for place in np.searchsorted(np.cumsum(sizes), units, side="right")]


def _qmd(reader: Reader, schema: Schema, address: Address) -> Layout:
    """`documents` (collection, path, title, hash, active) over `content` (hash, doc), a vector for each chunk, documents_fts.

    A memory is a document; its id is what QMD shows after qmd://, `collection/path`. A document that is no longer in its folder stays
    with active = 0. content_vectors says where each chunk begins, in UTF-16 units, and not where it ends: OVERLAP characters behind the
    beginning of the next one, which is exact unless a chunk had more than 900 tokens and was split again.

    `?collection=NAME` takes the documents of one collection. The lexical list is that of `qmd search`: all words, as beginnings of
    words, without those after a minus; bm25 with the weights 1.5 (path), 4 (title), 1 (body). QMD shows |bm25| / (1 + |bm25|). Its
    vector list has a document once.
    """
    collections = [row[0] for row in reader.rows("SELECT DISTINCT collection FROM documents ORDER BY 1")]
    collection = chosen(address, "collection", collections)
    table = schema.table("vectors_vec")
    own = vec0.parsed(table) if table is not None and table.module == "vec0" else None
    column = own.vector("embedding") if own is not None else None
    vectors = None
    if own is not None and column is not None and column.form is not None:
        vectors = Vectors(column.form, vec0=(own, column), vec0_id="(v.hash || '_' || v.seq)")
    models = reader.rows("SELECT model, count(*) FROM content_vectors GROUP BY model ORDER BY 2 DESC, 1 LIMIT 2")
    notes = [f"collections: {', '.join(collections)}; ?collection= chooses one"]
    notes = notes if len(collections) > 1 and not collection else []
    notes.append("what QMD embeds of a query is `task: search result | query: QUERY`, unless the model is Qwen3's")
    if len(models) > 1:
        notes.append(f"vectors of several models: {', '.join(row[0] for row in models)}")
    return Layout(
        kind="qmd",
        source="documents AS d",
        key="d.id",
        id="(d.collection || '/' || d.path)",
        text="(SELECT doc FROM content WHERE content.hash = d.hash)",
        columns={
            "title": "d.title",
            "collection": "d.collection",
            "file": "('qmd://' || d.collection || '/' || d.path)",
            "created_at": "d.created_at",
            "modified_at": "d.modified_at",
        },
        names=Names({"project": "collection", "source_ref": "file"}),
        condition="d.collection = :collection" if collection is not None else "1",
        values={"collection": collection} if collection is not None else {},
        deleted="d.active = 0",
        chunks=Chunks(
            "content_vectors AS v JOIN documents AS e ON e.hash = v.hash",
            key="v.rowid",
            memory="e.id",
            number="v.seq",
            start="v.pos",
            cut=cut,
            vectors=vectors,
            embedded=lambda payload: {EMBEDDED: EmbeddedText(f"title: {payload.get('title') or 'none'} | text: ")},
        ),
        fts5=Fts5("documents_fts", "d.id", qmd_match, WEIGHTS) if schema.has("documents_fts") else None,
        model=models[0][0] if models else None,
        notes=tuple(notes),
    )


TOOLS = tuple(
    replace(one, place=place) if one.beside else one
    for one in layouts({"basic_memory": _basic_memory, "claude_mem": _claude_mem, "qmd": _qmd})
)
