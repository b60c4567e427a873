"""Joins the shares of a sharded command: see tbnets/cli/join_store.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("join_store")
