"""The network of the quickstart learns as well as when this test was written.

The bands are narrow enough that a wrong miner, mask or gradient leaves them,
and wide enough for the rounding of other versions and machines.
"""

import itertools

import numpy as np

from tbnets.tasks import runs
from tests import tiny

COLOURS = "red green blue black".split()
SHAPES = "circle square star ring".split()
SPLITS = {"train": 72, "dev": 2, "test": 36}
DIM, EPOCHS = 24, 6

BANDS = {
    "recall_sum": (315.3, 9.0),
    "loss": (0.311, 0.015),
    "image_to_text_active": (0.176, 0.02),
    "text_to_image_active": (0.087, 0.02),
    "text_to_text_active": (0.036, 0.02),
}
"""A value of the trained network, and how much it may differ."""


def write_shapes(folder):
    """Writes features and captions of images with two coloured shapes.

    The features are the sum of a vector for each shape and of noise. The two
    captions of an image name the shapes in either order.
    """
    rng = np.random.default_rng(0)
    names = [f"{c} {s}" for c, s in itertools.product(COLOURS, SHAPES)]
    vectors = rng.normal(size=(len(names), DIM))
    for split, size in SPLITS.items():
        pairs = [rng.choice(len(names), 2, replace=False) for _ in range(size)]
        features = [
            vectors[pair].sum(0) + rng.normal(size=DIM) for pair in pairs
        ]
        np.save(folder / f"{split}_ims.npy", np.array(features, "float32"))
        ids = "".join(f"{split}{row}.jpg\n" for row in range(size))
        (folder / f"{split}_ids.txt").write_text(ids)
        captions = [
            f"{names[a]} {names[b]}\n"
            for pair in pairs
            for a, b in (pair, pair[::-1])
        ]
        (folder / f"{split}_caps.txt").write_text("".join(captions))


def quickstart(folder):
    """Returns the settings of the quickstart for the data in `folder`."""
    return tiny.parse(
        *("--flagfile=quickstart", "--scenes=", f"--data_root={folder}"),
        *("--captions=.", "--image_features={split}_ims.npy"),
        *("--cnn_weights=", f"--run_dir={folder / 'run'}"),
        *("--rnn_units=32", "--image_units=32", "--text_units=32"),
        *("--images_per_batch=12", "--learning_rate=0.01"),
        f"--epochs={EPOCHS}",
    )


def set_weights(network):
    """Sets weights that do not depend on the version of Keras."""
    rng = np.random.default_rng(1)
    for weight in network.trainable_variables:
        if len(weight.shape) == 2:
            size = np.sqrt(weight.shape[0])
            weight.assign(rng.normal(size=weight.shape) / size)


def test_training_reaches_known_losses_and_recalls(tmp_path):
    write_shapes(tmp_path)
    settings = quickstart(tmp_path)
    session, _ = runs.prepare(settings, runs.start(settings, False))
    network, task = session.network, session.task
    set_weights(network)
    logs = network.fit(session.batches, epochs=EPOCHS, verbose=0).history
    test = task.load("test", session.state.fitted)
    found = task.scores(network, test).metrics()
    found |= {name: values[-1] for name, values in logs.items()}
    for name, (value, tolerance) in BANDS.items():
        np.testing.assert_allclose(
            found[name], value, 0, tolerance, err_msg=name
        )
