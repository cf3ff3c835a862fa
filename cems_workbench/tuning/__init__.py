"""Tuning on labelled queries, with an unbiased estimate of the gain: space, search, folds, selection, sealed hold-out."""
