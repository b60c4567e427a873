"""Image-sentence matching: the task and its scores."""
