import json

import pytest

from tests import photo_files, verbs


def describe(*arguments):
    return verbs.run("describe_data", *arguments)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "my.csv"
    path.write_text(
        "image,caption,split\n"
        "a.jpg,A dog,train\n"
        "a.jpg,A brown dog,train\n"
        "b.jpg,A cat,test\n"
    )
    return path


def line_of(result, title):
    lines = result.stdout.splitlines()
    return next(row for row in lines if row.startswith(title)).split()


def test_counts_and_unused_photos_are_printed(table, tmp_path):
    with open(table, "a") as stream:
        stream.write("c.jpg,A dog,test\n")
    for name in ("a", "b", "c", "d", "more/e"):
        path = tmp_path / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(photo_files.encode())
    line = [f"--captions={table}", f"--images={tmp_path}"]
    result = describe(*line)
    assert (result.returncode, result.stderr) == (0, "")
    assert line_of(result, " ") == ["train", "test"]
    assert line_of(result, "captions ")[-2:] == ["2", "2"]
    # "cat" is one of four words of the test split.
    assert line_of(result, "unknown words, share")[-2:] == ["0.00%", "25.00%"]
    unused = "2 photos have no row in the captions: d.jpg, more/e.jpg."
    assert unused in result.stdout
    assert unused not in describe(*line, "--splits=test").stdout


def test_every_problem_is_printed_and_exits_with_1(table, tmp_path):
    with open(table, "a") as stream:
        stream.write("c.jpg,A cow\na.jpg,A dog,test\n")
        stream.write("../d.jpg,A pig,test\n../d.jpg,A pig,test\n")
    result = describe(
        f"--captions={table}",
        f"--images={tmp_path}",
        f"--json={tmp_path / 'out.json'}",
    )
    assert (result.returncode, result.stderr) == (1, "")
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["splits"]["test"]["images"] == 2
    problems = report["problems"]
    assert [problem["line"] for problem in problems[:3]] == [5, 7, 8]
    told = "\n".join(problem["message"] for problem in problems)
    for words in ("3 columns", "in 'test': 'a.jpg"):
        assert words in told
    assert told.count("does not exist") == 3  # a.jpg twice, b.jpg
    assert f"{len(problems)} problems." in result.stdout
    for problem in problems:  # Equal messages are printed once.
        assert result.stdout.count(f": {problem['message']}\n") == 1
    assert f"  This is also true of {table}:8.\n" in result.stdout
