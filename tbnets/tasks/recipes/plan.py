"""Reads the recipes of a run, and describes their missing results."""

import contextlib
import io
import pathlib
import tempfile

import numpy as np

from tbnets.data.sources import is_recipe
from tbnets.errors import MissingFileError
from tbnets.tasks.recipes.image_features import (
    FeaturesOfBoxes,
    FeaturesOfPhotos,
)
from tbnets.tasks.recipes.recipe import free_bytes
from tbnets.tasks.recipes.text_features import FeaturesOfTexts, TreesOfTexts

_COLUMNS = "{:32}  {:>16}  {:>9}  {:>9}"


def describe(results):
    """Returns a table with the estimated sizes and times of missing results."""
    if not results:
        return "all files in the flags exist"
    rows = [_COLUMNS.format("would be computed", "of", "size", "about")]
    total = np.zeros(2)
    for result in results:
        with (
            tempfile.TemporaryDirectory() as scratch,
            contextlib.redirect_stdout(io.StringIO()),  # Hide progress bars.
            contextlib.redirect_stderr(io.StringIO()),
        ):
            size, seconds = result.estimate(pathlib.Path(scratch))
        total += size, seconds
        name, count = result.folder.name, f"{result.count} {result.unit}s"
        cells = name, count, megabytes(size), duration(seconds)
        rows.append(_COLUMNS.format(*cells))
        rows.append(f"  by {result.flagfile}, in {result.folder.parent}")
    free = free_bytes(results[0].folder)
    rows.append(
        f"in total {megabytes(total[0])} and about {duration(total[1])}; "
        f"{megabytes(free)} are free"
    )
    return "\n".join(rows)


def megabytes(size):
    """Formats a number of bytes as megabytes."""
    size /= 2**20
    return f"{size:,.{0 if size > 10 else 1}f} MB"


def duration(seconds):
    """Formats a duration as seconds or minutes."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min"


RECIPES = {
    "image_features": FeaturesOfPhotos,
    "regions": FeaturesOfBoxes,
    "text_features": FeaturesOfTexts,
    "trees": TreesOfTexts,
}
"""Maps a flag to the class of its recipes."""


def read_recipes(flag, data, unused=()):
    """Returns a dict from each recipe listed in a flag to its `Recipe`.

    The dict is empty if the flag is in `unused`.
    """
    sources = data.original_sources
    if flag in unused and not sources.text_features.startswith("hub:"):
        return {}
    items = filter(is_recipe, sources.items(flag))
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
        with part.named():
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
