"""Rows by other packages: their losses, and what finds the best rows."""

import torch

from benchmarks import peers_arrays as given
from benchmarks.peers_torch import learning, tensors


def clip(arrays):
    """ClipLoss of open_clip."""
    from open_clip.loss import ClipLoss

    loss, scale = ClipLoss(), torch.tensor(1 / given.TEMPERATURE)
    return learning(arrays, lambda images, texts: loss(images, texts, scale))


def ranking_both(arrays):
    """MultipleNegativesRankingLoss of sentence-transformers, both ways."""
    return _ranking(
        arrays,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )


def ranking(arrays):
    """MultipleNegativesRankingLoss as it comes: images ask, captions answer."""
    return _ranking(arrays)


def _ranking(arrays, **options):
    losses = _sentence_losses()
    loss = losses.MultipleNegativesRankingLoss(
        torch.nn.Identity(), scale=1 / given.TEMPERATURE, **options
    )
    return learning(
        arrays,
        lambda *both: loss.compute_loss_from_embeddings(list(both), None),
    )


def batch_hard_sentences(arrays):
    """BatchHardTripletLoss of sentence-transformers, on one view."""
    losses = _sentence_losses()
    loss = losses.BatchHardTripletLoss(
        torch.nn.Identity(),
        losses.BatchHardTripletLossDistanceFunction.euclidean_distance,
        given.MARGIN,
    )
    labels = torch.from_numpy(given.labels(arrays))
    return learning(
        arrays,
        lambda *both: loss.batch_hard_triplet_loss(labels, torch.cat(both)),
    )


def _sentence_losses():
    from sentence_transformers.sentence_transformer import losses

    return losses


def batch_hard_metric(arrays):
    """BatchHardMiner and TripletMarginLoss, on one view."""
    from pytorch_metric_learning import distances, losses, miners, reducers

    distance = distances.LpDistance(normalize_embeddings=False)
    miner = miners.BatchHardMiner(distance=distance)
    loss = losses.TripletMarginLoss(
        given.MARGIN, distance=distance, reducer=reducers.MeanReducer()
    )
    labels = torch.from_numpy(given.labels(arrays))

    def total(*both):
        rows = torch.cat(both)
        return loss(rows, labels, miner(rows, labels))

    return learning(arrays, total)


def hardest_metric(arrays):
    """BatchHardMiner and TripletMarginLoss, two views, both directions."""
    from pytorch_metric_learning import distances, losses, miners, reducers

    distance = distances.CosineSimilarity()
    miner = miners.BatchHardMiner(distance=distance)
    loss = losses.TripletMarginLoss(
        given.MARGIN, distance=distance, reducer=reducers.SumReducer()
    )

    def one(rows, labels, others, their_labels):
        triplets = miner(rows, labels, others, their_labels)
        return loss(rows, labels, triplets, others, their_labels)

    return _two_ways(arrays, one)


def all_metric(arrays):
    """TripletMarginLoss of all triplets, two views, both directions."""
    from pytorch_metric_learning import distances, losses

    distance = distances.LpDistance(normalize_embeddings=False)
    loss = losses.TripletMarginLoss(given.MARGIN, distance=distance)

    def one(rows, labels, others, their_labels):
        return loss(rows, labels, None, others, their_labels)

    return _two_ways(arrays, one)


def crossed_metric(arrays):
    """NTXentLoss, two views, the mean of both directions."""
    from pytorch_metric_learning import losses

    return _softmax_metric(arrays, losses.NTXentLoss(given.TEMPERATURE))


def supervised_metric(arrays):
    """SupConLoss, two views, the mean of both directions."""
    from pytorch_metric_learning import losses

    return _softmax_metric(arrays, losses.SupConLoss(given.TEMPERATURE))


def _softmax_metric(arrays, loss):
    def one(rows, labels, others, their_labels):
        return loss(rows, labels, None, others, their_labels) / 2

    return _two_ways(arrays, one)


def _two_ways(arrays, one):
    ids, owners = tensors(arrays, "image_ids", "owners")
    return learning(
        arrays,
        lambda images, texts: (
            one(images, ids, texts, owners) + one(texts, owners, images, ids)
        ),
    )
