"""Draws learning curves and maps of the shared embedding space."""

import textwrap
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image, ImageDraw

from tbnets.errors import import_extra
from tbnets.files import readable, write_atomically
from tbnets.visualization.boxes import freest
from tbnets.visualization.montage import font

IMAGE, CAPTION, PHRASE = "image", "caption", "noun phrase"


class Points(NamedTuple):
    """Points in the embedding space, with texts and thumbnails.

    Args:
        vectors: float `[n, dim]`.
        columns: {column name: list of n strings}. The first column names the
            points. `draw_map` reads `text`, `kind` (`IMAGE`, `CAPTION` or
            `PHRASE`), and `image`, the id of the point's image.
        thumbnails: uint8 `[n, side, side, 3]`, or None.
    """

    vectors: np.ndarray
    columns: dict
    thumbnails: np.ndarray | None = None


def joined(parts):
    """Concatenates `Points` from one space, skipping None.

    Returns None if there are no points. The result has the columns of the first
    `Points`, and has thumbnails if the first `Points` has them.
    """
    parts = [part for part in parts if part is not None]
    if not parts:
        return None
    vectors, columns, thumbnails = zip(*parts)
    merged = {k: sum((x[k] for x in columns), []) for k in columns[0]}
    pixels = None if thumbnails[0] is None else np.concatenate(thumbnails)
    return Points(np.concatenate(vectors), merged, pixels)


RECALL = "dev recall@1 in per cent"
PANELS = (
    ("loss", "train/", "_loss"),
    ("share of triplets with a loss", "train/", "_active"),
    (RECALL, "dev/", "/recall_at_1"),
    ("mean pairwise cosine", "health/", "/mean_cosine"),
)


def draw_history(history, path, before=None, best_epoch=None):
    """Plots the scalars of a run over its epochs in a PNG file.

    Args:
        history: non-empty list with a dict of scalars for each epoch. A curve
            skips epochs that lack its scalar.
        path: the PNG file.
        before: dict of the scalars of epoch 0, before training, or None.
        best_epoch: number of the epoch to mark, or None.
    """
    history = [before or {}, *history]
    keys = sorted({key for row in history for key in row})
    panels = {panel: _of_panel(keys, *panel[1:]) for panel in PANELS}
    panels = {panel: names for panel, names in panels.items() if names}
    figure = Figure(figsize=(4 * len(panels), 3.6))
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    for axis, ((title, prefix, suffix), names) in zip(axes, panels.items()):
        for key in names:
            name = key[len(prefix) : -len(suffix)].replace("_", " ")
            epochs = [n for n, row in enumerate(history) if key in row]
            scale = 100 if title == RECALL else 1
            values = [scale * history[epoch][key] for epoch in epochs]
            axis.plot(epochs, values, label=name, marker=".")
        if best_epoch is not None:
            label = f"chosen epoch, {best_epoch}"
            axis.axvline(best_epoch, color="#888888", ls="--", label=label)
        axis.set_title(title)
        axis.set_xlabel("epoch")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.grid(alpha=0.3)
        low, high = axis.get_ylim()
        low = min(0, low)
        axis.set_ylim(low, high + 0.05 * (high - low))
        axis.legend(fontsize=8, framealpha=0.5)
    figure.tight_layout()
    write_atomically(
        path, lambda file: figure.savefig(file, format="png", dpi=110)
    )


def _of_panel(keys, prefix, suffix):
    ends = [k for k in keys if k.startswith(prefix) and k.endswith(suffix)]
    return [k for k in ends if "/" not in k[len(prefix) : -len(suffix)]]


PERPLEXITY = 30
"""Approximate number of neighbours of a point; scikit-learn's default."""
WIDTH, HEIGHT, MARGIN, LEGEND_HEIGHT = 1400, 1000, 60, 44
PHOTO, DOT, DIAMOND = 46, 4, 6
FONT_SIZE, LEGEND_SIZE, MOST_LETTERS = 13, 17, 30
INK = {CAPTION: "#0072b2", PHRASE: "#d55e00"}
"""Colours that people with any colour vision can distinguish (Okabe & Ito)."""
LINE, FRAME, NO_PHOTO = "#c4d4de", "#444444", "#dddddd"


def import_tsne():
    """Imports `TSNE`, or raises an error with installation instructions."""
    return import_extra("map", "sklearn.manifold").TSNE


