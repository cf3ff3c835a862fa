"""Text as comment lines that no line break, however exotic, can leave: YAML, TOML, .env and Python all begin one with #."""

from __future__ import annotations


def commented(text: str) -> str:
    """Every line of `text` behind `# `, unprintable characters as spaces (YAML refuses them even here)."""
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in text.splitlines())
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)
