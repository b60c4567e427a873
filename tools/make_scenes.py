"""Renders the data set of scenes: see tbnets/cli/make_scenes.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("make_scenes")
