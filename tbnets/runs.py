"""The folder of a run: what is in it, how it starts and how it ends.

::

    RUN/settings.json        the flags, as numbers and strings
        run.flags            the same as a flagfile
        vocabulary.txt       a word a line
        checkpoints/         best.npz and last.npz
        tensorboard/         event files
        curves.png           the history, drawn
        answers.png          answers to example queries, where photos are
        metrics.json         dev and test metrics of the best epoch
        saved_model/1/       the exported model
"""

import pathlib
import platform
import shlex
import sys

import keras
import numpy as np
import tensorflow as tf

import tbnets
from tbnets import flags
from tbnets.data.batches import num_batches
from tbnets.data.examples import FeatureRows
from tbnets.files import write_atomically
from tbnets.files import write_json
from tbnets.pictures import curves
from tbnets.pictures import montage
from tbnets.serving import search
from tbnets.serving import served_model
from tbnets.serving.export import export_saved_model
from tbnets.serving.export import next_version
from tbnets.tasks import inputs
from tbnets.tasks import parts
from tbnets.tasks.embedder import Embedder
from tbnets.text.vocabulary import Vocabulary
from tbnets.training import checkpoints
from tbnets.training import loop
from tbnets.training import optimizers


def start(settings, resume):
    """Opens the folder of a new or continued run.

    Args:
        settings: the run's settings.
        resume: whether the folder's run is continued.

    Returns:
        `pathlib.Path` of the folder.

    Raises:
        ValueError: the folder holds a run that finished an epoch and
            `resume` is off, or the flags differ from those it was started
            with.
    """
    if not settings.run_dir:
        raise ValueError(
            "`--run_dir` must name a folder for the run. Received: "
            "--run_dir=. Set for example --run_dir=runs/first."
        )
    folder = pathlib.Path(settings.run_dir)
    exists = (folder / "checkpoints" / "last.npz").exists()
    if exists and not resume:
        raise ValueError(
            "`--run_dir` must be a new folder. Received: "
            f"--run_dir={folder}, which holds a run. Add --resume to continue "
            "it, or choose another folder."
        )
    if exists:
        flags.check_resumable(flags.read_settings(folder), settings)
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    write_json(folder / flags.SETTINGS_FILE, vars(settings))
    lines = [flags.as_flagfile_line(*item) for item in vars(settings).items()]
    write_atomically(
        folder / "run.flags",
        lambda file: file.write("".join(lines).encode()),
    )
    return folder


def prepare(settings, folder):
    """Reads the data and builds everything a training needs.

    Returns:
        (session, train): the `training.Session`, restored when the folder
        has a checkpoint, and the training `Examples`.
    """
    records = inputs.load_records(settings, settings.train_split)
    vocabulary = inputs.build_vocabulary(settings, records)
    train = inputs.load_examples(
        settings, settings.train_split, vocabulary, records
    )
    dev = inputs.load_examples(settings, settings.dev_split, vocabulary)
    dims = {
        "image_dim": _feature_dim(train.images),
        "text_dim": _feature_dim(train.texts),
    }
    network = parts.build_network(settings, vocabulary, **dims)
    if getattr(network.image_encoder, "needs_statistics", False):
        network.image_encoder.adapt(train.images.chunks())
    steps = num_batches(records, settings.images_per_batch)
    network.compile(
        optimizers.build_optimizer(settings, steps),
        parts.build_loss(settings),
        gradient_clip_norm=settings.clip_norm or None,
        hardness_steps=max(1.0, settings.hardness_epochs * steps),
        jit_compile=settings.jit_compile,
    )
    state = checkpoints.RunState(
        settings=vars(settings),
        words=vocabulary.words if vocabulary else (),
        dims=dims,
        image_source=_image_source(train.images),
    )
    session = loop.Session(folder, network, dev, state, settings)
    if vocabulary:
        vocabulary.save(folder / "vocabulary.txt")
    if session.checkpoint("last").exists():
        _continue(session, state.words)
    return session, train


def _feature_dim(rows):
    is_features = isinstance(rows, FeatureRows)
    return rows.shape[0] if is_features else None


def _image_source(images):
    """Returns what image features were made with; {} where that is unknown."""
    is_features = isinstance(images, FeatureRows)
    return images.features.made_by if is_features else {}


def _continue(session, words):
    """Puts the session where its last checkpoint stands."""
    path = session.checkpoint("last")
    optimizers.create_optimizer_variables(
        session.network.optimizer, session.network
    )
    _, _, state = checkpoints.read_checkpoint(path)
    if tuple(state.words) != tuple(words):
        raise ValueError(
            "`--captions` must give the vocabulary the run was started with. "
            f"Received: {len(words)} words, {path} has {len(state.words)}. "
            "Restore the training captions, or start a new --run_dir."
        )
    if state.image_source:
        settings = session.settings
        inputs.check_image_features(
            settings, [settings.train_split], state.image_source, path
        )
    session.state = checkpoints.restore_checkpoint(
        path, session.network, session.network.optimizer
    )


