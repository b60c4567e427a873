"""Exports a trained network: see tbnets/cli/export.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("export")
