"""Measures a run or saved embeddings: see tbnets/commands/evaluate.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("evaluate")
