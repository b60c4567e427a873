"""Finds the boxes that phrases name: see tbnets/commands/localize.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("localize")
