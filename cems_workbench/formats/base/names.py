"""What files of other tools call the parts of a judgment, and the ids that should come to a query, those that must not, and those returned.

The parts of a judgment have the names of TREC, ir_datasets, PyTerrier, BEIR, MTEB, ranx and their kin. Names are compared without case, and
with blanks and hyphens as underscores. A name of ids is a word for the role, what the ids are of and that they are ids: `expected_ids`,
`relevantDocIds`, `gold_memory_ids`, `expected_files`. The ids are a list, one text, or `{id: grade}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from cems_workbench.formats.base.fields import FieldError, items_in
from cems_workbench.formats.base.files import data_beside

NAMES: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["judgment"]
"""Names by field of a judgment, likelier ones first."""
ANSWER: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["answer"]
"""Names in the answers of engines, of lists, ids, scores and distances, likelier ones first."""
WORDS = ("query", "query_text", "querytext")
"""Names of the words of a query, which a judgment may have beside its id, or instead of it."""
IGNORED = ("iteration", "iter", "q0", "0", "rank")
"""Columns of judgments and runs that say nothing of a judgment."""
RUN = ("rank", "run_id", "runid", "run")
"""Columns that only results of a system have, whose score is no grade."""


def plain(name: str) -> str:
    """A name as names are compared."""
    return name.strip().lower().replace("-", "_").replace(" ", "_")


def fields_of(names: Iterable[str]) -> dict[str, str]:
    """The name in the file of each field of a judgment that is there."""
    there: dict[str, str] = {}
    for name in names:
        there.setdefault(plain(name), name)
    return {field: there[name] for field, known in NAMES.items() for name in reversed(known) if name in there}


def names_judgments(names: Iterable[str]) -> bool:
    """Whether these are the names of a judgment whose query is named by its id: all three parts, and nothing of a run."""
    names = [*names]
    return fields_of(names).keys() == NAMES.keys() and not {plain(name) for name in names} & {*RUN}


def names_words(names: Iterable[str]) -> bool:
    """Whether these are the names of a judgment whose query is named by its words alone; a score may be that of a run."""
    there = {plain(name) for name in names}
    found = fields_of(there)
    return (
        {"memory_id", "grade"} == found.keys()
        and found["grade"] != "score"
        and bool(there & {*WORDS})
        and not there & {*RUN}
    )


def words_of(row: Mapping[str, Any]) -> Any:
    """The value of a row's words of the query; None if it has none."""
    return next((row[name] for name in row if plain(name) in WORDS), None)


def renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with the names of our fields; other names stay, but for columns that say nothing."""
    fields = fields_of(row)
    taken = {name: field for field, name in fields.items()}
    rest = {name: value for name, value in row.items() if name not in taken and plain(name) not in IGNORED}
    return {**rest, **{field: row[name] for name, field in taken.items()}}


_OF = "(?:memor(?:y|ies)|(?:document|doc|chunk|passage|note|fact|node|context|corpus|page|item|record|source|message|entr(?:y|ie))s?)"
_IDS = "(?:ids?|files?|paths?|uris?|keys?)"
_WANTED = (
    "expected|relevant|gold(?:en)?|correct|target(?!_?id$)|ground_?truth|reference|positive|answer|evidence|supporting|needle|"
    "(?:must|should)_?(?:return|retrieve|include|find)"
)
_NOT = "(?:must|should)_?not_?(?:return|retrieve|include|find)"
_UNWANTED = f"noise|irrelevant|(?:hard_?)?negatives?|not_?relevant|unexpected|forbidden|{_NOT}"
_RETURNED = "retrieved|retrieval|ranked|ranking|returned|predicted|predictions?|results?|top|hits?|found"


def _names(roles: str, alone: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{roles})(?:_?{_OF})?_?{_IDS}(?:_?list)?|(?:{roles})_?{_OF}|{alone}")


WANTED = _names(_WANTED, "expected|relevant|gold|golden|positives?|needles?")
UNWANTED = _names(_UNWANTED, "negatives?|noise|irrelevant|forbidden")
RETURNED = _names(_RETURNED, "retrieved|ranked|ranking|returned|predicted|predictions?")
SURE = re.compile(r"(?:expected|relevant|gold|ground_?truth|needle|must|should).*")
"""Roles that nothing but a query has: a memory may have evidence and references too."""
_ONLY_IDS = re.compile(rf".*{_IDS}(?:_?list)?")
QIDS = (*NAMES["qid"], "question_id", "case_id", "test_id", "id", "_id")
ASKED = (*WORDS, "question", "user_query", "search_text", "searchtext", "user_input", "input", "prompt", "q", "text")
"""Names of the words of a query, likelier ones first."""
ANY_ROW = frozenset(("id", "_id", "input", "prompt", "q", "text"))
"""Those of them that rows which are no query have too."""
ITEM_IDS = ("id", "_id", *NAMES["memory_id"], "file", "path")
_SEPARATORS = (re.compile(r"\s*[;|\n]\s*"), re.compile(r"\s*,\s*"))


def named(names: Iterable[str], role: re.Pattern[str]) -> list[str]:
    """Those of the names that have a role, those that say that they hold ids first."""
    return sorted((name for name in names if role.fullmatch(plain(name))), key=lambda name: not only_ids(name))


def only_ids(name: str) -> bool:
    """Whether a name says that it holds ids or files, and no texts."""
    return _ONLY_IDS.fullmatch(plain(name)) is not None


def first_of(row: Mapping[str, Any], names: Iterable[str]) -> tuple[str, Any]:
    """The first of these names under which a row has a value, as it is written there, and the value; ("", None) without one."""
    there = {plain(name): name for name in row if row[name] not in (None, "")}
    found = next((there[name] for name in names if name in there), "")
    return found, row.get(found)


def items_of(field: str, value: Any, grade: int) -> list[tuple[Any, Any]]:
    """(id or text, grade as given, else `grade`) of each memory that a field names. Raises FieldError."""
    if isinstance(value, str):
        value = _split(field, value)
    if isinstance(value, dict) and not first_of(value, ITEM_IDS)[0]:
        return [*value.items()]
    if value is None or isinstance(value, bool):
        return []
    found: list[tuple[Any, Any]] = []
    for item in value if isinstance(value, list) else [value]:
        memory_id, stated = item, None
        if isinstance(item, dict):
            (name, memory_id), (_, stated) = first_of(item, ITEM_IDS), first_of(item, NAMES["grade"])
            if not name:
                raise FieldError(field, f"must have ids, found an object without {', '.join(ITEM_IDS[:3])}")
        found.append(
            (memory_id.strip() if isinstance(memory_id, str) else memory_id, grade if stated is None else stated)
        )
    return found


def _split(field: str, text: str) -> list[Any]:
    """The ids in a text: a list in JSON or as Python writes it, or ids between ; | or lines, else between commas. Raises FieldError."""
    if text.lstrip().startswith(("[", "{")):
        return items_in(field, text if text.lstrip().startswith("[") else f"[{text}]")
    separator = next((each for each in _SEPARATORS if each.search(text.strip())), None)
    return [part for part in (separator.split(text.strip()) if separator else [text.strip()]) if part]
