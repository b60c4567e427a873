"""Tests of the page of all results, and of what it is made from."""

import dataclasses
import json
import os
import shutil

import pytest
from reproducing import checks, measured, recording, tables
from reproducing import pages as page_parts
from reproducing.flagfiles import expecting

from tbnets.cli import run_line, train
from tbnets.tasks.settings.command_line import CommandLine
from tbnets.tasks.settings.flag import flags_of
from tbnets.tasks.settings.records import write_settings
from tbnets.tasks.settings.settings import ALL
from tests import verbs

FLAGS = [*ALL.values(), *flags_of(train.Options)]


@pytest.fixture(scope="module")
def results():
    return measured.read()


@pytest.fixture
def pages(tmp_path):
    """A folder with copies of all pages, and of the names of flagfiles."""
    for path in measured.ROOT.glob("docs/*.md"):
        (tmp_path / "docs").mkdir(exist_ok=True)
        shutil.copy(path, tmp_path / "docs")
    shutil.copytree(measured.ROOT / "configs", tmp_path / "configs")
    shutil.copy(measured.ROOT / "README.md", tmp_path)
    return tmp_path


def test_every_number_of_the_pages_stands_in_a_file_or_is_marked():
    out, err, failure = verbs.ask("reproduce", "--check")
    assert (out, err + failure) == (
        "0 numbers that nothing stands behind\n",
        "",
    )


@pytest.mark.parametrize(
    ("page", "number", "changed"),
    [
        ("README.md", "22.7 15.1", "22.8 15.1"),
        ("README.md", "23.3, 15.0", "23.4, 15.0"),
        ("docs/results.md", "22.7 45.4 57.4", "22.7 45.4 57.5"),
        ("docs/ablation.md", "| 252.8 |", "| 253.8 |"),
        ("docs/weak_localization.md", "31.1 (31.1", "31.2 (31.1"),
        ("docs/reproduction_wang2016.md", "33.5 61.7 73.6", "33.5 61.7 73.7"),
    ],
)
def test_a_changed_number_is_found(results, pages, page, number, changed):
    path = pages / page
    text = path.read_text("utf-8")
    assert number in text
    path.write_text(text.replace(number, changed, 1), "utf-8")
    found = checks.findings(results, pages)
    assert len(found) == 1 and found[0].startswith(page), found


def test_numbers_of_others_are_those_of_a_paper(results, pages):
    """Below `published`, and in a marked row; elsewhere they may be words."""
    columns = ["NAME", "R@1", "published"]
    rows = [
        {"cells": ["quickstart", "", "23.3, 15.1"]},
        {"cells": ["margin of 0.15", "", "23.3, 15.0"], "name": "quickstart"},
        {"cells": ["FNE, as published", "15.0 23.3"]},
        {"cells": ["FNE, as published", "99.9"]},
        {"cells": ["FNE, as reported", "99.9"]},
    ]
    parts = {"new": {"part": "new", "columns": columns, "rows": rows}}
    changed = dataclasses.replace(results, parts=results.parts | parts)
    (pages / "docs" / "new.md").write_text("<!-- new -->\n<!-- end -->\n")
    for path, text in checks.written(changed, pages).items():
        path.write_text(text, "utf-8")
    first, second = checks.findings(changed, pages)
    assert "found 23.3, 15.1, column 'published', row 'quickstart'" in first
    assert "found 99.9, column 'R@1', row 'FNE, as published'" in second


def test_a_table_without_a_file_or_a_command_is_found(results, pages):
    page = pages / "docs" / "new.md"
    page.write_text(
        "# New\n\n## Rows\n\n| row | R@1 |\n|---|---|\n| best | 99.9 |\n"
    )
    (found,) = checks.findings(results, pages)
    assert found == (
        f"{page.relative_to(pages)}:7: expected a generated table, or a "
        "command; found 99.9, column 'R@1', row 'best'"
    )
    page.write_text(
        "# New\n\n`tools/a.py`:\n\n| row | s |\n|---|---|\n| a | 9.9 |\n"
    )
    assert checks.findings(results, pages) == []


