"""Choices as data: rankings, best-of sets, pairs and ratings, turned into events that the model knows the probability
of.

Three kinds of event concern three items i, j, k: the *order* i over j over k; i *best*, with j and k tied or unasked;
and k *worst*, with i and j tied. A *pair* is i over j. Ties are events and never broken at random. A longer ranking
enters as all its triples (a composite likelihood) and is kept whole for the exact one.

Counts add up: `ChoiceData.concat` joins shards that were made on different machines.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from assay.core.errors import InputError
from assay.probit._arguments import require_seed, require_whole

if TYPE_CHECKING:
    from os import PathLike

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["BEST", "KIND_NAMES", "ORDER", "WORST", "ChoiceData", "Distinct", "parse_answer"]

ORDER, BEST, WORST = 0, 1, 2
KIND_NAMES = ("order", "best", "worst")

NOTHING_ABSENT = "names or numbers; leave out what isn't ranked"

BLOCK = 1_000_000
"""Events that are made at a time."""

Weighting = Literal["user", "triple"]
Groups = tuple[tuple[int, ...], ...]
"""Items from best to worst; a group of more than one is a tie."""


@dataclass(frozen=True)
class Distinct:
    """The distinct events of some choices, with what each weighs.

    Attributes
    ----------
    triples : ndarray of int64, shape (events, 3)
        Items i, j, k.
    kinds : ndarray of int64, shape (events,)
        `ORDER`, `BEST` or `WORST`.
    weights : ndarray of float64, shape (events,)
        How often it happened, perhaps weighted by respondent.
    pairs : ndarray of int64, shape (pairs, 2)
        Winner and loser.
    pair_weights : ndarray of float64, shape (pairs,)
        How often it happened.
    triple_index, pair_index : ndarray of int64
        For every answer, which distinct event it is.
    answer_weights, pair_answer_weights : ndarray of float64
        What every answer weighs.
    """

    triples: Ints
    kinds: Ints
    weights: Floats
    pairs: Ints
    pair_weights: Floats
    triple_index: Ints
    pair_index: Ints
    answer_weights: Floats
    pair_answer_weights: Floats

    @property
    def total(self) -> float:
        """The sum of all weights."""
        return float(self.weights.sum() + self.pair_weights.sum())


@dataclass(frozen=True, eq=False)
class ChoiceData:
    """Who chose what: the input of every fit.

    Made by one of the class methods `from_rankings`, `from_best`, `from_pairs`, `from_ratings`, `from_preflib`,
    `from_trl` and `from_completions`, or read from a file by `read_choices`.

    Parameters
    ----------
    items : tuple
        The items, hashable; all arrays hold positions in it.
    users : tuple
        The respondents.
    triples : ndarray of int64, shape (events, 3)
        Items i, j, k of every event about three items.
    kinds : ndarray of int64, shape (events,)
        0 for the order i, j, k; 1 for i best; 2 for k worst.
    triple_users : ndarray of int64, shape (events,)
        The respondent of each.
    pairs : ndarray of int64, shape (pairs, 2)
        Winner and loser of every pair.
    pair_users : ndarray of int64, shape (pairs,)
        The respondent of each.
    long_answers : tuple
        Answers about more than three items as (user, groups), for the exact likelihood.
    of_long : ndarray of bool, shape (events,), optional
        Which events were made of long answers.
    dropped : mapping of str to int
        What was left out, and how often.

    Examples
    --------
    >>> data = ChoiceData.from_rankings([["tea", "milk", "beer"], ["beer", "tea", "milk"], ["tea", "beer", "milk"]])
    >>> data.n_items, data.n_users, data.n_events
    (3, 3, 3)
    """

    items: tuple[Hashable, ...]
    users: tuple[Hashable, ...]
    triples: Ints
    kinds: Ints
    triple_users: Ints
    pairs: Ints
    pair_users: Ints
    long_answers: tuple[tuple[int, Groups], ...] = ()
    of_long: NDArray[np.bool_] | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def n_items(self) -> int:
        """How many items."""
        return len(self.items)

    @property
    def n_users(self) -> int:
        """How many respondents."""
        return len(self.users)

    @property
    def n_events(self) -> int:
        """How many events, of three items and of two."""
        return len(self.triples) + len(self.pairs)

    @property
    def pairs_only(self) -> bool:
        """Whether nothing but pairs was asked, which can't identify a covariance."""
        return len(self.pairs) > 0 and not len(self.triples)

    def position(self, item: Hashable) -> int:
        """Where an item is in `items`.

        Raises
        ------
        InputError
            The item isn't among them.
        """
        try:
            return self._positions[item]
        except (KeyError, TypeError):
            raise InputError(f"unknown item {item!r}", expected=f"one of {shown(self.items)}") from None

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {item: index for index, item in enumerate(self.items)}

    @classmethod
    def from_rankings(
        cls,
        rankings: Iterable[Sequence[Any]] | NDArray[Any],
        *,
        users: Sequence[Hashable] | None = None,
        items: Sequence[Hashable] | None = None,
        max_triples_per_user: int | None = None,
        random_state: int = 0,
    ) -> ChoiceData:
        """Choices from rankings of two or more items, best first.

        Parameters
        ----------
        rankings : iterable of sequences, or array of shape (n, m)
            Each the items from best to worst. A list or set inside is a tie: ``["a", ["b", "c"]]`` is a best of three,
            and so is the text ``"a>b~c"``.
        users : sequence, optional
            Who gave each ranking; every ranking is another person's when left out.
        items : sequence, optional
            All items, where the order matters or some may be absent; those that occur, sorted where they can be, when
            left out.
        max_triples_per_user : int, optional
            Keep at most so many triples of a person, drawn at random.
        random_state : int
            The seed of that draw.

        Returns
        -------
        ChoiceData

        Raises
        ------
        InputError
            An item occurs twice in a ranking, or isn't among `items`; or there are fewer than three items.

        Examples
        --------
        >>> data = ChoiceData.from_rankings([["a", ["b", "c"]], [["a", "b"], "c"]])
        >>> data.kinds.tolist()  # a best, c worst
        [1, 2]
        """
        users = None if users is None else list(users)
        if isinstance(rankings, np.ndarray) and rankings.ndim == 2:
            return cls._from_ranking_array(rankings, users, items, max_triples_per_user, random_state)
        if isinstance(rankings, str) or (isinstance(rankings, np.ndarray) and rankings.ndim != 1):
            what = "text" if isinstance(rankings, str) else f"of shape {rankings.shape}"
            raise InputError(f"rankings is {what}", expected="a list of rankings, or an array of shape (n, m)")
        grouped = [_groups_of(ranking, row) for row, ranking in enumerate(rankings)]
        names, positions = _items(items, (item for ranking in grouped for group in ranking for item in group))
        builder = _Builder(names, users, len(grouped), max_triples_per_user, random_state)
        for row, ranking in enumerate(grouped):
            groups = tuple(tuple(_look_up(positions, item, row) for item in group) for group in ranking)
            flat = [item for group in groups for item in group]
            if len(set(flat)) < len(flat):
                twice = next(item for place, item in enumerate(flat) if item in flat[:place])
                raise InputError(f"ranking {row} holds the item {names[twice]!r} twice", expected="each item once")
            builder.add(row, groups)
        return builder.build(cls)

    @classmethod
    def _from_ranking_array(
        cls,
        rankings: NDArray[Any],
        users: Sequence[Hashable] | None,
        items: Sequence[Hashable] | None,
        limit: int | None,
        seed: int,
    ) -> ChoiceData:
        """Rankings of equal length without ties, by whole columns."""
        absent = (
            np.array([[_is_absent(item) for item in row] for row in rankings.tolist()], dtype=bool)
            if (rankings.dtype.kind in "fOc")
            else np.zeros((0, 0), dtype=bool)
        )
        if absent.any():
            raise InputError(f"ranking {int(absent.any(axis=1).argmax())} holds None or NaN", expected=NOTHING_ABSENT)
        try:
            values, codes = np.unique(rankings, return_inverse=True)
        except TypeError:
            return cls.from_rankings(
                rankings.tolist(), users=users, items=items, max_triples_per_user=limit, random_state=seed
            )
        codes = codes.reshape(rankings.shape)
        names, positions = _items(items, values.tolist())
        if items is not None:
            unknown = [value for value in values.tolist() if value not in positions]
            if unknown:
                row = int((rankings == unknown[0]).any(axis=1).argmax())
                raise InputError(
                    f"answer {row} holds the unknown item {unknown[0]!r}", expected=f"one of {shown(names)}"
                )
            codes = np.array([positions[value] for value in values.tolist()], dtype=np.int64)[codes]
        codes = codes.astype(np.int64)
        ordered = np.sort(codes, axis=1)
        twice = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if twice.any():
            raise InputError(f"ranking {int(twice.argmax())} holds an item twice", expected="each item once")
        builder = _Builder(names, users, len(codes), limit, seed)
        builder.add_strict(codes)
        return builder.build(cls)

    @classmethod
    def from_best(
        cls,
        sets: Iterable[Iterable[Hashable]],
        chosen: Iterable[Hashable],
        *,
        users: Sequence[Hashable] | None = None,
        items: Sequence[Hashable] | None = None,
        max_triples_per_user: int | None = None,
        random_state: int = 0,
    ) -> ChoiceData:
        """Choices of the best item of a set ("best of three").

        Parameters
        ----------
        sets : iterable of iterables
            The items that were shown.
        chosen : iterable
            The one that was chosen of each.
        users : sequence, optional
            Who chose.
        items : sequence, optional
            All items.
        max_triples_per_user : int, optional
            As for `from_rankings`.
        random_state : int
            As for `from_rankings`.

        Returns
        -------
        ChoiceData

        Raises
        ------
        InputError
            The chosen item wasn't shown, or a set holds an item twice.

        Examples
        --------
        >>> ChoiceData.from_best([["bus", "car", "train"]], ["car"]).triples.tolist()
        [[1, 0, 2]]
        """
        rankings = []
        listed_sets, listed_chosen = list(sets), list(chosen)
        if len(listed_sets) != len(listed_chosen):
            raise InputError(f"chosen has {len(listed_chosen)} entries", expected=f"{len(listed_sets)}, one a set")
        for row, (shown_items, best) in enumerate(zip(listed_sets, listed_chosen, strict=True)):
            rest = list(shown_items)
            if best not in rest:
                raise InputError(f"choice {row}: {best!r} wasn't shown", expected=f"one of {shown(rest)}")
            rest.remove(best)
            rankings.append([best, rest] if rest else [best])
        return cls.from_rankings(
            rankings, users=users, items=items, max_triples_per_user=max_triples_per_user, random_state=random_state
        )

    @classmethod
    def from_pairs(
        cls,
        pairs: Iterable[Sequence[Hashable]] | NDArray[Any],
        *,
        users: Sequence[Hashable] | None = None,
        items: Sequence[Hashable] | None = None,
    ) -> ChoiceData:
        """Choices between two items. Alone they identify means only.

        Parameters
        ----------
        pairs : iterable of (winner, loser)
            The comparisons.
        users : sequence, optional
            Who compared.
        items : sequence, optional
            All items.

        Returns
        -------
        ChoiceData

        Examples
        --------
        >>> ChoiceData.from_pairs([("a", "b"), ("b", "c")]).pairs_only
        True
        """
        rows = [list(pair) for pair in pairs]
        for row, pair in enumerate(rows):
            if len(pair) != 2:
                raise InputError(f"pair {row} has {len(pair)} items", expected="a winner and a loser")
        return cls.from_rankings(rows, users=users, items=items)

    @classmethod
    def from_ratings(
        cls,
        ratings: Any,
        *,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        items: Sequence[Hashable] | None = None,
        max_triples_per_user: int | None = 2000,
        random_state: int = 0,
    ) -> ChoiceData:
        """Choices implied by ratings: whoever rates a over b over c would rank them so; equal ratings are ties.

        Parameters
        ----------
        ratings : pandas or polars data frame, or mapping of columns
            One row a rating, higher is better.
        user, item, rating : str
            The columns.
        items : sequence, optional
            Keep only these items.
        max_triples_per_user : int, optional
            Keep at most so many triples of a person, drawn at random: a person with 700 ratings has 57 million.
        random_state : int
            The seed of that draw.

        Returns
        -------
        ChoiceData
            Ratings that are NaN are left out, and counted in `dropped`.

        Raises
        ------
        InputError
            A column is missing, a rating isn't a number, or a person rated an item twice.

        Examples
        --------
        >>> table = {"user": [1, 1, 1], "item": ["a", "b", "c"], "rating": [5.0, 3.0, 3.0]}
        >>> ChoiceData.from_ratings(table).kinds.tolist()  # a is best; b and c are tied
        [1]
        """
        people, things, values = (_column(ratings, name) for name in (user, item, rating))
        if not len(people) == len(things) == len(values):
            raise InputError(
                f"the columns have {len(people)}, {len(things)} and {len(values)} rows", expected="as many in each"
            )
        if any(_is_absent(who) for who in people.tolist()):
            raise InputError(f"column {user!r} holds None or NaN", expected="a user in every row")
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError):
            raise InputError(f"column {rating!r} holds something else than numbers", expected="ratings") from None
        kept = ~np.isnan(values)
        dropped = {"ratings that are NaN": int((~kept).sum())} if not kept.all() else {}
        if items is not None:
            wanted = set(items)
            kept &= np.fromiter((thing in wanted for thing in things.tolist()), dtype=bool, count=len(things))
        people, things, values = people[kept], things[kept], values[kept]
        names, positions = _items(items, things.tolist())
        codes = np.fromiter((positions[thing] for thing in things.tolist()), dtype=np.int64, count=len(things))
        user_names, user_codes = np.unique(people, return_inverse=True)
        order = np.lexsort((codes, user_codes))
        codes, values, user_codes = codes[order], values[order], user_codes[order]
        twice = (codes[1:] == codes[:-1]) & (user_codes[1:] == user_codes[:-1])
        if twice.any():
            place = int(twice.argmax())
            who, what = user_names[user_codes[place]], names[codes[place]]
            raise InputError(f"user {who!r} rated the item {what!r} twice", expected="one rating of an item by a user")
        builder = _Builder(names, user_names.tolist(), len(user_names), max_triples_per_user, random_state)
        builder.dropped.update(dropped)
        starts = np.flatnonzero(np.r_[True, user_codes[1:] != user_codes[:-1], True])
        lengths = np.diff(starts)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            places = starts[rows][:, None] + np.arange(length)
            builder.add_rated(rows, codes[places], values[places])
        return builder.build(cls)

    @classmethod
    def from_preflib(cls, path: str | PathLike[str], **options: Any) -> ChoiceData:
        r"""Choices from a PrefLib file: .soc, .soi, .toc or .toi.

        Parameters
        ----------
        path : path
            The file.
        **options
            As for `from_rankings`.

        Returns
        -------
        ChoiceData

        Raises
        ------
        InputError
            The file is damaged (naming the line).

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> file = Path(mkdtemp(), "drinks.soc")
        >>> names = [f"# ALTERNATIVE NAME {1 + place}: {name}" for place, name in enumerate(["tea", "milk", "beer"])]
        >>> _ = file.write_text("\n".join([*names, "2: 1,3,2"]))
        >>> ChoiceData.from_preflib(file).n_users
        2
        """
        from assay.probit.choice_files import read_preflib

        return read_preflib(path, **options)

    @classmethod
    def from_trl(
        cls, dataset: Iterable[Mapping[str, Any]], *, chosen: str = "chosen", rejected: str = "rejected"
    ) -> ChoiceData:
        """Choices from a preference data set of TRL: rows with a chosen and a rejected completion.

        Parameters
        ----------
        dataset : iterable of mappings
            A Hugging Face `Dataset` or a list of rows. Two completions make a pair, whatever the prompt, so the data
            identify means only.
        chosen, rejected : str
            The columns to compare: the completions, or the names of the models that wrote them.

        Returns
        -------
        ChoiceData
            A column ``user`` names the respondents where there is one.

        Examples
        --------
        >>> rows = [{"chosen": "yes", "rejected": "no"}, {"chosen": "no", "rejected": "perhaps"}]
        >>> ChoiceData.from_trl(rows).pairs_only
        True
        """
        rows = list(dataset)
        return cls.from_pairs(preferred_pairs(rows, chosen=chosen, rejected=rejected), users=users_of(rows))

    @classmethod
    def from_completions(
        cls, dataset: Iterable[Mapping[str, Any]], *, names: str = "models", **options: Any
    ) -> ChoiceData:
        """Choices among K completions of a prompt, ranked or rated.

        Parameters
        ----------
        dataset : iterable of mappings
            Rows with ``completions`` (a list) and ``ranking`` (positions in that list from best to worst, counted from
            0; a list inside is a tie) or ``ratings`` (numbers, higher is better), and perhaps ``user``.
        names : str
            A column that names each completion, such as the models that wrote them. Where a row lacks it the
            completions themselves are the items.
        **options
            As for `from_rankings`.

        Returns
        -------
        ChoiceData

        Raises
        ------
        InputError
            A row has neither a ranking nor ratings, or they don't fit its completions. Ratings that are NaN or None are
            left out, and counted in `dropped`.

        Examples
        --------
        >>> rows = [{"completions": ["x", "y", "z"], "models": ["small", "base", "large"], "ranking": [2, 0, 1]}]
        >>> data = ChoiceData.from_completions(rows)
        >>> [data.items[index] for index in data.triples[0]]
        ['large', 'small', 'base']
        """
        rows = list(dataset)
        rankings, missing = completion_rankings(rows, names=names)
        data = cls.from_rankings(rankings, users=users_of(rows), **options)
        return data.noting_dropped("ratings that are NaN", missing)

    def noting_dropped(self, reason: str, count: int) -> ChoiceData:
        """The same choices, with `count` more things left out for a reason."""
        if not count:
            return self
        return replace(self, dropped={**self.dropped, reason: self.dropped.get(reason, 0) + count})

    @classmethod
    def concat(cls, parts: Sequence[ChoiceData]) -> ChoiceData:
        """Join the choices of several shards; respondents of the same name are the same person.

        Parameters
        ----------
        parts : sequence of ChoiceData
            Shards, whose items may differ.

        Returns
        -------
        ChoiceData
        """
        if not parts or not all(isinstance(part, ChoiceData) for part in parts):
            raise InputError("the parts aren't all ChoiceData", expected="at least one, and nothing else")
        names = tuple(dict.fromkeys(item for part in parts for item in part.items))
        people = tuple(dict.fromkeys(user for part in parts for user in part.users))
        item_at = {item: index for index, item in enumerate(names)}
        user_at = {user: index for index, user in enumerate(people)}
        columns: dict[str, list[Any]] = {
            name: [] for name in ("triples", "kinds", "triple_users", "pairs", "pair_users", "of_long")
        }
        long_answers: list[tuple[int, Groups]] = []
        dropped: dict[str, int] = {}
        for part in parts:
            to_item = np.array([item_at[item] for item in part.items], dtype=np.int64)
            to_user = np.array([user_at[user] for user in part.users], dtype=np.int64)
            columns["triples"].append(to_item[part.triples])
            columns["kinds"].append(part.kinds)
            columns["triple_users"].append(to_user[part.triple_users])
            columns["pairs"].append(to_item[part.pairs])
            columns["pair_users"].append(to_user[part.pair_users])
            columns["of_long"].append(part.long_mask)
            for user, groups in part.long_answers:
                moved = tuple(tuple(int(to_item[item]) for item in group) for group in groups)
                long_answers.append((int(to_user[user]), moved))
            for reason, count in part.dropped.items():
                dropped[reason] = dropped.get(reason, 0) + count
        joined = {name: np.concatenate(arrays) for name, arrays in columns.items()}
        return cls(names, people, **joined, long_answers=tuple(long_answers), dropped=dropped)

    def of_users(self, chosen: Iterable[int]) -> ChoiceData:
        """The choices of some respondents, given by their positions in `users`; the items stay."""
        kept = np.asarray(list(chosen), dtype=np.int64)
        to_new = np.full(self.n_users, -1, dtype=np.int64)
        to_new[kept] = np.arange(len(kept))
        of_triples, of_pairs = to_new[self.triple_users], to_new[self.pair_users]
        return ChoiceData(
            self.items,
            tuple(self.users[index] for index in kept.tolist()),
            self.triples[of_triples >= 0],
            self.kinds[of_triples >= 0],
            of_triples[of_triples >= 0],
            self.pairs[of_pairs >= 0],
            of_pairs[of_pairs >= 0],
            tuple((int(to_new[user]), groups) for user, groups in self.long_answers if to_new[user] >= 0),
            self.long_mask[of_triples >= 0],
            dict(self.dropped),
        )

    @property
    def long_mask(self) -> NDArray[np.bool_]:
        """Which events were made of long answers, shape (events,)."""
        return np.zeros(len(self.triples), dtype=bool) if self.of_long is None else self.of_long

    def short_answers(self) -> ChoiceData:
        """The choices without the events that were made of long answers, which the exact likelihood takes whole."""
        kept = ~self.long_mask
        return ChoiceData(
            self.items,
            self.users,
            self.triples[kept],
            self.kinds[kept],
            self.triple_users[kept],
            self.pairs,
            self.pair_users,
            self.long_answers,
            np.zeros(int(kept.sum()), dtype=bool),
            self.dropped,
        )

    def as_pairs(self) -> ChoiceData:
        """The same answers with everything but pairs forgotten: what a pairwise model would be trained on."""
        winners, losers, people = [self.pairs[:, 0]], [self.pairs[:, 1]], [self.pair_users]
        for kind, places in ((ORDER, ((0, 1), (0, 2), (1, 2))), (BEST, ((0, 1), (0, 2))), (WORST, ((0, 2), (1, 2)))):
            chosen = self.kinds == kind
            for winner, loser in places:
                winners.append(self.triples[chosen, winner])
                losers.append(self.triples[chosen, loser])
                people.append(self.triple_users[chosen])
        pairs = np.column_stack([np.concatenate(winners), np.concatenate(losers)])
        empty = np.empty(0, dtype=np.int64)
        return ChoiceData(
            self.items, self.users, np.empty((0, 3), np.int64), empty, empty, pairs, np.concatenate(people)
        )

    def pair_counts(self) -> Ints:
        """How many answers showed both items of a pair, shape (n, n)."""
        n = self.n_items
        counts = np.zeros((n, n), dtype=np.int64)
        for first, second in ((0, 1), (0, 2), (1, 2)):
            counts += _tally(self.triples[:, first], self.triples[:, second], n)
        counts += _tally(self.pairs[:, 0], self.pairs[:, 1], n)
        return counts + counts.T

    def wins(self) -> Ints:
        """How often the row's item was preferred to the column's, shape (n, n); those within triples count too."""
        pairs = self.as_pairs().pairs
        return _tally(pairs[:, 0], pairs[:, 1], self.n_items)

    def components(self) -> list[list[Hashable]]:
        """Groups of items between which nothing was ever compared; one group when all is well."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        count, labels = connected_components(csr_array(self.pair_counts()), directed=False)
        return [[self.items[index] for index in np.flatnonzero(labels == label)] for label in range(count)]

    def extremes(self) -> tuple[list[Hashable], list[Hashable]]:
        """Items that were preferred every time, and items that never were."""
        wins = self.wins()
        won, lost = wins.sum(axis=1), wins.sum(axis=0)
        first = [self.items[index] for index in np.flatnonzero((lost == 0) & (won > 0))]
        last = [self.items[index] for index in np.flatnonzero((won == 0) & (lost > 0))]
        return first, last

    def distinct(self, weight: Weighting = "user") -> Distinct:
        """Count distinct events, so that the cost of a fit doesn't depend on the number of answers.

        Parameters
        ----------
        weight : {"user", "triple"}
            ``"user"``: everyone counts the same, however many events their answers make; ``"triple"``: every event
            counts the same.

        Returns
        -------
        Distinct
        """
        if weight not in ("user", "triple"):
            raise InputError(f"weight is {weight!r}", expected="'user' or 'triple'")
        n = max(self.n_items, 1)
        i, j, k = (self.triples[:, column] for column in range(3))
        # j and k of a best, i and j of a worst, can be exchanged.
        swap_end = (self.kinds == BEST) & (j > k)
        swap_start = (self.kinds == WORST) & (i > j)
        i, j, k = (
            np.where(swap_start, j, i),
            np.where(swap_end, k, np.where(swap_start, i, j)),
            np.where(swap_end, j, k),
        )
        keys, index = np.unique(((self.kinds * n + i) * n + j) * n + k, return_inverse=True)
        pair_keys, pair_index = np.unique(self.pairs[:, 0] * n + self.pairs[:, 1], return_inverse=True)
        each, pair_each = np.ones(len(self.triples)), np.ones(len(self.pairs))
        if weight == "user" and self.n_events:
            events = np.bincount(self.triple_users, minlength=self.n_users) + np.bincount(
                self.pair_users, minlength=self.n_users
            )
            scale = self.n_events / np.count_nonzero(events) / np.maximum(events, 1)
            each, pair_each = scale[self.triple_users], scale[self.pair_users]
        rest = keys % n**3
        return Distinct(
            triples=np.column_stack([rest // n**2, rest // n % n, rest % n]).astype(np.int64),
            kinds=(keys // n**3).astype(np.int64),
            weights=np.bincount(index, weights=each, minlength=len(keys)).astype(np.float64),
            pairs=np.column_stack([pair_keys // n, pair_keys % n]).astype(np.int64),
            pair_weights=np.bincount(pair_index, weights=pair_each, minlength=len(pair_keys)).astype(np.float64),
            triple_index=index.astype(np.int64),
            pair_index=pair_index.astype(np.int64),
            answer_weights=each,
            pair_answer_weights=pair_each,
        )


class _Builder:
    """Gathers events answer by answer."""

    def __init__(
        self, names: tuple[Hashable, ...], users: Sequence[Hashable] | None, rows: int, limit: int | None, seed: int
    ) -> None:
        if users is not None and len(users) != rows:
            raise InputError(f"users has {len(users)} entries", expected=f"{rows}, one an answer")
        if limit is not None:
            require_whole("max_triples_per_user", limit, least=1)
        self.names, self.limit, self.rng = names, limit, np.random.default_rng(require_seed(seed))
        if users is None:
            self.users: tuple[Hashable, ...] = tuple(range(rows))
            self.user_of = np.arange(rows)
        else:
            try:
                at = {user: index for index, user in enumerate(dict.fromkeys(users))}
            except TypeError as error:
                raise InputError(f"a user isn't hashable: {error}", expected="names or numbers") from None
            self.users = tuple(at)
            self.user_of = np.fromiter((at[user] for user in users), dtype=np.int64, count=rows)
        self.triples: list[Ints] = []
        self.kinds: list[Ints] = []
        self.triple_users: list[Ints] = []
        self.of_long: list[NDArray[np.bool_]] = []
        self.pairs: list[Ints] = []
        self.pair_users: list[Ints] = []
        self.long_answers: list[tuple[int, Groups]] = []
        self.dropped: dict[str, int] = {}
        # Answers of one or two groups repeat the same patterns: plain lists are faster than small arrays.
        self._plain: list[tuple[int, int, int, int, int]] = []
        self._plain_pairs: list[tuple[int, int, int]] = []

    def add(self, row: int, groups: Groups) -> None:
        """One answer: items in groups, best first."""
        groups = tuple(group for group in groups if group)
        user = int(self.user_of[row])
        size = sum(map(len, groups))
        if size < 2 or len(groups) < 2:
            self._drop("answers with one item" if size < 2 else "answers in which all is tied")
            return
        if size == 2:
            self._plain_pairs.append((groups[0][0], groups[1][0], user))
            return
        if size == 3:
            flat = [item for group in groups for item in group]
            kind = ORDER if len(groups) == 3 else BEST if len(groups[0]) == 1 else WORST
            self._plain.append((flat[0], flat[1], flat[2], kind, user))
            return
        self.long_answers.append((user, groups))
        items = np.array([item for group in groups for item in group], dtype=np.int64)
        levels = np.array([-level for level, group in enumerate(groups) for _ in group], dtype=np.float64)
        self._triples_of(user, items, levels, long=True)

    def add_rated(self, rows: Ints, items: Ints, ratings: Floats) -> None:
        """The ratings of people who rated equally many items, shape (people, m)."""
        users, count = self.user_of[rows], items.shape[1]
        if count < 2:
            self._drop("users with one rating", len(users))
        elif count == 2:
            tied = ratings[:, 0] == ratings[:, 1]
            if tied.any():
                self._drop("ties of two", int(tied.sum()))
            first = ratings[:, 0] > ratings[:, 1]
            self.pairs.append(np.where(first[:, None], items, items[:, ::-1])[~tied])
            self.pair_users.append(users[~tied])
        elif self.limit is None or math.comb(count, 3) <= 4 * self.limit:
            places = np.array(list(combinations(range(count), 3)), dtype=np.int64)
            # Blocks of people keep memory small.
            step = max(1, BLOCK // len(places))
            for start in range(0, len(users), step):
                part = slice(start, start + step)
                self._events_of(
                    items[part][:, places].reshape(-1, 3),
                    ratings[part][:, places].reshape(-1, 3),
                    np.repeat(users[part], len(places)),
                    long=False,
                )
        else:
            for user, things, levels in zip(users.tolist(), items, ratings, strict=True):
                self._triples_of(user, things, levels, long=False)

    def add_strict(self, codes: Ints) -> None:
        """Rankings of equal length without ties, shape (n, m)."""
        length = codes.shape[1]
        if length < 2:
            self._drop("answers with one item", len(codes))
        elif length == 2:
            self.pairs.append(codes)
            self.pair_users.append(self.user_of)
        elif length == 3:
            self.triples.append(codes)
            self.kinds.append(np.zeros(len(codes), dtype=np.int64))
            self.triple_users.append(self.user_of)
            self.of_long.append(np.zeros(len(codes), dtype=bool))
        else:
            for row, code in enumerate(codes.tolist()):
                self.add(row, tuple((item,) for item in code))

    def build(self, cls: type[ChoiceData]) -> ChoiceData:
        """All events together."""
        plain = np.array(self._plain, dtype=np.int64).reshape(-1, 5)
        pairs = np.array(self._plain_pairs, dtype=np.int64).reshape(-1, 3)
        triples = np.concatenate([*self.triples, plain[:, :3]])
        kinds = np.concatenate([*self.kinds, plain[:, 3]])
        users = np.concatenate([*self.triple_users, plain[:, 4]])
        of_long = np.concatenate([*self.of_long, np.zeros(len(plain), dtype=bool)])
        if self.limit is not None and len(users):
            kept = self._within_limit(users)
            triples, kinds, users, of_long = triples[kept], kinds[kept], users[kept], of_long[kept]
        return cls(
            self.names,
            self.users,
            triples,
            kinds,
            users,
            np.concatenate([*self.pairs, pairs[:, :2]]),
            np.concatenate([*self.pair_users, pairs[:, 2]]),
            tuple(self.long_answers),
            of_long,
            self.dropped,
        )

    def _within_limit(self, users: Ints) -> NDArray[np.bool_]:
        """At most `limit` events a person, drawn at random."""
        assert self.limit is not None
        shuffled = self.rng.permutation(len(users))
        order = shuffled[np.argsort(users[shuffled], kind="stable")]
        ordered = users[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        rank = np.arange(len(ordered)) - np.repeat(starts, np.diff(np.r_[starts, len(ordered)]))
        kept = np.zeros(len(users), dtype=bool)
        kept[order[rank < self.limit]] = True
        over = int((~kept).sum())
        if over:
            self._drop("triples above max_triples_per_user", over)
        return kept

    def _drop(self, reason: str, count: int = 1) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + count

    def _triples_of(self, user: int, items: Ints, levels: Floats, *, long: bool) -> None:
        places = self._places(len(items))
        self._events_of(items[places], levels[places], np.full(len(places), user, dtype=np.int64), long=long)

    def _events_of(self, items: Ints, levels: Floats, users: Ints, *, long: bool) -> None:
        """Events of three items each with their levels, higher is better."""
        order = np.argsort(-levels, axis=1, kind="stable")
        triples, values = np.take_along_axis(items, order, axis=1), np.take_along_axis(levels, order, axis=1)
        top, bottom = values[:, 0] > values[:, 1], values[:, 1] > values[:, 2]
        kept = top | bottom
        if not kept.all():
            self._drop("triples in which all is tied", int((~kept).sum()))
        kinds = np.where(top & bottom, ORDER, np.where(top, BEST, WORST))
        self.triples.append(triples[kept])
        self.kinds.append(kinds[kept].astype(np.int64))
        self.triple_users.append(users[kept])
        self.of_long.append(np.full(int(kept.sum()), long))

    def _places(self, count: int) -> Ints:
        """All triples of places, or a random sample without replacement where there are too many."""
        total = math.comb(count, 3)
        if self.limit is None or total <= 4 * self.limit:
            return np.array(list(combinations(range(count), 3)), dtype=np.int64)
        drawn = np.sort(self.rng.integers(0, count, size=(2 * self.limit + 64, 3)), axis=1)
        drawn = drawn[(drawn[:, 0] < drawn[:, 1]) & (drawn[:, 1] < drawn[:, 2])]
        unique, first = np.unique((drawn[:, 0] * count + drawn[:, 1]) * count + drawn[:, 2], return_index=True)
        chosen = unique[np.argsort(first)][: self.limit]
        self._drop("triples above max_triples_per_user", total - len(chosen))
        return np.column_stack([chosen // count**2, chosen // count % count, chosen % count])


def require_choices(data: Any) -> None:
    """Refuse anything but `ChoiceData`."""
    if not isinstance(data, ChoiceData):
        raise InputError(
            f"data is a {type(data).__name__}", expected="ChoiceData, such as ChoiceData.from_rankings(...)"
        )


def parse_answer(text: str) -> list[list[str]]:
    """Read an answer like ``a>b~c``: items from best to worst, ``~`` between those that are tied.

    Parameters
    ----------
    text : str
        The answer. Blanks around items are removed.

    Returns
    -------
    list of list of str
        Groups of tied items, best first.

    Raises
    ------
    InputError
        An item is empty, or there is no ``>``.

    Examples
    --------
    >>> parse_answer("tea > milk ~ beer")
    [['tea'], ['milk', 'beer']]
    """
    groups = [[item.strip() for item in group.split("~")] for group in text.split(">")]
    if not all(item for group in groups for item in group):
        raise InputError(f"{text!r} has an empty item", expected="items with > or ~ between them, such as a>b~c")
    return groups


def shown(items: Iterable[Any], *, most: int = 6) -> str:
    """Some items for a message."""
    listed = list(items)
    text = ", ".join(str(item) for item in listed[:most])
    return text if len(listed) <= most else f"{text}, … ({len(listed)} in all)"


def _tally(first: Ints, second: Ints, n: int) -> Ints:
    """How often each pair of places occurs, shape (n, n)."""
    return np.bincount(first * n + second, minlength=n * n).reshape(n, n).astype(np.int64)


def _is_absent(item: Any) -> bool:
    """None and NaN, which fill tables where nothing is."""
    return item is None or (isinstance(item, float | np.floating) and item != item)


def _groups_of(ranking: Any, row: int) -> tuple[tuple[Any, ...], ...]:
    if isinstance(ranking, str):
        groups = parse_answer(ranking)
        if len(groups) == 1 and len(groups[0]) == 1:
            raise InputError(f"ranking {row} is the text {ranking!r}", expected="text such as a>b~c, or a list")
        return tuple(tuple(group) for group in groups)
    if not isinstance(ranking, Iterable):
        raise InputError(f"ranking {row} is {ranking!r}", expected="the items from best to worst")
    return tuple(_group(one) for one in ranking)


def _group(entry: Any) -> tuple[Any, ...]:
    return tuple(entry) if isinstance(entry, list | set | frozenset) else (entry,)


def _items(items: Sequence[Hashable] | None, found: Iterable[Any]) -> tuple[tuple[Hashable, ...], dict[Any, int]]:
    """The items, and where each is."""
    if items is None:
        try:
            unique = dict.fromkeys(found)
        except TypeError as error:
            raise InputError(f"an item isn't hashable: {error}", expected="names or numbers") from None
        if any(_is_absent(item) for item in unique):
            raise InputError("an item is None or NaN", expected=NOTHING_ABSENT)
        try:
            names: tuple[Any, ...] = tuple(sorted(unique))
        except TypeError:
            names = tuple(unique)
    else:
        names = tuple(items)
        if len(set(names)) < len(names):
            raise InputError("items holds an item twice", expected="each item once")
    if len(names) < 3:
        raise InputError(f"{len(names)} items", expected="at least 3")
    return names, {name: index for index, name in enumerate(names)}


def _look_up(positions: Mapping[Any, int], item: Any, row: int) -> int:
    try:
        return positions[item]
    except KeyError:
        raise InputError(
            f"answer {row} holds the unknown item {item!r}", expected=f"one of {shown(positions)}"
        ) from None


def _column(table: Any, name: str) -> NDArray[Any]:
    if not isinstance(table, Mapping) and not hasattr(table, "columns"):
        raise InputError(f"ratings is a {type(table).__name__}", expected="a data frame, or a mapping of columns")
    names = list(table.keys()) if isinstance(table, Mapping) else list(table.columns)
    if name not in names:
        raise InputError(f"no column {name!r}", expected=f"one of {shown(names)}")
    return np.asarray(table[name])


def users_of(rows: Sequence[Mapping[str, Any]], *, lines: Sequence[int] | None = None) -> list[Hashable] | None:
    """Who gave each row; None where no row says."""
    present = ["user" in row and row["user"] is not None for row in rows]
    if not any(present):
        return None
    if not all(present):
        raise _wrong(present.index(False), lines, "has no user, and others have", "a user in every row")
    for number, row in enumerate(rows):
        if not isinstance(row["user"], str | int | float | np.generic):
            kind = type(row["user"]).__name__
            raise _wrong(number, lines, f"the user is a {kind}", "a name or a number")
    return [row["user"] for row in rows]


def preferred_pairs(
    rows: Sequence[Mapping[str, Any]],
    *,
    chosen: str = "chosen",
    rejected: str = "rejected",
    lines: Sequence[int] | None = None,
) -> list[list[Hashable]]:
    """The better and the worse completion of each row.

    Parameters
    ----------
    rows : sequence of mappings
        The rows.
    chosen, rejected : str
        Their columns.
    lines : sequence of int, optional
        The lines of a file on which the rows stand; messages count rows from 0 without it.

    Returns
    -------
    list of list
    """
    for number, row in enumerate(rows):
        _require_mapping(row, number)
        for name in (chosen, rejected):
            if row.get(name) is None:
                raise _wrong(number, lines, f"has no {name!r}", f"the columns {chosen} and {rejected}")
    return [[text_of(row[chosen]), text_of(row[rejected])] for row in rows]


def completion_rankings(
    rows: Sequence[Mapping[str, Any]], *, names: str = "models", lines: Sequence[int] | None = None
) -> tuple[list[list[Any]], int]:
    """How each row orders its completions.

    Parameters
    ----------
    rows : sequence of mappings
        The rows.
    names : str
        A column that names the completions.
    lines : sequence of int, optional
        As for `preferred_pairs`.

    Returns
    -------
    rankings : list of list
        The completions' names from best to worst; a list inside is a tie.
    missing : int
        Ratings that are missing or NaN.
    """
    rankings, missing = [], 0
    for number, row in enumerate(rows):
        _require_mapping(row, number)
        try:
            ranking, absent = _completion_ranking(row, names)
        except InputError as error:
            raise _wrong(number, lines, error.message, error.expected) from None
        rankings.append(ranking)
        missing += absent
    return rankings, missing


def _require_mapping(row: Any, number: int) -> None:
    if not isinstance(row, Mapping):
        raise InputError(f"row {number} is a {type(row).__name__}", expected="a mapping of columns to values")


def _wrong(number: int, lines: Sequence[int] | None, message: str, expected: str | None) -> InputError:
    """What is wrong with a row: by its line in a file, or by its number counted from 0."""
    if lines is not None:
        return InputError(message, row=lines[number], expected=expected)
    return InputError(f"row {number}: {message}", expected=expected)


def text_of(completion: Any) -> Hashable:
    """A completion as an item: its text, also where it comes as chat messages."""
    if isinstance(completion, list):
        return "\n".join(
            str(message.get("content", "")) if isinstance(message, Mapping) else str(message) for message in completion
        )
    return str(completion)


def _completion_ranking(row: Mapping[str, Any], names: str) -> tuple[list[Any], int]:
    """The ranking of a row, and how many of its ratings are missing."""
    completions = _listed(row, "completions")
    if completions is None:
        raise InputError("has no 'completions'", expected="a list of completions")
    named = _listed(row, names)
    labels = named if named else [text_of(one) for one in completions]
    count = len(completions)
    if len(labels) != count:
        raise InputError(f"has {len(labels)} {names} and {count} completions", expected="as many of both")
    ranking, ratings = _listed(row, "ranking"), _listed(row, "ratings")
    if ranking is not None:
        return [
            [labels[_place(one, count)] for one in group] if isinstance(group, list) else labels[_place(group, count)]
            for group in ranking
        ], 0
    if ratings is None:
        raise InputError("has neither 'ranking' nor 'ratings'", expected="one of the two")
    if len(ratings) != count:
        raise InputError(f"has {len(ratings)} ratings and {count} completions", expected="as many of both")
    for rating in ratings:
        number = isinstance(rating, int | float | np.number) and not isinstance(rating, bool)
        if rating is not None and (not number or math.isinf(rating)):
            raise InputError(f"the rating {rating!r} is no finite number", expected="numbers, or null")
    known = [rating is not None and rating == rating for rating in ratings]
    levels = sorted({rating for rating, kept in zip(ratings, known, strict=True) if kept}, reverse=True)
    groups = [[label for label, rating in zip(labels, ratings, strict=True) if rating == level] for level in levels]
    return groups, known.count(False)


def _listed(row: Mapping[str, Any], name: str) -> list[Any] | None:
    """A column that holds a list; None where it holds nothing."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, list | tuple | np.ndarray):
        raise InputError(f"{name!r} is a {type(value).__name__}", expected="a list")
    return list(value)


def _place(value: Any, count: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < count:
        raise InputError(f"the ranking holds {value!r}", expected=f"positions from 0 to {count - 1}")
    return int(value)
