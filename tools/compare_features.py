"""Compares features: see tbnets/commands/compare_features.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("compare_features")
