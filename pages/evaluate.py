"""Evaluate: configs measured and compared on judged queries, honestly; what is worth keeping is kept."""

from cems_workbench.ui.evaluate.page import main

main()
