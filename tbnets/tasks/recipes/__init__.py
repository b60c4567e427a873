"""Recipes: flag files from which a run makes missing features or trees."""
