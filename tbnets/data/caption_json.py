"""Reads captions from JSON and JSON Lines files.

A record is a JSON object with an image and its captions. Records are listed as
(place, split, record), in which `place` is for error messages.
"""

import contextlib
from typing import NamedTuple

from tbnets.data import splits as split_names
from tbnets.data.caption_columns import (
    IDENTITIES,
    SAMPLE_ROWS,
    ImageRecord,
    OtherFormat,
    Row,
    choose_columns,
    images_of,
    is_id,
    is_image,
    is_sentence,
)
from tbnets.data.layouts import COLUMN_NAMES, bare
from tbnets.data.phrase_tables import (
    entries_of,
    key_of,
    published_reader,
    rows_of,
)
from tbnets.data.splits import WHOLE_FILE
from tbnets.files import parse_json, shown

_ANSWERS = ("gpt", "assistant", "model", "bot")


def _record_lists(content, place="", split=None):
    """Yields each possible list of (place, split, record) in the content."""
    if isinstance(content, list):
        yield [
            (f"{place}[{i}]", split, entry) for i, entry in enumerate(content)
        ]
    if not isinstance(content, dict) or not content:
        return
    if split is None and all(map(split_names.is_usual, content)):
        parts = [next(_record_lists(content[k], k, k), []) for k in content]
        yield [entry for part in parts for entry in part]
        return
    for key, value in content.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield from _record_lists(value, key, split)
    values = list(content.values())
    if all(isinstance(value, list) for value in values):
        if len({len(value) for value in values}) == 1:
            rows = [dict(zip(content, row)) for row in zip(*values)]
            yield from _record_lists(rows, place, split)
    if all(isinstance(value, dict) for value in values):
        if all(value.keys() == values[0].keys() for value in values):
            keys = values[0]  # As pandas writes columns.
            rows = [{k: v[key] for k, v in content.items()} for key in keys]
            yield from _record_lists(rows, place, split)
        yield [
            (f"[{shown(key)}]", split, {"image": key, **value})
            for key, value in content.items()
        ]


def _mapping_records(content, split=None):
    if not isinstance(content, dict) or not content:
        raise OtherFormat("it is not an object of images")
    if split is None and all(map(split_names.is_usual, content)):
        return [x for k in content for x in _mapping_records(content[k], k)]
    first, texts = next(iter(content.items()))
    has_paths = isinstance(texts, list) and _ends_with(texts, first)
    sample = list(content.items())[:SAMPLE_ROWS]
    if not has_paths and not all(is_image(k) or is_id(k) for k, _ in sample):
        raise OtherFormat("its keys do not look like names of images")
    if not has_paths and not any(is_sentence(value) for _, value in sample):
        raise OtherFormat("its values do not look like captions")
    rows = []
    for name, texts in content.items():
        record = {"image": name, "captions": texts}
        if has_paths:
            ends_well = isinstance(texts, list) and _ends_with(texts, name)
            record["captions"] = texts[:-1] if ends_well else None
        rows.append((f"[{shown(name)}]", split, record))
    return rows


def _ends_with(texts, name):
    return bool(texts) and str(texts[-1]).endswith(name)


class _Keys(NamedTuple):
    """The keys to read from records; `split` is None if none has splits."""

    image: str
    captions: list[str]
    split: str | None = None


def _find_keys(file, records):
    """Returns the `_Keys` of records. Raises `OtherFormat` if it finds none."""
    sample = [row for *_, row in records[:SAMPLE_ROWS] if isinstance(row, dict)]
    names = list(dict.fromkeys(name for row in sample for name in row))
    if not names:
        raise OtherFormat("it has no list of objects")
    values = [[row[name] for row in sample if name in row] for name in names]
    try:
        chosen = choose_columns(names, values, file.columns)
    except OtherFormat as error:
        raise OtherFormat(str(error).replace("column", "key")) from error
    file.used = f"keys {chosen.listed(names)}"
    captions = [names[i] for i in chosen.captions]
    split = None if chosen.split is None else names[chosen.split]
    return _Keys(names[chosen.image], captions, split)


def is_lines(file):
    """Returns whether a `CaptionFile` is in the JSON Lines format."""
    if not file.start.startswith("{"):
        return False
    lines = [line.strip() for line in file.first_lines if line.strip()]
    return file.path.lower().endswith((".jsonl", ".ndjson")) or (
        len(lines) > 1 and all(line[0] + line[-1] == "{}" for line in lines[:2])
    )


def _content(file):
    if is_lines(file) or file.content is None:
        raise OtherFormat("it is not JSON")
    return file.content


def read_karpathy(file):
    """Reads the list `images` of a JSON object, such as Karpathy's files."""
    content = _content(file)
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not images:
        raise OtherFormat("it is not an object with a list 'images'")
    records = [(f"images[{i}]", None, image) for i, image in enumerate(images)]
    return images_of(file, _rows(file, records, _find_keys(file, records)))


def read_mapping(file):
    """Reads a JSON object that maps images to captions."""
    records = _mapping_records(_content(file))
    return images_of(file, _rows(file, records, _Keys("image", ["captions"])))


