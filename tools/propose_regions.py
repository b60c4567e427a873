"""Runs `tbnets propose_regions`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("propose_regions")
