"""A comparison as a Markdown report, as CSV rows, and as the card that an experiment is kept with.

A comparison read back from the card of a kept experiment, so that it is shown as measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cems_workbench import __version__
from cems_workbench.config import config_hash
from cems_workbench.errors import InputError, counted
from cems_workbench.evaluation.batch import LabelledBatch, Rankings, missing_score_lines
from cems_workbench.evaluation.comparison import (
    Comparison,
    ConfigComparison,
    MeasureDifference,
    interval_words,
    significance,
)
from cems_workbench.evaluation.evaluate import Evaluation, Figures, Summary, number, stale_lines, stale_words
from cems_workbench.evaluation.metrics import parse_measure, relevance_words
from cems_workbench.evaluation.verdict import Verdict, verdicts_of
from cems_workbench.formats.judgments import RunRow, run_text
from cems_workbench.platform.atomic_write import write_text


def experiment_card(comparison: Comparison, query_set: str, content_hash: str) -> dict[str, Any]:
    """Everything to reopen and compare later: per-query values, intervals and p, and the hash of the evidence."""
    return {"query_set": query_set, "content_hash": content_hash, **comparison.to_json()}


def markdown_report(
    comparison: Comparison, query_set: str, content_hash: str, note: str = "", verdicts: Sequence[Verdict] | None = None
) -> str:
    """The comparison as Markdown: verdicts, means, differences with p, and what was left out. `verdicts` None are those
    on nDCG@10, or else on the first measure."""
    base = comparison.evaluations[0]
    names = [str(measure) for measure in base.measures]
    lines = [f"# {_cell(query_set)}: {counted(len(base.qids), 'queries')}", ""]
    if note:
        lines += [_cell(note), ""]
    for one in verdicts_of(comparison) if verdicts is None else verdicts:
        lines += [_cell(one.sentence), ""]
    header = ["config", *names, "ms a query", "LLM calls", "pairs reranked"]
    means = "{0.mean:.3f} ({0.low:.3f}–{0.high:.3f})"
    lines += _table(header, [[*_cells(one, "mean", means), *_cost(one)] for one in comparison.evaluations])
    lines += [
        "",
        f"{base.relevance}. In brackets: 95 % confidence interval.",
        *(text for line in stale_lines(comparison.evaluations) for text in ("", f"{line}.")),
        "",
        "If unjudged results were irrelevant to relevant:",
        "",
    ]
    bounds = "{0.worst:.3f}–{0.best:.3f}"
    lines += _table(["config", *names], [_cells(one, "worst", bounds) for one in comparison.evaluations])
    for other in comparison.compared:
        lines += ["", f"## {_cell(other.name)} against {_cell(base.config.name)}", ""]
        lines += _table(
            ["measure", "difference", "95 % interval", "p (Holm)", "significance", "effect", "wins / losses / ties"],
            [
                [
                    str(difference.measure),
                    f"{difference.difference:+.3f}",
                    interval_words(difference.low, difference.high),
                    f"{difference.p_holm:.4f}",
                    significance(difference),
                    f"{difference.effect:.2f}",
                    f"{len(difference.wins)} / {len(difference.losses)} / {difference.ties}",
                ]
                for difference in other.differences
            ],
        )
    for evaluation in comparison.evaluations:
        lines += [f"\n{_cell(evaluation.config.name)}: {_cell(line)}" for line in _remarks(evaluation)]
    lines += [
        f"\n{_cell(line)}" for line in missing_score_lines(evaluation.lacking for evaluation in comparison.evaluations)
    ]
    configs = [f"{_cell(one.config.name)} {config_hash(one.config)[:16]}" for one in comparison.evaluations]
    lines += ["", f"Evidence {content_hash[:16]}; {', '.join(configs)} (SHA-256). cems_workbench {__version__}.", ""]
    return "\n".join(lines)


def per_query_rows(comparison: Comparison) -> tuple[list[str], list[list[Any]]]:
    """Header and rows of a CSV: a row a query and config, a column a measure."""
    base = comparison.evaluations[0]
    header = ["qid", "type", "config", *(str(measure) for measure in base.measures)]
    rows = [
        [qid, kind or "", evaluation.config.name, *map(number, values)]
        for evaluation in comparison.evaluations
        for qid, kind, values in zip(evaluation.qids, evaluation.types, evaluation.values, strict=True)
    ]
    return header, rows


def write_run(path: Path, batch: LabelledBatch, evaluation: Evaluation) -> None:
    """Write `run_lines` to a file. Raises InputError for ids that a run cannot hold."""
    try:
        text = run_lines(batch, evaluation.rankings)
    except ValueError as error:
        raise InputError(f"{path}: cannot be written: {error}") from None
    write_text(path, text)


def run_lines(batch: LabelledBatch, rankings: Rankings) -> str:
    """The results as a TREC run, tagged with the config's name. Scores fall with the rank, since evaluation tools order by score and
    break ties their own way. Raises ValueError for ids that a run cannot hold."""
    tag = "_".join(rankings.config.name.split())
    ranked = zip(batch.qids, batch.result_ids(rankings), strict=True)
    return run_text(RunRow(qid, key, rank, 1 / rank, tag) for qid, ids in ranked for rank, key in enumerate(ids, 1))


def _cells(evaluation: Evaluation, of: str, form: str) -> list[str]:
    """The config's name, and its summary of each measure in a form; a dash where the value `of` is not defined."""
    cells = ("–" if number(getattr(one, of)) is None else form.format(one) for one in evaluation.summaries)
    return [evaluation.config.name, *cells]


