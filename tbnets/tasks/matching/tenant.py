"""Image-sentence matching: given a photo, the sentence, and the other way.

Source: Wang et al. 2016, Sec. 3.2; Wang et al. 2018, Sec. 5.3.
"""

import dataclasses

import numpy as np

from tbnets.serving import index, search
from tbnets.serving.image_endpoints import two_branch_endpoints
from tbnets.serving.region_endpoints import node_endpoints
from tbnets.serving.served import load_saved_model
from tbnets.tasks.hierarchical.data import HierarchicalData
from tbnets.tasks.hierarchical.scores import Correspondences
from tbnets.tasks.localization.tenant import LocalizationExporter
from tbnets.tasks.matching import views
from tbnets.tasks.matching.data import MatchingData
from tbnets.tasks.matching.scores import Retrieval
from tbnets.tasks.task import Exporter, Task, Tenant
from tbnets.tasks.texts import reads_features


class MatchingExporter(Exporter):
    """Exports what embeds photos and sentences; ranks photos for sentences.

    Args:
        data: the run's `MatchingData`.
    """

    answers_queries = True

    def __init__(self, data):
        self._data = data

    def endpoints(self, network, fitted):
        """Returns `embed_text`, `embed_image`, `score` and so on.

        Of a network that reads regions too, those and noun phrases as well.
        Where what made the features tells of regions
        (`phrase_regions.with_regions`), it is asked for these by phrases.
        """
        data, made_by = self._data, fitted["image_features_made_by"]
        if "regions" in made_by:
            return LocalizationExporter(data).endpoints(network, fitted)
        reader = data.texts.reader(fitted)
        endpoints = two_branch_endpoints(
            network,
            reader,
            image_shape=network.input_shapes["images"][1:],
            read_photos=data.photo_reader(made_by),
            text_dim=None if reader else fitted["text_dim"],
        )
        if dim := fitted.get("region_dim"):
            more = node_endpoints(network, endpoints.tokenizer, dim)
            functions = endpoints.functions | more
            endpoints = dataclasses.replace(endpoints, functions=functions)
        return endpoints

    @property
    def queries(self):
        """Two captions of the last split, of a run on own photos."""
        data = self._data
        if not data.own_photos or reads_features(data.settings):
            return []
        return views.example_captions(data.last.records)

    def answer(self, saved_model, queries, folder):
        """Ranks the images of the last split for example queries.

        An image is a hit if one of its captions has the query's words in
        their order; a query of which that is true for no image is answered
        without telling hits. Where the network takes photos, the answers are
        also drawn, as `answers.png` in the run's folder.
        """
        model = load_saved_model(saved_model)
        split = self._data.last
        records = split.records
        rows, photos = range(records.num_images), None
        if model.takes_photos:
            photos = self._data.opened.sources.photo_folder
            paths = {row: photos / records.file_name(row) for row in rows}
            rows, embeddings = index.embed_photos(model, photos, paths)
        else:
            features = np.concatenate(list(split.images.chunks()))
            embeddings = search.embed(model.embed_images, features, "image")
        path = folder / "answers.png"
        return views.show_answers(
            model, queries, records.subset(rows), embeddings, photos, path
        )


def compose(settings, model):
    """Returns the `Task` of image-sentence matching.

    A model that needs regions has batches with the noun phrases of sentences
    and the regions of photos too, and a second evaluator, which tells how
    many phrases it gives a right region.
    """
    if "regions" not in model.needs:
        data = MatchingData(settings)
        evaluators = (Retrieval(data),)
    else:
        data = HierarchicalData(settings)
        evaluators = Retrieval(data), Correspondences(data)
    return Task(settings, model, data, evaluators, MatchingExporter(data))


TENANT = Tenant(
    compose,
    ("captions", "images", "features", "texts", "batches"),
    # Hard negatives are regions: no epoch here learns from them.
    fixed=(("hard_negative_epochs", 0),),
    gives=("regions",),
)
