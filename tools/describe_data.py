"""Describes a data set: see tbnets/cli/describe_data.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("describe_data")
