"""Compares a parser's phrases: see tbnets/commands/compare_parses.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("compare_parses")
