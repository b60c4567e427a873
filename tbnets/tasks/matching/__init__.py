"""Image-sentence matching. `spec` composes the task."""
