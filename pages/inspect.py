"""Inspect: put a query in, see what each stage did with it, move a slider and see what would have happened."""

from cems_workbench.ui.inspect.page import main

main()
