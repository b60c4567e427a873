"""Tests of files of captions as people have them, read without a flag.

The contents follow public descriptions of the data sets that they are named
after; the readers go by structure, so that the names are only examples.
"""

import csv
import json
import pathlib

import numpy as np
import pytest

from tbnets.data.caption_columns import Columns
from tbnets.data.caption_formats import READERS
from tbnets.data.captions import CaptionSource, read_captions, summary
from tbnets.data.splits import NoSuchSplit
from tests import photo_files, refusals

DOG, RUN = "A dog, wet and happy.", "It runs\u2028to the caf\u00e9."
CAT, NAP = "A cat sleeps in the sun.", 'Two "cats" on a wall.'
A, B = "a.jpg", "b.jpg"
# The images of each split, with their captions.
ALL = {"all": {A: [DOG, RUN], B: [CAT, NAP]}}
ONE_EACH = {"all": {A: [DOG], B: [CAT]}}
SPLIT = {"train": {A: [DOG, RUN]}, "val": {B: [CAT, NAP]}}
PAIRS = [(A, DOG), (A, RUN), (B, CAT), (B, NAP)]


def lines(*rows):
    return "".join(f"{row}\n" for row in rows)


def json_lines(*rows):
    return lines(*map(json.dumps, rows))


def quoted(text):
    return '"' + text.replace('"', '""') + '"'


def table(row, *head):
    """Returns lines with a name `n` and a text `t`, quoted as `q`."""
    rows = [row.format(n=n, t=t, q=quoted(t)) for n, t in PAIRS]
    return lines(*head, *rows)


def records(image, caption, dump=json.dumps, **more):
    """Returns objects with a name and a text, by these keys."""
    return dump([{image: n, caption: t, **more} for n, t in PAIRS])


def of_splits(row):
    """Returns a list: a function of split, name and texts for each image."""
    images = [(s, n, t) for s, some in SPLIT.items() for n, t in some.items()]
    return [row(*image) for image in images]


def sentences(*texts):
    return [{"raw": text, "tokens": text.split()} for text in texts]


def talk(*answers):
    questions = ["<image>\nWhat is it?", *"?" * len(answers)]
    return [
        turn
        for question, answer in zip(questions, answers)
        for turn in (
            {"from": "human", "value": question},
            {"from": "gpt", "value": f"{answer} <image>"},
        )
    ]


def coco(**first):
    images = [{"id": 7, "file_name": A, "height": 2}, {"id": 9, "file_name": B}]
    annotations = [
        {"image_id": 9 if name == B else 7, "id": place, "caption": text}
        for place, (name, text) in enumerate(PAIRS)
    ]
    return json.dumps(first | {"images": images, "annotations": annotations})


def region(text):
    return {"x": 1, "y": 2, "width": 3, "height": 4, "phrase": text}


