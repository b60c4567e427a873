"""Loop definitions of losses and pooling: slow, obvious, the specification.

Plain Python over NumPy arrays in float64. The library's tensor code is
compared with these; they are not part of the package.
"""

import functools
import math

import numpy as np

TERMS = (
    "image_to_text",
    "text_to_image",
    "text_to_text",
    "image_to_image",
)


def distance(x, y, name="euclidean"):
    """Distance of two unit vectors."""
    inner = float(np.dot(x, y))
    if name == "cosine":
        return 1.0 - inner
    return math.sqrt(max(2.0 - 2.0 * inner, 0.0))


def distance_slope(x, y, name="euclidean"):
    """Derivative of the distance by the inner product; 0 at distance 0."""
    if name == "cosine":
        return -1.0
    length = distance(x, y, name)
    return -1.0 / length if length > 0.0 else 0.0


def views(term, images, texts, masks):
    """Anchors, candidates, and masks of an anchor's positives and negatives."""
    i2t, t2t, i2i = (np.asarray(mask) for mask in masks)
    anchors, candidates, mask = {
        "image_to_text": (images, texts, i2t),
        "text_to_image": (texts, images, i2t.T),
        "text_to_text": (texts, texts, t2t),
        "image_to_image": (images, images, i2i),
    }[term]
    source, _, target = term.partition("_to_")
    other = ~(np.eye(*mask.shape, dtype=bool) & (source == target))
    return anchors, candidates, mask & other, ~mask & other


def ranking_loss(images, texts, masks, weights, term_loss):
    """Weighted sum of terms: total, terms, fractions, both gradients.

    `term_loss` maps the result of `views` to the loss, the active fraction and
    the gradients of anchors and candidates.
    """
    images, texts = (np.asarray(rows, np.float64) for rows in (images, texts))
    gradients = {"image": np.zeros(images.shape), "text": np.zeros(texts.shape)}
    total, terms, fractions = 0.0, {}, {}
    for term in TERMS:
        if not weights.get(term):
            continue
        terms[term], fractions[term], by_anchors, by_candidates = term_loss(
            *views(term, images, texts, masks)
        )
        total += weights[term] * terms[term]
        source, _, target = term.partition("_to_")
        gradients[source] += weights[term] * by_anchors
        gradients[target] += weights[term] * by_candidates
    return total, terms, fractions, gradients["image"], gradients["text"]


def triplet_term(
    *views, margin, num_negatives, name="euclidean", reduction="mean_active"
):
    """Hinges of anchors: loss, active fraction, gradients of both sides.

    Of an anchor's negatives the closest count; all if `num_negatives` is None.
    """
    anchors, candidates, positive, negative = views
    by_anchors, by_candidates = np.zeros(anchors.shape), 0.0 * candidates
    total, count, active = 0.0, 0, 0
    for a, anchor in enumerate(anchors):
        far = [distance(anchor, other, name) for other in candidates]
        slope = [distance_slope(anchor, other, name) for other in candidates]
        negatives = sorted(np.flatnonzero(negative[a]), key=lambda n: far[n])
        for p in np.flatnonzero(positive[a]):
            for n in negatives[:num_negatives]:
                count += 1
                hinge = margin + far[p] - far[n]
                if hinge <= 0.0:
                    continue
                total, active = total + hinge, active + 1
                by_anchors[a] += slope[p] * candidates[p]
                by_anchors[a] -= slope[n] * candidates[n]
                by_candidates[p] += slope[p] * anchor
                by_candidates[n] -= slope[n] * anchor
    divisor = {"sum": 1, "mean": count, "mean_active": active}[reduction] or 1
    by_both = by_anchors / divisor, by_candidates / divisor
    return total / divisor, active / max(count, 1), *by_both


def triplet_loss(images, texts, masks, weights, margin, num_negatives, *how):
    """The `ranking_loss` of triplets; `how`: the distance and the reduction."""
    options = dict(zip(("name", "reduction"), how))
    options |= {"margin": margin, "num_negatives": num_negatives}
    term_loss = functools.partial(triplet_term, **options)
    return ranking_loss(images, texts, masks, weights, term_loss)


