"""Makes the documentation site of the pages, the sources and the flags."""
