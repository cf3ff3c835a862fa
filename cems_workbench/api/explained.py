"""What live systems explained of their answers: replayed one by one, or written as the evidence of a query set; no store and no model."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, TextIO

from cems_workbench.api.open_store import load_config
from cems_workbench.api.single_query import Answer
from cems_workbench.config import portable_yaml
from cems_workbench.errors import InputError, counted
from cems_workbench.formats.base.files import open_file
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.pipeline.explained import (
    explained,
    explained_config,
    is_of,
    no_explanation,
    qid_of,
    read_explanations,
)
from cems_workbench.records import Query, RowError
from cems_workbench.results import Report

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike
    from cems_workbench.config import PipelineConfig

TYPE = "explained"
"""The type of the queries of an evidence file of explanations."""


def explained_answers(
    text: TextIO,
    source: str,
    query: str,
    errors: list[RowError],
    config_of: Callable[[Evidence], PipelineConfig | None],
) -> Iterator[Answer]:
    """The answers of a text, each under its config; those of the query, if it is named by its words, its id or "#number".

    Raises InputError as `read_explanations` does, and if none is of the query.
    """
    others, any_of, number = list[Evidence](), False, 0
    for number, evidence in enumerate(read_explanations(text, source, errors, query), 1):
        if query and not is_of(evidence, number, query):
            others += [evidence] if len(others) < 3 else []
            continue
        any_of = True
        if (config := config_of(evidence)) is not None:
            yield Answer(replay(evidence, config, clock=perf_counter))
    if others and not any_of:
        raise no_explanation(source, query, others, number)


def explanations(source: str | Path, query: str = "", config: ConfigLike | None = None) -> tuple[Answer, ...]:
    """What a live system explained of its answers, each replayed: its own order first, and any other config by `replay`.

    Args:
        source: a path, or the JSON itself: an explanation, a list of them or JSON lines (docs/use/explanations.md has the systems).
        query: only the explanations of this query, by its words, its id or its number ("#2"); also the query of one that does not say it.
        config: a config, the name of a preset, or the path of a config file; None is the one that each explanation says.

    Raises:
        InputError: nothing in it is an explanation, with the first reason.
    """
    errors: list[RowError] = []
    chosen = None if config is None else load_config(config)
    pasted = isinstance(source, str) and source.lstrip()[:1] in ("{", "[")
    name = "pasted" if pasted else str(source)
    with io.StringIO(str(source)) if pasted else opened(name) as text:
        found = tuple(explained_answers(text, name, query.strip(), errors, lambda one: chosen or explained_config(one)))
    if not found:
        raise InputError(str(errors[0]) if errors else f"{name}: no explanation")
    return found


def opened(name: str) -> AbstractContextManager[TextIO]:
    """The text of a file, "-" for stdin, to read bit by bit. Raises InputError."""
    return nullcontext(sys.stdin) if name == "-" else open_file(Path(name)).open(encoding="utf-8-sig", errors="replace")


def write_explained(answers: Iterable[Answer], path: Path, source: str, errors: list[RowError]) -> Report:
    """Write explanations as an evidence file, one after the other; the config of the first is that of the file.

    What cannot be written goes to the errors. Raises InputError if the file exists already, or cannot be written.
    """
    from cems_workbench.evaluation import evidence_rows
    from cems_workbench.evaluation.evidence_file import EvidenceFile, Header

    texts, numbers, queries = dict[str, str](), dict[str, int](), dict[str, Query]()
    same = changed = 0
    file: EvidenceFile | None = None
    try:
        for answer in answers:
            evidence = answer.evidence
            if file is None:
                config = portable_yaml(answer.config)
                header = Header(Path(source).stem, TYPE, 0, "", config, datetime.now(UTC).isoformat())
                file = EvidenceFile.create(path, header, (), ())
            qid = qid_of(evidence) or str(len(queries) + 1)
            if qid in queries:
                qid = f"{qid}.{len(queries) + 1}"
            changed += sum(texts.setdefault(key, one.content) != one.content for key, one in evidence.memories.items())
            with file.writing() as cursor:
                evidence_rows.write_external(cursor, [(qid, evidence)], numbers)
            queries[qid] = Query(qid, evidence.query, None, evidence.as_of, TYPE)
            same += bool((explained(evidence) or {}).get("same_order"))
        if file is None:
            raise InputError(f"{source}: no explanation")
        with file.writing() as cursor:
            evidence_rows.write_query_set(cursor, list(queries.values()), (), str(path))
        mark = file.finish()
    except BaseException:
        if file is not None:
            file.close()
            path.unlink(missing_ok=True)
        raise
    file.close()
    total = counted(len(queries), "explanations")
    lines = [
        f"{path}: evidence of {total}; {same} of {len(queries)} replay in the order of the answer",
        f"content hash {mark}",
    ]
    notes = (
        [f"warning: {counted(changed, 'memories')} with another text in a later explanation: the first is kept"]
        if changed
        else []
    )
    values = {"evidence": str(path), "queries": len(queries), "same_order": same, "content_hash": mark, "notes": notes}
    return Report(lines=lines, notes=notes, values=values | {"left_out": [str(error) for error in errors]})
