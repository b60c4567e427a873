"""Makes a model of the zoo: see tbnets/commands/make_zoo.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("make_zoo")
