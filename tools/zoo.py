"""Tells which models come along: see tbnets/commands/zoo.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("zoo")