@pytest.fixture
def page(record, tmp_path):
    """Returns a function that gives a page's table of some rows."""
    columns = ["NAME", "R@1 image to text", "recall sums", "its spread"]
    generated = ["all rows", "flags", "speed"]
    parts = [f"<!-- {name} -->\n<!-- end -->\n" for name in generated]
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("\n".join(parts))

    def call(*rows):
        table = [{"part": "speed", "columns": columns, "rows": rows}]
        path = tmp_path / "measured" / "pages" / "page.json"
        path.write_text(json.dumps(table))
        found = measured.read(tmp_path / "measured")
        (text,) = page_parts.written(found, tmp_path).values()
        return text.split("| --- | --- | --- | --- |\n")[-1]

    return call


def test_a_table_of_a_page_shows_rows(page, record, tmp_path):
    """Mean of 10 % and 25 %: 17.5. A row without a name has it in `NAME`."""
    runs = [
        finished_run(tmp_path / name, seed, recall)
        for seed, (name, recall) in enumerate({"a": 0.1, "b": 0.25}.items())
    ]
    path = runs[0] / "metrics.json"
    path.write_text(path.read_text().replace("180.0", "190.0"))
    record(*runs)
    sums = ["", "test/recall_sum dev/recall_sum", "", ""]
    assert page(
        {"cells": ["fast", "by seed"], "name": "quickstart"},
        {"cells": ["sum", "", "", ""], "name": "quickstart", "metrics": sums},
        {"cells": ["quickstart"]},
        {"cells": ["others, as published", "7.7"]},
    ) == (
        "| fast | 17.5 (10.0 25.0) | 190.0 180.0 | 180.0 to 190.0 |\n"
        "| sum | 185.0 200.0 | 190.0 180.0 | 180.0 to 190.0 |\n"
        "| quickstart | 17.5 | 190.0 180.0 | 180.0 to 190.0 |\n"
        "| others, as published | 7.7 | | |\n\n<!-- end -->\n"
    )


def test_a_row_that_is_nobodys_is_refused(page):
    with pytest.raises(ValueError, match="expected slow.json, of a row that"):
        page({"cells": ["slow"], "name": "slow"})
    with pytest.raises(ValueError, match="'speed'; found 'quick, 8.8'"):
        page({"cells": ["quick, 8.8"]})


@pytest.mark.parametrize(("cell", "sums"), [("by seed", "12.5"), ("", "")])
def test_cells_of_one_run(results, cell, sums):
    """A column by seed shows its one number where a row asks for it."""
    row = dataclasses.replace(
        results.kept["quickstart"],
        runs=({"test/recall_sum": 12.5},),
        seeds=(3, 4),
        train_seconds=(150.0, 186.0),
    )

    def shown(column, cell, row=row, metrics=("test/recall_sum",)):
        return page_parts._cell(column, cell, metrics, row)

    assert shown("recall sums", cell) == sums
    assert shown("its spread", cell) == ""
    assert shown("Seeds", "by seed", metrics=()) == "3, 4"
    assert shown("time", "", metrics=()) == "3 min"
    evaluated = dataclasses.replace(row, of="quickstart")
    assert shown("time", "1 s", evaluated, ()) == "1 s"


def test_a_row_tells_its_split():
    columns = ("NAME", "split", "image to text R@1")
    assert tables.of_split("test/a", columns, ("x", "dev", "")) == "dev/a"
    assert tables.of_split("test/a", columns, ("x", "test", "")) == "test/a"
    assert tables.of_split("test/a", columns[:1], ("x",)) == "test/a"


def test_published_numbers_are_those_that_flagfiles_expect(results):
    """Both were taken from the papers, one by one."""
    compared = 0
    for table in results.published:
        for row in table["rows"]:
            if "configuration" not in row:
                continue
            name = row["configuration"]
            path = measured.ROOT / "configs" / f"{name}.flags"
            text = path.read_text("utf-8")
            for cell in row["published"]:
                if " " in cell and not name.startswith("entities_"):
                    assert cell.replace(" ", "/") in text, (name, cell)
                    compared += 1
    assert compared > 80


