"""Runs `tbnets make_scenes`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("make_scenes")
