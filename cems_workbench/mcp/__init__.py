"""An MCP server: a coding agent whose memory did not return what it should asks why, and what would bring it back.

    arguments       what every tool takes, with its bounds            the schema that a client is given
    replies         what every tool gives: typed, paged, and texts of memories marked as data
    served_store    the store that is served, opened when it is first asked, and what may be done with it
    tools/          the tools, over the Python API
    server          the tools as an MCP server, whose errors are lines that say what to do
    transports      standard input and output, and HTTP on this machine

docs/use/mcp.md is for its users. Nothing here is imported before the command `mcp` runs.
"""
