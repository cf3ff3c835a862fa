"""Memories: what is in the store. Import, browse, edit, count; the health of the indexes; another store."""

from cems_workbench.ui.memories.page import main

main()
