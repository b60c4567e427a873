"""Runs a command of tbnets: `python -m tbnets VERB --flag=value ...`."""

from tbnets import cli

if __name__ == "__main__":
    cli.main()
