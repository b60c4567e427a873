r"""Measures image-text retrieval, of a run or on saved embeddings.

A run of tools/train.py, on one of its splits:

  python tools/evaluate.py --run_dir=runs/quickstart --split=test

Two runs taken together, by the weighted sum of their distances (Wang et al.
2018, Eq. 8):

  python tools/evaluate.py --run_dir=runs/embedding \
      --combine_with=runs/similarity --combine_weight=0.3

A map of what lies near what: photos, sentences and noun phrases of some of
the images, as a picture (needs the extra: pip install "tbnets[map]"):

  python tools/evaluate.py --run_dir=runs/quickstart --map=map.png

Embeddings of any model, from files:

  python tools/evaluate.py \
      --image_embeddings=images.npy \
      --text_embeddings=captions.npy \
      --caption_to_image=caption_to_image.npy \
      --json=metrics.json

images.npy is [num_images, dim] and captions.npy [num_captions, dim], both with
rows of length 1: scores are inner products. caption_to_image.npy holds, for
each caption, the row of its image, from 0; a text file with one number a line
will do. The order of the rows is free, and so is the number of captions per
image.

Prints recall at 1, 5 and 10, median and mean rank in both directions and from
captions to captions; of a run on phrases, recalls of their regions. What they
mean exactly is in docs/evaluation.md.
"""

import functools
import pathlib

import numpy as np
from absl import flags

from tbnets import files, startup
from tbnets.errors import InputError
from tbnets.evaluation import arrays, protocols, tables
from tbnets.pictures import space_map

_RUN = flags.DEFINE_string(
    "run_dir", None, "Folder of a run; instead of the three arrays below."
)
_SPLIT = flags.DEFINE_string("split", "test", "Split to evaluate of a run.")
_CHECKPOINT = flags.DEFINE_enum(
    "checkpoint", "best", ["best", "last"], "Epoch to evaluate of a run."
)
_DATA_ROOT = flags.DEFINE_string(
    "data_root",
    None,
    "Folder that a run's relative data paths start from now; by default as "
    "TBNETS_DATA or the run says.",
)
_SAVE = flags.DEFINE_string(
    "save_embeddings",
    None,
    "Folder to write the arrays to that a run is measured by: "
    "image_embeddings.npy, text_embeddings.npy and caption_to_image.npy.",
)
_OTHER = flags.DEFINE_string(
    "combine_with",
    None,
    "Folder of another run, on the same images and captions: the sum of both "
    "distances ranks. A similarity network's stand for minus its logits, and "
    "both are then divided by their spread.",
)
_WEIGHT = flags.DEFINE_float(
    "combine_weight",
    0.3,
    "Weight of that run; --run_dir has the rest. Wang 2018: 0.3.",
    lower_bound=0,
    upper_bound=1,
)
_IMAGES = flags.DEFINE_string(
    "image_embeddings",
    None,
    "Embeddings of the images, [num_images, dim] (.npy).",
)
_TEXTS = flags.DEFINE_string(
    "text_embeddings",
    None,
    "Embeddings of the captions, [num_captions, dim] (.npy).",
)
_ROWS = flags.DEFINE_string(
    "caption_to_image",
    None,
    "Row of the image of each caption (.npy of integers, or text).",
)
_PROTOCOL = flags.DEFINE_enum(
    "protocol",
    "full",
    list(protocols.PROTOCOLS),
    "; ".join(f"{k}: {v.description}" for k, v in protocols.PROTOCOLS.items()),
)
_TEXT_TO_TEXT = flags.DEFINE_bool(
    "text_to_text", True, "Rank captions against captions too."
)
_REGIONS = flags.DEFINE_bool(
    "region_phrase_ranking",
    False,
    "Of a run on phrases: rank all phrases of the split for each true region "
    "too, and all true regions for each phrase (Niu 2017, Table 4).",
)
_MEMORY = flags.DEFINE_float(
    "memory_limit_mb",
    512,
    "MiB for tiles of scores, beside the embeddings. The result does not "
    "depend on it.",
    lower_bound=1,
)
_JSON = flags.DEFINE_string("json", None, "File to write the metrics to.")
_MAP = flags.DEFINE_string(
    "map",
    None,
    "PNG to write: images and captions of the split, and the noun phrases that "
    "a run embeds, laid out in a plane by t-SNE, so that what is alike lies "
    "together (Niu 2017, Fig. 8).",
)
_MAP_IMAGES = flags.DEFINE_integer(
    "map_images",
    60,
    "Images on the map, evenly spread over the split, each with up to 5 of "
    "its captions. Niu 2017: 60. More than 100 leave no space for words.",
    lower_bound=1,
    upper_bound=1000,
)

MAP_CAPTIONS = 5


def evaluate_run():
    """Returns the metrics of a split by a run's network, and their table.

    Returns:
        (metrics, table, points): the last are of the map, None without one.
    """
    with startup.quiet_tensorflow():
        from tbnets import runs
    settings, scores = run_scores(runs, _RUN.value)
    points = map_points(settings, scores)
    title = _RUN.value
    if _OTHER.value:
        _, others = run_scores(runs, _OTHER.value)
        scores = scores.combine(others, _WEIGHT.value)
        title += f" and {_WEIGHT.value:g} of {_OTHER.value}"
    if _SAVE.value:
        save_arrays(scores.arrays, pathlib.Path(_SAVE.value))
    metrics = scores.metrics(**measure_options(scores))
    title += f", {_SPLIT.value}"
    if _PROTOCOL.name in scores.options:
        title += f", protocol: {_PROTOCOL.value}"
    return metrics, tables.format_table(metrics, title), points


