"""Joins the parts of a feature store: see tbnets/cli/join_store.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("join_store")