def contrastive_loss(regions, phrases, region_of, is_contrast, weights, margin):
    """Eq. 9-10 of Niu 2017: loss, gradients of regions and phrases."""
    by_regions, by_phrases = np.zeros(regions.shape), np.zeros(phrases.shape)
    total = 0.0
    for k, weight in enumerate(weights):
        v, h = regions[region_of[k]], phrases[k]
        for j in range(len(phrases)):
            hinge = margin - v @ h + v @ phrases[j]
            if is_contrast[region_of[k], j] and hinge > 0:
                total += weight * hinge
                by_regions[region_of[k]] += weight * (phrases[j] - h)
                by_phrases[j] += weight * v
                by_phrases[k] -= weight * v
        for j in range(len(regions)):
            hinge = margin - h @ v + h @ regions[j]
            if is_contrast[j, k] and hinge > 0:
                total += weight * hinge
                by_phrases[k] += weight * (regions[j] - v)
                by_regions[j] += weight * h
                by_regions[region_of[k]] -= weight * h
    return total, by_regions, by_phrases


def anchor_term(
    anchors, candidates, positive, negative, anchor_loss, weights=None
):
    """Mean loss of the anchors that have a positive and a negative.

    `anchor_loss` maps the similarities of an anchor's positives and of its
    negatives to its loss, and to the derivatives for the positives and then
    for the negatives. Returns the loss, the fraction of anchors whose closest
    candidate is not a positive, and the gradients of both sides.
    """
    by_anchors, by_candidates = np.zeros(anchors.shape), 0.0 * candidates
    total, counted, wrong = 0.0, 0, 0
    for a, anchor in enumerate(anchors):
        own = [j for j in range(len(candidates)) if positive[a, j]]
        others = [j for j in range(len(candidates)) if negative[a, j]]
        if not own or not others:
            continue
        near = [anchor @ candidates[j] for j in own]
        far = [anchor @ candidates[j] for j in others]
        weight = 1.0 if weights is None else weights[a]
        loss, slopes = anchor_loss(near, far)
        total += weight * loss
        counted += 1
        wrong += max(far) >= max(near)
        for j, slope in zip(own + others, slopes):
            by_anchors[a] += weight * slope * candidates[j]
            by_candidates[j] += weight * slope * anchor
    count = max(counted, 1)
    sums = total, wrong, by_anchors, by_candidates
    return tuple(one / count for one in sums)


def loss_of_anchors(images, texts, masks, weights, anchor_loss):
    """The `ranking_loss` of `anchor_term`."""
    term_loss = functools.partial(anchor_term, anchor_loss=anchor_loss)
    return ranking_loss(images, texts, masks, weights, term_loss)


def infonce(near, far, temperature):
    """Eq. 2 of Khosla 2020, L_out, for one anchor; see `anchor_term`.

    The mean over the positives of minus the log of their softmax probability.
    """
    logits = [similarity / temperature for similarity in near + far]
    exponentials = [math.exp(logit - max(logits)) for logit in logits]
    shares = [value / sum(exponentials) for value in exponentials]
    count = len(near)
    loss = -sum(math.log(share) for share in shares[:count]) / count
    wanted = [1 / count] * count + [0] * len(far)
    return loss, [(s - w) / temperature for s, w in zip(shares, wanted)]


def positive_masks(image_ids, caption_image_ids, text_ids=None):
    """Masks image-text, text-text and image-image, pair by pair."""
    n, m = len(image_ids), len(caption_image_ids)
    texts = list(range(m)) if text_ids is None else list(text_ids)
    described = [
        {texts[j] for j in range(m) if caption_image_ids[j] == image_ids[i]}
        for i in range(n)
    ]
    i2t = np.zeros((n, m), bool)
    t2t = np.zeros((m, m), bool)
    i2i = np.zeros((n, n), bool)
    for i in range(n):
        for j in range(m):
            same = caption_image_ids[j] == image_ids[i]
            i2t[i, j] = same or texts[j] in described[i]
        for j in range(n):
            same = image_ids[i] == image_ids[j]
            i2i[i, j] = same or bool(described[i] & described[j])
    for i in range(m):
        for j in range(m):
            same = caption_image_ids[i] == caption_image_ids[j]
            t2t[i, j] = same or texts[i] == texts[j]
    return i2t, t2t, i2i


def logistic_loss(logits, is_match, valid):
    """Eq. 7 of Wang 2018 as a mean: loss, both sides' means, accuracy, slopes.

    The slopes are the derivatives of the loss by each logit.
    """
    kept = [p for p in range(len(logits)) if valid[p]]
    sides = {True: [], False: []}
    slopes, right = np.zeros(len(logits)), 0
    for p in kept:
        label = 1.0 if is_match[p] else -1.0
        sides[bool(is_match[p])].append(np.logaddexp(0.0, -label * logits[p]))
        slopes[p] = -label / (1.0 + math.exp(label * logits[p])) / len(kept)
        right += label * logits[p] > 0
    means = [np.mean(sides[side]) if sides[side] else 0.0 for side in sides]
    total = sum(map(sum, sides.values())) / len(kept) if kept else 0.0
    return total, *means, right / len(kept) if kept else 0.0, slopes


