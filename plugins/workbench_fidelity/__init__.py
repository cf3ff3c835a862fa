"""Fidelity: the workbench's results compared with the recorded answers of a real system; the command, page and tool for it.

`recordings` and `runs` read what a system answered, `lists` takes its own lists; `fidelity` gathers and compares. `answer` compares one
answer with one trace and says where the two diverge, `measures` a set of them and why they differ; `explain` says which parameter
reconciles them, `parameters` and `nearest` which config comes nearest. `command`, `page` and `production` are what people use.
"""
