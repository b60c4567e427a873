"""Readers of caption files: public formats -> one record for each image.

A reader takes (path, split, problems) and returns `ImageRecord`s in the order
of the file. Readers of one file return every split of it and leave the choice
to `captions.read_captions`; readers of folders read the files of `split`
alone. What a format looks like is shown in docs/data_formats.md.
"""

import collections
import glob
import os
import re
from typing import NamedTuple

from tbnets.checked_files import CheckedFile, require_file, shown
from tbnets.data import splits as split_names
from tbnets.errors import InputError, MissingFileError
from tbnets.store.arrays import first_equal_rows, open_array


class ImageRecord(NamedTuple):
    """An image and its captions, as a reader found them.

    `has_id` is False where the id is but the number of a row in its split.
    """

    image_id: str
    captions: list
    split: str
    file_name: str
    has_id: bool = True


def record_splits(records):
    """Returns the splits that records belong to, in the usual order."""
    return split_names.ordered_splits(record.split for record in records)


def _entries(file, parent, key, where=""):
    """Returns a list of dicts inside parsed JSON; [] after a problem."""
    if parent is None:
        return []
    value = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(value, list):
        keys = sorted(parent) if isinstance(parent, dict) else parent
        file.report(
            f"{where}expected an object with a list {key!r}; "
            f"found {shown(keys)}. Check that --captions_format fits the file."
        )
        return []
    good = []
    for index, entry in enumerate(value):
        if isinstance(entry, dict):
            good.append((f"{where}{key}[{index}]: ", entry))
        else:
            file.report(
                f"{where}{key}[{index}]: expected an object; "
                f"found {shown(entry)}."
            )
    return good


def read_karpathy(path, split, problems):
    """Reads Karpathy's `dataset_*.json`, all splits of it.

    The image id is `filename`; `filepath`, where there is one (MSCOCO), only
    goes before the file name.
    """
    del split  # One file holds them all.
    file, records = CheckedFile(path, problems), {}
    for where, image in _entries(file, file.json(), "images"):
        name = file.file_name(image.get("filename"), None, where)
        part = image.get("split")
        if not isinstance(part, str) or not part:
            file.report(
                f"{where}expected 'split' (train, restval, val or test); "
                f"found {shown(part)}."
            )
        elif name in records:
            file.report(
                f"{where}expected each 'filename' once; found {shown(name)} "
                "again. Give one of the two images another name."
            )
        elif name is not None:
            folder = image.get("filepath")
            file_name = f"{folder}/{name}" if folder else name
            if file.file_name(file_name, None, where):
                place = where.replace(": ", ".")
                captions = [
                    file.caption(sentence.get("raw"), None, where)
                    for where, sentence in _entries(
                        file, image, "sentences", place
                    )
                ]
                captions = [text for text in captions if text is not None]
                records[name] = ImageRecord(name, captions, part, file_name)
    return list(records.values())


def read_coco(path, split, problems):
    """Reads an MSCOCO `captions_*.json`, which is one split as a whole."""
    del split
    file, records = CheckedFile(path, problems), {}
    content = file.json()
    for where, image in _entries(file, content, "images"):
        key = _coco_id(file, image.get("id"), where + "'id': ")
        name = file.file_name(image.get("file_name"), None, where)
        if key in records:
            file.report(
                f"{where}expected each image 'id' once; found {key} again."
            )
        elif key is not None and name is not None:
            records[key] = ImageRecord(key, [], split_names.WHOLE_FILE, name)
    for where, annotation in _entries(file, content, "annotations"):
        key = _coco_id(file, annotation.get("image_id"), where + "'image_id': ")
        caption = file.caption(annotation.get("caption"), None, where)
        if key is not None and key not in records:
            file.report(
                f"{where}expected the 'id' of one of the {len(records)} good "
                f"entries of 'images'; found 'image_id' {key}."
            )
        elif key is not None and caption is not None:
            records[key].captions.append(caption)
    return list(records.values())


def _coco_id(file, value, where):
    if isinstance(value, bool) or not isinstance(value, int | str):
        file.report(f"{where}expected a whole number; found {shown(value)}.")
        return None
    return str(value)


def read_flickr30k_json(path, split, problems):
    """Reads `{name: [caption, ..., image path]}`, one split as a whole."""
    del split
    file = CheckedFile(path, problems)
    content = file.json()
    if content is None:
        return []
    if not isinstance(content, dict):
        file.report(f"expected an object of images; found {shown(content)}.")
        return []
    records = []
    for name, entries in content.items():
        where = f"[{shown(name)}]: "
        if not isinstance(entries, list) or not (
            entries and str(entries[-1]).endswith(name)
        ):
            file.report(
                f"{where}expected a list of captions that ends with the "
                f"path of the image; found {shown(entries)}."
            )
        elif file.file_name(name, None, where):
            texts = [file.caption(text, None, where) for text in entries]
            captions = [text for text in texts[:-1] if text is not None]
            records.append(
                ImageRecord(name, captions, split_names.WHOLE_FILE, name)
            )
    return records


def flickr_splits(path):
    """Returns the splits of the lists that lie beside a token file."""
    require_file(path)
    found = split_names.ordered_splits(_split_lists(path))
    return found or (split_names.WHOLE_FILE,)


