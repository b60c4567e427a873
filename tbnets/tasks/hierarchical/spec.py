"""Matching by HM-LSTM: how its task is composed and exported."""

import dataclasses
import functools

from tbnets.data.phrase_pairs import (
    PairBatches,
    PairExamples,
    PairOptions,
    PhotoRegions,
    noun_phrases,
)
from tbnets.errors import InputError
from tbnets.serving.endpoints import node_endpoints
from tbnets.tasks.hierarchical.scores import Correspondences, Matcher
from tbnets.tasks.matching.scores import Retrieval
from tbnets.tasks.matching.spec import MatchingData, MatchingExporter
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Task


class HierarchicalData(MatchingData):
    """Photos with sentences, regions and noun phrases: `PairExamples`.

    For the first `correspondence_epochs` the network learns only from photos
    and sentences. Later, each epoch first assigns to every noun phrase of the
    training split the most similar candidate of its photo: a region, or the
    photo. The network then also learns from these pairs, weighted by their
    similarity. `held` keeps the pairs.

    Known links of phrases to boxes (`--phrases`, or scenes) only measure how
    many phrases got a right region; the network does not learn from them.

    Attributes:
        matcher: function of a network that returns its `Matcher`.

    Source: Niu et al. 2017, Fig. 3. Departures: each "fine-grained embedding
        learning" takes one epoch; the paper gives no length.
    """

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self.matcher = functools.lru_cache(maxsize=1)(
            lambda network: Matcher(network, self.image_size)
        )
        self.made_by["regions"] = "region_features_made_by"

    def check(self, queries=()):
        """Raises an error if splits, trees or regions are missing."""
        super().check(queries)
        options = self.settings.correspondences
        if options.region_branch == "own" and not options.region_mean_weight:
            raise InputError(
                "--region_mean_weight",
                "be above 0 with --region_branch=own: no other loss trains "
                "this branch at first",
                "--region_mean_weight=0",
                "Raise it.",
            )
        splits = self.opened.check_splits()
        self.opened.parts("regions", splits)
        if self.knows_links:  # Only measured splits need them.
            self.opened.parts("phrases", splits[1:])

    @property
    def knows_links(self):
        """Whether links of phrases to boxes are known, to measure by."""
        return bool(self.opened.sources.phrases)

    def fit(self):
        """Returns the values of `MatchingData.fit`, and those for regions.

        Raises:
            ValueError: regions and photos must share a branch but have
                different features.
        """
        fitted = super().fit()
        store, _ = self.train.regions
        is_shared = self.settings.correspondences.region_branch == "shared"
        dim = fitted["image_dim"]
        if is_shared and dim != store.dim:
            raise InputError(
                "--region_branch",
                "be own with features of two kinds",
                f"--region_branch=shared, {dim} numbers a photo, {store.dim} "
                "a region",
                "Change it, or extract them alike.",
            )
        fitted["region_dim"] = store.dim
        return fitted | {"region_features_made_by": store.made_by}

    def load(self, split, fitted):
        """Returns the `PairExamples` of a split."""
        examples, options = (
            super().load(split, fitted),
            self.settings.correspondences,
        )
        regions = PhotoRegions(
            *self.split(split).regions,
            options.regions_per_image,
            options.region_overlap,
        )
        phrases = noun_phrases(examples.texts)
        return PairExamples(**vars(examples), phrases=phrases, regions=regions)

    def start_epoch(self, network, train, epoch):
        """Assigns regions to training phrases, from the second stage on."""
        is_known = epoch >= self.settings.correspondences.correspondence_epochs
        self.held = self.matcher(network).match(train) if is_known else {}

    def batches(self, train):
        """Returns the `PairBatches` of the training split."""
        given = self.settings.correspondences
        every = bool(given.region_mean_weight)
        options = PairOptions(given.contrast, every_region=every)
        return PairBatches(train, lambda: self.held, options, **self.sampling)


class HierarchicalExporter(MatchingExporter):
    """Exports the embedding of photos, sentences, regions and noun phrases."""

    def endpoints(self, network, fitted):
        """Returns the endpoints of matching, regions and noun phrases."""
        endpoints = super().endpoints(network, fitted)
        nodes = node_endpoints(
            network, endpoints.tokenizer, fitted["region_dim"]
        )
        functions = endpoints.functions | nodes
        return dataclasses.replace(endpoints, functions=functions)


def compose_hierarchical(settings: Settings, model):
    """Returns the `Task` of matching with noun phrases and regions.

    A second evaluator measures how many phrases get a right region.
    """
    data = HierarchicalData(settings)
    evaluators = Retrieval(data), Correspondences(data)
    return Task(settings, model, data, evaluators, HierarchicalExporter(data))
