"""Label: grade pooled results blind and by keyboard, measure reviewer agreement, resolve conflicts."""

from cems_workbench.ui.label.page import main

main()
