"""Features of photos: see tbnets/commands/extract_image_features.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("extract_image_features")
