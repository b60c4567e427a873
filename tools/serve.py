"""Serves models as TensorFlow Serving does: see tbnets/cli/serve.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("serve")
