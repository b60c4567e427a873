"""What a run of image-sentence matching will ask for, checked before it.

Nothing here is computed with: a split that is missing at the end of a
training must be told before its first step.
"""

import itertools

from tbnets.checked_files import shown
from tbnets.data.splits import WHOLE_FILE, NoSuchSplit
from tbnets.errors import InputError
from tbnets.flags.table import ALL
from tbnets.store.opening import read_made_by
from tbnets.tasks import inputs, text_inputs
from tbnets.text.tree_files import trees_of


def check_plan(task, queries):
    """Refuses a run whose splits, photos or features are not there.

    Args:
        task: a `MatchingTask`.
        queries: example queries that the exported model will be asked.

    Raises:
        ValueError, FileNotFoundError: naming what is missing.
    """
    settings = task.settings
    if queries and settings.text_encoder == "features":
        _check_queries(settings, queries[0])
    splits = check_splits(task)
    loaders = {"image_features": inputs.load_images}
    if task.own_photos:
        task.own_photos.check()
        loaders = {}
    if settings.text_encoder == "features":
        loaders["text_features"] = inputs.load_text_features
    for flag, load in loaders.items():
        shapes = {
            split: load(settings, task.records(split)).shape for split in splits
        }
        if len(set(shapes.values())) > 1:
            found = ", ".join(f"{s[0]} in {k}" for k, s in shapes.items())
            raise InputError(
                f"`--{flag}` must be as wide in every split. Received: "
                f"{found} numbers a row. Extract them alike."
            )
    if settings.text_encoder == "features" and settings.export:
        _check_text_reader(task)
    if settings.text_encoder == "h_lstm":
        _check_trees(task, splits)
    by_features = settings.image_encoder == "features" and not task.own_photos
    if by_features and settings.cnn_weights and settings.export:
        _check_photo_reader(task, queries, splits[-1])


def _check_trees(task, splits):
    """Refuses captions without trees, and what trees can not be used for."""
    settings = task.settings
    if getattr(settings, "jit_compile", False):
        raise InputError(
            "`--jit_compile` must be false with --text_encoder=h_lstm: the "
            "sizes of a batch of trees are data, which XLA does not compile. "
            "Received: --jit_compile=True. Leave it out."
        )
    path = text_inputs.tree_path(settings)
    for split in splits:
        trees_of(path, task.records(split).captions)


def _check_photo_reader(task, queries, split):
    """Refuses to serve photos that can not be read as the features were."""
    settings = task.settings
    if queries:  # They are answered by photos, and drawn.
        inputs.load_photos(settings, task.records(split))
    images = inputs.load_images(settings, task.records(settings.train_split))
    made_by = images.features.made_by
    inputs.build_photo_reader(settings, {"image_features_made_by": made_by})


def _check_queries(settings, query):
    """Refuses a query to a model that will take no captions."""
    try:
        paths = inputs.feature_paths(
            settings, settings.train_split, "text_features"
        )
        known = "encoder_sha256" in read_made_by(*paths)
    except (ValueError, OSError):
        return  # Loading them will tell what is wrong.
    if not known:
        raise InputError(
            "`--example_query` must come with a model that takes captions. "
            f"Received: --example_query={query} with --text_encoder=features, "
            "whose features no encoder is known of. Leave it out, make them by "
            "tools/extract_text_features.py, or choose another --text_encoder."
        )


def _check_text_reader(task):
    """Refuses to serve captions that can not be read as the features were."""
    settings = task.settings
    records = task.records(settings.train_split)
    made_by = inputs.load_text_features(settings, records).features.made_by
    fitted = {"words": [], "text_features_made_by": made_by}
    text_inputs.build_text_reader(settings, fitted)


def check_splits(task):
    """Returns the names of the splits that will be asked for, checked."""
    settings = task.settings
    names = [
        existing_split(task, flag) for flag in ("train_split", "dev_split")
    ]
    # Who names no other test split than by default may have none.
    if task.has_split(settings.test_split):
        names.append(settings.test_split)
    elif settings.test_split not in ("", ALL["test_split"].default):
        names.append(existing_split(task, "test_split"))
    return names


def overlap_notes(task, splits):
    """Returns which splits have images in common, as `Task.notes` does.

    Args:
        task: a task with `records`.
        splits: names of splits that are there; one may stand twice.
    """
    found = []
    for pair in itertools.combinations(dict.fromkeys(splits), 2):
        one, other = map(task.records, pair)
        ids = set(other.image_ids) if one.has_ids and other.has_ids else ()
        both = [key for key in one.image_ids if key in ids]
        if both:
            found.append(
                f"{len(both)} images in {pair[0]} and in {pair[1]}, first "
                f"{shown(both[0])}"
            )
    return {"overlap": "; ".join(found)} if found else {}


def existing_split(task, flag):
    """Returns the value of a flag that names a split, with captions in it."""
    split = getattr(task.settings, flag)
    try:
        records = task.records(split)
    except NoSuchSplit as error:
        raise InputError(
            f"`--{flag}` must be a split that {error.path} has: "
            f"{', '.join(map(repr, error.names)) or 'none'}. Received: "
            f"--{flag}={split}. {_advice(flag, error.names)}"
        ) from error
    if not records.num_captions:
        raise InputError(
            f"`--{flag}` must name a split with captions. Received: "
            f"--{flag}={split}, without any in {records.path}. Name another."
        )
    return split


def _advice(flag, names):
    if tuple(names) == (WHOLE_FILE,):
        return (
            "The file does not tell splits apart: give its rows a split, or "
            "keep one file a split and write {split} in --captions."
        )
    return (
        f"Set --{flag} to one of these, or give some of the images the split "
        "that is missing."
    )
