"""Runs `tbnets export`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("export")