def test_the_command_of_each_row_is_one(results):
    """What stands after its configuration changes it, flag by flag."""
    known = (results.kept, results.made)
    for row in [row for rows in known for row in rows.values()]:
        flags = row.flags.split()
        changed = recording.flags_of_row(row).split()
        assert sorted(x.partition("=")[0] for x in changed) == sorted(
            x.partition("=")[0] for x in flags
        )


def finished_run(folder, seed, recall, *flags):
    """Writes what a finished run of quickstart leaves of its results."""
    line = CommandLine(
        ["--flagfile=quickstart", f"--seed={seed}", *flags], FLAGS
    )
    settings = run_line.settings(line)
    folder.mkdir()
    write_settings(settings, folder)
    report = {
        "best_epoch": 12,
        "epochs": settings.epochs,
        "train_seconds": 60.0,
        "dev": {"recall_sum": 200.0},
        "test": {"image_to_text/recall_at_1": recall, "recall_sum": 180.0},
        "command": "tools/train.py --flagfile=configs/quickstart.flags",
        "versions": {"tensorflow": "2.21.0"},
    }
    (folder / "metrics.json").write_text(json.dumps(report))
    return folder


@pytest.fixture
def record(tmp_path):
    """Returns a function that records runs; it returns the file's content."""
    target = tmp_path / "measured"
    (target / "pages").mkdir(parents=True)
    (target / "published.json").write_text("[]")
    (target / "rows.json").write_text("{}")

    def call(*folders, name="", cpu="fast"):
        path = recording.record(folders, name, cpu, target)
        return json.loads(path.read_text()), measured.read(target).kept

    return call


def test_recorded_runs_give_the_numbers(record, tmp_path):
    """Means over seeds: (0.125 + 0.25) / 2 = 0.1875, a half goes up."""
    first = finished_run(tmp_path / "a", 0, 0.125)
    second = finished_run(tmp_path / "b", 1, 0.25)
    content, kept = record(first, second)
    assert content["seeds"]["1"]["test"]["image_to_text/recall_at_1"] == 0.25
    row = kept["quickstart"]
    assert (row.configuration, row.flags) == ("quickstart", "")
    assert (row.seeds, row.epochs, row.cpu) == ((0, 1), (12, 12), "fast")
    assert row.values == {
        "test/image_to_text/recall_at_1": "18.8",
        "test/recall_sum": "180.0",
        "dev/recall_sum": "200.0",
    }
    third = finished_run(tmp_path / "c", 2, 0.3)
    assert record(third)[1]["quickstart"].seeds == (0, 1, 2)
    assert record(third, cpu="slow")[1]["quickstart"].seeds == (2,)


def test_kernels_are_told_beside_the_processor(record, tmp_path):
    run = finished_run(tmp_path / "a", 0, 0.1)
    path = run / "metrics.json"
    report = json.loads(path.read_text())
    report["versions"]["kernels"] = "oneDNN"
    path.write_text(json.dumps(report))
    assert record(run)[1]["quickstart"].cpu == "fast, oneDNN"
    other = finished_run(tmp_path / "b", 1, 0.1)  # By which, nobody told.
    assert record(run, other)[1]["quickstart"].cpu == "fast"


def test_a_run_by_other_flags_is_a_row_of_its_own(record, tmp_path):
    run = finished_run(tmp_path / "a", 0, 0.1, "--margin=0.3")
    with pytest.raises(ValueError, match="--margin=0.3 too. Name this row"):
        record(run)
    _, kept = record(run, name="quickstart_wide")
    assert kept["quickstart_wide"].flags == "--margin=0.3"
    with pytest.raises(ValueError, match="`--name` must be letters"):
        record(run, name="../wide")
    other = finished_run(tmp_path / "b", 1, 0.1)
    with pytest.raises(ValueError, match="differ in their seeds alone"):
        record(run, other)


