"""What canonical correlation analysis computes of covariances, in float64."""

import numpy as np

from tbnets.errors import InputError

NO_CORRELATION = 1e-6
# What sums of float32 products know of a variance.
ROUNDING = 1e-6


def cholesky_factor(covariance, regularization, name):
    """Returns the Cholesky factor of a regularised covariance.

    Args:
        covariance: float64 `[n, n]`; overwritten, so that big ones need less
            memory.
        regularization: share of the mean variance that is added to each
            variance; larger is smoother.
        name: what the features are of, for the error.

    Returns:
        float64 `[n, n]`, lower triangular.

    Raises:
        ValueError: features are not finite or never change, or the
            covariance is singular.
    """
    mean_variance = np.trace(covariance) / len(covariance)
    if not np.isfinite(mean_variance):
        raise InputError(
            f"The {name} features must hold finite numbers. Received: a mean "
            f"variance of {mean_variance}. Look for NaN and infinity in them."
        )
    if not mean_variance > 0:
        raise InputError(
            f"The {name} features must differ from row to row. Received: none "
            f"of {len(covariance)} ever changes. Extract them again."
        )
    diagonal = np.einsum("ii->i", covariance)
    diagonal += regularization * mean_variance
    try:
        factor = np.linalg.cholesky(covariance)
        # The share of a variance that the dimensions before leave open.
        shares = np.einsum("ii->i", factor) ** 2 / diagonal
    except np.linalg.LinAlgError:
        shares = np.zeros(1)
    if shares.min() <= ROUNDING:
        raise InputError(
            "`regularization` must be larger where features never change, are "
            "sums of others or more than rows. Received: regularization="
            f"{regularization:g}; the covariance of {len(covariance)} {name} "
            "features can not be inverted. Set `regularization` to 0.5."
        )
    return factor


def solve_cca(left, right, between, dim):
    """Solves for the directions in which two views correlate most.

    The left and right singular vectors of `L_x^-1 C_xy L_y^-T` are the
    directions of whitened features, its singular values the correlations.

    Args:
        left: float64 `[n, n]`, `cholesky_factor` of the images.
        right: float64 `[m, m]`, of the texts.
        between: float64 `[n, m]`, covariance of images with texts.
        dim: directions to keep, at most `min(n, m)`.

    Returns:
        (image_directions float64 `[n, dim]`, text_directions `[m, dim]`,
        correlations `[dim]`, falling). A direction is scaled to a regularised
        variance of 1; it is 0 where no correlation is left.

    Source: Hotelling 1936; Gong et al. 2014, Sec. 3.3, whose constant on the
    diagonal is not relative to the features' scale.
    """
    # The larger factor, of the texts, comes first: least memory at once.
    whitened = np.linalg.solve(left, np.linalg.solve(right, between.T).T)
    turned = len(left) > len(right)
    inner = whitened.T if turned else whitened
    squares, vectors = np.linalg.eigh(inner @ inner.T)
    order = np.argsort(squares, kind="stable")[::-1][:dim]
    correlations = np.sqrt(np.clip(squares[order], 0, 1))
    kept = correlations > NO_CORRELATION
    vectors = vectors[:, order] * kept
    others = inner.T @ vectors / np.where(kept, correlations, 1)
    if turned:
        vectors, others = others, vectors
    return (
        np.linalg.solve(left.T, vectors),
        np.linalg.solve(right.T, others),
        correlations * kept,
    )


def with_background(mean, images, between, background, share):
    """Adds regions without words to what pairs tell of images.

    Texts get one dimension more: `[text - mean text; 1]` for the text of a
    pair, `[0; 0]` for the text that background does not have.

    Args:
        mean: float64 `[n]`, mean of the images of pairs.
        images: float64 `[n, n]`, their covariance; overwritten.
        between: float64 `[n, m]`, their covariance with the texts.
        background: `PairSums` whose images are the regions without words.
        share: of the pairs among all rows, between 0 and 1.

    Returns:
        (mean `[n]`, images `[n, n]`, between `[n, m + 1]`) over all rows.
    """
    others = background.means()[0]
    gap = mean - others
    spread = share * (1 - share)
    between = np.column_stack([share * between, spread * gap])
    images *= share
    images += (1 - share) * background.covariance(0, 0)
    images += np.outer(spread * gap, gap)
    return share * mean + (1 - share) * others, images, between


def with_indicator(factor, share):
    """Returns the Cholesky factor of texts with their dimension more.

    What says whether a row is a pair is known exactly: it varies with no word
    and needs no regularization.

    Args:
        factor: float64 `[m, m]`, `cholesky_factor` of the texts of pairs.
        share: of the pairs among all rows.
    """
    factor = np.pad(np.sqrt(share) * factor, (0, 1))
    factor[-1, -1] = np.sqrt(share * (1 - share))
    return factor
