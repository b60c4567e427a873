"""Joins the shares of a work: see tbnets/commands/join_store.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("join_store")
