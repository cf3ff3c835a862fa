"""Inspect: run a query, see what each stage did, and change settings to see what would have happened."""

from cems_workbench.ui.inspect.page import main

main()
