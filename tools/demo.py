"""Serves a page to look at what networks know: see tbnets/commands/demo.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("demo")
