"""Tells what data hold: see tbnets/commands/describe_data.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("describe_data")
