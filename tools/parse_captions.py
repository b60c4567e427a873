"""Parses captions: see tbnets/commands/parse_captions.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("parse_captions")
