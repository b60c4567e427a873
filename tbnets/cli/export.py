r"""Export a trained network as a SavedModel, or change an export.

Training already exports its best epoch. Use this command to export the last
checkpoint. It can also export a run that was trained on features of
tbnets extract_image_features as a model that takes photos:

  tbnets export --run_dir=runs/vilalta2017_flickr8k_fne \
      --cnn_weights=imagenet

The command writes the next version to RUN/saved_model or --output.

Export a network that was trained on photos and captions as a model that finds
the boxes of phrases, for tbnets localize:

  tbnets export --run_dir=runs/flickr8k_infonce \
      --cnn_weights=imagenet --regions=features/averages_lite0.flags \
      --choice=expected_overlap --choice_temperature=0.04 \
      --choice_area_exponent=0.5

Export a SavedModel again, for example a model of the zoo:

  tbnets export --model=flickr8k_photos --output=served/flickr8k \
      --serving

The command writes the next version, which returns bit-identical outputs. With
--serving, it adds warm-up requests for TensorFlow Serving (needs the extra:
pip install "tbnets[serving]"). A server can batch requests only if all
signatures support it, for example after --signatures=embed_text,embed_image.

Add an index made by tbnets index, and the `search` signature, to the model:

  tbnets export --model=flickr8k_photos --output=served/search \
      --index=photos.index

Convert a network for LiteRT, to search without TensorFlow (docs/on_device.md):

  tbnets export --model=flickr8k_photos --output=flickr8k_int8 \
      --litert=int8 --images=flickr8k/train

--litert=int8 measures the ranges of the activations on 100 photos
(--calibration) in the folder --images, which should resemble the training
photos.

Measure on captions that the network was not trained on which search results
are doubtful (docs/search.md):

  tbnets export --model=runs/own --output=served/own \
      --dev_captions=captions.json --photos=photos

See docs/serving.md.
"""

import dataclasses
import os
import pathlib

from tbnets.cli.data_flags import (
    ChoiceFlags,
    RunFlags,
    check_choice_flags,
    choice_arguments,
)
from tbnets.cli.model_flags import MODEL, TrustFlag
from tbnets.data.photos import sort_files
from tbnets.errors import InputError
from tbnets.files import CheckedFile
from tbnets.serving import doubt, litert, protocol, zoo
from tbnets.serving.checksums import KINDS
from tbnets.serving.export import next_version, reexport
from tbnets.serving.search_index import add_search, open_index
from tbnets.tasks import runs
from tbnets.tasks.localization import endpoints_of_phrases
from tbnets.tasks.photo_readers import start_at_photo
from tbnets.tasks.phrase_regions import with_regions
from tbnets.tasks.settings.flag import (
    Count,
    changed,
    check_pairs,
    flag,
    must_come_with,
)
from tbnets.tasks.trained import rebuild


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RunFlags, ChoiceFlags, TrustFlag):
    """Flags for the network to export and for the exported model."""

    run_dir: str = flag("", "Folder of the run to export. Or set --model.")
    model: str = flag("", f"Exported model to change: {MODEL}.")
    output: str = flag(
        "",
        "Folder of the model, to which a new version is added, or folder of a "
        "new version, named by its number. Default for a run: "
        "RUN/saved_model.",
    )
    signatures: list[str] = flag(
        [], "For --model: signatures to keep; default: all."
    )
    index: str = flag(
        "",
        "For --model: folder of an index that `tbnets index` wrote with this "
        "model, for the signature `search`.",
    )
    dev_captions: str = flag(
        "",
        "For --model, with --photos: caption file with the split dev, or "
        "without splits, to measure which results of a search are doubtful.",
    )
    photos: str = flag("", "With --dev_captions: folder of the photos.")
    serving: bool = flag(
        False,
        "Add warm-up requests, which TensorFlow Serving runs before it "
        "serves the model.",
    )
    cnn_weights: str = flag(
        "",
        "imagenet, or the weights file that computed the run's image "
        "features. The model then takes photos. Default: the run's value.",
        argument="weights",
    )
    regions: str = flag(
        "",
        "With --cnn_weights, for a run of photos and captions: region "
        "features made by roi_average, as a store or a recipe. The model then "
        "finds phrases in a photo.",
    )
    litert: str = flag(
        "",
        "Convert the network for LiteRT: float32, float16 (half the size) or "
        "int8 (a quarter). Default of --output: RUN/litert/KIND.",
        choices=("", *KINDS),
    )
    images: str = flag(
        "",
        "With --litert=int8: folder of training photos, subfolders included. "
        "Default for a run: the photos of its training split.",
    )
    calibration: Count = flag(
        100, "With --litert=int8: number of photos to use, spread evenly."
    )
    half_precision: bool = flag(
        False, "Store the weights as float16; computations use float32."
    )
    max_pixels: Count | None = flag(
        None,
        "Maximum number of pixels of a photo. Default and maximum: 80 million, "
        "whose decoding takes about 480 MB.",
    )


_MODEL_FLAGS = {"signatures", "index", "trust", "dev_captions", "photos"}
_LITERT_FLAGS = {"litert", "images", "calibration"}
_LITERT_FLAGS |= {"checkpoint", "data_root", "cnn_weights"}


