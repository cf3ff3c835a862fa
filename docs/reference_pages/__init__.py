"""The generated pages of docs/reference, one module a page; `python -m docs.make_reference` writes them all."""
