"""Benchmark rows for PyTorch and its packages, as in `peers_tensorflow`.

The rows use a GPU if PyTorch finds one; `CUDA_VISIBLE_DEVICES=` hides it.
"""

import torch
from torch.nn import functional

from benchmarks import arrays as data

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def matmuls(arrays):
    """Times the similarity matrix and the two products of its gradient."""
    images, texts = _tensors(arrays, "images", "texts")

    def step():
        with torch.no_grad():
            matrix = images @ texts.T
            _ = matrix @ texts, matrix.T @ images
        if DEVICE.type == "cuda":
            torch.cuda.synchronize()

    return step


def hardest(arrays):
    """Times the sum of cosine hinges with each pair's hardest negatives."""
    owners, match = _owners_and_matches(arrays)
    return _learning(
        arrays, lambda images, texts: _hinges(images, texts, owners, match)
    )


def _owners_and_matches(arrays):
    match = torch.from_numpy(data.matches(arrays)).to(DEVICE)
    return *_tensors(arrays, "owners"), match


def _hinges(images, texts, owners, match):
    scores = images @ texts.T
    masked = scores.masked_fill(match, float("-inf"))
    positives = _positives(scores, owners)
    captions, photos = masked.amax(1)[owners], masked.amax(0)
    return sum(
        functional.relu(data.MARGIN + negatives - positives).sum()
        for negatives in (captions, photos)
    )


def _positives(scores, owners):
    return scores[owners, torch.arange(len(owners), device=DEVICE)]


def top_k(arrays):
    """Times the mean of active Euclidean hinges of the K hardest negatives."""
    owners, match = _owners_and_matches(arrays)
    k = min(data.NUM_NEGATIVES, len(match) - 1)

    def distances(scores):
        return (2 - 2 * scores).clamp_min(1e-12).sqrt()

    def loss(images, texts):
        scores = images @ texts.T
        masked = scores.masked_fill(match, float("-inf"))
        positive = distances(_positives(scores, owners))[:, None]
        captions = masked.topk(k, dim=1).values[owners]
        photos = masked.topk(k, dim=0).values.T
        total = 0
        for near in (captions, photos):
            hinges = functional.relu(data.MARGIN + positive - distances(near))
            total = total + hinges.sum() / (hinges > 0).sum().clamp_min(1)
        return total

    return _learning(arrays, loss)


def train_step(arrays):
    """Times a training step with two-layer branches, VSE++ and fused Adam."""
    sides = [_layers(arrays, name) for name in ("image", "text")]
    weights = [weight for side in sides for weight in side.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-4, fused=True)
    inputs = _tensors(arrays, "images", "texts")
    owners, match = _owners_and_matches(arrays)

    def step():
        optimizer.zero_grad(set_to_none=True)
        rows = [
            functional.normalize(side(features), dim=1)
            for side, features in zip(sides, inputs)
        ]
        loss = _hinges(*rows, owners, match)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def _layers(arrays, side):
    layers = []
    for place in range(2):
        weights = torch.from_numpy(arrays[f"{side}_{place}"].T.copy())
        layer = torch.nn.Linear(*weights.T.shape)
        with torch.no_grad():
            layer.weight.copy_(weights)
            layer.bias.zero_()
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1]).to(DEVICE)


def recalls(arrays):
    """Times the matrix product and the top-10 search in both directions."""
    images, texts = _tensors(arrays, "images", "texts")

    def step():
        with torch.no_grad():
            scores = images @ texts.T
            captions = scores.topk(10, dim=1).indices.numpy(force=True)
            photos = scores.T.topk(10, dim=1).indices.numpy(force=True)
        return data.recall_sum(arrays["owners"], captions, photos)

    return step


def clip(arrays):
    """Times ClipLoss of open_clip."""
    from open_clip.loss import ClipLoss

    loss, scale = ClipLoss(), torch.tensor(1 / data.TEMPERATURE, device=DEVICE)
    return _learning(arrays, lambda images, texts: loss(images, texts, scale))


def ranking_both(arrays):
    """Times MultipleNegativesRankingLoss in both directions."""
    from sentence_transformers.sentence_transformer import losses

    loss = losses.MultipleNegativesRankingLoss(
        torch.nn.Identity(),
        scale=1 / data.TEMPERATURE,
        directions=("query_to_doc", "doc_to_query"),
        partition_mode="per_direction",
    )
    return _learning(
        arrays,
        lambda *pair: loss.compute_loss_from_embeddings(list(pair), None),
    )


def hardest_metric(arrays):
    """Times BatchHardMiner and TripletMarginLoss in both directions."""
    from pytorch_metric_learning import distances, losses, miners, reducers

    distance = distances.CosineSimilarity()
    options = {"distance": distance, "reducer": reducers.SumReducer()}
    loss = losses.TripletMarginLoss(data.MARGIN, **options)
    return _two_ways(arrays, loss, miners.BatchHardMiner(distance=distance))


def all_metric(arrays):
    """Times TripletMarginLoss of all triplets in both directions."""
    from pytorch_metric_learning import distances, losses

    distance = distances.LpDistance(normalize_embeddings=False)
    loss = losses.TripletMarginLoss(data.MARGIN, distance=distance)
    return _two_ways(arrays, loss)


def crossed_metric(arrays):
    """Times the mean of NTXentLoss in both directions."""
    from pytorch_metric_learning import losses

    return _two_ways(arrays, losses.NTXentLoss(data.TEMPERATURE), ways=2)


def supervised_metric(arrays):
    """Times the mean of SupConLoss in both directions."""
    from pytorch_metric_learning import losses

    return _two_ways(arrays, losses.SupConLoss(data.TEMPERATURE), ways=2)


def _two_ways(arrays, loss, miner=lambda *_: None, ways=1):
    ids, owners = _tensors(arrays, "image_ids", "owners")

    def one_way(rows, labels, *others):
        return loss(rows, labels, miner(rows, labels, *others), *others)

    def total(images, texts):
        to_text = one_way(images, ids, texts, owners)
        return (to_text + one_way(texts, owners, images, ids)) / ways

    return _learning(arrays, total)


def _learning(arrays, loss):
    rows = [x.requires_grad_() for x in _tensors(arrays, "images", "texts")]

    def step():
        for row in rows:
            row.grad = None
        total = loss(*rows)
        total.backward()
        return total.item()

    return step


def _tensors(arrays, *names):
    return [torch.from_numpy(arrays[name]).to(DEVICE) for name in names]
