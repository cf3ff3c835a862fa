"""Sensitivity: the values at which the results change over a parameter's range."""
