"""Image-sentence matching; `spec` composes its task."""
