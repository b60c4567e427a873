"""Times retrieval evaluation against the matrix product it cannot avoid."""

import pathlib
import subprocess
import sys
import time

NUM_IMAGES = 5000
CAPTIONS_PER_IMAGE = 5
DIM = 512
REPEATS = 3


def _seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _peak_mib():
    """Returns the most memory this process has had resident (Linux)."""
    status = pathlib.Path("/proc/self/status").read_text()
    line = next(row for row in status.splitlines() if "VmHWM" in row)
    return int(line.split()[1]) / 1024


def _embeddings(noise):
    """Returns unit embeddings; captions are their image plus noise."""
    import numpy as np

    generator = np.random.default_rng(0)
    rows = np.repeat(np.arange(NUM_IMAGES), CAPTIONS_PER_IMAGE)

    def unit(values):
        return values / np.linalg.norm(values, axis=1, keepdims=True)

    images = unit(generator.standard_normal((NUM_IMAGES, DIM), np.float32))
    texts = generator.standard_normal((len(rows), DIM), np.float32)
    texts *= noise / np.sqrt(DIM)
    texts += images[rows]
    return images, unit(texts), rows


def measure(noise):
    """Prints one row: peak memory, then seconds and their ratio.

    The product runs in a loop with the evaluation, so that both meet the same
    load; each keeps its best time. Memory is read before the product, which
    needs 500 MB for its result alone.
    """
    import numpy as np

    from tbnets.evaluation import retrieval

    images, texts, rows = _embeddings(noise)

    def evaluate():
        retrieval.evaluate_retrieval(images, texts, rows, text_to_text=False)

    evaluations, products = [_seconds(evaluate)], []
    peak = _peak_mib()
    scores = np.empty((len(images), len(texts)), np.float32)
    for _ in range(REPEATS):
        products.append(_seconds(lambda: np.matmul(images, texts.T, scores)))
        evaluations.append(_seconds(evaluate))
    best, product = min(evaluations), min(products)
    print(
        f"{best:>10.2f} s {product:>10.2f} s {best / product:>6.2f}x "
        f"{peak:>10.0f} MiB"
    )


def run():
    """Prints the table; each row is measured in a process of its own."""
    print(
        f"Evaluation of {NUM_IMAGES} images x "
        f"{NUM_IMAGES * CAPTIONS_PER_IMAGE} captions x {DIM}, both directions"
    )
    titles = ("evaluation", "product", "ratio", "peak")
    print("{:18}{:>12} {:>12} {:>7} {:>14}".format("", *titles))
    root = pathlib.Path(__file__).resolve().parents[2]
    for name, noise in (("trained", 7.5), ("untrained", 1e4)):
        print(f"{name:18}", end="", flush=True)
        code = (
            f"import sys; sys.path[:0] = [{str(root)!r}, "
            f"{str(root / 'tools')!r}]; "
            f"from benchmarks import evaluation; evaluation.measure({noise})"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


if __name__ == "__main__":
    run()
