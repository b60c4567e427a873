"""Extracts features of captions: see tbnets/cli/extract_text_features.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("extract_text_features")
