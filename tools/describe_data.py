"""Runs `tbnets describe_data`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("describe_data")
