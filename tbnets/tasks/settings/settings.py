"""The settings of a run, with one frozen dataclass per group of flags."""

import dataclasses
import typing

from tbnets.data.sources import Sources, is_recipe
from tbnets.losses.presets import TERMS
from tbnets.tasks.settings.data_groups import (
    CaptionSettings,
    CorrespondenceSettings,
    FeatureSettings,
    ImageSettings,
    PhraseSettings,
    RegionSettings,
    RunSettings,
)
from tbnets.tasks.settings.flag import check_limits, flags_of, written
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
        images = self.images
        if not images or images.image_features:
            return "features"
        is_part = images.fine_tune or images.image_encoder == "small"
        return images.image_encoder if is_part else "features"

    @property
    def reads_photo_folder(self) -> bool:
        """Whether the run extracts features from the photos of `--images`."""
        return bool(
            self.images
            and self.image_encoder == "features"
            and not self.images.image_features
            and self.features.images
            and not self.captions.scenes
        )

    @property
    def text_preset(self) -> str:
        """The preset that reads the captions, `hub:PRESET`, or ""."""
        return _preset_and_words(self.texts)[0]

    @property
    def frozen_text_preset(self) -> str:
        """The preset whose text features the run reads, or ""."""
        return "" if self.texts.fine_tune_text else self.text_preset

    @property
    def learns_words(self) -> bool:
        """Whether the run learns vectors of the words of its captions."""
        return _preset_and_words(self.texts)[1]

    @property
    def reads_text_features(self) -> bool:
        """Whether the texts of the run are features instead of words."""
        is_preset = self.frozen_text_preset != ""
        return is_preset or self.texts.text_encoder == "features"

    def sources(self) -> Sources:
        """Returns the files and folders that the run reads."""
        values = self.values()
        names = {field.name for field in dataclasses.fields(Sources)}
        named = {name: values[name] for name in names & values.keys()}
        if preset := self.frozen_text_preset:
            named["text_features"] = preset
        return Sources(**named)

    def groups(self) -> dict:
        """Returns the groups that the run uses, by name."""
        return {k: vars(self)[k] for k in GROUPS if vars(self)[k]}

    def check(self) -> None:
        """Raises an error if a number is outside its limits."""
        for group in self.groups().values():
            check_limits(group)

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

    def flags_read(self) -> list:
        """Returns the `Flag`s that the run reads."""
        unused = unused_flags(self)
        return [flag for flag in self.flags() if flag.name not in unused]

    def comparable(self) -> dict:
        """Returns the settings by which TensorBoard compares runs.

        Lists become strings. File and folder paths are left out.
        """
        values = self.values()
        names = [flag.name for flag in self.flags_read() if not flag.is_place]
        return {
            name: written(values[name])
            if isinstance(values[name], list)
            else values[name]
            for name in names
        }


BESIDE = ",mean"
"""Ending of --text_encoder for a preset beside the mean of learned words."""
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


def _preset_and_words(texts):
    """Returns the preset of --text_encoder, and whether words are learned.

    `minilm,mean` has both.
    """
    name = texts.text_encoder.removesuffix(BESIDE)
    if name == "minilm":
        name = f"hub:{name}"
    if not name.startswith("hub:"):
        return "", texts.text_encoder != "features"
    return name, texts.text_encoder.endswith(BESIDE)


def conditions(settings: Settings) -> dict:
    """Returns a dict from flags to the conditions under which they are used.

    Each condition is a tuple: whether it holds, and its text.
    """
    return {
        **_data_conditions(settings),
        **_text_conditions(settings.texts, settings.run.from_ != ""),
        **_loss_conditions(
            settings.loss or LossSettings(), settings.pairs or PairSettings()
        ),
        **_optimizer_conditions(settings.optimizer or OptimizerSettings()),
    }


