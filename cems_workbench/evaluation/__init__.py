"""Evaluation on labelled queries."""
