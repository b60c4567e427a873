"""Recipes: flagfiles by which a run makes what it reads and is not there."""
