"""Fidelity: comparison of the workbench's results with the recorded answers of a real system.

`answer` compares one answer with one trace and says where the two diverge, `measures` a set of them and why they differ; `explain`
says which parameter reconciles them, and `nearest` which config comes nearest.
"""
