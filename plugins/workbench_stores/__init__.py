"""Live sources: the stores of other systems, and the answers of a CEMS server (docs/internals/extending.md, "A live source")."""
