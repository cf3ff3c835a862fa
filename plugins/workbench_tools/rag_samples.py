"""Samples of RAGAS and goldens or test cases of DeepEval: queries with the memories that answer them and those that were retrieved.

    query       user_input, of a conversation what its last user said; question (RAGAS before 0.2), input (DeepEval); query
    answers it  reference_context_ids, also in additional_metadata or custom_column_key_values; without ids the texts of
                reference_contexts (RAGAS) or context (DeepEval); ids also under the names of `expected_ids`
    retrieved   retrieved_context_ids, ranked_ids, …; without ids the texts of retrieved_contexts, contexts (RAGAS before 0.2) or
                retrieval_context

What answers a query is judged 1. A text is the memory with that content, or the only one that contains it; any other text is named. A
sample without anything retrieved has no recorded answer; an empty list is an empty answer.

Read as their own writers leave them (RAGAS 0.4.3, DeepEval 4.3.1): JSON, JSON lines, a table of pandas, CSV in which RAGAS writes lists as
Python does and DeepEval, in its JSON lines too, joins texts by "|".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.formats.base.csv_table import DELIMITERS, columns_of, open_table, read_rows
from cems_workbench.formats.base.fields import FieldError, identifier, items_in, required_text
from cems_workbench.formats.base.files import Sample, as_object, data_beside, read_records
from cems_workbench.formats.base.format import described
from cems_workbench.formats.base.names import QIDS, RETURNED, WANTED, WORDS, first_of, items_of, named
from cems_workbench.formats.base.records import derived_id, judgment_of, reported
from cems_workbench.formats.logs import RESULTS, Asked, Asking, parsed_log
from cems_workbench.formats.responses import rows_of_answer
from cems_workbench.progress import Progress
from cems_workbench.records import JUDGED_TEXTS, Judgment, ParsedInput, RecordedAnswer, RowError
from workbench_tools.documents import rows_of_table, sampled_rows
from workbench_tools.spans import words_of_query

NAME = "rag-samples"
_NAMES: Mapping[str, tuple[str, ...]] = data_beside(__file__, "names.json")["sample"]
QUERIES = (*_NAMES["queries"], *WORDS)
GOLD_IDS, GOLD_TEXTS, RETRIEVED_IDS, RETRIEVED_TEXTS = (
    _NAMES[each] for each in ("gold_ids", "gold_texts", "retrieved_ids", "retrieved_texts")
)
BESIDE = _NAMES["beside"]
"""Objects of DeepEval that hold what its samples have no field for."""
LISTS = (*GOLD_IDS, *GOLD_TEXTS, *RETRIEVED_IDS, *RETRIEVED_TEXTS)
CSV = (".csv", ".tsv")
GRADE = 1
PAIRS = (
    (("user_input",), (*LISTS, "reference", "response")),
    (("question",), ("contexts", *GOLD_IDS[:1], *RETRIEVED_IDS[:1], "retrieved_contexts", "reference_contexts")),
    (("input", "expected_output"), ("context", "retrieval_context")),
    (("input", "actual_output"), ("context", "retrieval_context")),
)
"""What the names of a sample have: all of the first, and one of the second."""
SEPARATOR = "[|]"
"""What DeepEval puts between texts."""


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read samples; raises InputError when the file cannot be read."""
    errors: list[RowError] = []
    asked: list[Asked] = []
    judged: list[tuple[int, Judgment]] = []
    texts: list[tuple[int, str, Judgment, str]] = []
    wordings: dict[str, int] = {}
    rows = _csv(path, errors, progress) if path.suffix.lower() in CSV else _json(path, errors, progress)
    for number, row in rows:
        with reported(errors, str(path), number):
            one, gold, contexts = _sample(number, row, str(path), errors, wordings)
            asked.append(one)
            judged += [(number, judgment) for judgment in gold]
            texts += [(number, field, Judgment(one.qid, "", GRADE), text) for field, text in contexts]
    parsed = parsed_log(path, NAME, asked, errors, results=RETRIEVED_IDS[0])
    parsed = parsed.with_rows(judgments=judged)
    queries = tuple(replace(query, type=None) for query in parsed.queries)
    return replace(parsed, queries=queries, extra={**parsed.extra, JUDGED_TEXTS: texts})


