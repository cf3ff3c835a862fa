"""Retrievers that are not the workbench's, traced: docs/use/tracing.md."""
