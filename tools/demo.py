"""Runs `tbnets demo`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("demo")
