"""Features of captions: see tbnets/commands/extract_text_features.py."""

from tbnets import commands

if __name__ == "__main__":
    commands.run_tool("extract_text_features")
