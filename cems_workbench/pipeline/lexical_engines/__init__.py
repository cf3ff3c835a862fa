"""Lexical engines: list sources that answer as another engine does, one module each."""