def softmax_loss(matches, others, valid):
    """Of each list, minus the log of the match's share: loss, first, slopes.

    The slopes are the derivatives of the loss by matches and by others.
    """
    rows = [i for i in range(len(matches)) if any(valid[i])]
    by_match, by_other = np.zeros(len(matches)), np.zeros(np.shape(others))
    total, first = 0.0, 0
    for i in rows:
        columns = [j for j in range(len(others[i])) if valid[i][j]]
        most = max(matches[i], *(others[i][j] for j in columns))
        weights = {j: math.exp(others[i][j] - most) for j in columns}
        whole = sum(weights.values()) + math.exp(matches[i] - most)
        total += most + math.log(whole) - matches[i]
        first += all(others[i][j] < matches[i] for j in columns)
        for j in columns:
            by_other[i, j] = weights[j] / whole / len(rows)
        by_match[i] = -sum(by_other[i])
    count = max(len(rows), 1)
    return total / count, first / count, by_match, by_other


def random_columns(mask, rows, draws):
    """For each entry, the column that a draw in [0, 1) picks; -1: none."""
    found = np.full(np.shape(draws), -1)
    for p, row in enumerate(rows):
        eligible = [
            j for j in range(mask.shape[1]) if row >= 0 and mask[row, j]
        ]
        for k, draw in enumerate(draws[p]):
            if eligible:
                found[p, k] = eligible[int(np.float32(draw) * len(eligible))]
    return found


def pair_sample(image_ids, caption_image_ids, text_ids, draws):
    """A caption's own image, and captions drawn that do not match it.

    Returns lists with an entry a caption: the row of the image and the
    captions drawn, -1 and [] where there is no image or no such caption.
    """
    matches = positive_masks(image_ids, caption_image_ids, text_ids)[0]
    images, negatives = [], []
    for caption, owner in enumerate(caption_image_ids):
        image = list(image_ids).index(owner) if owner in image_ids else -1
        drawn = random_columns(~matches, [image], draws[caption : caption + 1])
        some = bool((drawn >= 0).all())
        images.append(image if some else -1)
        negatives.append(drawn[0].tolist() if some else [])
    return images, negatives


def pair_logits(images, texts, kernels, biases):
    """The similarity network's head, pair by pair: float64 `[n, m]`."""
    logits = np.zeros((len(images), len(texts)))
    for i in range(len(images)):
        for j in range(len(texts)):
            values = images[i] * texts[j]
            for layer, (kernel, bias) in enumerate(zip(kernels, biases)):
                values = values @ kernel + bias
                if layer < len(kernels) - 1:
                    values = np.maximum(values, 0.0)
            logits[i, j] = values[0]
    return logits


def mixture_log_likelihood(point, weights, locations, scales, laplacian):
    """log p(x) of a hybrid mixture, one density at a time."""
    total = 0.0
    for k, weight in enumerate(weights):
        density = weight
        for d, x in enumerate(point):
            z = (x - locations[k][d]) / scales[k][d]
            if laplacian[k][d]:
                density *= math.exp(-abs(z)) / (2 * scales[k][d])
            else:
                height = math.sqrt(2 * math.pi) * scales[k][d]
                density *= math.exp(-z * z / 2) / height
        total += density
    return math.log(total)


def fisher_vector(points, weights, locations, scales, laplacian):
    """Fisher vector of the words of one sentence, float64 `[2 K dim]`.

    Arrays are those of a `HybridMixture`; a sentence at a time, as one writes
    it first.
    """
    z = (points[:, None, :] - locations) / scales
    logs = np.where(laplacian, -np.abs(z), -z * z / 2)
    heights = np.where(laplacian, 2.0, math.sqrt(2 * math.pi)) * scales
    logs = (logs - np.log(heights)).sum(axis=2) + np.log(weights)
    owners = np.exp(logs - logs.max(axis=1, keepdims=True))
    owners /= owners.sum(axis=1, keepdims=True)
    first = np.where(laplacian, np.sign(z), z)
    second = np.where(laplacian, np.abs(z) - 1, (z * z - 1) / math.sqrt(2))
    gradients = np.concatenate([first, second], axis=2)
    gradients *= (owners / np.sqrt(weights))[:, :, None]
    total = gradients.sum(axis=0).ravel()
    total = np.sign(total) * np.sqrt(np.abs(total))
    length = np.sqrt(np.sum(total * total))
    return total / length if length else total


def overlap(a, b):
    """Intersection of two boxes over their union."""
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    common = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
    return common / (union - common) if union > common else 0.0


