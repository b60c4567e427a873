import PIL.Image
import pytest

from tbnets.errors import UserError
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


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Returns a function that draws a history and returns the figure."""
    figures = []
    keep = lambda figure: figures.append(figure)  # noqa: E731
    monkeypatch.setattr(plots.Figure, "tight_layout", keep)

    def draw(history, *more):
        plots.draw_history(history, tmp_path / "curves.png", *more)
        return figures[-1]

    return draw


def test_each_panel_shows_its_own_scalars(drawn):
    later = {key: value + 1 for key, value in ROW.items()}
    axes = drawn([ROW, later]).axes
    found = {
        axis.get_title(): {
            line.get_label(): list(line.get_ydata()) for line in axis.lines
        }
        for axis in axes
    }
    assert found == {
        "loss": {"image to text": [0.2, 1.2], "total": [0.4, 1.4]},
        "share of triplets with a loss": {"image to text": [0.7, 1.7]},
        "dev recall@1 in per cent": {"image to text": pytest.approx([10, 110])},
        "mean pairwise cosine": {"images": [-0.05, 0.95]},
    }
    ticks = [tick for axis in axes for tick in axis.get_xticks()]
    assert ticks and all(tick == round(tick) for tick in ticks)


def test_infinite_and_missing_numbers_are_drawn(tmp_path):
    values = float("nan"), -float("inf"), 3.4e38
    history = [ROW, *({**ROW, "train/total_loss": value} for value in values)]
    plots.draw_history(history, tmp_path / "curves.png")
    with PIL.Image.open(tmp_path / "curves.png") as image:
        assert image.format == "PNG"
        assert len(image.convert("L").getcolors()) > 2
    assert [found.name for found in tmp_path.iterdir()] == ["curves.png"]
    with pytest.raises(UserError):
        plots.draw_history(history, tmp_path / "absent" / "curves.png")
