"""Times the steps that workers share, and compares them with a cost model.

Each of N workers holds its rows of the batch, every message reaches all
workers, and workers on one machine share its P cores. With R reduces of r bytes
and G gathers of g bytes, a step takes::

    max(1, N / P) (fixed + flops / rate)
        + (R + G / 2) latency + (r + g / 2) / bandwidth

A gather passes around the ring of workers once, and a reduce twice. `fixed` and
`rate` are fitted to steps of one worker on 1, 1/2 and 1/4 of a batch; `latency`
and `bandwidth` are fitted to sums of one number and of 16 MiB.
"""

import json
import os
import subprocess
import sys
from typing import NamedTuple

import numpy as np

from benchmarks.replicas import Job, job_of
from tbnets.checks import per_cent
from tbnets.cli import local_workers
from tbnets.errors import InputError
from tbnets.startup import usable_cores

NUMBERS = 2**22
"""Numbers in a long message, 16 MiB."""


class Machine(NamedTuple):
    """Parameters of the cost model for a machine.

    Attributes:
        fixed: milliseconds of a step that do not depend on its rows.
        rate: floating-point operations per millisecond.
        latency: milliseconds of a reduce of one number.
        bandwidth: bytes per millisecond of a long reduce.
        crowd: number of workers per core.
    """

    fixed: float
    rate: float
    latency: float
    bandwidth: float
    crowd: float = 1.0


GPU = Machine(fixed=5.0, rate=1e11, latency=0.1, bandwidth=2e7)
"""Assumed, not measured: 100 TFLOP/s, a fifth of the published TF32 rate of an
H100; 0.1 ms per message; 20 GB/s, half of a 400 Gbit/s network because a reduce
passes the ring twice; 5 ms for the rest of a step."""
NUM_GPUS = 1, 8, 64
PAPER = Job(images=500, hidden=2048, dim=512, repeats=0)


class Cost(NamedTuple):
    """Computed costs of a step for one worker.

    Attributes:
        layers: floating-point operations of the branches.
        loss: floating-point operations of the loss.
        reduces: number of sums over all workers.
        gathers: number of gathers.
        reduced: bytes that are summed.
        gathered: bytes that are gathered.
        compared: bytes of the largest similarity matrix.
    """

    layers: float
    loss: float
    reduces: int
    gathers: int
    reduced: float
    gathered: float
    compared: float


def cost(job, workers, reduces=0, gathers=0):
    """Computes the costs of a step for one worker."""
    first, second = job.hidden * job.hidden, job.hidden * job.dim
    captions = 2 * job.images
    rows = job.images + captions
    # Forward, weight gradients and, after the first layer, input gradients.
    layers = 2 * rows * (2 * first + 3 * second) / workers
    pairs = 2 * job.images * captions + captions**2  # wang2018's three terms.
    loss = 2 * job.dim * pairs / workers
    weights = 2 * (first + second)
    embeddings = 4 * job.dim * rows
    # tbnets sums the gradient, and Keras sums it again.
    reduced = (2 * 4 * weights + embeddings) * (workers > 1)
    gathered = (embeddings + 8 * rows) * (workers > 1)
    compared = 4 * captions**2 / workers
    return Cost(layers, loss, reduces, gathers, reduced, gathered, compared)


def predicted(cost, machine):
    """Returns a step's milliseconds for computing and for messages."""
    computing = machine.fixed + (cost.layers + cost.loss) / machine.rate
    messages = (cost.reduces + cost.gathers / 2) * machine.latency
    messages += (cost.reduced + cost.gathered / 2) / machine.bandwidth
    return computing * max(1.0, machine.crowd), messages