def proposal_roles(truth, proposals, positives, bounds):
    """Positive and negative proposals of one phrase, rows of its photo.

    Bounds are the overlaps of positives (more), of negatives (less) and of a
    best proposal that is one in any case (at least).
    """
    more, less, least = bounds
    overlaps = [overlap(truth, box) for box in proposals]
    found = [i for i, value in enumerate(overlaps) if value > more]
    if positives == "single":
        found = []
    if overlaps and max(overlaps) >= least and max(overlaps) > 0:
        found = sorted({*found, overlaps.index(max(overlaps))})
    negatives = [i for i, value in enumerate(overlaps) if value < less]
    return found, [i for i in negatives if i not in found]


def roles_of_equal_texts(roles, photos, texts):
    """Roles where equal texts of one photo cannot be told apart.

    Negative is what is negative for all phrases of the photo that read the
    same; else what was negative is 0, neither.
    """
    found = [list(row) for row in roles]
    for p, row in enumerate(roles):
        for q, other in enumerate(roles):
            if photos[p] != photos[q] or texts[p] != texts[q]:
                continue
            for column, role in enumerate(row):
                if role == -1 and other[column] != -1:
                    found[p][column] = 0
    return found


def interpolated(feature_map, x, y):
    """A map between the centres of its cells; beyond them, the nearest.

    The centre of the first cell lies at 0.5, 0.5.
    """

    def neighbours(place, count):
        place = min(max(place - 0.5, 0.0), count - 1.0)
        low = min(int(place), count - 1)
        return low, min(low + 1, count - 1), place - low

    top, bottom, down = neighbours(y, len(feature_map))
    left, right, across = neighbours(x, len(feature_map[0]))
    upper = (1 - across) * feature_map[top][left]
    upper = upper + across * feature_map[top][right]
    lower = (1 - across) * feature_map[bottom][left]
    lower = lower + across * feature_map[bottom][right]
    return (1 - down) * upper + down * lower


def roi_average(feature_map, box, num_samples=64):
    """The mean of a map at evenly spaced points of a box, in cells."""
    x_min, y_min, x_max, y_max = (float(edge) for edge in box)
    total = np.zeros(feature_map.shape[-1])
    for i in range(num_samples):
        for j in range(num_samples):
            x = x_min + (x_max - x_min) * (i + 0.5) / num_samples
            y = y_min + (y_max - y_min) * (j + 0.5) / num_samples
            total += interpolated(feature_map, x, y)
    return total / num_samples**2


def box_geometry(box, width, height):
    """Corners and area of a box, as fractions of its photo."""
    x_min, y_min, x_max, y_max = (float(edge) for edge in box)
    area = (x_max - x_min) * (y_max - y_min)
    return [
        x_min / width,
        y_min / height,
        x_max / width,
        y_max / height,
        area / (width * height),
    ]


def algorithm_1(regions, phrases, chains, candidates, is_negative, limits):
    """Triplets of Wang 2018, Algorithm 1, 3 (a) and (b), as two dicts.

    `chains` are those of the regions and of the phrases; `limits` are the
    margin and K. The first dict maps (x, y, y') to its loss, the second (y,
    x, x'), where x' is a row of `candidates`.
    """
    margin, most = limits
    by_region, by_phrase = {}, {}
    for x, region in enumerate(regions):
        for y, phrase in enumerate(phrases):
            if chains[0][x] != chains[1][y]:
                continue
            near = margin + distance(region, phrase)
            losses = {
                (x, y, other): near - distance(region, phrases[other])
                for other in range(len(phrases))
                if chains[0][x] != chains[1][other]
            }
            by_region |= highest(losses, most)
            losses = {
                (y, x, other): near - distance(phrase, candidates[other])
                for other in range(len(candidates))
                if is_negative[y][other]
            }
            by_phrase |= highest(losses, most)
    return by_region, by_phrase


def highest(losses, most):
    """At most so many triplets with the highest nonnegative loss."""
    kept = sorted(losses, key=lambda key: -losses[key])[:most]
    return {key: losses[key] for key in kept if losses[key] >= 0}


def hard_negatives(similarities, roles, most):
    """Columns of the negatives that rank before a positive, a list a phrase.

    `roles` are 1 for a positive, -1 for a negative, 0 for neither.
    """
    found = []
    for values, role in zip(similarities, roles):
        right = [s for s, r in zip(values, role) if r == 1]
        wrong = [
            column
            for column in range(len(role))
            if role[column] == -1 and right and values[column] > min(right)
        ]
        wrong.sort(key=lambda column: -values[column])
        found.append(wrong[:most])
    return found


