"""docs/reference/measures.md: every family of measures, read from the registry and its modules."""

from __future__ import annotations

import inspect
import re
import sys

from cems_workbench.evaluation.metrics import MEASURES, NO_ANSWER, STANDARD, MeasureFamily
from cems_workbench.pipeline.list_sources import TIMED
from cems_workbench.pipeline.stages.abstain import CONFIDENCE_FEATURES
from docs.reference_pages.markdown import code, notice, table, table_cell

FEATURES = ", ".join(CONFIDENCE_FEATURES)
HEAD = f"""\
# Measures

Write a measure as `NAME`, `NAME@k` (the first k results) or `NAME(rel=2)@k` (relevant from grade 2; the default is 1). `R@k` is refused,
because documents of the field mean both hit@k and recall@k by it. A full report has {" ".join(f"`{name}`" for name in STANDARD.split())}.
Measures of queries without an answer are {" ".join(f"`{name}`" for name in NO_ANSWER.split())}.

A query is *answerable* if a memory is judged relevant to it, and *unanswerable* if it is marked so and no memory is judged relevant; any
other query is in no mean. `AUROC(by=SIGNAL)` reads a confidence signal of abstain instead of the first score: {FEATURES}.
`ms(by=NAME)` is the time of one part of gathering: {", ".join(TIMED)}.

{notice("the modules of cems_workbench/evaluation/metrics")}
"""


def document() -> str:
    """The whole page: a table, then the formula and source of each family."""
    families = [family for name, family in MEASURES.items() if name not in MEASURES.origins]
    rows = [(code(_written(one)), table_cell(one.description), _queries(one), _better(one)) for one in families]
    sections = [f"\n## {one.name}\n\n{_formula(one)}" for one in families]
    return "\n".join([HEAD, table(("measure", "what it is", "queries", "better"), rows), *sections]) + "\n"


def _written(family: MeasureFamily) -> str:
    return f"{family.name}@k" if family.needs_cutoff else family.name


def _queries(family: MeasureFamily) -> str:
    if family.needs_no_answer:
        return "unanswerable"
    if family.resampled is not None:
        return "both, together"
    return "answerable" if family.needs_relevant else "all"


def _better(family: MeasureFamily) -> str:
    return "lower" if family.lower_is_better else "higher"


def _formula(family: MeasureFamily) -> str:
    """The formula and its source: what the docstring of the function says below its first line, else that of the module."""
    _, _, body = (inspect.getdoc(family.compute) or "").partition("\n\n")
    text = body or inspect.cleandoc(sys.modules[family.compute.__module__].__doc__ or "")
    return re.sub(r"(?<=[^\n])\n(?=Source: )", "\n\n", text)
