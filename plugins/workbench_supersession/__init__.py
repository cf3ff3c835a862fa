"""Supersession proposed and reviewed: the command `supersessions`, Label's view Superseded, and `cems_workbench.supersessions`.

The stage that drops or follows superseded memories, their stored edges and the scores of pairs are in the core.
"""
