"""Extracts features of photos: see tbnets/cli/extract_image_features.py."""

from tbnets import cli

if __name__ == "__main__":
    cli.run_tool("extract_image_features")
