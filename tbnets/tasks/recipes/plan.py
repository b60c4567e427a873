"""Reads the recipes of a run, and describes their missing results."""

import contextlib

from tbnets.data.sources import is_recipe
from tbnets.errors import MissingFileError
from tbnets.tasks.recipes.image_features import (
    FeaturesOfBoxes,
    FeaturesOfPhotos,
)
from tbnets.tasks.recipes.recipe import named
from tbnets.tasks.recipes.text_features import FeaturesOfTexts, TreesOfTexts


def describe(results):
    """Returns lines that list the missing results."""
    if not results:
        return "all files in the flags exist"
    return "\n".join(
        f"would compute {result.folder} of {result.count} {result.unit}s, by "
        f"{result.flagfile}"
        for result in results
    )


RECIPES = {
    "image_features": FeaturesOfPhotos,
    "regions": FeaturesOfBoxes,
    "text_features": FeaturesOfTexts,
    "trees": TreesOfTexts,
}
"""Maps a flag to the class of its recipes."""


def read_recipes(flag, data):
    """Returns a dict from each recipe listed in a flag to its `Recipe`."""
    items = filter(is_recipe, data.original_sources.items(flag))
    return {item: RECIPES[flag].read(flag, item, data) for item in items}


def missing(data):
    """Returns the missing results of a run, in the order of their computation.

    Checks these recipes as far as possible, before any result is computed.
    """
    results = {
        part.folder: part
        for flag in RECIPES
        for result in data.recipe_results(flag).values()
        for part in result.missing()
    }
    for part in results.values():
        with named(part.flagfile, part.values):
            part.check()
    return list(results.values())


def recorded_flags(data):
    """Returns the flags of recipes, {flag: {recipe: {recipe's flag: value}}}.

    Skips flags whose photos, captions or files are missing.
    """
    values = {}
    for flag in RECIPES:
        with contextlib.suppress(MissingFileError):
            results = data.recipe_results(flag).items()
            values[flag] = {item: result.recorded for item, result in results}
    return {flag: items for flag, items in values.items() if items}
