"""Makes stores of features for photos, and for boxes in photos."""

import dataclasses
import functools

import tqdm

from tbnets.data.store.reader import DTYPES, open_store
from tbnets.data.store.writer import FeatureWriter
from tbnets.errors import InputError
from tbnets.features import cache, extraction, photo_features, proposals
from tbnets.features.cnn import LAST, NETWORKS
from tbnets.features.extraction import extract_regions
from tbnets.features.regions import EXTRACTORS
from tbnets.startup import usable_cores
from tbnets.tasks.recipes.recipe import Recipe
from tbnets.tasks.settings.flag import (
    PRESET,
    Count,
    Counts,
    Place,
    Whole,
    flag,
    must_come_with,
)

BATCHES_PER_WRITE = 8


def complete_store(photos, writer, what, work, **options):
    """Calls `cache.complete`, and prints what was done."""
    before = len(writer.done)
    failures = cache.complete(photos, writer, what, work, **options)
    for path, reason in failures:
        tqdm.tqdm.write(f"left out: {path}, which {reason}")
    tqdm.tqdm.write(
        f"{len(writer.done) - before} photos; {len(writer.done)} in the store, "
        f"{len(failures)} left out"
    )


class OfPhotos(Recipe):
    """A recipe for a store of all photos in the captions file."""

    def __init__(self, flagfile, values, data):
        super().__init__(flagfile, values, data, data.photos)

    @functools.cached_property
    def _read(self):
        return self.file_keys.read(dict(self.items))

    @property
    def keys(self):
        """The keys of all photos that can be read, a dict by id."""
        return self._read[0]

    @property
    def photos(self):
        """The distinct photos, a list of (key, path)."""
        pairs = [(self.keys.get(key), path) for key, path in self.items]
        return [*{key: path for key, path in pairs if key}.items()]

    def open(self):
        """Opens the result as `Features` of the run's photos."""
        features = super().open()
        features.failed |= self._read[1]
        return features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proposals:
    """Flags that control which boxes are proposed."""

    method: str = flag(
        "edge_boxes",
        "Method: edge_boxes (Zitnick & Dollar 2014) or selective_search "
        "(Uijlings et al. 2013).",
        choices=list(proposals.IOU_THRESHOLDS),
    )
    limit: Count = flag(
        200, "Maximum number of boxes per photo. Wang 2018: 200."
    )
    iou_threshold: float | None = flag(
        None,
        "Maximum overlap (IoU) with a better box; boxes above it are "
        "dropped. Default: "
        + ", ".join(f"{v} for {k}" for k, v in proposals.IOU_THRESHOLDS.items())
        + ".",
    )
    iou_decay: float = flag(
        1.0,
        "For edge_boxes: factor that multiplies --iou_threshold after each "
        "kept box while the threshold is above 0.5, so that the best boxes "
        "have closer neighbours.",
    )
    max_aspect_ratio: float = flag(
        3.0, "For edge_boxes: maximum ratio of a box's sides."
    )
    longest_side: Count = flag(
        500,
        "Maximum side of a photo in pixels. Larger photos are first scaled "
        "down.",
    )
    min_area: float = flag(
        0.005, "Minimum area of a box, as a fraction of the photo."
    )
    whole_photo: bool = flag(False, "Add the whole photo as the last box.")


def make_proposals(photos, values, folder, workers=None, **options):
    """Makes or completes a store of proposed boxes.

    `photos` is a list of (id, path). `workers` photos are processed at once, by
    default one per core. `options` are those of `extraction.propose_photos`.
    """
    proposer = proposer_of_flags(values)
    writer = FeatureWriter(folder, proposer.description(), 0, kind="regions")
    how = {"proposer": proposer, "workers": workers or usable_cores()}
    complete_store(
        photos, writer, "proposing", extraction.propose_photos, **how, **options
    )


def proposer_of_flags(values):
    """Builds a `Proposer` from flags."""
    names = [field.name for field in dataclasses.fields(proposals.Proposer)]
    return proposals.Proposer(*(getattr(values, name) for name in names))


class Boxes(OfPhotos):
    """A recipe for boxes in photos, with flags of `propose_regions`."""

    verb, group = "propose_regions", Proposals

    def check(self):
        """Raises an error if a number is invalid or a package is missing."""
        proposer_of_flags(self.values)
        proposals.import_opencv()

    def make(self, folder):
        """Makes or completes the store."""
        how = {"has_changed": self.file_keys.has_changed}
        make_proposals(self.photos, self.values, folder, **how)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageFeatures:
    """Flags that select the features and the network that makes them."""

    cnn: str = flag(
        "EfficientNetLite0",
        "Network, or the name, handle or folder of a Keras Hub preset. "
        "Papers: VGG19, VGG16.",
        choices=(*sorted(NETWORKS), PRESET),
        argument="name",
    )
    cnn_weights: Place = flag(
        "imagenet",
        "Weights: imagenet (EfficientNetLite: from its pip package; others: "
        "downloaded by Keras), a weights file (HDF5; EfficientNetLite: also "
        ".pth), or random. A preset has its own weights.",
        argument="weights",
    )
    top: bool = flag(
        True,
        "Build the classifier too. Use --notop for weights files without the "
        "FC layers.",
    )
    image_size: Whole = flag(
        0, "Side of the network's input in pixels; 0: the network's default."
    )
    layers: list[str] = flag(
        [LAST],
        "Layers to concatenate. Feature maps are averaged over positions. "
        "last: before the classifier (VGG: fc2); full_network: all (Vilalta "
        "2017).",
    )
    crops: str = flag(
        "one",
        "Crops of a photo. one: the whole photo, resized; ten: the average of "
        "corners, centre and their mirror images, 224 x 224 crops of the photo "
        "resized to 256 x 256 (Wang 2016; EfficientNetLite1: 240 from 272; "
        "EfficientNetLite2: 260 from 292).",
        choices=photo_features.CROPS,
    )
    dtype: str = flag("float32", "Type of the stored features.", choices=DTYPES)
    regions: str = flag(
        "",
        "Boxes whose features are computed: a store of "
        "tbnets propose_regions; in a recipe, a recipe for that tool.",
    )
    region_features: str = flag(
        "roi_pool",
        "Method for features of boxes. warp: from the box, cropped and resized "
        "for the network (R-CNN); roi_pool: pooled from a map of the photo "
        "(Fast R-CNN); roi_average: averaged from maps of every layer in "
        "--layers, with the photo resized to --image_size, plus position and "
        "area.",
        choices=sorted(EXTRACTORS),
    )
    grids: Counts = flag(
        [],
        "For roi_average: parts per side of a box, one number per layer of "
        "--layers. Each part is averaged; 2 gives four times the channels. "
        "Default: 1 each.",
    )
    scales: list[float] = flag(
        [],
        "For roi_average: factor by which the sides of a box are enlarged, one "
        "number per layer of --layers; 1.6 includes the box's surroundings. "
        "Default: 1 each.",
    )


