"""Proposes boxes in photos: see tbnets/commands/propose_regions.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("propose_regions")
