"""Views of "What happened", one module each."""
