"""Proposes boxes in photos: see tbnets/cli/propose_regions.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("propose_regions")
