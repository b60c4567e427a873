"""Readers of caption files: public formats -> one record for each image.

A reader takes (path, split, problems) and returns `ImageRecord`s in the order
of the file. Readers of one file return every split of it and leave the choice
to `captions.read_captions`; readers of folders read the files of `split`
alone. What a format looks like is shown in docs/data_formats.md.
"""

import glob
import os
import re
from typing import NamedTuple

from tbnets.data import feature_arrays
from tbnets.data import sources
from tbnets.data.sources import Source
from tbnets.data.sources import shown


class ImageRecord(NamedTuple):
    """An image and its captions, as a reader found them."""

    image_id: str
    captions: list
    split: str
    file_name: str


def record_splits(records):
    """Returns the splits that records belong to, in the usual order."""
    return sources.ordered_splits(record.split for record in records)


def _entries(source, parent, key, where=""):
    """Returns a list of dicts inside parsed JSON; [] after a problem."""
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, list):
        keys = sorted(parent) if isinstance(parent, dict) else parent
        source.report(
            None,
            f"{where}expected an object with a list {key!r}; "
            f"found {shown(keys)}. Check that the format fits the file.",
        )
        return []
    good = []
    for index, entry in enumerate(value):
        if isinstance(entry, dict):
            good.append((f"{where}{key}[{index}]: ", entry))
        else:
            source.report(
                None,
                f"{where}{key}[{index}]: expected an object; "
                f"found {shown(entry)}.",
            )
    return good


def read_karpathy(path, split, problems):
    """Reads Karpathy's `dataset_*.json`, all splits of it.

    The image id is `filename`; `filepath`, where there is one (MSCOCO), only
    goes before the file name.
    """
    del split  # One file holds them all.
    source = Source(path, problems)
    content = source.json()
    if content is None:
        return []
    records = {}
    for where, image in _entries(source, content, "images"):
        name = source.file_name(image.get("filename"), None, where)
        part = image.get("split")
        if not isinstance(part, str) or not part:
            source.report(
                None,
                f"{where}expected 'split' (train, restval, val or test); "
                f"found {shown(part)}.",
            )
        elif name in records:
            source.report(
                None,
                f"{where}expected each 'filename' once; found {shown(name)} "
                "again. Give one of the two images another name.",
            )
        elif name is not None:
            file_name = (
                f"{image['filepath']}/{name}" if image.get("filepath") else name
            )
            if source.file_name(file_name, None, where):
                captions = _karpathy_captions(source, image, where)
                records[name] = ImageRecord(name, captions, part, file_name)
    return list(records.values())


def _karpathy_captions(source, image, where):
    captions = [
        source.caption(sentence.get("raw"), None, place)
        for place, sentence in _entries(
            source, image, "sentences", where.replace(": ", ".")
        )
    ]
    return [caption for caption in captions if caption is not None]


def read_coco(path, split, problems):
    """Reads an MSCOCO `captions_*.json`, which is one split as a whole."""
    del split
    source = Source(path, problems)
    content = source.json()
    if content is None:
        return []
    records = {}
    for where, image in _entries(source, content, "images"):
        key = _coco_id(source, image.get("id"), where + "'id': ")
        name = source.file_name(image.get("file_name"), None, where)
        if key in records:
            source.report(
                None,
                f"{where}expected each image 'id' once; found {key} again.",
            )
        elif key is not None and name is not None:
            records[key] = ImageRecord(key, [], sources.WHOLE_FILE, name)
    for where, annotation in _entries(source, content, "annotations"):
        key = _coco_id(
            source, annotation.get("image_id"), where + "'image_id': "
        )
        caption = source.caption(annotation.get("caption"), None, where)
        if key is not None and key not in records:
            source.report(
                None,
                f"{where}expected the 'id' of one of the {len(records)} good "
                f"entries of 'images'; found 'image_id' {key}.",
            )
        elif key is not None and caption is not None:
            records[key].captions.append(caption)
    return list(records.values())


def _coco_id(source, value, where):
    if isinstance(value, bool) or not isinstance(value, int | str):
        source.report(
            None, f"{where}expected a whole number; found {shown(value)}."
        )
        return None
    return str(value)


def read_flickr30k_json(path, split, problems):
    """Reads `{name: [caption, ..., image path]}`, one split as a whole."""
    del split
    source = Source(path, problems)
    content = source.json()
    if content is None:
        return []
    if not isinstance(content, dict):
        source.report(
            None, f"expected an object of images; found {shown(content)}."
        )
        return []
    records = []
    for name, entries in content.items():
        where = f"[{shown(name)}]: "
        if not isinstance(entries, list) or not (
            entries and str(entries[-1]).endswith(name)
        ):
            source.report(
                None,
                f"{where}expected a list of captions that ends with the "
                f"path of the image; found {shown(entries)}.",
            )
        elif source.file_name(name, None, where):
            texts = [source.caption(text, None, where) for text in entries]
            captions = [text for text in texts[:-1] if text is not None]
            records.append(
                ImageRecord(name, captions, sources.WHOLE_FILE, name)
            )
    return records


def flickr_splits(path):
    """Returns the splits of the lists that lie beside a token file."""
    sources.require_file(path)
    return sources.ordered_splits(_split_lists(path)) or (sources.WHOLE_FILE,)


