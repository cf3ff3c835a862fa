"""Searching for a better config on labelled queries, without fooling oneself: space, search, folds, selection, sealed hold-out."""
