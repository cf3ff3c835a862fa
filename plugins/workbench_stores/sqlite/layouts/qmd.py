"""QMD: `documents` (collection, path, title, hash, active) over `content` (hash, doc), a vector for each chunk, documents_fts.

A memory is a document; its id is what QMD shows after qmd://, `collection/path`. A document that is no longer in its folder stays with
active = 0. content_vectors says where each chunk begins, in UTF-16 units, and not where it ends: OVERLAP characters behind the
beginning of the next one, which is exact unless a chunk had more than 900 tokens and was split again.

`?collection=NAME` takes the documents of one collection. The lexical list is that of `qmd search`: all words, as beginnings of words,
without those after a minus; bm25 with the weights 1.5 (path), 4 (title), 1 (body). QMD shows |bm25| / (1 + |bm25|). Its vector list has
a document once.

Source: @tobilu/qmd 2.8.3, run under bun 1.4.5
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from cems_workbench.formats.base.payload import Names
from cems_workbench.records import EmbeddedText
from cems_workbench.sources.address import Address
from workbench_stores.sqlite import vec0
from workbench_stores.sqlite.file import Reader
from workbench_stores.sqlite.layout import Chunks, Fts5, Layout, SqliteLayout, Vectors
from workbench_stores.sqlite.layouts._shared import chosen
from workbench_stores.sqlite.schema import Schema

OVERLAP = 405
"""Characters that a chunk shares with the next: 15 % of 900 tokens, of 3 characters each."""
WEIGHTS = (1.5, 4.0, 1.0)
"""Of bm25: filepath, title, body."""
VECTORS = "vectors_vec"
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


def recognises(schema: Schema) -> bool:
    """Whether a file has QMD's tables."""
    return (
        schema.has("documents", ("id", "collection", "path", "title", "hash", "active"))
        and schema.has("content", ("hash", "doc"))
        and schema.has("content_vectors", ("hash", "seq", "pos"))
    )


def match(text: str) -> str | None:
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
    """The characters at these UTF-16 units."""
    if content.isascii() or max(content) <= "\uffff":
        return list(units)
    sizes = np.fromiter((1 + (sign > "\uffff") for sign in content), np.int64, len(content))
    return [int(place) for place in np.searchsorted(np.cumsum(sizes), units, side="right")]


def read(reader: Reader, schema: Schema, address: Address) -> Layout:
    """The documents, of all collections or one."""
    collections = [row[0] for row in reader.rows("SELECT DISTINCT collection FROM documents ORDER BY 1")]
    collection = chosen(address, "collection", collections)
    table = schema.table(VECTORS)
    own = vec0.parsed(table) if table is not None and table.module == "vec0" else None
    column = own.vector("embedding") if own is not None else None
    vectors = None
    if own is not None and column is not None and column.form is not None:
        vectors = Vectors(column.form, vec0=(own, column), vec0_id="(v.hash || '_' || v.seq)")
    models = reader.rows("SELECT model, count(*) FROM content_vectors GROUP BY model ORDER BY 2 DESC, 1 LIMIT 2")
    notes = (
        [f"collections: {', '.join(collections)}; ?collection= chooses one"]
        if len(collections) > 1 and not collection
        else []
    )
    notes.append("what QMD embeds of a query is `task: search result | query: QUERY`, unless the model is Qwen3's")
    if len(models) > 1:
        notes.append(f"vectors of several models: {', '.join(row[0] for row in models)}")
    return Layout(
        kind=LAYOUT.name,
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
        fts5=Fts5("documents_fts", "d.id", match, WEIGHTS) if schema.has("documents_fts") else None,
        model=models[0][0] if models else None,
        notes=tuple(notes),
    )


LAYOUT = SqliteLayout("qmd", "QMD", recognises, read, options=("collection",))
