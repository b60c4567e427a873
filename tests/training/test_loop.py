import keras
import numpy as np
import pytest
import tensorflow as tf

from tbnets import startup
from tbnets.errors import InputError
from tbnets.tasks import runs
from tbnets.training import checkpoints, loop, optimizers
from tests import tiny
from tests.tiny_runs import prepared, save
from tests.tiny_runs import trained as train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.write_precomputed(tmp_path_factory.mktemp("data"))


def stored(run_dir, name="last"):
    path = checkpoints.checkpoint_path(run_dir, name)
    arrays, _, state = checkpoints.read_checkpoint(path)
    return arrays, state


def assert_same_run(one, two):
    for name in ("last", "best"):
        (arrays, state), (others, other) = stored(one, name), stored(two, name)
        assert state.epoch == other.epoch
        assert state.best_metric == other.best_metric
        assert arrays.keys() == others.keys()
        for key in arrays:
            np.testing.assert_array_equal(arrays[key], others[key])
        for row, row_of_other in zip(state.history, other.history):
            row.pop("seconds")
            row_of_other.pop("seconds")
            assert row == row_of_other


def assert_resumes(folder, tmp_path, **changes):
    """Compares a run of two epochs with a run resumed after the first."""
    changes |= {"epochs": 2, "input_dropout": 0.1, "word_dropout": 0.1}
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    with tiny.copied_after(1, straight, resumed):
        train(tiny.settings(folder, straight, **changes))
    train(tiny.settings(folder, resumed, **changes), resume=True)
    assert_same_run(straight, resumed)


STEPPED = {"schedule": "step", "decay_epochs": 1, "weight_decay": 0.01}


def test_resumed_run_equals_the_straight_one_in_a_graph(folder, tmp_path):
    softmax = {"loss": "infonce", "equal_texts_match": True}
    least = {"optimizer": "adamw", "image_units": 4, "text_units": 4}
    least |= {"text_encoder": "mean"}
    assert_resumes(folder, tmp_path, **STEPPED, **softmax, **least)


def test_a_run_compiles_its_steps_by_xla_on_request(folder, tmp_path):
    settings = tiny.settings(folder, tmp_path / "run", jit_compile=True)
    session, _ = prepared(settings)
    assert session.network.jit_compile


@pytest.fixture
def uses_tf32():
    """Yields a function that returns whether TF32 is on; turns it off again."""
    yield tf.config.experimental.tensor_float_32_execution_enabled
    startup.allow_tensor_float_32(False)


@pytest.mark.parametrize("is_on", [False, True])
def test_tf32_is_on_only_in_runs_with_the_flag(
    folder, tmp_path, uses_tf32, is_on
):
    settings = tiny.settings(folder, tmp_path / "run", tensor_float_32=is_on)
    for open_run in (
        lambda: save(prepared(settings)[0]),
        lambda: prepared(settings, resume=True),
        lambda: runs.open_run(tmp_path / "run"),
    ):
        startup.allow_tensor_float_32(not is_on)
        open_run()
        assert uses_tf32() == is_on


@pytest.mark.usefixtures("eagerly")
def test_patience_stops_a_run_that_stands_still(folder, tmp_path):
    settings = tiny.settings(
        folder,
        tmp_path / "run",
        epochs=20,
        learning_rate=1e-30,
        patience=2,
        images_per_batch=12,
        batch_normalization="none",
    )
    state = train(settings).state
    assert (state.best_epoch, state.epoch) == (1, 3)
    # A resumed run stops at the epoch where it stopped before.
    assert train(settings, resume=True).state.epoch == 3


@pytest.mark.parametrize(
    "schedule, wanted",
    [
        # Epochs 0, 1, 2 and 4; a factor of 0.1 every 2.
        ("step", [1, 1, 0.1, 0.01]),
        ("exponential", [1, 0.1**0.5, 0.1, 0.01]),
        ("cosine", [1, 0.5 + 0.125**0.5, 0.5, 0]),
    ],
)
def test_schedules_fall_as_named(schedule, wanted):
    made = optimizers.build_schedule(
        schedule, 1.0, decay_steps=2 * 5, total_steps=4 * 5
    )
    found = [float(made(step)) for step in (0, 5, 10, 20)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_weight_decay_skips_biases():
    optimizer = optimizers.build_optimizer("sgd", 1.0, weight_decay=0.1)
    assert optimizer.momentum == 0.9
    layer = keras.layers.Dense(2, bias_initializer="ones")
    layer.build((None, 2))
    kernel, bias = layer.trainable_variables
    before = kernel.numpy()
    weights = kernel, bias
    optimizer.apply_gradients([(tf.zeros(w.shape), w) for w in weights])
    np.testing.assert_allclose(kernel.numpy(), 0.9 * before, rtol=1e-5)
    np.testing.assert_array_equal(bias.numpy(), [1, 1])


@pytest.mark.usefixtures("eagerly")
def test_addons_optimizers_train_and_resume(folder, tmp_path):
    pytest.importorskip(
        "tensorflow_addons", reason="the addons extra is not installed"
    )
    assert_resumes(folder, tmp_path, optimizer="LAMB", schedule="exponential")


def test_resume_refuses_another_vocabulary(tmp_path):
    folder = tiny.write_precomputed(tmp_path / "data")
    settings = tiny.settings(folder, tmp_path / "run")
    save(prepared(settings)[0])
    captions = folder / "train_caps.txt"
    captions.write_text(captions.read_text().replace("dog", "wolf"))
    with pytest.raises(InputError, match="vocabulary"):
        prepared(settings, resume=True)


def test_an_interrupt_that_was_lost_ends_the_training(
    folder, tmp_path, monkeypatch, eagerly
):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "raise_if_interrupted", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(tiny.settings(folder, tmp_path / "run"))
