"""Times the extraction of features against its forward passes alone."""

import itertools
import tempfile

from benchmarks import timing
from tbnets import images
from tbnets.features import cnn
from tbnets.features import extraction
from tbnets.features import photo_features
from tbnets.store.writer import FeatureWriter


def run(folder, name, layers, num_images, repeats):
    """Prints the table.

    Args:
        folder: folder of photos, of which the first are taken.
        name: network of `cnn.NETWORKS`; its weights are random.
        layers: as `--layers` of the extraction tool.
        num_images: photos in a timed run.
        repeats: timed runs of each row.
    """
    paths = itertools.islice(images.list_photos(folder), num_images)
    photos = [(path.name, path) for path in paths]
    features = photo_features.PhotoFeatures(cnn.build_cnn(name), layers)
    batches = extraction.decoded_batches([photos], features)
    decoded = [batch for _, _, batch in batches]

    def floor():
        for batch in decoded:
            features.compiled_forward(batch).numpy()

    def extract():
        with tempfile.TemporaryDirectory() as store:
            writer = FeatureWriter(store, {"for": "timing"}, features.dim)
            extraction.extract(photos, features, writer)
            writer.finish()

    runs = {"forward passes alone": floor, "extraction": extract}
    found = timing.interleaved(runs, repeats)
    timing.print_table(
        f"{name} {','.join(layers)}, {len(photos)} photos of {folder}, files "
        f"to store, {1e3 * len(photos) / found['extraction']:.1f} photos/s",
        found,
        "forward passes alone",
    )
