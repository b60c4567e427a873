"""Tests of convolutional networks: weights, layers, folding."""

import h5py
import keras
import numpy as np
import pytest

from tbnets.errors import InputError
from tbnets.features import cnn_weights
from tbnets.features.cnn import (
    NETWORKS,
    Architecture,
    build_cnn,
    full_network_outputs,
)
from tbnets.features.cnn_weights import load_weights, weights_sha256
from tbnets.features.photo_features import PhotoFeatures
from tests.features.tiny_cnn import (
    TOP,
    tiny_cnn,
    tiny_network,
)


def write_old_layout(path, network, rename=str, edit=lambda _, rows: rows):
    """Writes weights as Keras 1 and 2 did: a group a layer."""
    with h5py.File(path, "w") as file:
        names = [rename(layer.name) for layer in network.layers]
        for layer, name in zip(network.layers, names):
            group = file.create_group(name)
            tensors = edit(layer.name, layer.get_weights())
            keys = [f"w{i}" for i in range(len(tensors))]
            group.attrs["weight_names"] = np.array(keys, "S9")
            for key, tensor in zip(keys, tensors):
                group[key] = tensor
        file.attrs["layer_names"] = np.array(names, "S")
    return path


def test_squeezenet_has_the_published_size_and_preprocessing():
    cnn = build_cnn("SqueezeNet")
    assert cnn.network.count_params() == 722_496
    assert cnn.network.output_shape == (None, 13, 13, 512)
    assert not cnn.top
    # BGR minus the mean.
    pixels = np.array([[[[10.0, 20.0, 30.0]]]], np.float32)
    found = np.asarray(cnn.preprocess(pixels.copy()))
    expected = [30 - 103.939, 20 - 116.779, 10 - 123.68]
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6)


@pytest.mark.real_data
def test_squeezenet_features_are_near_those_of_the_original_photos(data_root):
    # The photos here were re-encoded, which alone costs about 0.02.
    path = data_root / "squeezenet" / "squeezenet1.1_imagenet_notop.h5"
    features = PhotoFeatures(build_cnn("SqueezeNet", path))
    folder = data_root / "flickr8k"
    stored = folder / "precomp_squeezenet"
    ids = (stored / "dev_ids.txt").read_text().split()[:12]
    expected = np.load(stored / "dev_ims.npy")[:12]
    contents = [(folder / "images" / key).read_bytes() for key in ids]
    found = features(contents).numpy()
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    cosines = found @ expected.T
    assert np.diag(cosines).mean() > 0.97
    assert (cosines.argmax(axis=1) == np.arange(12)).all()


def test_failed_download_of_weights_is_an_input_error(monkeypatch):
    def constructor(include_top, weights, input_shape):
        raise Exception(f"URL fetch failure on\nhttps://x/{weights}.h5: None")

    monkeypatch.setitem(NETWORKS, "Far", Architecture(constructor, None))
    with pytest.raises(InputError, match=r"https://x/imagenet\.h5"):
        build_cnn("Far", "imagenet")


def test_weights_that_need_too_much_memory_are_refused(tmp_path, monkeypatch):
    network = tiny_network()
    path = write_old_layout(tmp_path / "net.h5", network)
    with h5py.File(path, "a") as file:
        file.create_dataset("w", (10**9,), "f4", chunks=True)  # 4 GB, unwritten
    monkeypatch.setattr(cnn_weights, "_stored_layers", pytest.fail)
    with pytest.raises(InputError):
        load_weights(network, path)


def test_weights_of_each_layout_are_read(tmp_path):
    source, target = tiny_cnn(seed=0).network, tiny_cnn(seed=1).network
    others, path = target.get_weights(), tmp_path / "w.weights.h5"
    for write in (
        source.save_weights,  # Keras's layout of today.
        lambda path: write_old_layout(path, source),
        lambda path: write_old_layout(path, source, lambda x: f"x_{x}"),
        lambda path: write_old_layout(
            path, source, lambda name: name.replace("_", "/")
        ),
    ):
        write(path)
        target.set_weights(others)
        assert weights_sha256(source) != weights_sha256(target)
        load_weights(target, path)
        for one, other in zip(source.get_weights(), target.get_weights()):
            np.testing.assert_array_equal(one, other)
        assert weights_sha256(source) == weights_sha256(target)
        path.unlink()


def edited(layer, edit):
    """Returns a function that edits the tensors of one layer, or of all."""
    return lambda name, tensors: edit(tensors) if layer in name else tensors


def test_error_names_the_layer_whose_weights_do_not_fit(tmp_path):
    target = tiny_network()
    before, path = target.get_weights(), tmp_path / "w.h5"
    for named, edit in (
        ("first", edited("", lambda some: [t.astype("S4") for t in some])),
        ("fc2", edited("fc2", lambda some: [t.T for t in some])),
        ("fc1", edited("fc1", lambda some: some[:1])),
    ):
        write_old_layout(path, target, edit=edit)
        with pytest.raises(InputError, match=f"layer {named}"):
            load_weights(target, path)
    for old, new in zip(before, target.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_error_names_a_file_without_weights(tmp_path):
    network, path = tiny_network(), tmp_path / "w.h5"
    for bad in (b"", b"no weights"):
        path.write_bytes(bad)
        with pytest.raises(InputError, match=r"w\.h5"):
            load_weights(network, path)
    write_old_layout(path, tiny_network(top=False))
    with pytest.raises(InputError, match="fc1, fc2, predictions"):
        load_weights(network, path)
    path = tmp_path / "w.weights.h5"
    with pytest.raises(FileNotFoundError):
        load_weights(network, path)
    with h5py.File(path, "w") as file:
        file["layers/other/vars/0"] = np.zeros(3)
    with pytest.raises(InputError, match=r"w\.weights\.h5"):
        load_weights(network, path)


def test_full_network_takes_every_activation_but_the_classifier():
    cnn = tiny_cnn()
    outputs = dict(full_network_outputs(cnn))
    shapes = {name: tuple(output.shape)[1:] for name, output in outputs.items()}
    maps = {"first": (8, 8, 4), "second": (4, 4, 6)}
    assert shapes == {**maps, "fc1": (5,), "fc2": (3,)}
    assert dict(full_network_outputs(tiny_cnn(top=False))).keys() == maps.keys()
    # `second` is followed by batch normalisation and ReLU, so that what leaves
    # it is never negative.
    network = keras.Model(cnn.network.input, outputs["second"])
    pixels = np.random.default_rng(0).normal(size=(4, 8, 8, 3))
    values = network(pixels.astype(np.float32)).numpy()
    assert values.min() == 0 and values.max() > 0


def test_full_network_of_vgg16_has_12416_dimensions():
    # 2 * 64 + 2 * 128 + 3 * 256 + 6 * 512 = 4224 channels, 2 * 4096 units.
    outputs = full_network_outputs(build_cnn("VGG16", image_size=32))
    sizes = [int(output.shape[-1]) for _, output in outputs]
    assert sum(sizes) == 4224 + 8192 == 12416
    assert TOP not in dict(outputs)
