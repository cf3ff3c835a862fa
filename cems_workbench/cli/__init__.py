"""The command line: the same capabilities as the app, without a browser. `main` runs it; a command is the module of its name."""

from cems_workbench.cli.main import main

__all__ = ["main"]