def test_a_run_of_no_configuration_is_told_by_its_command(record, tmp_path):
    run = finished_run(tmp_path / "a", 0, 0.1)
    path = run / "metrics.json"
    report = json.loads(path.read_text())
    report["command"] = (
        "tools/train.py --from=scenes --images='my photos' --seed=0 "
        "--run_dir=a --cache=b"
    )
    path.write_text(json.dumps(report))
    with pytest.raises(ValueError, match="the flags of a configuration"):
        record(run)
    _, kept = record(run, name="tuned")
    assert kept["tuned"].configuration == ""
    assert kept["tuned"].flags == "--from=scenes '--images=my photos'"
    assert recording.flags_of_row(kept["tuned"]) == kept["tuned"].flags


def test_a_row_has_no_name_of_another(record, tmp_path):
    """Whether another is a configuration, or a row that is made otherwise."""
    made = {"wide": {"configuration": "quickstart", "flags": "--margin=0.30"}}
    (tmp_path / "measured" / "rows.json").write_text(json.dumps(made))
    plain = finished_run(tmp_path / "a", 0, 0.1)
    for name in ("scenes_cca", "wide"):
        with pytest.raises(ValueError, match="must be that of no other row"):
            record(plain, name=name)
    wide = finished_run(tmp_path / "b", 0, 0.1, "--margin=0.3")
    kept = record(wide, name="wide")[1]  # In the words of rows.json.
    assert kept["wide"].flags == "--margin=0.30"
    with pytest.raises(ValueError, match="Received: seeds 0, 0"):
        record(plain, plain)


def test_runs_of_a_row_that_is_evaluated_are_when_it_is_recorded(
    record, tmp_path, monkeypatch
):
    made = {
        **{"configuration": "quickstart", "of": "quickstart"},
        "evaluation": "--combine_with=runs/other_{seed} --query_bank=train",
    }
    rows = tmp_path / "measured" / "rows.json"
    rows.write_text(json.dumps({"levelled": made}))
    run = finished_run(tmp_path / "a", 3, 0.1)
    asked = []

    def evaluate(verb, words):
        asked.append((verb, *words[:-1]))
        path = words[-1].removeprefix("--json=")
        with open(path, "w") as file:
            json.dump({"recall_sum": 300.0 + len(asked)}, file)

    monkeypatch.setattr(recording.cli, "call", evaluate)
    _, kept = record(run, name="levelled")
    shown = [f"--run_dir={run}", "--combine_with=runs/other_3"]
    shown.append("--query_bank=train")
    assert asked == [
        ("evaluate", *shown, f"--split={split}") for split in ("dev", "test")
    ]
    row = kept["levelled"]
    assert (row.of, row.evaluation) == ("quickstart", made["evaluation"])
    assert row.values == {
        "dev/recall_sum": "301.0",
        "test/recall_sum": "302.0",
    }
    assert record(run)[1]["quickstart"].values["test/recall_sum"] == "180.0"


def test_a_run_that_is_not_finished_is_refused(record, tmp_path):
    run = finished_run(tmp_path / "a", 0, 0.1)
    report = json.loads((run / "metrics.json").read_text())
    for change, told in (
        ({"epochs": 3}, "of 3 epochs in its metrics.json"),
        ({"command": "tools/train.py --resume"}, "a command with all flags"),
    ):
        (run / "metrics.json").write_text(json.dumps(report | change))
        with pytest.raises(ValueError, match=told):
            record(run)
    (run / "metrics.json").unlink()
    with pytest.raises(ValueError, match="of 0 epochs"):
        record(run)


def test_a_run_that_patience_ended_is_recorded_but_not_its_places(
    record, tmp_path
):
    """Twelve epochs were the best, three more were waited for."""
    run = finished_run(
        tmp_path / "a", 0, 0.1, "--patience=3", f"--images={tmp_path}"
    )
    path = run / "metrics.json"
    report = json.loads(path.read_text()) | {"epochs": 15}
    path.write_text(json.dumps(report))
    os.utime(path, (0, 12 * 3600))
    other = finished_run(tmp_path / "b", 1, 0.1, "--patience=3")
    os.utime(other / "metrics.json", (0, 36 * 3600))
    content, kept = record(run, other, name="patient")
    assert kept["patient"].flags == "--patience=3"
    assert content["date"] == "1970-01-02"
    del report["test"]
    path.write_text(json.dumps(report))
    with pytest.raises(ValueError, match="expected metrics of a test split"):
        record(run, name="patient")


