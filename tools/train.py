"""Runs `tbnets train`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("train")
