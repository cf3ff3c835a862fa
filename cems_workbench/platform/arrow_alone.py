"""pyarrow without pandas, for commands.

At the first list that pyarrow makes an array of, it imports pandas to see whether the list is a series: 0.2 s and 40 MB, which no
command uses. Not for the app, because Streamlit turns tables of pandas into Arrow.
"""

from __future__ import annotations

import sys


def load() -> None:
    """Import pyarrow, which then takes pandas as not installed until the process ends; nothing where either is already loaded."""
    if "pandas" in sys.modules or "pyarrow" in sys.modules:
        return
    import pyarrow

    sys.meta_path.insert(0, _NoPandas)
    try:
        pyarrow.array(["asks for pandas"])
    finally:
        sys.meta_path.remove(_NoPandas)


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)
