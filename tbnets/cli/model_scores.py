"""Scores a split by an exported model or by saved features."""

import dataclasses
import os

import numpy as np

from tbnets.cli.embedding_files import unit_rows
from tbnets.errors import InputError
from tbnets.serving import zoo
from tbnets.tasks import registry
from tbnets.tasks.matching.scores import RetrievalScores, scores_of_model
from tbnets.tasks.settings.data_groups import CaptionSettings
from tbnets.tasks.settings.flag import flags_of, must_come_with
from tbnets.tasks.settings.records import completed


def title(options):
    """Returns a title for the measured embeddings."""
    features = f"{options.image_features} and {options.text_features}"
    return options.model or features


def scores(options, name):
    """Returns the `RetrievalScores` of a split."""
    task = registry.open_task(_settings(options))
    split = task.split(name)
    if not split.records.num_captions:
        raise InputError(
            "--split",
            "name a split with captions",
            f"--split={name}, which has none in {split.records.path}",
            "Name another split.",
        )
    if options.model:
        model = zoo.open_model(options.model, options.trust)
        place = options.prompt, options.cache or None
        found = scores_of_model(model, split, *place)
    else:
        sides = [_unit_rows(rows) for rows in (split.images, split.texts)]
        if sides[0].shape[1] != sides[1].shape[1]:
            raise InputError(
                "--text_features",
                "be in the space of --image_features",
                f"{sides[1].shape[1]} numbers per caption, "
                f"{sides[0].shape[1]} per image",
                "Use embeddings by one model.",
            )
        photos = {"photos": split.photo_folder}
        found = RetrievalScores(*sides, split.records, **photos)
    memory = options.memory_limit_mb
    return dataclasses.replace(found, memory_limit_mb=memory)


def _settings(options):
    values = dataclasses.asdict(options)
    names = {"images", "image_features", "text_features", "cache"}
    names |= {each.name for each in flags_of(CaptionSettings)} - {"data_root"}
    record = {name: values[name] for name in names}
    record = completed(record, "the command line")
    if options.data_root:
        record["data_root"] = os.path.abspath(options.data_root)
    if not options.model:
        return registry.settings_of(record)
    if not (options.images or options.scenes):
        raise must_come_with(
            options, "model", "--images", "Name the folder of the photos."
        )
    if "{}" not in options.prompt:
        raise InputError(
            "--prompt",
            "contain {} for the caption",
            f"--prompt={options.prompt}",
            "Write for example a photo of {}.",
        )
    settings = registry.settings_of(record)
    rendered = settings.sources().rendered()
    names = ("scenes", "captions", "captions_format", "images")
    return settings.replace(**{name: getattr(rendered, name) for name in names})


def _unit_rows(rows):
    return unit_rows(rows.batch(np.arange(len(rows.rows))))
