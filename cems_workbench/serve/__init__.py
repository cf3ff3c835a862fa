"""A process that answers the next commands with store and models still open: docs/internals/decisions/0030-serve-process.md.

`client` is what a command runs before anything else is imported; `server` and `running` are what it leaves behind.
"""