def lay_out(vectors):
    """Maps unit vectors `[n, dim]` to float `[n, 2]` in [0, 1] with t-SNE.

    Source: van der Maaten & Hinton 2008, "Visualizing data using t-SNE".
    """
    make, count = import_tsne(), len(vectors)
    if count < 4:  # Too few points for t-SNE.
        return np.linspace([0.2, 0.5], [0.8, 0.5], count)
    # A collapsed space has no principal components.
    is_spread = min(np.shape(vectors)) > 1 and np.ptp(vectors, axis=0).any()
    places = make(
        perplexity=min(PERPLEXITY, (count - 1) / 3),
        init="pca" if is_spread else "random",
        learning_rate="auto",
        random_state=0,
    ).fit_transform(np.asarray(vectors, np.float32))
    low, high = places.min(axis=0), places.max(axis=0)
    return (places - low) / np.maximum(high - low, 1e-12)


def draw_map(points, title):
    """Draws points on a map so that similar points are close together.

    Photos are drawn as thumbnails, sentences as dots with lines to their
    photos, and noun phrases as diamonds.

    Source: Niu et al. 2017, Fig. 8. Departures: the map shows photos and texts
    instead of numbers, and also noun phrases.
    """
    sheet = Image.new("RGB", (WIDTH, HEIGHT + LEGEND_HEIGHT), "white")
    draw = ImageDraw.Draw(sheet)
    room = np.array([WIDTH, HEIGHT]) - 2 * MARGIN
    places = MARGIN + lay_out(points.vectors) * room
    places = places.round().astype(int)
    kinds = np.array(points.columns["kind"])
    images = np.flatnonzero(kinds == IMAGE)
    image_ids = points.columns["image"]
    photo_places = {image_ids[row]: tuple(places[row]) for row in images}
    for row in np.flatnonzero(kinds == CAPTION):
        photo_place = photo_places.get(image_ids[row])
        if photo_place:
            draw.line([photo_place, tuple(places[row])], LINE)
    for row in np.flatnonzero(kinds != IMAGE):
        _draw_mark(draw, places[row], kinds[row])
    for row in images:
        photo = None if points.thumbnails is None else points.thumbnails[row]
        _paste(sheet, photo, places[row])
    _write_words(draw, places, kinds, points.columns["text"])
    _write_legend(draw, title, kinds)
    return sheet


def _draw_mark(draw, place, kind):
    x, y = map(int, place)
    if kind == PHRASE:
        reach = DIAMOND
        corners = [(x - reach, y), (x, y - reach), (x + reach, y)]
        draw.polygon([*corners, (x, y + reach)], INK[kind], "white")
    else:
        draw.ellipse((x - DOT, y - DOT, x + DOT, y + DOT), INK[kind], "white")


def _paste(sheet, pixels, place):
    photo = Image.new("RGB", (PHOTO, PHOTO), NO_PHOTO)
    if pixels is not None:
        photo = Image.fromarray(pixels).resize((PHOTO, PHOTO))
    ImageDraw.Draw(photo).rectangle((0, 0, PHOTO - 1, PHOTO - 1), outline=FRAME)
    sheet.paste(photo, tuple(int(edge) - PHOTO // 2 for edge in place))


def _write_words(draw, places, kinds, texts):
    reach = np.where(kinds == IMAGE, PHOTO // 2, DOT)[:, None]
    occupied = [*np.concatenate([places - reach, places + reach], axis=1)]
    # Phrases are first, because they are short and more of them fit.
    order = np.argsort(kinds != PHRASE, kind="stable")
    for row in order[kinds[order] != IMAGE]:
        text = readable(texts[row])
        text = textwrap.shorten(text, MOST_LETTERS, placeholder=" ...")
        face = font(FONT_SIZE, text)
        box = _free_box(places[row], face.getlength(text), occupied)
        if text and box is not None:
            draw.text(box[:2], text, INK[kinds[row]], face)
            occupied.append(box)


def _free_box(place, width, occupied):
    x, y = place
    size = width, height = int(np.ceil(width)), FONT_SIZE + 3
    inside = [
        (left, top)
        for left, top in (
            (x + DIAMOND + 3, y - height // 2),
            (x - DIAMOND - 3 - width, y - height // 2),
            (x - width // 2, y - DIAMOND - 2 - height),
            (x - width // 2, y + DIAMOND + 1),
        )
        if 0 <= left <= WIDTH - width and 0 <= top <= HEIGHT - height
    ]
    if not inside:
        return None
    free, covered = freest(inside, size, occupied)
    return None if covered else [*free, *np.add(free, size)]


def _write_legend(draw, title, kinds):
    face = font(LEGEND_SIZE, title)
    top = HEIGHT + LEGEND_HEIGHT // 2
    left = MARGIN // 2
    for kind in (CAPTION, PHRASE):
        if count := np.count_nonzero(kinds == kind):
            _draw_mark(draw, (left, top), kind)
            label = f"{count} {kind}s"
            draw.text((left + 14, top), label, INK[kind], face, anchor="lm")
            left += 14 + round(face.getlength(label)) + 28
    label = f"{np.count_nonzero(kinds == IMAGE)} images    {readable(title)}"
    draw.text((left, top), label, "#333333", face, anchor="lm")
