"""Parses captions: see tbnets/cli/parse_captions.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("parse_captions")
