"""An MCP server with which a coding agent finds out why its memory failed.

    arguments       arguments of the tools, with their bounds: the schema that a client sees
    responses       results of the tools: typed, paged, texts of memories marked as data
    served_store    the served store, opened on first use, with the rights of the client
    tools/          the tools, over the Python API
    server          the tools as an MCP server; an error is one line that says what to do
    transports      stdin and stdout, and HTTP on this machine

docs/use/mcp.md is for its users. Nothing here is imported before the command `mcp` runs.
"""