def read_flickr(path, split, problems):
    """Reads `<image>#<number><TAB><caption>` lines and one split list.

    The lists are `*.<split>Images.txt` or `<split>.txt` beside the token
    file; their ids may lack the extension. Without any list, the file is the
    split "all".
    """
    captions = _token_captions(Source(path, problems))
    lists = _split_lists(path)
    if not lists:
        part = sources.WHOLE_FILE
        return [
            ImageRecord(name, list(texts.values()), part, name)
            for name, texts in captions.items()
        ]
    name = sources.choose_split(split, sources.ordered_splits(lists), path)
    return _listed_records(Source(lists[name], problems), captions, name, path)


def _token_captions(source):
    """Returns {image: {caption number: caption}} of a token file."""
    rows, ends_well = source.lines()
    captions = {}
    for line, row in enumerate(rows, 1):
        cut = line == len(rows) and not ends_well
        match = re.fullmatch(r"([^\t]+)#(\d+)[ ]*\t(.*)", row, re.DOTALL)
        if not match or cut:
            if row.strip():
                source.report(line, _bad_token_row(row, cut))
            continue
        name = source.file_name(match[1], line)
        text = source.caption(match[3], line)
        if name is None or text is None:
            continue
        texts = captions.setdefault(name, {})
        if match[2] in texts:
            source.report(
                line,
                f"expected each caption number of an image once; found "
                f"{match[1]}#{match[2]} again. Number the captions 0, 1, ...",
            )
            continue
        texts[match[2]] = text
    if not captions:
        source.report(None, "expected captions; found none.")
    return captions


def _bad_token_row(row, cut):
    expected = "expected '<image>#<number><TAB><caption>'"
    if cut:
        return (
            f"{expected} and a newline; found {shown(row)} at the end of the "
            "file, which looks truncated. Copy it again, or end the line."
        )
    return f"{expected}; found {shown(row)}."


def _split_lists(path):
    """Returns {split: list file} for the lists beside a token file."""
    folder = os.path.dirname(os.fspath(path))
    lists = {}
    for candidate in sorted(
        glob.glob(os.path.join(glob.escape(folder), "*.txt"))
    ):
        name = os.path.basename(candidate)
        match = re.fullmatch(r"(?:.*[._])?([A-Za-z]+)Images\.txt", name)
        split = match[1].lower() if match else name.removesuffix(".txt")
        if not match and split not in sources.SPLIT_ORDER:
            continue
        if split in lists:
            raise ValueError(
                f"`path` must have one list for each split beside it. "
                f"Received: path={path}, with {lists[split]} and {candidate} "
                f"for {split!r}. Move one of them away."
            )
        lists[split] = candidate
    return lists


def _listed_records(source, captions, split, token_path):
    """Returns the records of the images that a split list names."""
    by_stem = {}
    for name in captions:
        by_stem.setdefault(os.path.splitext(name)[0], []).append(name)
    records = {}
    for line, row in enumerate(source.lines()[0], 1):
        listed = row.strip()
        if not listed:
            continue
        names = [listed] if listed in captions else by_stem.get(listed, [])
        if len(names) != 1:
            source.report(
                line,
                f"expected an image of {token_path}; found {shown(listed)}, "
                f"which has {len(names) or 'no'} images there. Correct the "
                "list, or the token file is incomplete.",
            )
        elif names[0] in records:
            source.report(
                line, f"expected each image once; found {listed} again."
            )
        else:
            texts = list(captions[names[0]].values())
            records[names[0]] = ImageRecord(names[0], texts, split, names[0])
    if not records:
        source.report(None, "expected one image a line; found none.")
    return list(records.values())


def precomputed_splits(path):
    """Returns the splits that have a `<split>_caps.txt` in a folder."""
    names = sources.splits_in_path(os.path.join(path, "{split}_caps.txt"))
    if not names:
        raise FileNotFoundError(
            "`path` must be a folder with <split>_ims.npy and "
            f"<split>_caps.txt. Received: path={path}."
        )
    return names


def read_precomputed(path, split, problems):
    """Reads one split of a folder of features with captions (VSE++).

    `<split>_ims.npy` has one row for each image, and the captions of image i
    are block i of `<split>_caps.txt`; or it has one row for each caption, and
    then rows with the same id are one image, or without `<split>_ids.txt`
    rows that follow each other and are equal in every bit. The image id is
    the id, or else the number of its (first) row.
    """
    name = sources.choose_split(split, precomputed_splits(path), path)
    base = os.path.join(path, name)
    source = Source(f"{base}_caps.txt", problems)
    rows, ends_well = source.lines()
    try:
        features = feature_arrays.open_array(f"{base}_ims.npy")
    except ValueError as error:
        source.report(None, f"its features cannot be read: {error}")
        return []
    images = len(features)
    if not rows or len(rows) % images:
        cut = "" if ends_well else " The last line looks cut off: copy again."
        source.report(
            len(rows),
            f"expected as many captions for each of the {images} rows of "
            f"{features.path}; found {len(rows)} captions, no whole multiple "
            f"of {images}.{cut}",
        )
        return []
    captions = [source.caption(row, line) for line, row in enumerate(rows, 1)]
    if len(rows) == images:
        return _grouped_records(features, captions, name)
    each = len(rows) // images
    return [
        ImageRecord(key, captions[row * each : (row + 1) * each], name, key)
        for row, key in enumerate(features.ids)
    ]


def _grouped_records(features, captions, split):
    """Returns one record for each run of equal rows, or each id."""
    keys = features.ids
    if not features.has_ids:
        keys = feature_arrays.first_equal_rows(features)
    records = {}
    for key, caption in zip(map(str, keys), captions):
        record = ImageRecord(key, [], split, key)
        records.setdefault(key, record).captions.append(caption)
    return list(records.values())
