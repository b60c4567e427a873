"""The texts of a run, of which features and trees are made."""

from tbnets.data.captions import list_splits
from tbnets.data.splits import DRAWN, WHOLE_FILE


def _split_names(data):
    """Returns the splits that the captions tell; of lists, those of the run."""
    sources = data.sources
    if sources.split_lists:
        given = data.given
        names = given.train_split, given.dev_split, given.test_split
        return [name for name in names if data.has(name)]
    return list_splits(sources.captions_format, sources.file("captions"))


def texts_by_split(data, names=()):
    """Returns the texts of splits: name -> strings.

    The training split comes first, of which features are fitted. Where the
    captions tell no splits, they are drawn as for a training.

    Args:
        data: a `data.open.Data`.
        names: of the splits; none for all.
    """
    names, first = tuple(names or _split_names(data)), data.given.train_split
    if names == (WHOLE_FILE,) and first != WHOLE_FILE:
        names = DRAWN
    names = dict.fromkeys([first, *names])
    return {name: _said(data, name).captions for name in names}


def texts_by_id(data, names=()):
    """Returns (id, text) of the texts of splits; ids are IMAGE#NUMBER.

    Args:
        data: a `data.open.Data`.
        names: of the splits; none for all.
    """
    return [
        (f"{image_id}#{number}", said.captions[row])
        for said in (_said(data, name) for name in names or _split_names(data))
        for image_id, rows in zip(said.image_ids, said.caption_rows())
        for number, row in enumerate(rows)
    ]


def _said(data, name):
    """Returns the `CaptionedImages` whose captions are the texts of a split."""
    split = data.split(name)
    return split.marked.as_captions() if data.of_phrases else split.records
