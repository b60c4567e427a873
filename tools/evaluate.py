"""Measures a run or saved embeddings: see tbnets/cli/evaluate.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("evaluate")
