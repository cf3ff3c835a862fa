"""Memories: import, browse and edit the store; statistics; index health; opening another store."""

from cems_workbench.ui.memories.page import main

main()