def read_records(file):
    """Reads a list of records anywhere in a JSON file, or JSON Lines."""
    if is_lines(file):
        sample = []
        for line in file.first_lines[:SAMPLE_ROWS]:
            with contextlib.suppress(ValueError):  # Reported later.
                sample.append((0, None, parse_json(line)))
        keys = _find_keys(file, sample)
        records = ((line, None, row) for line, row in file.json_rows(()))
        return images_of(file, _rows(file, records, keys))
    reason = "it has no list of objects"
    for records in _record_lists(_content(file)):
        try:
            keys = _find_keys(file, records)
        except OtherFormat as error:
            reason = str(error)
        else:
            return images_of(file, _rows(file, records, keys))
    raise OtherFormat(reason)


def _rows(file, records, keys):
    is_talk = bare(keys.captions[0]) in ("conversation", "message")
    without_image = []
    for place, split, record in records:
        if not isinstance(record, dict):
            file.refuse("an object", record, place)
            continue
        image = record.get(keys.image)
        if isinstance(image, list) and len(image) == 1:
            image = image[0]
        if is_talk and not image:
            without_image.append(place)
            continue
        there = [key for key in keys.captions if record.get(key) is not None]
        if not there:
            expected = f"the key {' or '.join(map(repr, keys.captions))}"
            file.refuse(expected, record, place)
            continue
        texts = [text for key in there for text in _texts(record, key, place)]
        split = (record.get(keys.split) or "") if keys.split else split
        folder = record.get("filepath") if keys.image == "filename" else None
        has_list = any(isinstance(record[key], list) for key in there)
        identity = _identity(record) if has_list else None
        yield Row(place, image, texts, split, folder, identity)
    if without_image:
        file.suspect(
            f"expected an image in each conversation; left out "
            f"{len(without_image)} without one.",
            None,
        )


def _identity(record):
    # The id of the person or object, which several images may share.
    found = [record[name] for name in IDENTITIES if name in record]
    return found[0] if found and type(found[0]) in (int, str) else None


def _texts(record, key, place):
    value = record[key]
    texts = []
    for i, item in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(item, dict):
            texts.append((place, item))
            continue
        where = f"{place}.{key}[{i}]" if isinstance(place, str) else place
        speaker = item.get("from", item.get("role"))
        if speaker is None:
            names = [name for name in COLUMN_NAMES["caption"] if name in item]
            texts.append((where, item[names[0]] if names else item))
        elif speaker in _ANSWERS:
            text = item.get("value", item.get("content"))
            if isinstance(text, str):
                text = text.replace("<image>", " ").strip()
            texts.append((where, text))
    return texts


def read_phrases(file):
    """Reads a file of phrases, and returns them as captions of their images."""
    if not published_reader(_content(file)):
        raise OtherFormat("it has no 'regions' or 'ann_id' in a list")
    return images_of(
        file,
        (
            Row(place, row["image"], [(place, row["phrase"])], row.get("split"))
            for place, row in rows_of(file)
        ),
    )


def _two_lists(content):
    lists = {}
    if isinstance(content, dict):
        lists = {k: v for k, v in content.items() if isinstance(v, list)}
    names = [name for name in COLUMN_NAMES["image"] if name != "image_id"]
    images = _list_with(lists, ["id"], names)
    captions = _list_with(lists, ["image_id"], COLUMN_NAMES["caption"])
    if images is None:
        raise OtherFormat("it has no list of images with 'id' and 'file_name'")
    if captions in (None, images):
        raise OtherFormat("it has no list of 'image_id' and 'caption'")
    return images, captions


def _list_with(lists, *kinds):
    # Returns the key of the first list with an object that has one of the names
    # in each of `kinds`.
    for key, rows in lists.items():
        for row in rows[:SAMPLE_ROWS]:
            if isinstance(row, dict) and all(
                any(name in row for name in names) for names in kinds
            ):
                return key
    return None


def read_coco(file):
    """Reads a list of images and a list of captions, joined by image ids.

    This is the format of `captions_*.json` of MSCOCO. All images are in the
    split "all".
    """
    content, records = _content(file), {}
    images, annotations = _two_lists(content)
    for place, image in entries_of(file, content[images], images):
        key = key_of(file, image, "id", place)
        name = next(
            (image[n] for n in COLUMN_NAMES["image"] if n in image), None
        )
        name = file.file_name(name, place)
        if key in records:
            file.refuse("a unique 'id'", key, place)
        elif None not in (key, name):
            records[key] = ImageRecord(key, [], WHOLE_FILE, name)
    for place, row in entries_of(file, content[annotations], annotations):
        key = key_of(file, row, "image_id", place)
        text = next((row[n] for n in COLUMN_NAMES["caption"] if n in row), None)
        caption = file.caption(text, place)
        if key is not None and key not in records:
            expected = f"an 'id' among the {len(records)} valid 'images'"
            file.refuse(expected, key, place)
        elif None not in (key, caption):
            records[key].captions.append(caption)
    return list(records.values())
