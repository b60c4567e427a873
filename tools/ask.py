"""Sends requests to a served model: see tbnets/cli/ask.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("ask")
