"""Tests of the comparison of features."""

import numpy as np

from tests import verbs


def write(folder, name, rows, ids):
    np.save(folder / f"{name}_ims.npy", np.asarray(rows, np.float32))
    (folder / f"{name}_ids.txt").write_text("\n".join(ids) + "\n")
    return str(folder / f"{name}_ims.npy")


def run(*arguments):
    done = verbs.run("compare_features", *arguments)
    return done.returncode, done.stdout + done.stderr


def test_rows_are_compared_by_id(tmp_path):
    # By id the cosines are 1 and 0.6 (3-4-5); b is nearer to the row of a.
    first = write(tmp_path, "x", [[1, 0], [0.6, 0.8]], ["a", "b"])
    second = write(tmp_path, "y", [[2, 0], [3, 0], [9, 9]], ["b", "a", "c"])
    code, text = run(first, second)
    assert code == 0, text
    assert "2 of 2 and 3" in text
    assert "mean       0.8000" in text
    assert "smallest         0.6000  b" in text
    assert "own row nearest    50.0 %" in text
