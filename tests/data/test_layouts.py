"""Tests of the layouts of public data sets, as their publishers write them.

Each file in `layouts/` has the captions in `TEXTS`, in this order.
"""

import pathlib

import pytest

from tbnets.data.captions import CaptionSource, read_captions

FOLDER = pathlib.Path(__file__).with_name("layouts")
TEXTS = (
    "A man in a red coat, walking a dog .",
    'Two "small" dogs play .',
    "It runs to the caf\u00e9 .",
)
FLICKR8K = "1000268201_693b08cb0e.jpg", "1001773457_577c3a7d70.jpg"
# For each file, the split and the photo of each caption. A photo has the split
# of the photo before.
LAYOUTS = {
    "coco/captions_val2017.json": "all:000000397133.jpg . 000000037777.jpg",
    "nocaps/nocaps_val_4500_captions.json": "all:0013ea2087020901.jpg . "
    "0013ea2087020902.jpg",
    "vizwiz/val.json": "all:VizWiz_val_00000000.jpg . VizWiz_val_00000001.jpg",
    "karpathy/dataset_flickr8k.json": "train:2513260012_03d33305cf.jpg . "
    "val:2903617548_d3e38d7f88.jpg",
    "karpathy/dataset_coco.json": "train:train2014/"
    "COCO_train2014_000000057870.jpg "
    "test:val2014/COCO_val2014_000000391895.jpg "
    "restval:val2014/COCO_val2014_000000184613.jpg",
    "karpathy/dataset_rsicd.json": "train:airport_1.jpg airport_10.jpg "
    "test:school_7.jpg",
    "flickr8k/Flickr8k.token.txt": f"train:{FLICKR8K[0]} . dev:{FLICKR8K[1]}",
    "flickr30k/results_20130124.token": "all:1000092795.jpg . 10002456.jpg",
    "flickr30k/flickr30k.json": "all:1000092795.jpg . 10002456.jpg",
    "kaggle/captions.txt": f"all:{FLICKR8K[0]} . {FLICKR8K[1]}",
    "kaggle/results.csv": "all:1000092795.jpg . 10002456.jpg",
    "huggingface/flickr_annotations_30k.csv": "train:1000092795.jpg . "
    "test:10002456.jpg",
    "conceptual/Train_GCC-training.tsv": "all:dog.jpg small.png caf\u00e9.jpg",
    "conceptual/Validation_open_clip.tsv": "all:val/0/0.jpg val/0/1.jpg "
    "val/0/2.jpg",
    "wit/wit_v1.train.all-00000-of-00010.tsv": "all:Dog_0.jpg Dog_1.jpg",
    "sbu/sbu-captions-all.json": "all:4385380.jpg 4385381.jpg 4385382.jpg",
    "blip/coco_karpathy_train.json": "all:val2014/"
    "COCO_val2014_000000522418.jpg . "
    "train2014/COCO_train2014_000000184613.jpg",
    "blip/flickr30k_test.json": "all:flickr30k-images/1000092795.jpg . "
    "flickr30k-images/10002456.jpg",
    "textcaps/TextCaps_0.1_val.json": "all:a6d9f9e1 . 004a5eb3",
    "llava/llava_instruct_150k.json": "all:000000033471.jpg . 000000052846.jpg",
    "llava/messages.jsonl": "all:a/1.jpg . a/2.jpg",
    "pedes/reid_raw.json": "train:CUHK01/0363004.png CUHK01/0363005.png "
    "test:test_query/p11600_s14885.jpg",
    "pedes/data_captions.json": "train:0000_c14_0031.jpg 0000_c5_0022.jpg "
    "val:0001_c1_0002.jpg",
    "visual_genome/region_descriptions.json": "all:1.jpg . 2.jpg",
    "refcoco/refs.json": "train:COCO_train2014_000000581857.jpg . "
    "testA:COCO_train2014_000000581858.jpg",
    "imagefolder/metadata.csv": "all:0000.png 0001.png 0002.png",
    "imagefolder/metadata.jsonl": "all:0000.png 0001.png 0002.png",
    "imagefolder/metadata.parquet": "all:0000.png 0001.png 0002.png",
    "img2dataset/00000.parquet": "all:000000000 000000002 000000003",
    "lists/annotation.json": "train:CXR1/0.png . val:CXR2/0.png",
    "precomp": "train:57870 . 384029",
}


def expected_captions(name):
    """Returns {split: {photo: captions}}."""
    images, split, photo = {}, "", ""
    for text, item in zip(TEXTS, LAYOUTS[name].split()):
        if item != ".":  # Else a caption of the photo before.
            *splits, photo = item.split(":")
            split = splits[0] if splits else split
        images.setdefault(split, {}).setdefault(photo, []).append(text)
    return images


def captions_of(images):
    """Returns {photo: captions} of the photos that have captions."""
    rows = zip(images.names, images.caption_rows())
    captions = {name: [images.captions[i] for i in own] for name, own in rows}
    return {name: texts for name, texts in captions.items() if texts}


@pytest.mark.filterwarnings("ignore:.*repaired 1", "ignore:.*left out 1")
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_public_layout_is_read_without_a_flag(name):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    expected = expected_captions(name)
    assert set(CaptionSource(FOLDER / name).splits()) == {*expected}
    for split, captions in expected.items():
        images = read_captions(FOLDER / name, split)
        assert captions_of(images) == captions


@pytest.mark.parametrize(
    "name, reason",
    [
        ("kaggle/results.csv", "repaired 1 rows"),
        ("llava/llava_instruct_150k.json", "left out 1 conversations"),
        ("img2dataset/00000.parquet", "left out 1 rows"),
    ],
)
def test_repaired_rows_and_rows_without_a_photo_are_counted(name, reason):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    problems = []
    read_captions(FOLDER / name, "all", problems)
    assert [reason in problem.message for problem in problems] == [True]
