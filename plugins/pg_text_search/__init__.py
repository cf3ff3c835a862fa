"""PostgreSQL's text search computed without a server; README.md says what is reproduced. Imports nothing else of this project."""