def _sample(
    number: int, row: Mapping[str, Any], source: str, errors: list[RowError], wordings: dict[str, int]
) -> tuple[Asked, list[Judgment], list[tuple[str, str]]]:
    """The asking of a sample, and the judgments, or else the (field, text), of what answers it. Raises FieldError."""
    name = next((name for name in QUERIES if row.get(name) is not None), QUERIES[0])
    query = required_text({name: words_of_query(row.get(name))}, name)
    wordings[query] = wordings.get(query, 0) + 1
    id_field, given = first_of(row, QIDS)
    qid = identifier({id_field: given}, id_field) if id_field else derived_id("sample", query, str(wordings[query]))
    beside = [found for name in BESIDE if (found := as_object(row.get(name)))]
    field, ids = _list(row, GOLD_IDS, beside)
    others = [name for name in named(row, WANTED) if name not in GOLD_TEXTS][:1] if ids is None else []
    items = [(field, one, GRADE) for one in ids or ()]
    items += [(name, *item) for name in others for item in items_of(name, row[name], GRADE)]
    gold = list(dict.fromkeys(judgment_of(qid, *item) for item in items))
    field, contexts = (field, None) if gold else _list(row, GOLD_TEXTS)
    texts = [(f"{field}[{place}]", text) for place, text in enumerate(contexts or ()) if isinstance(text, str)]
    returned_ids = [name for name in named(row, RETURNED) if name not in RETRIEVED_TEXTS]
    field, retrieved = _list(row, (*RETRIEVED_IDS, *returned_ids, RESULTS), beside)
    if retrieved is None:
        field, retrieved = _list(row, RETRIEVED_TEXTS)
        retrieved = None if retrieved is None else [_content(one) for one in retrieved]
    asked: Asked = Asking(number, qid, query, None)
    if retrieved is not None:
        returned = rows_of_answer(retrieved, number, source, errors, field)
        asked = RecordedAnswer(number, qid, query, None, returned)
    return asked, gold, texts


def _list(
    row: Mapping[str, Any], names: Sequence[str], beside: Sequence[Mapping[str, Any]] = ()
) -> tuple[str, list[Any] | None]:
    """The first of these lists that a row, or an object beside, has, with its name; None without any. Raises FieldError."""
    for one in (row, *beside):
        for name in names:
            value = one.get(name)
            if value is None or (isinstance(value, str) and not value.strip()):
                continue
            if isinstance(value, str):
                value = items_in(name, value, SEPARATOR)
            if not isinstance(value, list):
                raise FieldError(name, "must be a list")
            return name, value
    return names[0], None


def _content(value: Any) -> Any:
    """A retrieved text as a result; DeepEval may name its source beside it."""
    if isinstance(value, dict):
        return {"content": value.get("context"), **value}
    return {"content": value} if isinstance(value, str) else value


def _json(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, row in read_records(path, errors, progress):
        table = rows_of_table(row, QUERIES)
        yield from [(number, row)] if table is None else enumerate(table, 1)


def _csv(path: Path, errors: list[RowError], progress: Progress) -> Iterator[tuple[int, dict[str, Any]]]:
    table = open_table(path, (), (*QUERIES, *LISTS))
    if not is_sample({name.lower() for name in table.columns}):
        raise InputError(f"{path}: the header has no column {', '.join(QUERIES)} beside one of {', '.join(LISTS[:4])}")
    for line, row in read_rows(table, errors, progress):
        yield line, {name.lower(): cell for name, cell in row.items() if cell.strip()}


def is_sample(names: Collection[str]) -> bool:
    """Whether the fields with these names are those of a sample: a query beside what was returned, `results` beside what should be."""
    asked, returned = any(name in names for name in QUERIES), [*named(names, RETURNED)]
    if asked and (returned or (RESULTS in names and named(names, WANTED))):
        return True
    return any(all(one in names for one in every) and any(one in names for one in some) for every, some in PAIRS)


def sniff(sample: Sample) -> bool:
    """Samples by their fields, in rows or a table, or a header with their names."""
    if sample.rows:
        rows = sampled_rows(sample, QUERIES)
        return sum(map(is_sample, rows)) * 2 > len(rows)
    return any(is_sample({name.lower() for name in columns_of(sample.header, mark)}) for mark in DELIMITERS)


FORMAT = described(
    __file__,
    NAME,
    sniff,
    read,
    needs=(QUERIES, ("reference_context_ids", "retrieved_context_ids", *RETRIEVED_TEXTS, *GOLD_TEXTS)),
)
