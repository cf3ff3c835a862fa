"""docs/reference/scores.md: what the scores of other systems mean, from the rows that were measured."""

from __future__ import annotations

from collections.abc import Mapping

from cems_workbench.sources.score_meanings import MEANINGS, STORED, Group, ScoreMeaning, shown
from docs.reference_pages.markdown import code, notice, table, table_cell

RUN = "python -m benchmarks.score_meanings"
HEAD = f"""\
# Scores of other systems

What a score means depends on the engine that made it. A threshold, a weight or a fused score that was chosen on one scale says nothing on
another. Every row was run: `{RUN}` runs them again and compares, in an environment that has the library.

{notice("cems_workbench/sources/score_meanings.csv and score_facts.json")}
"""
TITLES: Mapping[Group, tuple[str, str]] = {
    "vector": (
        "Vector scores",
        "The columns *equal* to *zero* have the score of a stored vector for a query of length 1; *equal scores* is their order. The "
        "workbench keeps cosines; "
        "`lists.vector.scale` puts them on the scale of the system before thresholds and sums read them. Live lists of sources that "
        "compare otherwise are made cosines where the vectors have length 1 ([live sources](../use/sources.md#the-engines-own-lists)).",
    ),
    "lexical": ("Lexical scores", "None of them is comparable with a cosine, or with another engine's."),
    "fused": ("Fused scores", "A fused score says how often and how high a memory was found, not how relevant it is."),
    "order": (
        "Pages, ties and evaluation",
        "What an answer is cut to, in which order equal scores come, and what measures make of it.",
    ),
}


def document() -> str:
    """The whole page: a table for each group."""
    parts = [HEAD]
    for group, (title, introduction) in TITLES.items():
        rows = [row for row in MEANINGS if row.group == group]
        parts += [f"## {title}\n", f"{introduction}\n", _vectors(rows) if group == "vector" else _others(rows), ""]
    return "\n".join(parts)


def _vectors(rows: list[ScoreMeaning]) -> str:
    named = STORED[:4]
    header = ("system", "score", "best", "range", *named, "threshold", "limit", "equal scores", "also", "seen in")
    return table(
        header,
        (
            [
                table_cell(row.system),
                table_cell(row.score),
                row.best,
                row.range,
                *(shown(row.stored.get(name, "–")) for name in named),
                *_cuts(row),
                _also(row),
                _seen_in(row),
            ]
            for row in rows
        ),
    )


def _others(rows: list[ScoreMeaning]) -> str:
    header = ("system", "score", "best", "range", "seen", "threshold", "limit", "equal scores", "also", "seen in")
    return table(
        header,
        (
            [
                table_cell(row.system),
                table_cell(row.score),
                row.best if row.score else "",
                row.range,
                _facts(row),
                *_cuts(row),
                table_cell(row.consequence),
                _seen_in(row),
            ]
            for row in rows
        ),
    )


APART = ("threshold", "ties")
"""Facts with a column."""


def _facts(row: ScoreMeaning) -> str:
    facts = {name: fact for name, fact in {**row.stored, **row.others}.items() if name not in APART}
    return table_cell("; ".join(f"{name}: {shown(fact)}" for name, fact in facts.items()))


def _cuts(row: ScoreMeaning) -> list[str]:
    """What a threshold keeps and where it acts, what a limit cuts first, and the order of equal scores."""
    kept = [str(row.seen[name]) for name in APART[:1] if name in row.seen]
    return [
        table_cell("; ".join([*kept, *([row.threshold] if row.threshold else [])])),
        table_cell(row.limit),
        table_cell(str(row.seen.get("ties", ""))),
    ]


def _also(row: ScoreMeaning) -> str:
    """The consequence, and what else was seen."""
    seen = [f"{name}: {shown(fact)}" for name, fact in row.others.items() if name not in APART]
    return table_cell("; ".join(part for part in (row.consequence, *seen) if part))


def _seen_in(row: ScoreMeaning) -> str:
    versions, _, probe = row.how.rpartition("; ")
    return f"{table_cell(versions)} {code(probe)}"
