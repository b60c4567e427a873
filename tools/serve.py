"""Serves models as TensorFlow Serving does: see tbnets/commands/serve.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("serve")
