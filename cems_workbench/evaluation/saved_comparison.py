"""A comparison read back from the card of a kept experiment, so that it is shown as measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cems_workbench.errors import InputError
from cems_workbench.evaluation.comparison import ConfigComparison, MeasureDifference
from cems_workbench.evaluation.evaluate import Figures, Summary, stale_words
from cems_workbench.evaluation.metrics import parse_measure, relevance_words


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
