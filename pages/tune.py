"""Tune: better weights searched on judged queries without overfitting, and taken away with the evidence for them."""

from cems_workbench.ui.tune.page import main

main()
