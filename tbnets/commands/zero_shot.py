"""A split of a data set, ranked by embeddings that others have learned."""

import dataclasses
import os

import numpy as np

from tbnets import tasks
from tbnets.data.captions import usual_format
from tbnets.data.open import Data
from tbnets.data.sources import Sources
from tbnets.errors import InputError
from tbnets.evaluation.arrays import unit_rows
from tbnets.flags.flag import changed
from tbnets.flags.records import completed
from tbnets.flags.table import ALL
from tbnets.tasks.matching.scores import RetrievalScores


def title(options):
    """Returns what is measured, in a few words."""
    return f"{options.image_features} and {options.text_features}"


def scores(options):
    """Returns the `RetrievalScores` of a split by its features as they are."""
    data = Data(Sources.of(_settings(options)))
    split = data.split(options.split)
    if not split.records.num_captions:
        raise InputError(
            "`--split` must name a split with captions. Received: "
            f"--split={options.split}, without any in {split.records.path}. "
            "Name another."
        )
    sides = [_unit_rows(split.images), _unit_rows(split.texts)]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise InputError(
            "`--text_features` must be in the space of --image_features. "
            f"Received: {sides[1].shape[1]} numbers a caption, "
            f"{sides[0].shape[1]} an image. Name embeddings of both by one "
            "model, or train a network on them by tools/train.py."
        )
    return RetrievalScores(
        *sides,
        split.records,
        memory_limit_mb=options.memory_limit_mb,
        photos=split.photo_folder,
    )


def _settings(options):
    """Returns the settings of a run on the same data."""
    given = dataclasses.asdict(options)
    record = {name: given[name] for name in ALL.keys() & given.keys()}
    if "captions_format" not in changed(options):
        record["captions_format"] = usual_format(options.captions)
    record = completed(record, "the command line")
    if options.data_root:
        record["data_root"] = os.path.abspath(options.data_root)
    return tasks.settings_of(record)


def _unit_rows(rows):
    """Returns all of some `FeatureRows`, each divided by its length."""
    return unit_rows(rows.batch(np.arange(len(rows.rows))))
