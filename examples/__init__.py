"""Retrievers that are not the workbench's, traced: docs/use/tracing.md."""

import cems_workbench as cems_workbench  # in a checkout it puts the plugins, cems_trace among them, on the path
