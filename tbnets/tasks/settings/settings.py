"""The settings of a run, with one frozen dataclass per group of flags."""

import dataclasses
import typing

from tbnets.data.sources import Sources
from tbnets.features import hub
from tbnets.losses.presets import TERMS
from tbnets.tasks.settings.data_groups import (
    READS_PHOTO_FOLDER,
    READS_PIXELS,
    CaptionSettings,
    CorrespondenceSettings,
    FeatureSettings,
    ImageSettings,
    PhraseSettings,
    RegionSettings,
    RunSettings,
)
from tbnets.tasks.settings.flag import flags_of
from tbnets.tasks.settings.learning_groups import (
    LOSSES,
    BatchSettings,
    BranchSettings,
    CcaSettings,
    LossSettings,
    OptimizerSettings,
    PairSettings,
    TextSettings,
    TrainingSettings,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run, with a field for each group of flags.

    The fields are in the order of --help. A group that neither the task nor the
    model uses is None, such as `training` for CCA. `started_in` is the folder
    against which relative paths are resolved, or "".
    """

    run: RunSettings
    captions: CaptionSettings
    images: ImageSettings | None = None
    features: FeatureSettings
    regions: RegionSettings | None = None
    phrases: PhraseSettings | None = None
    correspondences: CorrespondenceSettings | None = None
    texts: TextSettings
    batches: BatchSettings | None = None
    branches: BranchSettings | None = None
    loss: LossSettings | None = None
    pairs: PairSettings | None = None
    cca: CcaSettings | None = None
    optimizer: OptimizerSettings | None = None
    training: TrainingSettings | None = None
    started_in: str = ""

    @property
    def epochs(self) -> int:
        """The number of epochs, which is 1 for CCA."""
        return self.training.epochs if self.training else 1

    @property
    def patience(self) -> int:
        """Epochs without improvement after which training stops; 0: never."""
        return self.training.patience if self.training else 0

    @property
    def image_encoder(self) -> str:
        """The network's photo encoder, or `features` if it reads features."""
        reads_pixels = READS_PIXELS.holds(self)
        return self.images.image_encoder if reads_pixels else "features"

    @property
    def reads_photo_folder(self) -> bool:
        """Whether the run extracts features from the photos of `--images`."""
        return self.images is not None and READS_PHOTO_FOLDER.holds(self)

    def sources(self) -> Sources:
        """Returns the files and folders that the run reads."""
        values = self.values()
        names = {field.name for field in dataclasses.fields(Sources)}
        named = {name: values[name] for name in names & values.keys()}
        named |= dict.fromkeys(
            self.unused().keys() & {"text_features", "trees"}, ""
        )
        if preset := self.texts.frozen_preset:
            named["text_features"] = preset
        return Sources(**named)

    def groups(self) -> dict:
        """Returns the groups that the run uses, by name."""
        return {k: vars(self)[k] for k in GROUPS if vars(self)[k]}

    def values(self) -> dict:
        """Returns the flag values of the used groups, and `started_in`."""
        values = {
            name.rstrip("_"): value
            for group in self.groups().values()
            for name, value in vars(group).items()
        }
        return {**values, "started_in": self.started_in}

    def replace(self, **values) -> "Settings":
        """Returns a copy with new values of some flags."""
        changed = {name.rstrip("_"): value for name, value in values.items()}
        return make_settings({**self.values(), **changed}, self.groups())

    def flags(self) -> list:
        """Returns the `Flag`s of the groups that the run uses."""
        return [flag for name in self.groups() for flag in FLAGS[name]]

    def unused(self) -> dict[str, str]:
        """Returns a dict from each unused flag to the condition for its use."""
        return {
            flag.name: flag.only.words
            for flag in self.flags()
            if flag.only and not flag.only.holds(self)
        }

    def flags_read(self) -> list:
        """Returns the `Flag`s that the run reads."""
        unused = self.unused()
        return [flag for flag in self.flags() if flag.name not in unused]

    def without_places(self) -> dict:
        """Returns the flags that the run reads, without paths of this machine.

        Two runs are equal if these values and their data are equal.
        """
        values = self.values()
        return {
            flag.name: hub.unplaced(values[flag.name])
            for flag in self.flags_read()
            if not flag.is_place
        }


_FIELDS = dataclasses.fields(Settings)[:-1]  # Without `started_in`.
GROUPS: dict[str, type] = {
    field.name: (typing.get_args(field.type) or [field.type])[0]
    for field in _FIELDS
}
"""Maps the fields of `Settings` to their classes, in the order of --help."""
BASE = {f.name for f in _FIELDS if f.default is dataclasses.MISSING}
"""Names of the groups that every run uses."""
FLAGS = {name: flags_of(group) for name, group in GROUPS.items()}
"""Maps the name of a group to its flags."""
ALL = {flag.name: flag for flags in FLAGS.values() for flag in flags}
"""Maps the name of a flag to the `Flag`."""


def make_settings(record, groups) -> Settings:
    """Returns `Settings` with the values of a record for the named groups."""
    fields = {
        name: GROUPS[name](
            **{
                field.name: record[field.name.rstrip("_")]
                for field in dataclasses.fields(GROUPS[name])
            }
        )
        for name in groups
    }
    return Settings(**fields, started_in=record["started_in"])


def complete(values) -> dict:
    """Returns `values` with defaults for all flags that are missing.

    A flag that is None counts as missing. --loss determines the defaults of
    its own flags. The flags of other losses become None.
    """
    known = {name: v for name, v in values.items() if v is not None}
    defaults = {name: flag.default for name, flag in ALL.items()}
    record = {**defaults, "started_in": "", **known}
    _, arguments = LOSSES[record["loss"]]
    weights = {
        f"{t}_weight": arguments["term_weights"].get(t, 0.0) for t in TERMS
    }
    defaults = arguments | weights
    for flag in FLAGS["loss"]:
        is_read = flag.name in defaults
        if flag.default is None and not (is_read and flag.name in known):
            record[flag.name] = defaults.get(flag.name)
    return record
