"""Image-sentence matching: given a photo, the sentence, and the other way.

Source: Wang et al. 2016, Sec. 3.2; Wang et al. 2018, Sec. 5.3.
"""

import numpy as np

from tbnets.serving import photo_index, search
from tbnets.serving.image_endpoints import two_branch_endpoints
from tbnets.serving.served import load_saved_model
from tbnets.tasks.matching import views
from tbnets.tasks.matching.data import MatchingData
from tbnets.tasks.matching.scores import Retrieval
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Exporter, Task, TaskSpec


class MatchingExporter(Exporter):
    """Exports what embeds photos and sentences; ranks photos for sentences.

    Args:
        data: the run's `MatchingData`.
    """

    answers_queries = True

    def __init__(self, data):
        self._data = data

    def endpoints(self, network, fitted):
        """Returns `embed_text`, `embed_image`, `score` and so on."""
        data, reader = self._data, self._data.texts.reader(fitted)
        return two_branch_endpoints(
            network,
            reader,
            image_shape=network.input_shapes["images"][1:],
            read_photos=data.photo_reader(fitted["image_features_made_by"]),
            text_dim=None if reader else fitted["text_dim"],
        )

    @property
    def queries(self):
        """Two captions of the last split, of a run on own photos."""
        data = self._data
        if not data.own_photos or data.settings.reads_text_features:
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
            rows, embeddings = photo_index.embed_photos(model, photos, paths)
        else:
            features = np.concatenate(list(split.images.chunks()))
            embeddings = search.embed(model.embed_images, features, "image")
        path = folder / "answers.png"
        return views.show_answers(
            model, queries, records.subset(rows), embeddings, photos, path
        )


def compose(settings: Settings, model):
    """Returns the `Task` of image-sentence matching."""
    data = MatchingData(settings)
    exporter = MatchingExporter(data)
    return Task(settings, model, data, (Retrieval(data),), exporter)


SPEC = TaskSpec(
    compose,
    ("images", "batches"),
    # Hard negatives are regions: no epoch here learns from them.
    fixed=(("hard_negative_epochs", 0),),
)
