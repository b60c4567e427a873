"""Trains a network: see tbnets/commands/train.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("train")
