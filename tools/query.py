"""Searches photos by sentences: see tbnets/commands/query.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("query")