def describe(session, train):
    """Returns a few lines on what is about to be trained."""
    settings, network = session.settings, session.network
    size = sum(int(np.prod(v.shape)) for v in network.trainable_variables)
    lines = [f"run       {session.run_dir}"]
    if session.state.epoch:
        lines[0] += f", continued after epoch {session.state.epoch}"
    for name, examples in (("train", train), ("dev", session.dev)):
        records = examples.records
        lines.append(
            f"{name:<9} {records.split}: {records.num_images} images, "
            f"{records.num_captions} captions"
        )
    if session.state.words:
        lines.append(f"words     {len(session.state.words)}")
    lines.append(
        f"network   {settings.image_encoder} + {settings.text_encoder} -> "
        f"{network.embedding_dim}, {size:,} trainable parameters"
    )
    lines.append(
        f"watch     tensorboard --logdir {session.run_dir / 'tensorboard'}"
    )
    return "\n".join(lines)


def finish(session):
    """Reports the best epoch on the test split; writes what a run leaves.

    The network is left with the weights of the best epoch.

    Returns:
        dict with `dev` and `test` metrics, as written to `metrics.json`.
    """
    settings, folder = session.settings, session.run_dir
    history = session.state.history
    curves.draw_history(history, folder / "curves.png")
    best = checkpoints.restore_checkpoint(
        session.checkpoint("best"), session.network
    )
    vocabulary = None
    if best.words:
        vocabulary = Vocabulary(best.words)
    test = inputs.load_examples(settings, settings.test_split, vocabulary)
    embedder = Embedder(session.network, settings.image_size)
    metrics, _ = loop.evaluate_examples(
        embedder, test, settings.evaluate_memory
    )
    row = history[best.epoch - 1]
    prefix = "dev/"
    report = {
        "best_epoch": best.epoch,
        "epochs": session.state.epoch,
        "train_seconds": round(sum(past["seconds"] for past in history), 1),
        "dev": {
            key[len(prefix) :]: value
            for key, value in row.items()
            if key.startswith(prefix)
        },
        "test": metrics,
        "test_split": {
            "name": settings.test_split,
            "images": test.records.num_images,
            "captions": test.records.num_captions,
        },
        "command": shlex.join(sys.argv),
        "versions": {
            "tbnets": tbnets.__version__,
            "tensorflow": tf.__version__,
            "keras": keras.__version__,
            "python": platform.python_version(),
        },
    }
    write_json(folder / "metrics.json", report)
    return report


def answer_examples(session, saved_model, queries, top=5):
    """Asks the exported SavedModel example queries on the test split.

    Where the network takes photos, the answers are also drawn, as
    `answers.png` in the run's folder.

    Args:
        session: the finished session.
        saved_model: folder of its SavedModel.
        queries: list of sentences.
        top: number of answers for each.

    Returns:
        Text to print.
    """
    model = served_model.load_saved_model(saved_model)
    settings = session.settings
    records = inputs.load_records(settings, settings.test_split)
    if model.takes_image_bytes:
        paths = inputs.load_photos(settings, records).paths
        folder = paths[0].parent
        ids, embeddings = search.embed_photos(model, folder, paths)
    else:
        images = inputs.load_images(settings, records)
        ids = [records.file_name(i) for i in range(records.num_images)]
        rows = np.concatenate(list(images.chunks()))
        embeddings = search.embed(model.embed_images, rows, "image")
    told = {
        records.file_name(image): records.captions[rows[0]]
        for image, rows in enumerate(records.caption_rows())
        if len(rows)
    }
    text, order, similarities = search.answer_queries(
        model,
        queries,
        [f"{name}  {told.get(name, '')}" for name in ids],
        embeddings,
        top,
    )
    if model.takes_image_bytes:
        path = session.run_dir / "answers.png"
        montage.draw_montage(queries, ids, order, similarities, folder).save(
            path
        )
        text += f"\n\nanswers drawn    {path}"
    return text


def export(session):
    """Writes the next version of the run's SavedModel; returns its path."""
    return export_network(
        session.network, session.state, session.settings, session.run_dir
    )


def export_network(network, state, settings, run_dir):
    """Writes a network as the next version of its run's SavedModel.

    Args:
        network: a built network with the weights to export.
        state: the `RunState` of its checkpoint.
        settings: the run's settings; with `cnn_weights` the model starts at
            the photo though the network was trained on features.
        run_dir: folder of the run.

    Returns:
        Path of the version, `run_dir/saved_model/<n>`.

    Raises:
        ValueError: the photos can not be turned into the features of the
            run; the message tells why.
    """
    images = parts.input_shapes(settings, **state.dims)["images"]
    tokenizer = None
    if state.words:
        tokenizer = inputs.build_tokenizer(settings, Vocabulary(state.words))
    versions = pathlib.Path(run_dir) / "saved_model"
    return export_saved_model(
        network,
        tokenizer,
        versions / str(next_version(versions)),
        image_shape=images[1:],
        read_photos=parts.build_photo_reader(settings, state),
        text_dim=state.dims["text_dim"],
        metadata={
            "epoch": state.best_epoch,
            "settings": vars(settings),
            "image_source": state.image_source,
        },
    )
