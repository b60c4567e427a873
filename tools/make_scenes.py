"""Draws the embedded data set: see tbnets/commands/make_scenes.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("make_scenes")
