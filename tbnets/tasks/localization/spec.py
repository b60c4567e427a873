"""Phrase localization: which region of a photo does a phrase name?

What the networks call images are regions, what they call captions are phrases.

Source: Wang et al. 2018, Sec. 4.
"""

from tbnets.serving.region_endpoints import region_endpoints
from tbnets.tasks.localization.data import LocalizationData
from tbnets.tasks.localization.scores import Localization
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Exporter, Task, TaskSpec


class LocalizationExporter(Exporter):
    """Exports what compares phrases with regions.

    Args:
        data: the run's `LocalizationData`.
    """

    def __init__(self, data):
        self._data = data

    def endpoints(self, network, fitted):
        """Returns `embed_phrases`, `embed_regions`, `score` and so on."""
        data, reader = self._data, self._data.texts.reader(fitted)
        return region_endpoints(
            network,
            reader,
            region_dim=fitted["image_dim"],
            text_dim=None if reader else fitted["text_dim"],
            read_regions=data.photo_reader(fitted["image_features_made_by"]),
        )


def compose(settings: Settings, model):
    """Returns the `Task` of phrase localization."""
    data = LocalizationData(settings)
    exporter = LocalizationExporter(data)
    return Task(settings, model, data, (Localization(data),), exporter)


SPEC = TaskSpec(
    compose,
    ("regions", "phrases"),
    # Each batch has other sizes, each of which XLA would compile.
    fixed=(("image_encoder", "features"), ("jit_compile", False)),
)
