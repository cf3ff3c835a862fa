"""Fidelity: how far what the workbench computes is from what a real system answered.

`answer` sets one answer beside one trace, `parting` says where the two part and why, `explain` which parameter would make them agree.
"""
