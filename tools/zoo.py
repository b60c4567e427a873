"""Lists the models of the zoo: see tbnets/cli/zoo.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("zoo")
