"""Fidelity: how far what the workbench computes is from what a real system answered.

`answer` compares one answer with one trace, `divergence` says where the two diverge and why, `explain` which parameter reconciles them.
"""
