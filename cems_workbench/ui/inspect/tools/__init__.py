"""Why, and what if: the tools, one question each."""
