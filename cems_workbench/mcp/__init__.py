"""An MCP server with which a coding agent finds out why its memory failed.

    protocol        arguments of the tools with their bounds, replies, texts of memories marked as data; the served store, opened on first
                    use, with the rights of the client
    memories        tools: what the store holds, parameters, labels
    queries         tools: one query
    query_sets      tools: judged queries
    server          the tools as an MCP server, over stdin and stdout or HTTP on this machine

docs/use/mcp.md is for its users. Nothing here is imported before the command `mcp` runs.
"""
