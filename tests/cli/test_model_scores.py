"""Models measured on the photos and captions of a split, not trained there."""

import json

import numpy as np
import PIL.Image
import pytest

from tbnets.errors import UserError
from tbnets.evaluation import retrieval
from tests import saved_models, verbs
from tests.refusals import refused

CAPTIONS = ("a dog runs", "the man in red", "a red ball", "the dog")


@pytest.fixture(scope="module", autouse=True)
def models_loaded_once():
    with saved_models.loaded_once():
        yield


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


def evaluate(photos, model, *more, by=verbs.run):
    return by(
        "evaluate",
        f"--model={model}",
        f"--images={photos}",
        f"--captions={photos.parent / 'captions.csv'}",
        *more,
    )


def by_keras_hub(preset, photos, captions):
    """Returns unit rows of photos and captions, by Keras Hub's own calls."""
    import keras_hub

    backbone = keras_hub.models.Backbone.from_preset(preset)
    prepare = keras_hub.models.CLIPPreprocessor.from_preset(preset)
    pixels = [np.asarray(PIL.Image.open(path), np.float32) for path in photos]
    pixels = np.stack([prepare.image_converter(each) for each in pixels])
    blank = np.zeros((len(captions), 16, 16, 3))
    ready = prepare({"images": blank, "prompts": captions})
    sides = (
        backbone.get_vision_embeddings(pixels),
        backbone.get_text_embeddings(ready["token_ids"]),
    )
    return [each / np.linalg.norm(each, axis=1)[:, None] for each in sides]


def test_zero_shot_metrics_equal_those_of_preset_embeddings(
    hub_presets, photos, tmp_path, monkeypatch, eagerly
):
    preset, out = f"hub:{hub_presets['clip']}", tmp_path / "out"
    monkeypatch.setenv("TBNETS_CACHE", str(hub_presets.cache))
    more = (f"--save_embeddings={out}", f"--json={tmp_path / 'a.json'}")
    found = evaluate(photos, preset, *more, "--prompt=the {}")
    assert found.returncode == 0, found.stderr
    assert "4.png" in found.stderr  # Left out, its captions too.
    texts = [(f"the {each}", f"the {each} runs") for each in CAPTIONS]
    captions = [text for pair in texts for text in pair]
    names = [photos / f"{row}.png" for row in range(4)]
    wanted = by_keras_hub(hub_presets["clip"], names, captions)
    for name, rows in zip(("image_embeddings", "text_embeddings"), wanted):
        saved = np.load(out / f"{name}.npy")
        np.testing.assert_allclose(saved, rows, atol=1e-5)
    measured = json.loads((tmp_path / "a.json").read_text())
    expected = retrieval.evaluate_retrieval(*wanted, np.arange(8) // 2)
    assert measured == pytest.approx(expected)

    # The second time, no photo is embedded.
    def embed(*_):
        pytest.fail("photos are embedded again")

    monkeypatch.setattr("tbnets.serving.embedding_cache.try_photos", embed)
    again = evaluate(photos, preset, "--prompt=the {}")
    assert again.stdout == found.stdout


@pytest.mark.parametrize(
    "model, more, name",
    [
        ("hub:{clip}", "--prompt=dog", "--prompt"),
        ("hub:clip_vit_base_patch61", "", "preset"),
        ("no_model", "", "model"),
    ],
)
def test_models_and_prompts_that_cannot_be_used_are_refused(
    hub_presets, photos, model, more, name
):
    model = model.format(clip=hub_presets["clip"])
    with refused(name, kind=UserError):
        evaluate(photos, model, *more.split(), by=verbs.call)
    assert not (photos.parent / "photos.tbnets").exists()
