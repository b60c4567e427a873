"""Tests of convolutional networks by name."""

import io

import h5py
import numpy as np
import PIL.Image
import pytest

from tbnets.errors import InputError
from tbnets.features import cnn_weights
from tbnets.features.cnn import (
    NETWORKS,
    Network,
    build_cnn,
    pooled_network,
)
from tbnets.features.cnn_weights import load_weights, weights_sha256
from tests.features.tiny_cnn import tiny_cnn, tiny_network


def write_old_layout(path, network, rename=lambda name: name, edit=None):
    """Writes weights as Keras 1 and 2 did: a group a layer."""
    with h5py.File(path, "w") as file:
        names = []
        for layer in network.layers:
            name = rename(layer.name)
            names.append(name.encode())
            group = file.create_group(name)
            tensors = layer.get_weights()
            if edit:
                tensors = edit(layer.name, tensors)
            group.attrs["weight_names"] = np.array(
                [f"w{i}".encode() for i in range(len(tensors))], "S9"
            )
            for i, tensor in enumerate(tensors):
                group[f"w{i}"] = tensor
        file.attrs["layer_names"] = np.array(names)
    return path


def same_weights(a, b):
    return all(
        np.array_equal(x, y) for x, y in zip(a.get_weights(), b.get_weights())
    )


def test_squeezenet_has_the_published_size():
    cnn = build_cnn("SqueezeNet")
    assert cnn.network.count_params() == 722_496
    assert cnn.network.output_shape == (None, 13, 13, 512)
    assert not cnn.top


def test_squeezenet_preprocesses_to_bgr_minus_the_mean():
    pixels = np.array([[[[10.0, 20.0, 30.0]]]], np.float32)
    found = np.asarray(NETWORKS["SqueezeNet"].preprocess(pixels.copy()))
    expected = [30 - 103.939, 20 - 116.779, 10 - 123.68]
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-6)


@pytest.mark.real_data
def test_squeezenet_features_are_near_those_of_the_original_photos(data_root):
    # The photos here were re-encoded, which alone costs about 0.02.
    from tbnets.features.photo_features import PhotoFeatures

    path = data_root / "squeezenet" / "squeezenet1.1_imagenet_notop.h5"
    features = PhotoFeatures(build_cnn("SqueezeNet", path))
    folder = data_root / "flickr8k"
    stored = folder / "precomp_squeezenet"
    ids = (stored / "dev_ids.txt").read_text().split()[:24]
    expected = np.load(stored / "dev_ims.npy")[:24]
    contents = [(folder / "images" / key).read_bytes() for key in ids]
    found = features(contents).numpy()
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    cosines = found @ expected.T
    assert np.diag(cosines).mean() > 0.97
    assert (cosines.argmax(axis=1) == np.arange(24)).all()


def test_pooled_network_averages_maps_and_joins_vectors():
    cnn = tiny_cnn()
    pixels = np.random.default_rng(0).normal(size=(2, 8, 8, 3))
    pixels = pixels.astype(np.float32)
    outputs = cnn.outputs(["first", "fc1"])
    pooled = pooled_network(cnn, outputs)(pixels).numpy()
    maps = cnn.network.get_layer("first")(pixels).numpy()
    assert pooled.shape == (2, 4 + 5)
    np.testing.assert_allclose(pooled[:, :4], maps.mean(axis=(1, 2)), rtol=1e-5)


@pytest.mark.parametrize(("top", "name"), [(True, "fc2"), (False, "pool2")])
def test_last_is_what_a_classifier_would_read(top, name):
    cnn = tiny_cnn(top)
    ((_, last),) = cnn.outputs(["last"])
    assert last is cnn.network.get_layer(name).output


def test_unknown_layer_lists_the_layers():
    with pytest.raises(ValueError, match="first, pool, second.*fc7"):
        tiny_cnn().outputs(["fc7"])


def test_unknown_network_lists_the_known():
    with pytest.raises(ValueError, match="MobileNetV2.*SqueezeNet.*VGG19"):
        build_cnn("AlexNet")


def test_squeezenet_by_keras_is_refused():
    with pytest.raises(FileNotFoundError, match="must be a weights file"):
        build_cnn("SqueezeNet", "imagenet")


def test_weights_that_can_not_be_fetched_name_the_flag(monkeypatch):
    def constructor(include_top, weights, input_shape):
        raise Exception(f"URL fetch failure on\nhttps://x/{weights}.h5: None")

    monkeypatch.setitem(NETWORKS, "Far", Network(constructor, None))
    with pytest.raises(ValueError) as caught:
        build_cnn("Far", "imagenet")
    message = str(caught.value)
    assert "URL fetch failure on https://x/imagenet.h5: None" in message
    assert "name it by `weights`" in message and "\n" not in message


def test_a_size_that_a_network_can_not_take_is_named():
    with pytest.raises(ValueError, match="suit MobileNetV2.*image_size=8"):
        build_cnn("MobileNetV2", image_size=8, top=False)


def test_networks_have_the_size_they_were_made_for():
    assert build_cnn("MobileNetV2").image_size == 224
    assert build_cnn("MobileNetV2", image_size=32, top=False).image_size == 32


def test_weights_that_would_fill_the_memory_are_not_read(tmp_path, monkeypatch):
    path = write_old_layout(tmp_path / "net.h5", tiny_network())
    with h5py.File(path, "a") as file:
        file.create_dataset("w", (10**9,), "f4", chunks=True)  # 4 GB, unwritten

    def read(_):
        pytest.fail("the weights are read")

    monkeypatch.setattr(cnn_weights, "_stored_layers", read)
    with pytest.raises(InputError):
        load_weights(tiny_network(), path)