def _cost(evaluation: Evaluation) -> list[str]:
    costs = (evaluation.cost.get(name) for name in ("ms_per_query", "llm_calls", "reranked"))
    return ["–" if cost is None else f"{cost:.0f}" for cost in costs]


def _remarks(evaluation: Evaluation) -> list[str]:
    failed = [f"its reranker failed in {counted(count, 'queries')}: {why}" for why, count in evaluation.failed.items()]
    from_cache = evaluation.figures.from_cache
    cached = [f"ms/query includes {from_cache}; those are quicker"] if from_cache else []
    return cached + failed


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines]


_ACTS = re.compile(r"([\\`\[\]<>|!])")


def _cell(text: str) -> str:
    """Text on one line that makes no cell, image, link or tag of Markdown; names are anybody's."""
    shown = "".join(character if character.isprintable() else " " for character in text)
    return _ACTS.sub(r"\\\1", " ".join(shown.split()))


@dataclass(frozen=True)
class SavedComparison:
    """What was measured of each config, the baseline first, and what the others differ in from it."""

    query_set: str
    content_hash: str
    """Of the evidence of the config that was measured last."""
    figures: tuple[Figures, ...]
    compared: tuple[ConfigComparison, ...]


def read_comparison(card: Mapping[str, Any]) -> SavedComparison:
    """The comparison of an experiment's card. Raises InputError for a card of another version that cannot be read."""
    try:
        figures = tuple(_figures(config) for config in card["configs"])
        grade = int(card["configs"][0]["relevant_from"])
        compared = tuple(_compared(config, grade) for config in card["compared"])
        return SavedComparison(str(card["query_set"]), str(card["content_hash"]), figures, compared)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"what was measured cannot be read by this version ({error})") from None


def _figures(config: Mapping[str, Any]) -> Figures:
    grade, judged, counted = (int(config[name]) for name in ("relevant_from", "queries", "counted"))
    words = relevance_words(grade, counted, judged, len(config.get("unanswerable", ())))
    return Figures(
        str(config["config"]),
        tuple(_summary(name, row, grade) for name, row in config["measures"].items()),
        words,
        judged,
        config["cost"],
        config["needs"],
        config["failed_scores"],
        len(config["not_gathered"]),
        stale_words(*map(int, config.get("stale_queries", (0, 0)))),
    )


def _summary(name: str, row: Mapping[str, Any], grade: int) -> Summary:
    low, high = map(_float, row["interval"])
    worst, best = map(_float, row["unjudged_bounds"])
    return Summary(parse_measure(name, grade), _float(row["mean"]), low, high, worst, best, int(row["queries"]))


def _compared(config: Mapping[str, Any], grade: int) -> ConfigComparison:
    differences = tuple(_difference(name, row, grade) for name, row in config["measures"].items())
    return ConfigComparison(str(config["config"]), _float(config["rbo"]), differences)


def _difference(name: str, row: Mapping[str, Any], grade: int) -> MeasureDifference:
    baseline, value, difference = (_float(row[key]) for key in ("baseline", "value", "difference"))
    low, high = map(_float, row["interval"])
    return MeasureDifference(
        parse_measure(name, grade),
        baseline,
        value,
        difference,
        low,
        high,
        float(row["p"]),
        float(row["p_holm"]),
        _float(row["effect_size"]),
        tuple(row["wins"]),
        tuple(row["losses"]),
        int(row["ties"]),
        {kind: _float(mean) for kind, mean in row["by_type"].items()},
    )


def _float(value: float | None) -> float:
    """A saved number; None, which JSON has for NaN, is NaN."""
    return float("nan") if value is None else float(value)
