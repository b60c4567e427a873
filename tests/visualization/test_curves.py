import PIL.Image
import pytest

from tbnets.visualization import plots

ROW = {
    "train/total_loss": 0.4,
    "train/image_to_text_loss": 0.2,
    "train/image_to_text_active": 0.7,
    "dev/image_to_text/recall_at_1": 0.1,
    "dev/image_to_text/people/recall_at_1": 0.2,
    "dev/recall_sum": 300.0,
    "health/images/mean_cosine": -0.05,
    "seconds": 1.0,
}


@pytest.mark.parametrize("epochs", [1, 3])
def test_history_becomes_a_picture(tmp_path, epochs):
    path = tmp_path / "curves.png"
    plots.draw_history([ROW] * epochs, path)
    with PIL.Image.open(path) as image:
        assert image.format == "PNG"
        assert image.width > 3 * image.height  # four panels side by side
        pixels = {color for _, color in image.convert("L").getcolors()}
    assert len(pixels) > 2
    assert [found.name for found in tmp_path.iterdir()] == ["curves.png"]


def test_each_panel_shows_its_own_scalars(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(
        plots.Figure,
        "tight_layout",
        lambda figure: drawn.update(
            {
                axis.get_title(): [
                    (line.get_label(), list(line.get_ydata()))
                    for line in axis.lines
                ]
                for axis in figure.axes
            }
        ),
    )
    later = {key: value + 1 for key, value in ROW.items()}
    plots.draw_history([ROW, later], tmp_path / "curves.png")
    assert drawn == {
        "loss": [("image to text", [0.2, 1.2]), ("total", [0.4, 1.4])],
        "share of triplets with a loss": [("image to text", [0.7, 1.7])],
        "dev recall@1": [("image to text", [0.1, 1.1])],
        "mean pairwise cosine": [("images", [-0.05, 0.95])],
    }


def test_scalars_that_not_every_epoch_has_are_drawn_where_they_are(
    tmp_path, monkeypatch
):
    late = {**ROW, "train/phrase_loss": 0.9}
    gone = {key: value for key, value in ROW.items() if "total" not in key}
    drawn = {}
    monkeypatch.setattr(
        plots.Figure,
        "tight_layout",
        lambda figure: drawn.update(
            {
                line.get_label(): [*map(list, line.get_data())]
                for line in figure.axes[0].lines
            }
        ),
    )
    plots.draw_history([ROW, gone, late, late], tmp_path / "curves.png")
    assert drawn == {
        "image to text": [[1, 2, 3, 4], [0.2] * 4],
        "phrase": [[3, 4], [0.9] * 2],
        "total": [[1, 3, 4], [0.4] * 3],
    }


@pytest.mark.parametrize(
    "values",
    [
        *([float("nan")] * 2, [float("inf")] * 2),
        *([0.5, float("nan")], [0.5, -float("inf")]),
        [-3.4e38, 3.4e38],
    ],
)
def test_numbers_that_are_none_leave_a_picture(tmp_path, values):
    history = [{**ROW, "train/total_loss": value} for value in values]
    plots.draw_history(history, tmp_path / "curves.png")
    with PIL.Image.open(tmp_path / "curves.png") as image:
        assert image.format == "PNG"


@pytest.mark.parametrize("epochs", [1, 2, 4, 15])
def test_epochs_are_whole_numbers(tmp_path, monkeypatch, epochs):
    ticks = []
    monkeypatch.setattr(
        plots.Figure,
        "tight_layout",
        lambda figure: ticks.extend(
            tick for axis in figure.axes for tick in axis.get_xticks()
        ),
    )
    plots.draw_history([ROW] * epochs, tmp_path / "curves.png")
    assert ticks and all(tick == round(tick) for tick in ticks)


def test_a_full_disk_leaves_the_old_picture(tmp_path):
    path = tmp_path / "curves.png"
    plots.draw_history([ROW], path)
    good = path.read_bytes()
    with pytest.raises(OSError, match="could not be written"):
        plots.draw_history([ROW], tmp_path / "absent" / "curves.png")
    assert path.read_bytes() == good
