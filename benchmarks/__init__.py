"""Benchmarks and studies, run from a checkout."""

import cems_workbench  # noqa: F401  (puts plugins/ on the path)
