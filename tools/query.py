"""Searches photos by sentences: see tbnets/cli/query.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("query")
