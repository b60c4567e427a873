"""Trains a network: see tbnets/cli/train.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("train")