def _data_conditions(settings):
    images = settings.images or ImageSettings()
    regions = settings.regions or RegionSettings()
    encoder, scenes = settings.image_encoder, settings.captions.scenes
    of_pixels, is_small = encoder != "features", images.image_encoder == "small"
    extracts = not images.image_features
    named = f"{images.image_features},{regions.regions}"
    photos = (
        extracts
        or settings.features.cnn_weights != ""
        or any(is_recipe(item.strip()) for item in named.split(","))
    )
    captions = (
        "captions split_lists image_column caption_column split_column".split()
    )
    return {
        **dict.fromkeys(captions, (not scenes, "without --scenes")),
        "num_scenes": (scenes != "", "with --scenes"),
        "image_encoder": (extracts, "without --image_features"),
        "fine_tune": (
            extracts and not is_small,
            "with --image_encoder other than small, without --image_features",
        ),
        "cache": (
            settings.reads_photo_folder,
            "with --images, without --image_features, --fine_tune and --scenes",
        ),
        "image_size": (of_pixels, "with --fine_tune or --image_encoder=small"),
        "image_transform": (
            not of_pixels,
            "without --fine_tune and --image_encoder=small",
        ),
        "cnn_weights": (
            encoder != "small",
            "with --image_encoder other than small",
        ),
        "images": (
            photos and not scenes,
            "without --scenes, and without --image_features or with "
            "--cnn_weights or a recipe",
        ),
    }


def _text_conditions(texts, begins_with_model):
    encoder = texts.text_encoder
    preset, words = _preset_and_words(texts)
    vectors = words and texts.word_vectors != ""
    text = "with a --text_encoder that learns words"
    recurrent = (
        encoder in ("lstm", "gru", "h_lstm"),
        "with --text_encoder=lstm or gru or h_lstm",
    )
    of_words = ("min_count", "max_words", "word_dropout")
    return {
        "fine_tune_text": (
            preset != "" and not words,
            "with --text_encoder=minilm or hub:PRESET",
        ),
        "trees": (encoder == "h_lstm", "with --text_encoder=h_lstm"),
        "text_features": (
            encoder == "features",
            "with --text_encoder=features",
        ),
        **dict.fromkeys(of_words, (words, text)),
        "word_dim": (
            words and not texts.word_vectors,
            f"{text}, without --word_vectors",
        ),
        "word_vectors": (
            words and not begins_with_model,
            f"{text}, without --from",
        ),
        "word_vectors_training": (
            vectors or (words and begins_with_model),
            f"{text} and --word_vectors or --from",
        ),
        "word_vectors_scale": (vectors, f"{text} and --word_vectors"),
        "new_word_dims": (
            vectors and texts.word_vectors_training != "frozen",
            f"{text} and --word_vectors and --word_vectors_training other than "
            "frozen",
        ),
        **dict.fromkeys(("rnn_units", "mean_beside"), recurrent),
    }


def _loss_conditions(loss, pairs):
    conditions = {}
    for flag in FLAGS["loss"]:
        users = [name for name in LOSSES if flag.name in LOSSES[name][1]]
        others = [name for name in LOSSES if name not in users]
        if users:
            text = f"={' or '.join(users)}"
            if len(others) < len(users):
                text = f" other than {' or '.join(others)}"
            conditions[flag.name] = loss.loss in users, f"with --loss{text}"
    is_used, text = conditions["num_negatives"]
    conditions["num_negatives"] = (
        is_used and loss.negatives == "top_k",
        f"{text} and --negatives=top_k",
    )
    return {
        **conditions,
        "num_candidates": (
            pairs.pair_loss == "logistic",
            "with --pair_loss=logistic",
        ),
    }


def _optimizer_conditions(options):
    name = options.optimizer
    return {
        "weight_decay": (name != "adam", "with --optimizer other than adam"),
        "decay_epochs": (
            options.schedule in ("step", "exponential"),
            "with --schedule=step or exponential",
        ),
    }


def unused_flags(settings: Settings) -> dict[str, str]:
    """Returns a dict from each unused flag to the condition for its use."""
    known = conditions(settings).items()
    return {name: words for name, (holds, words) in known if not holds}


def conditions_in_words() -> dict[str, str]:
    """Returns a dict from each flag to the condition under which it is used."""
    defaults = make_settings(complete({}), GROUPS)
    known = conditions(defaults).items()
    return {name: words for name, (_, words) in known}
