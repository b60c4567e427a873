"""Runs `tbnets parse_captions`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("parse_captions")