def test_run_prints_the_commands_of_a_row():
    out = verbs.ask(
        "reproduce", "--run=flickr8k_tfidf_nonlinear_sampling", "--seeds=0,1"
    )[0]
    name = "runs/flickr8k_tfidf_nonlinear_sampling"
    train = (
        "python tools/train.py --flagfile=configs/flickr8k_tfidf.flags "
        "--text_to_text_weight=0"
    )
    assert out == (
        f"{train} --seed=0 --run_dir={name}_0\n"
        f"{train} --seed=1 --run_dir={name}_1\n"
        f"python tools/reproduce.py --record={name}_0,{name}_1 "
        "--name=flickr8k_tfidf_nonlinear_sampling\n"
    )
    failure = verbs.ask("reproduce", "--run=flickr8k_meen")[2]
    assert "`--run`" in failure and "Did you mean flickr8k_mean?" in failure
    out = verbs.ask("reproduce", "--run=flickr8k_best_with_phrases")[0]
    trained, phrases, recorded = out.splitlines()
    assert trained.endswith("--run_dir=runs/flickr8k_best_one_view_0")
    assert phrases.endswith("--run_dir=runs/entities_localization_best_0")
    assert recorded.endswith(
        "--record=runs/flickr8k_best_one_view_0 "
        "--name=flickr8k_best_with_phrases"
    )
    for flag in ("cpu=x", "name=x", "seeds=1"):
        assert "must come with" in verbs.ask("reproduce", f"--{flag}")[2]


def test_a_generated_part_that_is_missing_is_told(results, pages):
    path = pages / "docs" / "reproduction_rows.md"
    text = path.read_text("utf-8").replace("<!-- all rows -->", "")
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="too few of .*all rows"):
        checks.findings(results, pages)


def test_a_flagfile_expects_what_was_kept(results):
    """Wherever the words of a comment are broken; what is not told stays."""
    values = {
        f"test/{metric}/recall_at_{rank}": f"{rank}.{place}"
        for place, metric in enumerate(["image_to_text", "text_to_image"])
        for rank in (1, 5, 10)
    }
    row = dataclasses.replace(
        results.kept["quickstart"],
        values=values
        | {"test/recall_sum": "301.3", "dev/recall_sum": "302.4"}
        | {
            "test/correspondence_accuracy": "61.2",
            "test/correspondence_chance": "11.2",
            "test/correspondence_upper_bound": "91.2",
        },
    )
    text = (
        "# Expected: test R@1/5/10 9.9/9.9/9.9 image to text, 8.8/8.8/8.8\n"
        "#   text to image, recall sum 199.9, dev 177.7; mAP 6.6. 50.0 % of\n"
        "#   the phrases were right, 9.0 % by chance, 99.9 % at most.\n"
        "# Source: a paper, which has 5.5/5.5/5.5 image to text.\n"
    )
    wanted = text.replace("9.9/9.9/9.9", "1.0/5.0/10.0")
    wanted = wanted.replace("8.8/8.8/8.8", "1.1/5.1/10.1")
    wanted = wanted.replace("199.9, dev 177.7", "301.3, dev 302.4")
    for told, found in (
        ("50.0", "61.2"),
        ("9.0 %", "11.2 %"),
        ("99.9", "91.2"),
    ):
        wanted = wanted.replace(told, found)
    assert expecting(text, row) == wanted


def test_a_flagfile_that_expects_something_else_is_found(results, pages):
    path = pages / "configs" / "scenes_fne.flags"
    path.write_text(path.read_text("utf-8").replace("70.8", "70.9"), "utf-8")
    (found,) = checks.findings(results, pages)
    assert found.startswith("configs/scenes_fne.flags: expected what the files")
