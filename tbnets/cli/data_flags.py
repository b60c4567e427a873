"""Defines flags that several commands share."""

import dataclasses
import os
from typing import Annotated

from tbnets.data.archives import has_archives
from tbnets.data.open import Data
from tbnets.data.photos import find_photos, left_out_lines, sort_files
from tbnets.data.sources import Sources
from tbnets.data.splits import SPLIT_FIELD
from tbnets.data.store.writer import fault_of_name
from tbnets.evaluation.boxes import CHOICE_ARGUMENTS, CHOICES, TEMPERATURE
from tbnets.files import require_file
from tbnets.tasks.settings.data_groups import ColumnFlags
from tbnets.tasks.settings.flag import (
    REQUIRED,
    Limits,
    changed,
    flag,
    flags_of,
    must_come_with,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFlags:
    """Flags for the checkpoint and the data of a run."""

    checkpoint: str = flag(
        "best", "Checkpoint of the run.", choices=["best", "last"]
    )
    data_root: str = flag(
        "",
        "Base folder of relative data paths; default: TBNETS_DATA, then the "
        "run's folder.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceFlags:
    """Flags that control how the box of a phrase is chosen."""

    choice: str = flag(
        CHOICES[0],
        "Box chosen for a phrase. most_similar: as in the papers; "
        "expected_overlap: the box that overlaps many similar boxes; "
        "mean_box: the mean of the boxes that overlap the most similar one "
        "by half or more, not available for HM-LSTM and crops.",
        choices=CHOICES,
    )
    choice_temperature: Annotated[float, Limits(0, above=True)] = flag(
        TEMPERATURE,
        "For --choice: the weights of the boxes are softmax(similarity / "
        "temperature); with --combine_with, the similarity is the negative "
        "sum of distances.",
    )
    choice_area_exponent: Annotated[float, Limits(0)] = flag(
        0.0, "For --choice: exponent of the box area, a factor of the weight."
    )


def check_choice_flags(options):
    """Raises an error if a flag requires --choice, which is not set."""
    set_names = changed(options)
    for name in CHOICE_ARGUMENTS[1:]:
        if name in set_names and "choice" not in set_names:
            choices = " or ".join(f"--choice={name}" for name in CHOICES[1:])
            raise must_come_with(options, name, choices)


def choice_arguments(options):
    """Returns the `ChoiceFlags` as a dict, or {} if --choice is not set."""
    if "choice" not in changed(options):
        return {}
    return {name: vars(options)[name] for name in CHOICE_ARGUMENTS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptionFlags(ColumnFlags):
    """Flags for the captions to process."""

    captions: str = flag(
        REQUIRED, "File or folder of captions; may contain {split}."
    )
    splits: list[str] = flag(
        [], "Splits of --captions to process; default: all."
    )

    def sources(self, **others):
        """Returns the `Sources` that the flags and `others` name."""
        is_pattern = SPLIT_FIELD in self.captions
        is_set = os.path.isdir(self.captions) or has_archives(self.captions)
        if self.captions and not (is_pattern or is_set):
            require_file(self.captions, "--captions")
        columns = [each.name for each in flags_of(ColumnFlags)]
        named = {name: vars(self)[name] for name in (*columns, "captions")}
        return Sources("", **named, **others)

    def data(self, **others):
        """Returns the `Data` of the captions, or of `others["phrases"]`."""
        sources = self.sources(**others)
        return Data(sources, of_phrases=bool(sources.phrases))

    def names(self):
        """Returns the splits to process."""
        return self.splits or self.sources().caption_source().splits()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PhotoFlags(CaptionFlags):
    """Flags for the photos to process and the store to write."""

    images: str = flag(REQUIRED, "Folder of the photos.")
    captions: str = flag(
        "",
        "Captions that select the images and define their splits. Default: "
        "all photos below --images, with their relative paths as ids.",
    )
    output: str = flag(REQUIRED, "Folder of the store to write.")

    def find_photos(self):
        """Returns a pair (id, path) for each photo. Prints unusable files."""
        captions = None
        if self.captions:
            captions = self.sources(images=self.images).caption_source()
        all_photos = find_photos(self.images, captions, self.splits)
        is_listed = self.captions or has_archives(self.images)
        other_files = [] if is_listed else sort_files(self.images)[1]
        faults = {path: fault_of_name(key) for key, path in all_photos}
        broken = {path: why for path, why in faults.items() if why}
        for line in left_out_lines(broken, other_files, len(all_photos))[:-1]:
            print(line)
        return [photo for photo in all_photos if photo[1] not in broken]
