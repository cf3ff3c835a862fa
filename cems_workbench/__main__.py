"""`python -m cems_workbench`, and `cems-workbench`: the command is answered by a server that an earlier one left behind, or runs here."""

import sys

from cems_workbench.serve.client import answer


def main() -> None:
    """Run the command line."""
    code = answer()
    if code is not None:
        sys.exit(code)
    from cems_workbench.cli import main as run

    run()


if __name__ == "__main__":
    main()
