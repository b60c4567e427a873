"""Makes the documentation site from pages, docstrings and flagfiles."""
