"""Evaluate: measure and compare configs on judged queries, and record experiments."""

from cems_workbench.ui.evaluate.page import main

main()
