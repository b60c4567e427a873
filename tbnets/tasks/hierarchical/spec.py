"""Matching by HM-LSTM: how its task is composed and exported."""

import dataclasses

from tbnets.serving.region_endpoints import node_endpoints
from tbnets.tasks.hierarchical.data import HierarchicalData
from tbnets.tasks.hierarchical.scores import Correspondences
from tbnets.tasks.matching.scores import Retrieval
from tbnets.tasks.matching.spec import MatchingExporter
from tbnets.tasks.settings.settings import Settings
from tbnets.tasks.task import Task


class HierarchicalExporter(MatchingExporter):
    """Exports what embeds photos and sentences, regions and noun phrases."""

    def endpoints(self, network, fitted):
        """Returns those of matching, of regions and of noun phrases."""
        endpoints = super().endpoints(network, fitted)
        nodes = node_endpoints(
            network, endpoints.tokenizer, fitted["region_dim"]
        )
        functions = endpoints.functions | nodes
        return dataclasses.replace(endpoints, functions=functions)


def compose(settings: Settings, model):
    """Returns the `Task` of matching, with noun phrases and regions.

    A second evaluator measures how many phrases get a right region.
    """
    data = HierarchicalData(settings)
    evaluators = Retrieval(data), Correspondences(data)
    return Task(settings, model, data, evaluators, HierarchicalExporter(data))