def h_lstm(tree, vectors, weights, functions):
    """States of a tree's nodes, in preorder: Niu et al. 2017, Eq. 2-8.

    `vectors` are those of the tree's words, `weights` are named as in
    `TreeLSTM`, and `functions` are the sigmoid and the tangent. Every state is
    `[1, units]`.
    """
    sigmoid, tanh = functions
    hidden, cells = [None] * tree.num_nodes, [None] * tree.num_nodes
    words = len(tree.words)
    for node in reversed(range(tree.num_nodes)):  # Children before parents.
        z, left = weights["bias"], 0.0
        if tree.texts[node]:
            words -= 1
            z = z + vectors[words : words + 1] @ weights["kernel"]
        for child, parent in enumerate(tree.parents):
            if parent == node:
                kind = "noun" if tree.labels[child] == "NP" else "other"
                h = hidden[child]
                f = h @ weights[f"{kind}_forget"] + weights["forget_bias"]
                left = left + sigmoid(f) * cells[child]
                z = z + h @ weights[f"{kind}_gates"]
        units = weights["forget_bias"].shape[-1]
        i, o = sigmoid(z[:, :units]), sigmoid(z[:, units : 2 * units])
        cells[node] = i * tanh(z[:, 2 * units :]) + left
        hidden[node] = o * tanh(cells[node])
    return hidden


def is_whole_tree(rows, vocabulary_size):
    """Whether padded rows `[nodes, 6]` are a tree; see `packed_trees`."""
    rows = [list(map(int, row)) for row in rows]
    count = sum(row[2] > 0 for row in rows)
    nodes, padding = rows[:count], rows[count:]
    if not nodes or any(any(row) for row in padding):
        return False
    num_words = sum(level == 1 for _, _, level, *_ in nodes)
    has_child = set()
    for place, (word, parent, level, noun_phrase, start, end) in enumerate(
        nodes
    ):
        if (word > 0) != (level == 1) or not 0 <= word < vocabulary_size:
            return False
        if noun_phrase not in (0, 1) or not 0 <= start < end <= num_words:
            return False
        if place == count - 1:
            if parent:
                return False
            continue
        if not place < parent < count or nodes[parent][2] <= level:
            return False
        if nodes[place + 1][2] - level not in (0, 1):
            return False
        has_child.add(parent)
    return all(
        row[2] == 1 or place in has_child for place, row in enumerate(nodes)
    )


def best_rows(queries, rows, k):
    """Returns the k rows of the largest dot product with each query.

    Of equal ones the first comes first: what a search is to find.
    """
    found = []
    for query in queries:
        values = [sum(a * b for a, b in zip(query, row)) for row in rows]
        order = sorted(range(len(rows)), key=lambda row: (-values[row], row))
        found.append([(row, values[row]) for row in order[:k]])
    return found


def softmax_weights(similarities, temperature):
    """Softmax of similarities over a temperature."""
    best = max(similarities)
    terms = [math.exp((each - best) / temperature) for each in similarities]
    return [term / math.fsum(terms) for term in terms]


def box_weights(similarities, boxes, temperature, area_exponent):
    """Softmax of similarities, each times the box's area to a power."""
    weights = softmax_weights(similarities, temperature)
    areas = [(b[2] - b[0]) * (b[3] - b[1]) for b in boxes]
    sized = [w * area**area_exponent for w, area in zip(weights, areas)]
    total = math.fsum(sized)
    return [each / total for each in sized] if total > 0 else weights


def expected_overlap(similarities, boxes, candidate, temperature, exponent=0):
    """What a candidate overlaps on average of what softmax draws."""
    weights = box_weights(similarities, boxes, temperature, exponent)
    return math.fsum(
        weight * (other == candidate or overlap(boxes[candidate], box))
        for other, (weight, box) in enumerate(zip(weights, boxes))
    )


def mean_box(similarities, boxes, candidate, temperature, exponent=0):
    """Mean of a candidate and what overlaps it by half, softmax weighs."""
    near = [
        other
        for other in range(len(boxes))
        if other == candidate or overlap(boxes[candidate], boxes[other]) >= 0.5
    ]
    own = [similarities[j] for j in near], [boxes[j] for j in near]
    weights = box_weights(*own, temperature, exponent)
    return [
        math.fsum(weight * boxes[j][edge] for weight, j in zip(weights, near))
        for edge in range(4)
    ]


def bank_level(scores, temperature):
    """What a candidate scores with the queries of a bank, softly the most."""
    total = math.fsum(math.exp(score / temperature) for score in scores)
    return temperature * math.log(total / len(scores))