CONTENTS = {
    # Kaggle's Flickr8k and Flickr30k, and the token file that they come from.
    "captions.txt": table("{n},{q}", "image,caption"),
    "unquoted.txt": table("{n},{t}", "image,caption"),
    "results.csv": lines(
        "image_name| comment_number| comment",
        f"{A}| 0| {DOG}",
        f"{A}| 1| {RUN}",
        f"{B}| 0| {CAT}",
        f"{B}| 1   {NAP}",
    ),
    "Flickr8k.token.txt": lines(
        *(f"{n}#{i % 2}\t{t}" for i, (n, t) in enumerate(PAIRS))
    ),
    "flickr_annotations_30k.csv": lines(
        "raw,sentids,split,filename,img_id",
        f'{quoted(json.dumps([DOG, RUN]))},"[0, 1]",train,{A},0',
        f'{quoted(json.dumps([CAT, NAP]))},"[2, 3]",val,{B},1',
    ),
    # Karpathy's splits and the remote sensing sets in their format.
    "dataset_flickr8k.json": json.dumps(
        {
            "images": of_splits(
                lambda split, name, texts: {
                    "sentids": [0, 1],
                    "imgid": 0,
                    "sentences": sentences(*texts),
                    "split": split,
                    "filename": name,
                    "filepath": "photos",
                }
            ),
            "dataset": "flickr8k",
        }
    ),
    # COCO; in the second file, the first kilobytes have no images.
    "captions_val2017.json": coco(info={"year": 2017}, licenses=[]),
    "long_info.json": coco(info={"about": "x y " * 20_000}),
    # BLIP, ALBEF, CUHK-PEDES, TextCaps, LLaVA and messages of chat models.
    "coco_karpathy_train.json": json.dumps(
        [{"caption": t, "image": n, "image_id": f"coco_{n}"} for n, t in PAIRS]
    ),
    "reid_raw.json": json.dumps(
        of_splits(
            lambda split, name, texts: {
                "split": split,
                "captions": texts,
                "file_path": name,
                "id": 1,
            }
        )
    ),
    "TextCaps_0.1.json": records(
        "image_id",
        "caption_str",
        lambda rows: json.dumps({"dataset_type": "train", "data": rows}),
    ),
    "llava_instruct.json": json.dumps(
        [{"id": "0", "conversations": talk("Only text here.")}]
        + [
            {"id": "1", "image": n, "conversations": talk(*texts)}
            for n, texts in ALL["all"].items()
        ]
    ),
    "messages.jsonl": json_lines(
        *(
            {
                "images": [name],
                "messages": [
                    {"role": "user", "content": "<image>What is it?"},
                    {"role": "assistant", "content": text},
                ],
            }
            for name, text in PAIRS
        )
    ),
    # The phrases of Visual Genome.
    "region_descriptions.json": json.dumps(
        [
            {"id": n, "regions": [*map(region, texts)]}
            for n, texts in ((1, [DOG, RUN]), (2, [CAT, NAP]))
        ]
    ),
    # Mappings, with and without paths at the end; a list for each split.
    "mapping.json": json.dumps(ALL["all"]),
    "single.json": json.dumps({A: DOG, B: CAT}),
    "splits.json": json.dumps(SPLIT),
    "flickr30k.json": json.dumps(
        {n: [*t, f"images/{n}"] for n, t in ALL["all"].items()}
    ),
    "facts.json": json.dumps(
        {n: {"w": 1, "text": t} for n, t in ALL["all"].items()}
    ),
    "annotation.json": json.dumps(
        {
            split: [
                {"image_path": [n], "sentences": texts}
                for n, texts in images.items()
            ]
            for split, images in SPLIT.items()
        }
    ),
    # SBU's lists, and what pandas writes.
    "sbu.json": json.dumps(
        {
            "image_urls": [f"http://host/1/{n}" for n in (A, B)],
            "user_ids": ["1", "2"],
            "captions": [DOG, CAT],
        }
    ),
    "columns.json": json.dumps(
        {"path": {"0": A, "1": B}, "title": {"0": DOG, "1": CAT}}
    ),
    # Tables of open_clip, of the datasets library and of spreadsheets.
    "tabs.csv": table("{t}\t{n}", "title\tfilepath"),
    "metadata.jsonl": records("file_name", "text", lambda x: json_lines(*x)),
    "semicolons.dat": table("valid;{n};{t}", "Subset;Photo;Alt text"),
    "several.csv": lines(
        "img_id,image name,caption_0,caption_1",
        f"1,{A},{quoted(DOG)},{RUN}",
        f"2,{B},{CAT},{quoted(NAP)}",
    ),
    "python.csv": lines(
        "url,comments",
        f"https://x.org/d/{A}?s=1,{quoted(repr([DOG, RUN]))}",
        f"https://x.org/d/{B},{quoted(repr([CAT, NAP]))}",
    ),
    # Without a header: Conceptual Captions and tables of one's own.
    "Train_GCC-training.tsv": table("{t}\thttp://h.org/{n[0]}/{n}"),
    "plain.csv": table("train,{n},{q}"),
    "plain.txt": table("{n},{t}"),
    "ids.tsv": lines(f"1000268201\t{DOG}", f"1000268202\t{CAT}"),
    "other_names.csv": lines(
        "Nr,Bild,Beschreibung", f"1,{A},{quoted(DOG)}", f"2,{B},{CAT}"
    ),
    "other_keys.json": records("bild", "worte", n=3),
}
OTHER_IMAGES = {
    **dict.fromkeys(
        ["flickr_annotations_30k.csv", "dataset_flickr8k.json"], SPLIT
    ),
    **dict.fromkeys(["reid_raw.json", "splits.json", "annotation.json"], SPLIT),
    **dict.fromkeys(["single.json", "sbu.json", "columns.json"], ONE_EACH),
    "other_names.csv": ONE_EACH,
    "region_descriptions.json": {
        "all": {"1.jpg": [DOG, RUN], "2.jpg": [CAT, NAP]}
    },
    "semicolons.dat": {"valid": ALL["all"]},
    "plain.csv": {"train": ALL["all"]},
    "ids.tsv": {"all": {"1000268201": [DOG], "1000268202": [CAT]}},
}
FILES = {
    name: (CONTENTS[name], OTHER_IMAGES.get(name, ALL)) for name in CONTENTS
}
"""Name -> (content, captions of each image in each split)."""


