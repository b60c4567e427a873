"""Serves a web page to try networks: see tbnets/cli/demo.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("demo")
