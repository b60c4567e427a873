"""Finds the boxes that phrases name: see tbnets/cli/localize.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("localize")