def run_scores(runs, run_dir):
    """Returns the settings of a run, and its scores of the split."""
    session = runs.open_run(
        run_dir,
        _CHECKPOINT.value,
        data_root=_DATA_ROOT.value,
        more_splits=[_SPLIT.value],
    )
    task = session.task
    task.settings.evaluate_memory = _MEMORY.value
    examples = task.data.load(_SPLIT.value, session.state.fitted)
    return task.settings, task.scores(session.network, examples)


def map_points(settings, scores):
    """Returns the points of --map; None without it."""
    if not _MAP.value:
        return None
    most = (_MAP_IMAGES.value, MAP_CAPTIONS)
    points = scores.points(most)
    if points is None:
        raise InputError(
            "`--map` must come with a run that embeds images and captions in "
            f"one space. Received: --map={_MAP.value} for a run of --task="
            f"{settings.task}, --model={settings.model}. Leave it out."
        )
    return points


def write_map(points):
    """Draws --map."""
    title = f"{_RUN.value}, {_SPLIT.value}, laid out by t-SNE"
    sheet = space_map.draw_map(points, title)
    files.write_atomically(_MAP.value, lambda file: sheet.save(file, "PNG"))
    print(f"map  {_MAP.value}")


def measure_options(scores):
    """Returns the flags given that scores are measured by."""
    options = {}
    for flag in (_PROTOCOL, _TEXT_TO_TEXT, _REGIONS):
        if flag.name in scores.options:
            options[flag.name] = flag.value
        elif flag.present:
            raise InputError(
                f"`--{flag.name}` must be a flag that the run is measured by. "
                f"Received: --{flag.name}={flag.value} for scores of "
                f"{scores.what}. Leave it out."
            )
    return options


def save_arrays(embeddings, folder):
    """Writes the arrays that a run is measured by to a folder."""
    if not embeddings:
        raise InputError(
            "`--save_embeddings` must come with a run that inner products of "
            f"embeddings rank. Received: --save_embeddings={folder} for one "
            "that is ranked otherwise. Leave it out."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in embeddings.items():
        write = functools.partial(np.save, arr=array)
        files.write_atomically(folder / f"{name}.npy", write)


def evaluate_arrays():
    """Returns what `evaluate_run` does, of the three array flags."""
    metrics = protocols.evaluate_protocol(
        _PROTOCOL.value,
        *read_saved_embeddings(),
        memory_limit_mb=_MEMORY.value,
        text_to_text=_TEXT_TO_TEXT.value,
    )
    title = f"protocol: {_PROTOCOL.value}"
    return metrics, tables.format_table(metrics, title), None


def read_saved_embeddings():
    """Returns the arrays of the three file flags."""
    needed = (_IMAGES, _TEXTS, _ROWS)
    missing = [f"--{flag.name}" for flag in needed if not flag.value]
    if missing:
        raise InputError(
            f"--run_dir or {', '.join(missing)} must be given. Received: "
            "nothing. "
            "`python tools/evaluate.py --help` shows an example."
        )
    return (
        arrays.read_array(_IMAGES.value),
        arrays.read_array(_TEXTS.value),
        arrays.read_caption_to_image(_ROWS.value),
    )


def check_flags():
    """Refuses flags that are not read, and a place that can not be written."""
    of_runs = (_SPLIT, _CHECKPOINT, _DATA_ROOT, _SAVE, _OTHER, _REGIONS, _MAP)
    of_files = (_IMAGES, _TEXTS, _ROWS)
    for flag in of_files if _RUN.value else of_runs:
        if flag.present:
            reads = "without" if _RUN.value else "with"
            raise InputError(
                f"`--{flag.name}` must be a flag that is read. Received: "
                f"--{flag.name}={flag.value}, which is read {reads} --run_dir. "
                f"Leave it out, or change that."
            )
    if _WEIGHT.present and not _OTHER.value:
        raise InputError(
            "`--combine_weight` must come with --combine_with, the run that "
            f"it weighs. Received: --combine_weight={_WEIGHT.value} alone. Add "
            "the other run, or leave it out."
        )
    for flag in (_JSON, _MAP):
        if flag.value and not pathlib.Path(flag.value).parent.is_dir():
            raise InputError(
                f"`--{flag.name}` must be a file in a folder that exists. "
                f"Received: --{flag.name}={flag.value}. Make the folder, or "
                "name another."
            )
    check_map()


def check_map():
    """Refuses a map that can not be drawn, before anything is computed."""
    if _MAP.value:
        space_map.import_tsne()
    elif _MAP_IMAGES.present:
        raise InputError(
            "`--map_images` must come with --map, the file to draw. Received: "
            f"--map_images={_MAP_IMAGES.value} alone. Add --map=map.png."
        )


def main(argv):
    """Reads, measures, prints, writes."""
    if len(argv) > 1:
        raise InputError(
            f"`evaluate.py` takes flags only. Received: {' '.join(argv[1:])}. "
            "Write --flag=value."
        )
    check_flags()
    evaluate = evaluate_run if _RUN.value else evaluate_arrays
    metrics, table, points = evaluate()
    print(table)
    if _JSON.value:
        files.write_json(_JSON.value, metrics)
    if points is not None:
        write_map(points)


if __name__ == "__main__":
    startup.run_tool(main)
