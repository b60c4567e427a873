"""Makes and changes a search index: see tbnets/commands/index.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("index")