def main(options):
    """Exports the network that the flags describe."""
    check_source(options)
    if options.litert:
        return export_litert(options)
    extra = None
    if options.serving:
        protocol.api("prediction_log_pb2")  # Fails before any work.
        extra = protocol.add_warm_up_requests
    export = export_again if options.model else export_run
    print(f"SavedModel  {export(options, new_folder_of(options), extra)}")


def check_source(options):
    """Raises an error unless a run or model is set and accepts the flags."""
    if bool(options.run_dir) == bool(options.model):
        received = "both" if options.model else "neither"
        expected = "be set, or `--model`, but only one of them"
        raise InputError("--run_dir", expected, received)
    check_choice_flags(options)
    pairs = {"choice": "regions", "regions": "cnn_weights"}
    pairs |= {"dev_captions": "photos", "photos": "dev_captions"}
    pairs |= {"images": "litert", "calibration": "litert"}
    check_pairs(options, pairs)
    set_flags = changed(options) - {"run_dir", "model", "output"}
    if options.litert:
        unused, needs = set_flags - _LITERT_FLAGS, "an export without --litert"
    elif options.model:
        unused, needs = set_flags - _MODEL_FLAGS - {"serving"}, "--run_dir"
    else:
        unused, needs = set_flags & _MODEL_FLAGS, "--model"
    if options.model and not options.output:
        raise must_come_with(options, "model", "--output", "Name a folder.")
    for name in sorted(unused):
        raise must_come_with(options, name, needs)


def new_folder_of(options):
    """Returns the folder of the new version, or None for the default."""
    if not options.output:
        return None
    folder = pathlib.Path(options.output).absolute()
    if folder.name.isascii() and folder.name.isdecimal():
        return folder
    return folder / str(next_version(folder))


def open_session(options, **changes):
    """Opens --run_dir with --cnn_weights and other changes of its settings."""

    def adjust(settings):
        return start_at_photo(settings.replace(**changes), options.cnn_weights)

    where = {"data_root": options.data_root, "adjust": adjust}
    return runs.open_run(options.run_dir, options.checkpoint, **where)


def export_litert(options):
    """Converts the network for LiteRT, and prints the sizes of the files."""
    if options.model:
        network, endpoints = rebuild(options.model, options.cnn_weights)
        path, name, photos = options.output, options.model, None
    else:
        session = open_session(options, precision="float32")
        network, task = session.network, session.task
        endpoints = task.endpoints(network, session.state.fitted)
        name = options.run_dir
        path = options.output or pathlib.Path(name, "litert", options.litert)
        photos = task.train if session.settings.sources().images else None
    photos = calibration_photos(options, photos)
    about = {"source": pathlib.Path(name).name, **recalls_of(options)}
    path, cosines = litert.write_litert(
        network, endpoints, path, options.litert, photos, about
    )
    print(f"LiteRT      {path}")
    for file, cosine in cosines.items():
        size = (path / file).stat().st_size / 1e6
        print(f"{file:11} {size:.2f} MB, cosine with the network >= {cosine}")


def calibration_photos(options, train):
    """Returns the paths of the photos that calibrate --litert=int8, or []."""
    if options.litert != "int8":
        return []
    if options.images:
        paths = [*sort_files(options.images)[0].values()]
    else:
        paths = train.photos.paths if train else []
    step = max(1, len(paths) // options.calibration)
    return [os.fspath(path) for path in paths[::step]][: options.calibration]


def recalls_of(options):
    """Returns a dict of the recalls on the test split in metrics.json."""
    folder = pathlib.Path(options.run_dir)
    if options.model:
        folder = zoo.model_folder(options.model)
    file = CheckedFile(folder / "metrics.json")
    metrics = file.json() if (folder / "metrics.json").is_file() else {}
    test = metrics.get("test", {}).items()
    ways = "image_to_text/recall_at_", "text_to_image/recall_at_"
    return {"source_recalls": {k: v for k, v in test if k.startswith(ways)}}


def export_again(options, path, extra):
    """Exports --model as a new version and returns its folder."""
    keep, add, metadata = options.signatures, None, {}
    if options.index:
        index = open_index(options.index)
        add, metadata["index_size"] = add_search(index), len(index)
        keep = keep and [*keep, "search"]
    if options.dev_captions:
        model = zoo.open_model(options.model, options.trust)
        likely = doubt.measure(model, options.dev_captions, options.photos)
        metadata["metadata"] = {**model.metadata["metadata"], **likely}
    how = {"keep": keep, "add": add, "extra": extra, "trust": options.trust}
    return reexport(zoo.locate(options.model), path, **how, metadata=metadata)


def export_run(options, path, extra):
    """Exports the network of a run and returns the SavedModel's folder."""
    session, about = open_session(options), {}
    if options.regions:
        fitted = with_regions(session, options.regions)
        endpoints = endpoints_of_phrases(session.task, session.network, fitted)
        about = {"fitted": fitted, "endpoints": endpoints}
        about["metadata"] = {"choice": choice_arguments(options)}
    names = "half_precision", "max_pixels"
    about |= {name: vars(options)[name] for name in names}
    return runs.export(session, path, **about, extra=extra)
