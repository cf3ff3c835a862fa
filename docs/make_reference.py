"""The generated pages of docs/reference: parameters, presets, settings, commands, measures, sources and scores.

    python -m docs.make_reference

tests/unit/test_repository.py fails if a page is stale.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cems_workbench.platform.atomic_write import write_text
from docs.reference_pages import cli, measures, parameters, presets, scores, settings, sources, targets

FOLDER = Path(__file__).resolve().parent / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli.document,
    "measures.md": measures.document,
    "parameters.md": parameters.document,
    "presets.md": presets.document,
    "scores.md": scores.document,
    "settings.md": settings.document,
    "sources.md": sources.document,
    "targets.md": targets.document,
}


def main() -> None:
    """Write the pages that changed, and name them."""
    for name, document in PAGES.items():
        path, text = FOLDER / name, document()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_text(path, text)
            print(path.relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main()
