"""What people see of a matching run beside its numbers."""

import numpy as np

from tbnets.serving import search
from tbnets.tasks.scores import spread
from tbnets.visualization import montage
from tbnets.visualization.points import CAPTION, IMAGE, Points, joined

NUM_CAPTIONS = 5
NUM_ANSWERS = 5
NUM_QUERIES = 2
WHAT_IS_A_HIT = (
    "a caption of the image has the words of the sentence, in this order"
)
WHAT_IS_SHOWN = (
    "A sentence and the images ranked first for it. Green: "
    "the image it was written about; red: another one."
)
THUMBNAIL = 64


def first_captions(records):
    """Returns the first caption of each image, "" of one without."""
    groups = records.caption_rows()
    return [records.captions[own[0]] if len(own) else "" for own in groups]


def example_captions(records):
    """Returns a caption of some images, as queries: `NUM_QUERIES` or fewer."""
    told = list(dict.fromkeys(filter(None, first_captions(records))))
    return [told[row] for row in spread(len(told), NUM_QUERIES)]


def draw_answered_captions(scores):
    """Draws a few captions with the images ranked first for each.

    Args:
        scores: `RetrievalScores` of a split whose photos are at hand; the
            same captions each time.

    Returns:
        dict, number of the picture -> uint8 `[height, width, 3]`. The
        caption's own image has a green frame, others a red one; where it is
        not among the first it stands apart, with its rank.
    """
    records, pictures = scores.records, {}
    rows = spread(records.num_captions, NUM_CAPTIONS)
    for number, row in enumerate(rows, start=1):
        own = records.caption_to_image[row]
        similarities = scores.of_caption(row)
        order = np.argsort(-similarities, kind="stable")
        tiles = [
            montage.Tile(records.file_name(image), f"{place}", image == own)
            for place, image in enumerate(order[:NUM_ANSWERS], start=1)
        ]
        rank = 1 + int(np.flatnonzero(order == own)[0])
        if rank > NUM_ANSWERS:
            label, name = f"{rank} of {len(order)}", records.file_name(own)
            tiles.append(montage.Tile(name, label, True, apart=True))
        card = montage.draw_card(records.captions[row], tiles, scores.photos)
        pictures[str(number)] = np.asarray(card)
    return pictures


def shown_captions(records, most):
    """Returns which images and captions are points: two arrays of rows.

    Args:
        records: `CaptionedImages` of the split.
        most: (images, captions of each) at most.

    Returns:
        int64 rows of images, evenly spread, and int64 rows of their captions,
        image by image.
    """
    images = spread(records.num_images, most[0])
    groups = records.caption_rows()
    captions = [row for i in images for row in groups[i][: most[1]]]
    return images, np.array(captions, np.int64)


def image_and_caption_points(scores, most):
    """Returns images and captions as points of one space.

    Args:
        scores: `RetrievalScores` of a split.
        most: (images, captions of each), as of `shown_captions`.

    Returns:
        `Points`. A caption's thumbnail shows its words, an image's text is
        its first caption.
    """
    records, folder = scores.records, scores.photos
    images, captions = shown_captions(records, most)
    firsts, said = first_captions(records), records.captions
    photos, sentences = scores.image_embeddings, scores.text_embeddings
    owners = records.caption_to_image[captions]
    sides = (
        (IMAGE, photos[images], [firsts[row] for row in images], images),
        (CAPTION, sentences[captions], [said[row] for row in captions], owners),
    )
    return joined([points_of(*side, records, folder) for side in sides])


def points_of(kind, vectors, texts, images, records, folder):
    """Returns `Points` of one kind; None of none.

    Args:
        kind: see `Points`.
        vectors: float32 `[n, dim]`.
        texts: list of n strings.
        images: int `[n]`, row of the image that each belongs to.
        records: `CaptionedImages` with these images.
        folder: folder of their photos, which are thumbnails of images; words
            are those of others. None for no thumbnails.
    """
    names, thumbnails = [records.file_name(image) for image in images], None
    if not names:
        return None
    if folder is not None:
        drawn = [
            montage.draw_photo(folder, name, THUMBNAIL)
            if kind == IMAGE
            else montage.draw_words(text, THUMBNAIL)
            for name, text in zip(names, texts)
        ]
        thumbnails = np.stack([np.asarray(one) for one in drawn])
    columns = {"text": texts, "kind": [kind] * len(names), "image": names}
    return Points(vectors, columns, thumbnails)


def show_answers(model, queries, records, embeddings, photos, path):
    """Ranks images for sentences, and draws them where there are photos.

    Args:
        model: a `serving.served.Served` that takes captions.
        queries: list of sentences.
        records: `CaptionedImages` of the images.
        embeddings: float32 `[num_images, embedding_dim]`.
        photos: folder of the photos; None without.
        path: PNG to write.

    Returns:
        str, the answers as tables.
    """
    hits = search.find_hits(queries, records.captions, records.caption_to_image)
    names = records.names
    told = [f"{a}  {b}" for a, b in zip(names, first_captions(records))]
    right = [
        found and {i: f"{names[i]}  {said}" for i, said in found.items()}
        for found in hits
    ]
    ranked = search.rank(model, queries, (), embeddings, NUM_ANSWERS)
    titles = search.titles_of(queries, search.notes_on(model, queries))
    text = search.format_tables(titles, told, *ranked, right)
    if any(one is not None for one in hits):
        text += f"\n\nhit: {WHAT_IS_A_HIT}."
    if photos is not None:
        legend = f"Green: {WHAT_IS_A_HIT}. Red: none has."
        drawn = queries, names, *ranked, photos, hits, legend
        montage.draw_montage(*drawn).save(path)
        text += f"\n\nanswers drawn    {path}"
    return text