def test_weights_hash_tells_weights_apart():
    first, again, other = (tiny_cnn(seed=seed).network for seed in (0, 0, 1))
    assert weights_sha256(first) == weights_sha256(again)
    assert weights_sha256(first) != weights_sha256(other)


@pytest.mark.parametrize(
    "rename", [str, lambda name: f"layer/{name}", lambda name: f"x_{name}"]
)
def test_weights_in_the_old_layout(tmp_path, rename):
    source = tiny_cnn(seed=0).network
    target = tiny_cnn(seed=1).network
    path = write_old_layout(tmp_path / "w.h5", source, rename)
    load_weights(target, path)
    assert same_weights(source, target)


def test_weights_in_the_new_layout(tmp_path):
    source = tiny_cnn(seed=0).network
    target = tiny_cnn(seed=1).network
    path = tmp_path / "w.weights.h5"
    source.save_weights(str(path))
    load_weights(target, path)
    assert same_weights(source, target)


def test_slashes_in_layer_names_are_underscores(tmp_path):
    source, target = tiny_network(), tiny_network()
    path = write_old_layout(
        tmp_path / "w.h5", source, lambda name: name.replace("_", "/")
    )
    load_weights(target, path)
    assert same_weights(source, target)


def test_weights_beyond_the_network_are_left_out(tmp_path):
    source, target = tiny_network(), tiny_network(top=False)
    load_weights(target, write_old_layout(tmp_path / "w.h5", source))
    np.testing.assert_array_equal(
        source.get_layer("second").get_weights()[0],
        target.get_layer("second").get_weights()[0],
    )


def test_weights_that_are_no_numbers_are_told(tmp_path):
    def edit(name, tensors):
        return [tensor.astype("S4") for tensor in tensors]

    path = write_old_layout(tmp_path / "w.h5", tiny_network(), edit=edit)
    with pytest.raises(ValueError, match=r"numbers for layer first.*w\.h5"):
        load_weights(tiny_network(), path)


@pytest.mark.parametrize(
    "mark", [b"SNOD", b"HEAP", b"TREE", b"layer_names", b"first", b"weight_na"]
)
def test_damaged_weights_are_told(tmp_path, mark):
    path = write_old_layout(tmp_path / "w.h5", tiny_network())
    content = path.read_bytes()
    assert mark in content
    path.write_bytes(content.replace(mark, b"\xff" * len(mark)))
    with pytest.raises(InputError, match=r"`weights` must .*w\.h5"):
        load_weights(tiny_network(), path)


def test_weights_without_a_layer_name_it(tmp_path):
    path = write_old_layout(tmp_path / "w.h5", tiny_network(top=False))
    with pytest.raises(ValueError, match=r"without fc1, fc2, predictions \(3"):
        load_weights(tiny_network(), path)


def test_weights_of_another_shape_name_the_tensor(tmp_path):
    def edit(name, tensors):
        return [t.T for t in tensors] if name == "fc2" else tensors

    path = write_old_layout(tmp_path / "w.h5", tiny_network(), edit=edit)
    target = tiny_network()
    before = target.get_weights()
    pattern = r"layer fc2: kernel, .*\[\(5, 3\), .*Received: shapes \[\(3, 5\)"
    with pytest.raises(ValueError, match=pattern):
        load_weights(target, path)
    for old, new in zip(before, target.get_weights()):
        np.testing.assert_array_equal(old, new)


def test_weights_with_a_tensor_missing_name_the_layer(tmp_path):
    def edit(name, tensors):
        return tensors[:1] if name == "fc1" else tensors

    path = write_old_layout(tmp_path / "w.h5", tiny_network(), edit=edit)
    with pytest.raises(ValueError, match="for layer fc1: kernel, bias of"):
        load_weights(tiny_network(), path)


@pytest.mark.parametrize("content", [b"", b"no weights"])
def test_a_file_without_weights_is_named(tmp_path, content):
    path = tmp_path / "w.h5"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="w.h5, which can not be read"):
        load_weights(tiny_network(), path)


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="which is not a file"):
        load_weights(tiny_network(), tmp_path / "w.h5")


def test_weights_half_in_the_new_layout_are_refused(tmp_path):
    path = tmp_path / "w.weights.h5"
    with h5py.File(path, "w") as file:
        file["layers/other/vars/0"] = np.zeros(3)
    with pytest.raises(ValueError, match="which Keras refuses"):
        load_weights(tiny_network(), path)


@pytest.mark.real_data
def test_encoding_a_photo_again_costs_two_hundredths_of_cosine(data_root):
    # What separates features of re-encoded photos from those of the
    # originals: quality 80 alone takes the mean cosine to about 0.97.
    from tbnets.features.photo_features import PhotoFeatures

    path = data_root / "squeezenet" / "squeezenet1.1_imagenet_notop.h5"
    features = PhotoFeatures(build_cnn("SqueezeNet", path))
    folder = data_root / "flickr30k_entities_sample"
    rows = {"PNG": [], "JPEG": []}
    for photo in sorted(folder.rglob("*.jpg")):
        with PIL.Image.open(photo) as picture:
            squeezed = picture.convert("RGB").resize((224, 224))
        for format in rows:
            buffer = io.BytesIO()
            squeezed.save(buffer, format, quality=80)
            rows[format].append(features([buffer.getvalue()])[0].numpy())
    exact, encoded = (np.array(each) for each in rows.values())
    cosines = (exact * encoded).sum(axis=1) / (
        np.linalg.norm(exact, axis=1) * np.linalg.norm(encoded, axis=1)
    )
    assert 0.96 < cosines.mean() < 0.985