def check_image_features(values):
    """Raises an error if flags contradict each other."""
    names = [name for name in ("grids", "scales") if getattr(values, name)]
    if not values.regions or values.region_features == "roi_average":
        return
    if names:
        raise must_come_with(values, names[0], "--region_features=roi_average")
    if len(values.layers) > 1:
        advice = "Use --region_features=roi_average, or name one layer."
        required = "one layer of --layers"
        raise must_come_with(values, "region_features", required, advice)


def build_features(values):
    """Returns the feature extractor that the flags describe."""
    size = values.image_size or None
    network = photo_features.build_named_cnn(
        values.cnn, values.cnn_weights, size, values.top
    )
    layers, kind = values.layers, values.region_features
    if not values.regions:
        return photo_features.PhotoFeatures(network, layers, values.crops)
    check_image_features(values)
    if kind != "roi_average":
        return EXTRACTORS[kind](network, *layers)
    options = {"grids": values.grids or None, "scales": values.scales or None}
    return EXTRACTORS[kind](network, layers, **options)


def make_image_features(
    photos,
    values,
    folder,
    features=None,
    batch_size=extraction.BATCH_SIZE,
    boxes=None,
    **options,
):
    """Makes or completes a store of features for photos or for their boxes.

    `values` is an `ImageFeatures`, whose `regions` is the store of boxes, if
    any. `features` is the result of `build_features`, and `boxes` is the opened
    store; None stands for these. `options` are those of
    `extraction.extract_photos`. Returns the number of features per photo or
    box.
    """
    features = features or build_features(values)
    made_by, kind = features.description(), "images"
    work = extraction.extract_photos
    inputs = {"features": features, "batch_size": batch_size}
    inputs["write_every"] = BATCHES_PER_WRITE * batch_size
    if values.regions:
        kind = "regions"
        boxes = open_store(values.regions) if boxes is None else boxes
        made_by = {**made_by, "proposals": boxes.made_by}
        work = extract_regions
        inputs = {"proposals": boxes, "extractor": features}
    writer = FeatureWriter(folder, made_by, features.dim, values.dtype, kind)
    what = "extracting features"
    complete_store(photos, writer, what, work, **inputs, **options)
    return features.dim


class FeaturesOfPhotos(OfPhotos):
    """A recipe for photo features, with flags of `extract_image_features`."""

    verb, group, preset = "extract_image_features", ImageFeatures, "cnn"

    def __init__(self, flagfile, values, data):
        super().__init__(flagfile, values, data)
        if boxes := values.regions:
            expected = "not be in a recipe for features of whole photos"
            raise InputError("--regions", expected, f"--regions={boxes}")

    @property
    def values_with_boxes(self):
        """The flags, of which `regions` is the folder of boxes."""
        boxes = "".join(str(part.folder) for part in self.parts)
        return dataclasses.replace(self.values, regions=boxes)

    @functools.cached_property
    def _features(self):
        return build_features(self.values_with_boxes)

    def check(self):
        """Builds the network, which checks its layers and weights."""
        self._features  # noqa: B018

    def make(self, folder):
        """Makes or completes the store."""
        [boxes] = [cache.open_cached(x.folder) for x in self.parts] or [None]
        values, features = self.values_with_boxes, self._features
        how = {"boxes": boxes, "has_changed": self.file_keys.has_changed}
        make_image_features(self.photos, values, folder, features, **how)
        del self._features

    def files(self):
        """Returns the files named by flags, and the installed weights files."""
        values, files = self.values, super().files()
        find = getattr(NETWORKS.get(values.cnn), "find_imagenet", None)
        if values.cnn_weights == "imagenet" and find:
            files["cnn_weights"] = find()
        return files


class FeaturesOfBoxes(FeaturesOfPhotos):
    """A recipe for features of boxes, which a second recipe makes."""

    def __init__(self, flagfile, values, data):
        check_image_features(values)
        self.parts = (Boxes.read("regions", values.regions, data),)
        # The description of `Boxes` identifies the boxes.
        values = dataclasses.replace(values, regions="")
        super().__init__(flagfile, values, data)
