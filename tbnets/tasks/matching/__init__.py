"""Image-sentence matching; `tenant` says what it is made of."""