def read_flickr(path, split, problems):
    """Reads `<image>#<number><TAB><caption>` lines and one split list.

    The lists are `*.<split>Images.txt` or `<split>.txt` beside the token
    file; their ids may lack the extension. Without any list, the file is the
    split "all".
    """
    captions = _token_captions(CheckedFile(path, problems))
    lists = _split_lists(path)
    if not lists:
        part = split_names.WHOLE_FILE
        return [
            ImageRecord(name, list(texts.values()), part, name)
            for name, texts in captions.items()
        ]
    known = split_names.ordered_splits(lists)
    name = split_names.choose_split(split, known, path)
    listed = CheckedFile(lists[name], problems)
    return _listed_records(listed, captions, name, path)


def _token_captions(file):
    """Returns {image: {caption number: caption}} of a token file."""
    rows, ends_well = file.lines()
    captions = {}
    for line, row in enumerate(rows, 1):
        cut = line == len(rows) and not ends_well
        match = re.fullmatch(r"([^\t]+)#(\d+)[ ]*\t(.*)", row, re.DOTALL)
        if not match or cut:
            if row.strip():
                file.report(_bad_token_row(row, cut), line)
            continue
        name = file.file_name(match[1], line)
        text = file.caption(match[3], line)
        if name is None or text is None:
            continue
        texts = captions.setdefault(name, {})
        if match[2] in texts:
            file.report(
                f"expected each caption number of an image once; found "
                f"{match[1]}#{match[2]} again. Number the captions 0, 1, ...",
                line,
            )
            continue
        texts[match[2]] = text
    if not captions:
        file.report("expected captions; found none.")
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
    pattern = os.path.join(glob.escape(folder), "*.txt")
    for candidate in sorted(glob.glob(pattern)):
        name = os.path.basename(candidate)
        match = re.fullmatch(r"(?:.*[._])?([A-Za-z]+)Images\.txt", name)
        split = match[1].lower() if match else name.removesuffix(".txt")
        if not match and split not in split_names.SPLIT_ORDER:
            continue
        if split in lists:
            raise InputError(
                f"`path` must have one list for each split beside it. "
                f"Received: path={path}, with {lists[split]} and {candidate} "
                f"for {split!r}. Move one of them away."
            )
        lists[split] = candidate
    return lists


def _listed_records(file, captions, split, token_path):
    """Returns the records of the images that a split list names."""
    by_stem = {}
    for name in captions:
        by_stem.setdefault(os.path.splitext(name)[0], []).append(name)
    records = {}
    for line, row in enumerate(file.lines()[0], 1):
        listed = row.strip()
        if not listed:
            continue
        names = [listed] if listed in captions else by_stem.get(listed, [])
        if len(names) != 1:
            file.report(
                f"expected an image of {token_path}; found {shown(listed)}, "
                f"which has {len(names) or 'no'} images there. Correct the "
                "list, or the token file is incomplete.",
                line,
            )
        elif names[0] in records:
            file.report(
                f"expected each image once; found {listed} again.", line
            )
        else:
            texts = list(captions[names[0]].values())
            records[names[0]] = ImageRecord(names[0], texts, split, names[0])
    if not records:
        file.report("expected one image a line; found none.")
    return list(records.values())


def precomputed_splits(path):
    """Returns the splits that have a `<split>_caps.txt` in a folder."""
    names = split_names.splits_in_path(os.path.join(path, "{split}_caps.txt"))
    if not names:
        raise MissingFileError(
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
    name = split_names.choose_split(split, precomputed_splits(path), path)
    base = os.path.join(path, name)
    file = CheckedFile(f"{base}_caps.txt", problems)
    rows, ends_well = file.lines()
    try:
        features = open_array(f"{base}_ims.npy")
    except ValueError as error:
        file.report(f"its features cannot be read: {error}")
        return []
    images = len(features)
    if not rows or len(rows) % images:
        cut = "" if ends_well else " The last line looks cut off: copy again."
        file.report(
            f"expected as many captions for each of the {images} rows of "
            f"{features.path}; found {len(rows)} captions, no whole multiple "
            f"of {images}.{cut}",
            len(rows),
        )
        return []
    captions = [file.caption(row, line) for line, row in enumerate(rows, 1)]
    if len(rows) == images:
        return _grouped_records(features, captions, name)
    each = len(rows) // images
    if len(set(features.ids)) < images:
        [(twice, _)] = collections.Counter(features.ids).most_common(1)
        CheckedFile(f"{base}_ids.txt", problems).report(
            f"expected each id once, as rows have {each} captions; found "
            f"{twice!r} twice. Put the captions of an image together."
        )
        return []
    blocks = [
        captions[start : start + each] for start in range(0, len(rows), each)
    ]
    return [
        ImageRecord(key, block, name, key, features.has_ids)
        for key, block in zip(features.ids, blocks)
    ]


def _grouped_records(features, captions, split):
    """Returns one record for each run of equal rows, or each id."""
    keys = features.ids
    if not features.has_ids:
        keys = first_equal_rows(features)
    records = {}
    for key, caption in zip(map(str, keys), captions):
        record = ImageRecord(key, [], split, key, features.has_ids)
        records.setdefault(key, record).captions.append(caption)
    return list(records.values())
