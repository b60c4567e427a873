"""Runs `tbnets join_store`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("join_store")
