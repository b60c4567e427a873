"""Runs `tbnets query`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("query")