def measure(job, workers, *parts):
    """Times parts in `workers` processes; returns {name: milliseconds}."""
    line = [sys.executable, "-m", "benchmarks.replicas"]
    line.append(json.dumps(job._replace(parts=parts)))
    environments = local_workers.environments(workers) if workers > 1 else [{}]
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(
            line,
            env={**os.environ, **path, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    outputs = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, outputs):
        if process.returncode:
            raise InputError(
                "`--workers` must be numbers of processes that run here. "
                f"Received: --workers={workers}; a worker failed: "
                f"{errors[-2000:]}"
            )
    return json.loads(outputs[0][0].splitlines()[-1])


def fitted(job, milliseconds, sizes):
    """Fits `fixed` and `rate` of `Machine` to times of steps on one worker."""
    costs = [cost(job._replace(images=images), 1) for images in sizes]
    flops = [step_cost.layers + step_cost.loss for step_cost in costs]
    times = np.array([milliseconds[f"alone {images}"] for images in sizes])
    # Minimizes relative errors, so that small and large sizes count equally.
    columns = np.stack([np.ones(len(sizes)), flops], axis=1)
    (fixed, per_flop), *_ = np.linalg.lstsq(
        columns / times[:, None], np.ones(len(sizes)), rcond=None
    )
    return fixed, 1 / per_flop


def run(options):
    """Prints the measured and predicted step times for numbers of workers."""
    job, cores = job_of(options), usable_cores()
    sizes = [max(1, job.images // part) for part in (1, 2, 4)]
    alone = measure(job, 1, ("alone", job.images))[f"alone {job.images}"]
    probe = measure(job, 2, *(("alone", images) for images in sizes))
    fixed, rate = fitted(job, probe, sizes)
    print(
        f"{job.images} images, {2 * job.images} captions, {job.hidden} -> "
        f"{job.hidden} -> {job.dim}, {cores} cores; a worker: {fixed:.0f} ms "
        f"and {rate / 1e6:.0f} GFLOP/s"
    )
    columns = "step", "predicted", "wrong by", "gather", "sums", "whole loss"
    _print_row("workers", *columns)
    _print_row(1, f"{alone:.0f} ms")
    for count in options.workers:
        times = measure(
            job,
            count,
            *(("step", 0), ("gathers", 0), ("whole_step", 0), ("sums", 2)),
            *(("message", 1), ("message", NUMBERS)),
        )
        latency, long = times["message 1"], times[f"message {NUMBERS}"]
        bandwidth = 4 * NUMBERS / max(long - latency, 1e-3)
        machine = Machine(fixed, rate, latency, bandwidth, count / cores)
        kinds = times["reduces"], times["gathers"]
        total = sum(predicted(cost(job, count, *kinds), machine))
        step = times["step 0"]
        _print_row(
            count,
            f"{step:.0f} ms",
            f"{total:.0f} ms",
            f"{per_cent(total / step - 1, 0)} %",
            f"{per_cent(times['gathers 0'] / step, 0)} %",
            f"{per_cent(times['sums 2'] / step, 0)} %",
            f"{times['whole_step 0']:.0f} ms",
        )
    print_paper(*kinds)


def _print_row(first, *cells):
    print(f"  {first:>7}" + "".join(f"  {cell:>10}" for cell in cells))


def print_paper(reduces, gathers):
    """Prints predictions for GPUs with a shared batch or a batch each."""
    print("On paper, 2048 -> 2048 -> 512, two captions per image:")
    columns = "images", "step", "messages", "images/s", "matrix", "whole loss"
    _print_row("GPUs", *columns)
    sizes = [(gpus, PAPER.images) for gpus in NUM_GPUS]
    sizes += [(gpus, PAPER.images * gpus) for gpus in NUM_GPUS[1:]]
    for gpus, images in sizes:
        job = PAPER._replace(images=images)
        step_cost = cost(job, gpus, reduces * (gpus > 1), gathers * (gpus > 1))
        computing, messages = predicted(step_cost, GPU)
        step = computing + messages
        whole = step_cost._replace(loss=step_cost.loss * gpus)
        _print_row(
            gpus,
            images,
            f"{step:.1f} ms",
            f"{per_cent(messages / step, 0)} %",
            f"{1e3 * images / step:.0f}",
            f"{step_cost.compared / 1e6:.1f} MB",
            f"{sum(predicted(whole, GPU)):.1f} ms",
        )
