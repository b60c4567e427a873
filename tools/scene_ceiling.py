"""Tells the best recall on scenes: see tbnets/commands/scene_ceiling.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("scene_ceiling")
