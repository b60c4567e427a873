"""What recipes there are, and those of a run: planned, made, told."""

import contextlib

from tbnets.data.sources import frozen_preset, is_recipe
from tbnets.errors import MissingFileError
from tbnets.recipes import image_features, parsed_trees, text_features
from tbnets.recipes.recipe import read_recipe

KINDS = {
    "image_features": image_features.OF_PHOTOS,
    "regions": image_features.OF_REGIONS,
    "text_features": text_features.KIND,
    "trees": parsed_trees.KIND,
}
"""Flag of a run that names what is made -> `recipe.Kind`."""


class Recipes:
    """The recipes that the flags of a run name.

    Args:
        settings: the run's settings.
    """

    def __init__(self, settings):
        self._flags = [flag for flag in KINDS if settings.reads(flag)]
        if frozen_preset(settings):
            self._flags.append("text_features")
        self._things = {}

    def things(self, flag, data):
        """Returns what the recipes of a flag make: {recipe: `Thing`}.

        Raises:
            ValueError, FileNotFoundError: one can not be read or made.
        """
        if flag not in self._things:
            self._things[flag] = dict(self._planned(flag, data))
        return self._things[flag]

    def forget(self):
        """Plans anew when asked: the data of the run have changed."""
        self._things.clear()

    def items(self, flag, data):
        """Returns the recipes that a flag names, as it does."""
        named = data.given.items(flag) if flag in self._flags else ()
        return list(filter(is_recipe, named))

    def _planned(self, flag, data):
        for item in self.items(flag, data):
            recipe = read_recipe(flag, item, KINDS[flag], data.given)
            with recipe.named():
                yield item, recipe.kind.plan(recipe, data)

    def said(self, data):
        """Returns what recipes say: flag -> recipe -> flag of it -> value.

        Of a flag whose photos, captions or files are gone it says nothing.
        """
        found = {}
        for flag in self._flags:
            with contextlib.suppress(MissingFileError):
                things = self.things(flag, data).items()
                found[flag] = {item: thing.said for item, thing in things}
        return {flag: items for flag, items in found.items() if items}

    def find(self, flag, data):
        """Notes what is there of what the recipes of a flag make.

        Returns:
            Whether all is there.
        """
        try:
            things = self.things(flag, data)
        except MissingFileError:  # Photos, for instance: they are not needed.
            return False
        for item, thing in things.items():
            if not thing.is_made(thing.folder):
                return False
            data.given.made[flag, item] = thing.path
        return True

    def make(self, flag, data):
        """Makes what the recipes of a flag name and is not there."""
        for item, thing in self.things(flag, data).items():
            if (flag, item) not in data.given.made:
                thing.make_if_missing()
                data.given.made[flag, item] = thing.path

    def missing(self, data):
        """Returns the `Thing`s that are not there, parts before the whole.

        All recipes are read before any is made: a wrong one is told at once.
        """
        things = [
            one
            for flag in self._flags
            for thing in self.things(flag, data).values()
            for one in thing.missing()
        ]
        return list({one.folder: one for one in things}.values())
