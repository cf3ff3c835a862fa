"""Tune: search for better weights without overfitting, and export the result with its evidence."""

from cems_workbench.ui.tune.page import main

main()
