"""Asks a model on a server: see tbnets/commands/ask.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("ask")