def images_of(images):
    """Returns the captions of each photo, by the name of its file."""
    return {
        pathlib.PurePath(images.file_name(row)).name: [
            images.captions[place] for place in rows
        ]
        for row, rows in enumerate(images.caption_rows())
    }


@pytest.mark.filterwarnings("ignore:.*repaired", "ignore:.*left out 1")
@pytest.mark.parametrize("name", FILES)
def test_a_public_file_is_read_without_a_flag(tmp_path, name):
    content, expected = FILES[name]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert CaptionSource("auto", path).splits() == tuple(expected)
    for split, images in expected.items():
        assert images_of(read_captions("auto", path, split)) == images
    read_as = read_captions("auto", path, split).read_as
    assert read_captions(read_as.split()[0], path, split).read_as == read_as


def reid(names, ids, key="id"):
    """Returns rows of images with ids."""
    pairs = zip(names, ids)
    return [{"image": n, "captions": [DOG, RUN], key: i} for n, i in pairs]


PHOTOS = ["0.jpg", "1.jpg", "2.jpg"]


@pytest.mark.parametrize(
    "rows, identities",
    [
        (reid(PHOTOS, [1, 2, 1]), ("1", "2", "1")),
        # Integers that are one number in float32.
        (
            reid(PHOTOS, [2**53 + 1, 2**53, 2**53], "pid"),
            (str(2**53 + 1), *[str(2**53)] * 2),
        ),
        (reid(PHOTOS, "abb", "person_id"), ("a", "b", "b")),
        # Ids of images; one id for all; other values and keys.
        (reid(PHOTOS, [1, 2, 3]), ()),
        (reid(PHOTOS, [1, 1, 1]), ()),
        (reid(PHOTOS, [1, 2, None]), ()),
        (reid(PHOTOS, [1.0, 2.0, 1.0]), ()),
        (reid(PHOTOS, [1, 2, 1], "imgid"), ()),
        # Ids of captions: several of an image, or one caption in each row.
        (reid([*PHOTOS, *PHOTOS], [0, 0, 0, 1, 1, 1]), ()),
        (
            [
                {"image": f"{n}.jpg", "caption": DOG, "id": n % 2}
                for n in range(3)
            ],
            (),
        ),
    ],
)
def test_an_id_that_images_share_is_an_identity(tmp_path, rows, identities):
    path = tmp_path / "reid_raw.json"
    path.write_text(json.dumps(rows))
    images = read_captions("auto", path, "all")
    assert images.identities == identities
    count = len({*identities})
    told = f", {count} identities" if identities else "captions"
    assert summary([images]).endswith(told)


def test_splits_have_their_usual_names(tmp_path):
    path = tmp_path / "t.csv"
    names = {"training": "train", "Valid": "dev", "testing": "test"}
    rows = [f"{name}.jpg,{DOG[:5]},{name}" for name in names]
    path.write_text(lines("image,caption,set", *rows))
    for name, usual in names.items():
        images = read_captions("auto", path, usual)
        assert images.image_ids == (f"{name}.jpg",)
    with pytest.raises(NoSuchSplit):
        read_captions("auto", path, "restval")


