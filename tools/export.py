"""Exports a trained network: see tbnets/commands/export.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("export")
