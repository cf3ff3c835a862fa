"""Fidelity: comparison of the workbench's results with the recorded answers of a real system.

`answer` compares one answer with one trace, `divergence` says where the two diverge and why, `explain` which parameter reconciles them.
"""
