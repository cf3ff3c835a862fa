"""What a team shares: labels, query sets with their judgments, queues, kept configs and looks at hold-outs.

The tables are in the store's own database (`embedded`), or in a PostgreSQL shared by several stores (`postgres`). Both run the same SQL
(`session`), which is in the modules of the aggregates.
"""
