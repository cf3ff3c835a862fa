"""docs/reference/sources.md: every kind of live source, read from the registry."""

from __future__ import annotations

from cems_workbench.sources.address import ANY, SOURCE_KINDS, SourceKind, importable
from docs.reference_pages.markdown import code, notice, table, table_cell

HEAD = f"""\
# Kinds of sources

What `connect` can import memories from ([live sources](../use/sources.md)). `{ANY}` is the address in the environment variable NAME,
such as `env:DATABASE_URL`. A password or key that is not in the address is read from the variable named here.

{notice("cems_workbench/sources/kinds and plugins/workbench_stores/kinds.py")}
"""


def document() -> str:
    """The whole page: a table of the kinds."""
    kinds = [kind for kind in importable() if kind.name not in SOURCE_KINDS.origins]
    header = ("kind", "address", "what it is", "live lists", "password or key", "needs")
    return "\n".join([HEAD, table(header, map(_row, kinds))]) + "\n"


def _row(kind: SourceKind) -> list[str]:
    return [
        kind.title,
        ", ".join(map(code, kind.addresses)),
        table_cell(kind.description),
        ", ".join(map(code, kind.lists)),
        code(kind.credential_variable),
        f"extra {code(kind.extra)}" if kind.extra else code(kind.package),
    ]
