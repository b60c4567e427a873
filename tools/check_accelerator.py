"""Checks that tbnets computes on an accelerator as on a CPU.

For example, to run all parts (about five minutes on an H100), or two parts with
small inputs on any machine:

  python tools/check_accelerator.py
  python tools/check_accelerator.py --part=device,losses --small

If a part fails, the next parts still run, and the exit code is 1. Without an
accelerator, all parts run on the CPU.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from benchmarks import arrays

from tbnets import cli, startup
from tbnets.errors import UserError, check_choice
from tbnets.tasks.settings.flag import flag

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAX_LOSS_ERROR, MAX_GRADIENT_ERROR = 1e-5, 1e-3
"""Maximum relative differences from the CPU, with TF32 off."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags that select the parts and their sizes."""

    part: list[str] = flag(
        [],
        "Parts to run: device, losses, large, training (default all).",
    )
    small: bool = flag(False, "Use small sizes, for a test on a CPU.")
    tensor_float_32: bool = flag(False, "Compute products in TF32.")


def device(options):
    """Prints the error of similarities with TF32 on and off."""
    import tensorflow as tf  # Slow to import.

    rows = arrays.unit_rows(1024, 512)
    exact = rows.astype(np.float64) @ rows.T.astype(np.float64)
    for is_on in (True, False):
        startup.allow_tensor_float_32(is_on)
        error = np.abs(tf.matmul(rows, rows, transpose_b=True) - exact).max()
        print(f"TF32 {'on ' if is_on else 'off'}  error {error:.1e}")


def losses(options):
    """Compares each loss, run as a graph, with the eager loss on the CPU."""
    import tensorflow as tf  # Slow to import.
    from benchmarks import products

    from tbnets.losses import infonce, presets, tiles, triplet

    known = {"infonce": infonce.InfoNCELoss()}
    for name, preset in presets.PRESETS.items():
        loss = triplet.TripletLoss(**preset)
        if loss.get_config() not in [x.get_config() for x in known.values()]:
            known[name] = loss
    cases = [(100 if options.small else 1500, 512, name) for name in known]
    if not options.small:  # In tiles.
        large = tiles.LARGEST + 8, 16
        cases += [(*large, name) for name in ("infonce", "wang2018")]
    differs = []
    for count, dim, name in cases:
        inputs = [*arrays.embeddings(count, 2, dim).values()]
        step = products.learning(known[name])
        with tf.device("CPU:0"):
            total, _, slopes = step(*map(tf.constant, inputs))
        result = tf.function(step)(*map(tf.constant, inputs))
        error = abs(float(result[0]) / float(total) - 1)
        gaps = [
            np.linalg.norm(here.numpy() - there) / np.linalg.norm(there)
            for here, there in zip(result[2], slopes)
        ]
        is_equal = error < MAX_LOSS_ERROR and max(gaps) < MAX_GRADIENT_ERROR
        differs += [] if is_equal else [name]
        print(
            f"{count:5} images  {name:16}  loss {float(total):10.4f}  "
            f"error {error:.1e}  gradients {max(gaps):.1e}"
            f"{'' if is_equal else '  DIFFERS'}",
            flush=True,
        )
    if differs:
        raise ArithmeticError(f"losses that differ: {', '.join(differs)}")


def large(options):
    """Times InfoNCE, in tiles, on 65,536 pairs; groups of four share an id."""
    import tensorflow as tf  # Slow to import.
    from benchmarks import products, timing

    from tbnets.losses.infonce import InfoNCELoss

    count, dim = (8448, 16) if options.small else (65536, 768)
    *rows, ids, _ = arrays.embeddings(count, 1, dim).values()
    is_cpu = startup.no_accelerator()
    dtype, ids = "float32" if is_cpu else "bfloat16", ids // 4
    loss = products.learning(InfoNCELoss(similarity_dtype=dtype))
    run = products.graph(loss, *rows, ids, ids)
    rows = [tf.cast(each, dtype) for each in rows]
    cross = products.with_gradients(products.cross)
    floor = products.graph(cross, *rows, ids, ids)
    print(f"loss {float(run()):.4f}")
    if not is_cpu:
        print(f"memory {timing.with_peak(run)[1]:.0f} MiB")
    title = f"{count} pairs, {dim}-d, two terms, {dtype}"
    runs = {"matmuls forward + backward": floor, "InfoNCE": run}
    timing.print_table(title, runs, 1 if options.small else 3)


def training(options):
    """Trains `scenes_pixels` for two epochs, with and without --jit_compile."""
    with tempfile.TemporaryDirectory() as place:
        line = [sys.executable, "tools/train.py", "--noexport"]
        line += ["--flagfile=configs/scenes_pixels.flags", "--epochs=2"]
        line += [f"--scenes={place}/scenes"]
        line += ["--num_scenes=200,50,50"] if options.small else []
        for word in ("--nojit_compile", "--jit_compile"):
            run_dir = pathlib.Path(place, word)
            ended = subprocess.run(
                [*line, word, f"--run_dir={run_dir}"],
                cwd=ROOT,
                capture_output=True,
                text=True,
            )
            if ended.returncode:
                raise UserError(f"{word}: {ended.stderr.strip()[-2000:]}")
            lines = ended.stdout.splitlines()
            rows = [x for x in lines if x.startswith(("epoch", "mean recall"))]
            print(word, *rows, sep="\n", flush=True)


PARTS = {each.__name__: each for each in (device, losses, large, training)}


def main(options):
    """Runs the parts; returns 1 if a part failed."""
    for name in options.part:
        check_choice("part", name, PARTS)
    # Processes share the memory of the accelerator.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    print(f"device    {startup.describe_device()}")
    failed = False
    for name in options.part or PARTS:
        startup.allow_tensor_float_32(options.tensor_float_32)
        start = time.perf_counter()
        print(f"\n== {name}", flush=True)
        try:
            PARTS[name](options)
        except Exception as error:
            failed = True
            print(f"FAILED {type(error).__name__}: {str(error)[:2000]}")
        print(f"{time.perf_counter() - start:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    cli.run_tool(sys.modules[__name__])
