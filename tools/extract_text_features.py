"""Runs `tbnets extract_text_features`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("extract_text_features")
