"""Times retrieval evaluation against the matrix product it cannot avoid."""

import pathlib
import subprocess
import sys
import time

REST_SECONDS = 0.1
"""Before each timing: after a product NumPy's threads keep their cores busy
for a while, waiting for the next, which is no cost of what comes then."""


def _seconds(function):
    time.sleep(REST_SECONDS)
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _peak_mib():
    """Returns the most memory this process has had resident (Linux)."""
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(row for row in status.splitlines() if "VmHWM" in row)
    return int(line.split()[1]) / 1024


def _embeddings(num_images, captions_per_image, dim, noise):
    """Returns unit embeddings; captions are their image plus noise."""
    import numpy as np

    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(num_images), captions_per_image)

    def unit(values):
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    images = unit(generator.standard_normal((num_images, dim), np.float32))
    texts = generator.standard_normal((len(rows), dim), np.float32)
    texts *= noise / np.sqrt(dim)
    texts += images[rows]
    return images, unit(texts), rows


def measure(num_images, captions_per_image, dim, repeats, noise):
    """Prints one row: peak memory, then seconds and their ratio.

    The product runs in a loop with the evaluation, so that both meet the same
    load; each keeps its best time. Memory is read before the product, which
    needs 500 MB for its result alone.
    """
    import numpy as np

    from tbnets.evaluation import retrieval

    images, texts, rows = _embeddings(
        num_images, captions_per_image, dim, noise
    )

    def evaluate():
        retrieval.evaluate_retrieval(images, texts, rows, text_to_text=False)

    evaluations, products = [_seconds(evaluate)], []
    peak = _peak_mib()
    scores = np.empty((len(images), len(texts)), np.float32)
    for _ in range(repeats):
        products.append(_seconds(lambda: np.matmul(images, texts.T, scores)))
        evaluations.append(_seconds(evaluate))
    best, product = min(evaluations), min(products)
    print(
        f"{best:>10.2f} s {product:>10.2f} s {best / product:>6.2f}x "
        f"{peak:>10.0f} MiB"
    )


def run(num_images, captions_per_image, dim, repeats):
    """Prints the table; each row is measured in a process of its own.

    Args:
        num_images: Images to rank.
        captions_per_image: Captions of each image.
        dim: Size of the embeddings.
        repeats: Times each row is run; the best time is printed.
    """
    print(
        f"Evaluation of {num_images} images x "
        f"{num_images * captions_per_image} captions x {dim}, both directions"
    )
    titles = ("evaluation", "product", "ratio", "peak")
    print("{:18}{:>12} {:>12} {:>7} {:>14}".format("", *titles))
    root = pathlib.Path(__file__).resolve().parents[2]
    for name, noise in (("trained", 7.5), ("untrained", 1e4)):
        print(f"{name:18}", end="", flush=True)
        code = (
            f"import sys; sys.path[:0] = [{str(root)!r}, "
            f"{str(root / 'tools')!r}]; "
            "from benchmarks import evaluation; evaluation.measure("
            f"{num_images}, {captions_per_image}, {dim}, {repeats}, {noise})"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
