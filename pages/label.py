"""Label: grade pooled results quickly, blind and by keyboard; see how far reviewers agree, and settle their conflicts."""

from cems_workbench.ui.label.page import main

main()
