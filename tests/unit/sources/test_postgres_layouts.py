"""Layouts of PostgreSQL: found in their folder, named alike everywhere."""

from __future__ import annotations

from cems_workbench.sources.address import SOURCE_KINDS
from workbench_stores.postgres.catalog import Column, Table
from workbench_stores.postgres.connect import LAYOUTS, recognised


def table(name: str, **columns: str) -> Table:
    found = {column: Column(column, type, None, True) for column, type in columns.items()}
    return Table(hash(name), "public", name, "r", found)


MEM0 = {"id": "uuid", "vector": "vector", "payload": "jsonb"}
NODE = {"id": "int8", "text": "varchar", "metadata_": "json", "node_id": "varchar", "embedding": "halfvec"}


def test_every_layout_is_a_product_of_postgresql() -> None:
    products = {name: title for name, title in SOURCE_KINDS["postgresql"].products.items() if name != "cems"}
    assert products == {layout.name: layout.title for layout in LAYOUTS}


def test_tables_are_recognised_by_columns_whatever_they_are_called() -> None:
    tables = [
        table("anything", **MEM0),
        table("anything_entities", **MEM0),
        table("mem0migrations", **MEM0),
        table("nodes", **NODE),
        table("other", **{**NODE, "metadata_": "text"}),
    ]
    assert [(layout.name, found.name) for layout, found in recognised(tables)] == [
        ("mem0", "anything"),
        ("llamaindex", "nodes"),
    ]
