"""Rows in plain PyTorch: products, losses, a train step, an evaluation.

Plain means what one writes without a package for it: in eager mode, the whole
matrix of similarities, a mask, and what `autograd` makes of it.
"""

import torch
from torch.nn import functional

from benchmarks import peers_arrays as given


def matmuls(arrays):
    """The floor, by PyTorch: a matrix of similarities and two products."""
    images, texts = tensors(arrays, "images", "texts")

    def step():
        with torch.no_grad():
            matrix = images @ texts.T
            _ = matrix @ texts, matrix.T @ images

    return step


def within_matmuls(arrays):
    """The floor of one view."""
    return matmuls(given.one_view(arrays))


def hardest(arrays):
    """Each positive pair against the one hardest negative, cosine, summed."""
    owners = torch.from_numpy(arrays["owners"])
    match = torch.from_numpy(given.matches(arrays))
    return learning(
        arrays, lambda images, texts: _hinges(images, texts, owners, match)
    )


def _hinges(images, texts, owners, match):
    scores = images @ texts.T
    others = scores.masked_fill(match, float("-inf"))
    own = scores[owners, torch.arange(len(owners))]
    captions, photos = others.amax(1)[owners], others.amax(0)
    return sum(
        functional.relu(given.MARGIN + other - own).sum()
        for other in (captions, photos)
    )


def top_k(arrays):
    """Each positive pair against K hardest, Euclidean, mean of violations."""
    owners = torch.from_numpy(arrays["owners"])
    match = torch.from_numpy(given.matches(arrays))
    k = min(given.NUM_NEGATIVES, len(match) - 1)

    def distances(scores):
        return (2 - 2 * scores).clamp_min(1e-12).sqrt()

    def loss(images, texts):
        scores = images @ texts.T
        others = scores.masked_fill(match, float("-inf"))
        own = distances(scores[owners, torch.arange(len(owners))])[:, None]
        captions = others.topk(k, dim=1).values[owners]
        photos = others.topk(k, dim=0).values.T
        total = 0
        for near in (captions, photos):
            hinges = functional.relu(given.MARGIN + own - distances(near))
            total = total + hinges.sum() / (hinges > 0).sum().clamp_min(1)
        return total

    return learning(arrays, loss)


def train_step(arrays):
    """Two linear layers a side, the hardest negatives, Adam in one pass."""
    sides = [_layers(arrays, name) for name in ("image", "text")]
    weights = [one for side in sides for one in side.parameters()]
    optimizer = torch.optim.Adam(weights, lr=1e-4, fused=True)
    inputs = tensors(arrays, "images", "texts")
    owners = torch.from_numpy(arrays["owners"])
    match = torch.from_numpy(given.matches(arrays))

    def step():
        optimizer.zero_grad(set_to_none=True)
        rows = [
            functional.normalize(side(one), dim=1)
            for side, one in zip(sides, inputs)
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
    return torch.nn.Sequential(*layers[:-1])


def recalls(arrays):
    """The product, and the ten best by `topk` in both directions."""
    images, texts = tensors(arrays, "images", "texts")

    def step():
        with torch.no_grad():
            scores = images @ texts.T
            captions = scores.topk(10, dim=1).indices.numpy()
            photos = scores.T.topk(10, dim=1).indices.numpy()
        return given.recall_sum(arrays["owners"], captions, photos)

    return step


def learning(arrays, loss):
    """Returns a step: the loss and the gradients of all embeddings."""
    rows = [one.requires_grad_() for one in tensors(arrays, "images", "texts")]

    def step():
        for one in rows:
            one.grad = None
        total = loss(*rows)
        total.backward()
        return total.item()

    return step


def tensors(arrays, *names):
    """Returns arrays as tensors that share their memory."""
    return [torch.from_numpy(arrays[name]) for name in names]
