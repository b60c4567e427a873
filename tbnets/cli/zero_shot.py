"""Evaluates saved embeddings or a Keras Hub preset on a split."""

import dataclasses
import os

import numpy as np

from tbnets.cli.embedding_files import unit_rows
from tbnets.data.batches import FeatureRows
from tbnets.data.captions import caption_key
from tbnets.data.store.opening import load_features
from tbnets.errors import InputError
from tbnets.features import cache, caption_features, hub
from tbnets.files import make_folder_of
from tbnets.progress import progress_bar
from tbnets.tasks import registry
from tbnets.tasks.matching.scores import RetrievalScores
from tbnets.tasks.settings.data_groups import CaptionSettings
from tbnets.tasks.settings.flag import flags_of, must_come_with
from tbnets.tasks.settings.records import completed

PLACE = "{}"
"""Placeholder for the caption in --prompt."""


def title(options):
    """Returns a title for the measured embeddings."""
    if options.hub:
        return f"{options.hub}, zero-shot"
    return f"{options.image_features} and {options.text_features}"


def scores(options, name):
    """Returns the `RetrievalScores` of a split."""
    task = registry.open_task(_settings(options))
    split = _split(name, task)
    if options.hub:
        photos = task.own_photos
        texts = _texts(options, photos, split.records)
        photos.extract([split.records])
        task.data.forget_splits()  # Broken photos are left out.
        split = _split(name, task)
        keys = list(map(caption_key, _prompted(options, split.records)))
        rows = FeatureRows(*load_features([texts], keys))
    else:
        rows = split.texts
    sides = [_unit_rows(split.images), _unit_rows(rows)]
    if sides[0].shape[1] != sides[1].shape[1]:
        raise InputError(
            "--text_features",
            "be in the space of --image_features",
            f"{sides[1].shape[1]} numbers per caption, {sides[0].shape[1]} "
            "per image",
            "Use embeddings by one model, or train a network on them with "
            "tbnets train.",
        )
    return RetrievalScores(
        *sides,
        split.records,
        memory_limit_mb=options.memory_limit_mb,
        photos=split.photo_folder,
    )


def _settings(options):
    values = dataclasses.asdict(options)
    names = {"images", "image_features", "text_features", "cache"}
    names |= {each.name for each in flags_of(CaptionSettings)} - {"data_root"}
    record = {name: values[name] for name in names}
    record = completed(record, "the command line")
    if options.data_root:
        record["data_root"] = os.path.abspath(options.data_root)
    if not options.hub:
        return registry.settings_of(record)
    if not (options.images or options.scenes):
        raise must_come_with(
            options, "hub", "--images", "Name the folder of the photos."
        )
    if PLACE not in options.prompt:
        raise InputError(
            "--prompt",
            "contain {} for the caption",
            f"--prompt={options.prompt}",
            "Write for example a photo of {}.",
        )
    preset = _preset(options)
    record |= {"image_encoder": preset, "cnn_weights": preset}
    settings = registry.settings_of(record)
    rendered = settings.sources().rendered()
    names = ("scenes", "captions", "captions_format", "images")
    return settings.replace(**{name: getattr(rendered, name) for name in names})


def _preset(options):
    return hub.PREFIX + options.hub.removeprefix(hub.PREFIX)


def _split(name, data):
    split = data.split(name)
    if not split.records.num_captions:
        raise InputError(
            "--split",
            "name a split with captions",
            f"--split={name}, which has none in {split.records.path}",
            "Name another split.",
        )
    return split


def _texts(options, photos, records):
    preset = hub.placed(_preset(options), *photos.sources.starts)
    encoder = hub.package().HubFeatures.of(preset)
    made_by = caption_features.description(encoder)
    folder = cache.store_folder(photos.cache, "texts", made_by)
    make_folder_of(photos.folder, photos.cache)
    texts = _prompted(options, records)
    keys, what = {*map(caption_key, texts)}, "encoding captions"
    if not cache.has_all(folder, keys):
        with (
            cache.written_alone(folder),
            caption_features.open_writer(folder, encoder) as writer,
            progress_bar(len(keys - writer.done), what, "text") as bar,
        ):
            caption_features.extract_captions(
                texts, encoder, writer, bar.update
            )
            writer.finish()
    return folder


def _prompted(options, records):
    prompt = options.prompt
    return [prompt.replace(PLACE, caption) for caption in records.captions]


def _unit_rows(rows):
    return unit_rows(rows.batch(np.arange(len(rows.rows))))
