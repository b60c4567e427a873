"""Serves a page to look at what networks know: see tbnets/cli/demo.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("demo")
