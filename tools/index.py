"""Makes and changes a search index: see tbnets/cli/index.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("index")
