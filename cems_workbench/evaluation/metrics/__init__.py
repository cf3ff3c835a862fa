"""Measures of rankings against judgments: vectorised over queries; names as in `measure`."""

from cems_workbench.evaluation.metrics.measure import (
    MEASURES,
    STANDARD,
    Measure,
    MeasureFamily,
    measures_help,
    offered_measures,
    parse_measure,
    parse_measures,
    relevance_words,
    standard_measures,
)
from cems_workbench.evaluation.metrics.rankings import GradedRankings, graded
from cems_workbench.evaluation.metrics.rbo import rbo

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
