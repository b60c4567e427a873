"""Presets of Keras Hub measured as they are, by the command line."""

import json

import numpy as np
import PIL.Image
import pytest

from tbnets.evaluation import retrieval
from tests import verbs

CAPTIONS = ("a dog runs", "the man in red", "a red ball", "the dog")


@pytest.fixture
def photos(tmp_path):
    """Returns a folder of photos, with captions beside it."""
    folder = tmp_path / "photos"
    folder.mkdir()
    generator, rows = np.random.default_rng(0), ["image,caption,split"]
    for row, caption in enumerate((*CAPTIONS, "a ball")):
        pixels = generator.integers(0, 256, (24 + row, 30, 3), np.uint8)
        PIL.Image.fromarray(pixels).save(folder / f"{row}.png")
        rows += [f"{row}.png,{caption},test", f"{row}.png,{caption} runs,test"]
    (folder / "4.png").write_bytes(b"no photo")
    (tmp_path / "captions.csv").write_text("\n".join(rows) + "\n")
    return folder


def evaluate(photos, preset, *more):
    return verbs.run(
        "evaluate",
        f"--hub={preset}",
        f"--images={photos}",
        f"--captions={photos.parent / 'captions.csv'}",
        *more,
    )


def by_keras_hub(preset, kind, photos, captions):
    """Returns unit rows of photos and captions, by Keras Hub's own calls."""
    import keras_hub

    backbone = keras_hub.models.Backbone.from_preset(preset)
    prepare = getattr(keras_hub.models, f"{kind}Preprocessor")
    prepare = prepare.from_preset(preset)
    pixels = [np.asarray(PIL.Image.open(path), np.float32) for path in photos]
    pixels = np.stack([prepare.image_converter(each) for each in pixels])
    blank = np.zeros((len(captions), 16, 16, 3))
    ready = prepare({"images": blank, "prompts": captions})
    sides = (
        backbone.get_vision_embeddings(pixels),
        backbone.get_text_embeddings(ready["token_ids"]),
    )
    return [each / np.linalg.norm(each, axis=1)[:, None] for each in sides]


@pytest.mark.parametrize("kind", ["CLIP", "SigLIP"])
def test_a_preset_is_measured_by_its_own_embeddings(
    hub_presets, photos, kind, tmp_path, monkeypatch
):
    preset, out = hub_presets[kind.lower()], tmp_path / "out"
    more = (f"--save_embeddings={out}", f"--json={tmp_path / 'a.json'}")
    found = evaluate(photos, preset, *more, "--prompt=the {}")
    assert found.returncode == 0, found.stderr
    assert f"{preset}, zero-shot, test, protocol: full" in found.stdout
    assert "4.png" in found.stderr  # Left out, its captions too.
    captions = [
        text
        for each in CAPTIONS
        for text in (f"the {each}", f"the {each} runs")
    ]
    names = [photos / f"{row}.png" for row in range(4)]
    wanted = by_keras_hub(preset, kind, names, captions)
    for name, rows in zip(("image_embeddings", "text_embeddings"), wanted):
        saved = np.load(out / f"{name}.npy")
        np.testing.assert_allclose(saved, rows, atol=1e-5)
    measured = json.loads((tmp_path / "a.json").read_text())
    expected = retrieval.evaluate_retrieval(*wanted, np.arange(8) // 2)
    assert measured == expected
    if kind != "CLIP":
        return
    # A second time nothing is embedded.
    for name in (
        "extraction.extract_photos",
        "caption_features.extract_captions",
    ):
        monkeypatch.delattr(f"tbnets.features.{name}")
    again = evaluate(photos, preset, "--prompt=the {}")
    assert again.stdout == found.stdout


def test_a_preset_of_one_side_is_refused_before_anything_is_kept(
    hub_presets, photos
):
    found = evaluate(photos, hub_presets["resnet"])
    assert "must be one that turns texts into vectors" in found.stderr
    assert not (photos.parent / "photos.tbnets").exists()


def test_a_cache_that_can_not_be_made_is_told(hub_presets, photos):
    cache = photos / "0.png"
    found = evaluate(photos, hub_presets["clip"], f"--cache={cache}")
    assert "`--cache` must name a folder that can be" in found.stderr


@pytest.mark.parametrize(
    ("preset", "told"),
    [
        ("clip_vit_base_patch61", "`--hub` must be one of the"),
        ("hub:./nowhere", "`--hub` must be a folder that save_to_preset made"),
        ("gs://bucket/clip", "gs"),
    ],
)
def test_a_preset_that_is_not_there_is_refused(photos, preset, told):
    pytest.importorskip("keras_hub")
    found = evaluate(photos, preset)
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert told in found.stderr


def test_what_must_be_installed_is_told(photos, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "keras_hub", None)
    assert '"tbnets[hub]"' in evaluate(photos, "clip_vit_base_patch16").stderr
