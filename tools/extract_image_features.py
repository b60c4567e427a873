"""Runs `tbnets extract_image_features`."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("extract_image_features")
