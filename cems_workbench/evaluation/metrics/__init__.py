"""Measures of rankings against judgments: vectorised over queries; names as in `measure`."""

from cems_workbench.evaluation.metrics.measure import (
    MEASURES,
    STANDARD,
    GradedRankings,
    Measure,
    MeasureFamily,
    graded,
    measures_help,
    offered_measures,
    parse_measure,
    parse_measures,
    rbo,
    relevance_words,
    standard_measures,
)

__all__ = [
    "MEASURES",
    "STANDARD",
    "GradedRankings",
    "Measure",
    "MeasureFamily",
    "graded",
    "measures_help",
    "offered_measures",
    "parse_measure",
    "parse_measures",
    "rbo",
    "relevance_words",
    "standard_measures",
]
