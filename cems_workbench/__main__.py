"""`python -m cems_workbench`, and `cems-workbench`: the command is answered by a server that an earlier one left behind, or runs here."""

import gc
import os
import sys

from cems_workbench.serve.client import answer
from cems_workbench.serve.wire import command_of, without_switch

WITH_ARROW = "calibrate compare drift evaluate fidelity fill-scores gather import tune watch"
"""Commands that read or write evidence or memories in bulk; others do with --apply."""


def main() -> None:
    code = answer()
    if code is not None:
        sys.exit(code)
    # Imports and evidence are many objects and no garbage: a tenth of a start was looking for it. What runs for long makes some.
    command = command_of(without_switch(sys.argv[1:]))
    gc.set_threshold(500_000 if command in ("search", "doctor") else 20_000, 50, 50)
    # Plugins of pydantic are looked for in every installed package, which takes long, and there is nothing here that they would see.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # OpenBLAS's threads spin for 0.03 s after they start, and after each product.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from cems_workbench.cli import main as run

    if command in WITH_ARROW.split() or "--apply" in sys.argv:
        from cems_workbench.platform import start_up

        start_up.load()
    run()


if __name__ == "__main__":
    main()
