"""Phrase localization: which region of a photo does a phrase name?

What the networks call images are regions, what they call captions are phrases.

Source: Wang et al. 2018, Sec. 4.
"""

import functools

from tbnets.serving.region_endpoints import region_endpoints
from tbnets.tasks import phrase_inputs, text_inputs
from tbnets.tasks.localization_data import LocalizationData
from tbnets.tasks.region_scores import Localization, RegionScorer
from tbnets.tasks.task import Exporter, Task, Tenant


class LocalizationExporter(Exporter):
    """Exports what compares phrases with regions.

    Args:
        settings: the run's settings.
    """

    def __init__(self, settings):
        self._settings = settings

    def endpoints(self, network, fitted):
        """Returns `embed_phrases`, `embed_regions`, `score` and so on."""
        reader = text_inputs.build_text_reader(self._settings, fitted)
        return region_endpoints(
            network,
            reader,
            region_dim=fitted["image_dim"],
            text_dim=None if reader else fitted["text_dim"],
            read_regions=phrase_inputs.build_region_reader(
                self._settings, fitted
            ),
        )


def compose(settings, model):
    """Returns the `Task` of phrase localization."""
    scorer = functools.lru_cache(maxsize=1)(RegionScorer)
    data = LocalizationData(settings, scorer)
    evaluators = (Localization(settings, data, scorer),)
    exporter = LocalizationExporter(settings)
    return Task(settings, model, data, evaluators, exporter)


TENANT = Tenant(
    compose,
    ("captions", "features", "regions", "phrases", "texts"),
    fixed=(("image_encoder", "features"),),
)