@pytest.mark.parametrize(
    "name, content",
    [
        ("t.csv", lines("a,b,c,d", f"p,{A},{RUN},{CAT}", f"q,{B},x y,x y")),
        ("t.jsonl", json_lines({"a": "p", "b": A, "c": RUN, "d": CAT})),
        ("t.json", json.dumps([{"a": "p", "b": A, "c": RUN, "d": CAT}])),
    ],
)
def test_columns_of_any_name(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with refusals.at(path) as error:
        read_captions("auto", path, "all")
    assert "caption_column=" in str(error.value)
    columns = {"image_column": "b", "split_column": "a"}
    for chosen, texts in (["c"], (RUN,)), (["d", "c"], (CAT, RUN)):
        columns["caption_column"] = chosen
        names = Columns("b", tuple(chosen), "a")
        assert CaptionSource("auto", path, names).splits()[0] == "p"
        images = read_captions("auto", path, "p", **columns)
        assert (images.image_ids, images.captions) == ((A,), texts)
    with refusals.at(path) as error:
        read_captions("auto", path, "p", **(columns | {"image_column": "e"}))
    assert "no column is named e" in str(error.value).replace("key", "column")


@pytest.mark.parametrize("mark", ["\t", "|"])
def test_tables_without_quoting_keep_their_quotes(tmp_path, mark):
    path, text = tmp_path / "t.txt", '"Cats" nap on a wall.'
    path.write_text(lines(f"image{mark}caption", f"{A}{mark}{text}"))
    assert read_captions("auto", path, "all").captions == (text,)
    path.write_text(lines("image\tcaption", f'{A}\t"{DOG}"'))
    assert read_captions("auto", path, "all").captions == (DOG,)


def test_lists_as_numpy_prints_them(tmp_path):
    path, texts = tmp_path / "t.csv", ["It's a dog.", 'A "cat", asleep.']
    rows = [["image", "captions"], [A, str(np.array(texts, object))]]
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(rows)
    assert "' " in rows[1][1] or '" ' in rows[1][1]  # Without a comma.
    assert read_captions("auto", path, "all").captions == (*texts,)


def test_named_columns_need_a_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(lines(f"{A},{CAT}"))
    with refusals.at(path):
        read_captions("auto", path, "all", image_column="photo")


def test_addresses_with_one_file_name_are_refused(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text(
        lines(f"{DOG}\thttp://h/1/a.jpg", f"{CAT}\thttp://h/2/a.jpg")
    )
    with refusals.at(path, 2):
        read_captions("auto", path, "all")


def test_what_is_repaired_or_left_out_is_counted(tmp_path):
    for name in ("unquoted.txt", "llava_instruct.json", "results.csv"):
        path = tmp_path / name
        path.write_text(CONTENTS[name])
        problems = []
        read_captions("auto", path, "all", problems)
        assert len(problems) == 1
        assert " 1 " in problems[0].message


def npy(folder):
    np.save(folder / "array.npy", np.eye(3))
    return (folder / "array.npy").read_bytes()


OTHERS = {
    "photo.jpg": photo_files.encode(),
    "paper.pdf": b"%PDF-1.5\n%\xd0\xd4\xc5\xd8\n1 0 obj\n<< /Length 843 >>\n",
    "archive.zip": b"PK\x03\x04\x14\0\0\0\x08\0captions.csv" + bytes(99),
    "empty.csv": b"",
    "blank.txt": b"\n \n\n",
    "old.txt": b"a\rb",
    "zeros.txt": b"\0\0",
    "wide.csv": b"a.jpg," * 20_000,
    "quote.txt": b'"a',
    "numbers.txt": b"1\n2\n3\n4\n",
    "numbers.csv": b"1,2,3\n4,5,6\n",
    "numbers.json": b"[1, 2, 3]",
    "page.html": b"<!DOCTYPE html>\n<html><p>A dog, a cat</p>\n</html>\n",
    "config.yaml": b"image: a.jpg\ncaption: A dog runs.\nsplit: train\n",
    "config.json": b'{"name": "dogs", "text": "A long text.", "size": [1, 2]}',
    "config.ini": b"[section]\nimage = a.jpg\n",
    "labels.csv": b"image,label\na.jpg,dog\nb.jpg,cat\n",
    "chat.jsonl": b'{"a": "x"}\n{"a": "y"}\n',
    "sizes.csv": b"file_name,width,height\na.jpg,3,4\nb.jpg,5,6\n",
    "people.csv": b"id,name,email\n1,John Smith,j@x.com\n2,Jo Po,p@x.com\n",
    "instances.json": b'{"images": [{"id": 1, "file_name": "a.jpg"}], '
    b'"annotations": [{"image_id": 1, "bbox": [1, 2, 3, 4]}]}',
    "nothing.json": b"{}",
    "noise.bin": bytes(
        np.random.default_rng(0).integers(0, 256, 999, np.uint8)
    ),
    "words.txt": "A dog runs.\nA cat sleeps.\n".encode("utf-16"),
    "story.txt": b"A dog runs, and\na cat sleeps.\nThe end.\n",
    "cut.json": b'{"images": [{"filename": "a.j',
    "array.npy": npy,
    "photos": None,
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_without_captions_is_refused(tmp_path, name):
    content, path = OTHERS[name], tmp_path / name
    if content is None:
        (path / "more").mkdir(parents=True)
    else:
        path.write_bytes(content(tmp_path) if callable(content) else content)
    for read in (
        lambda *where: CaptionSource(*where).splits(),
        lambda *where: read_captions(*where, "train"),
    ):
        with refusals.at(path, 1 if name == "cut.json" else None) as error:
            read("auto", path)
        message = str(error.value)
        if name == "archive.zip":
            assert "Unpack" in message
        elif name != "cut.json":  # Each format has a reason.
            assert all(form in message for form in READERS)
