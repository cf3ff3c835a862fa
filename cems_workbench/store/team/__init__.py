"""What a team shares: labels, query sets with their judgments, queues, kept configs and looks at hold-outs.

Where they stand is one of two: in the store's own database (`embedded`), or in a PostgreSQL that several stores work on (`postgres`). The
statements are the same for both (`session`), and written where they always were, beside what they are for.
"""
