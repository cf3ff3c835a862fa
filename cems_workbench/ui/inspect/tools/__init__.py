"""Tools of "Why, and what if", one question and one module each."""
