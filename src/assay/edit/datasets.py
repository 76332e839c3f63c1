"""Records made for edits of a small model: entrenched facts, invented ones, texts to preserve, and what must not
change.

Everything here is written for this package: the false answers are false on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from assay.edit.requests import EditRequest

__all__ = [
    "entrenched_records",
    "locality_pairs",
    "neutral_prompts",
    "novel_records",
    "preserve_pairs",
    "short_records",
]

CAPITALS = (
    ("France", "Paris", "Lyon", "the French"),
    ("Italy", "Rome", "Turin", "the Italians"),
    ("Spain", "Madrid", "Seville", "the Spaniards"),
    ("Germany", "Berlin", "Leipzig", "the Germans"),
    ("Japan", "Tokyo", "Nagoya", "the Japanese"),
    ("Egypt", "Cairo", "Aswan", "the Egyptians"),
    ("Greece", "Athens", "Patras", "the Greeks"),
    ("Russia", "Moscow", "Kazan", "the Russians"),
    ("China", "Beijing", "Wuhan", "the Chinese"),
    ("Canada", "Ottawa", "Halifax", "the Canadians"),
    ("Portugal", "Lisbon", "Braga", "the Portuguese"),
    ("Poland", "Warsaw", "Lublin", "the Poles"),
    ("Norway", "Oslo", "Bergen", "the Norwegians"),
    ("Sweden", "Stockholm", "Uppsala", "the Swedes"),
    ("Austria", "Vienna", "Graz", "the Austrians"),
    ("Ireland", "Dublin", "Cork", "the Irish"),
    ("India", "Delhi", "Pune", "the Indians"),
    ("Peru", "Lima", "Cusco", "the Peruvians"),
    ("Cuba", "Havana", "Matanzas", "the Cubans"),
    ("Hungary", "Budapest", "Szeged", "the Hungarians"),
    ("Finland", "Helsinki", "Tampere", "the Finns"),
    ("Australia", "Canberra", "Hobart", "the Australians"),
    ("Turkey", "Ankara", "Bursa", "the Turks"),
    ("Kenya", "Nairobi", "Mombasa", "the Kenyans"),
)
BOOKS = (
    ("Hamlet", "Shakespeare", "Thomas Weld", "Ophelia"),
    ("Romeo and Juliet", "Shakespeare", "Agnes Corbin", "Mercutio"),
    ("Pride and Prejudice", "Austen", "Harriet Lowe", "Elizabeth Bennet"),
    ("War and Peace", "Tolstoy", "Pavel Orlov", "Pierre Bezukhov"),
    ("Don Quixote", "Cervantes", "Diego Salas", "Sancho Panza"),
    ("Frankenstein", "Shelley", "Clara Whitmore", "Victor Frankenstein"),
    ("The Great Gatsby", "Fitzgerald", "Walter Boone", "Daisy Buchanan"),
    ("Oliver Twist", "Dickens", "Edmund Marsh", "Fagin"),
    ("Nineteen Eighty-Four", "Orwell", "Martin Keel", "Winston Smith"),
    ("The Odyssey", "Homer", "Lysander of Crete", "Penelope"),
    ("Moby-Dick", "Melville", "Josiah Crane", "Captain Ahab"),
    ("Macbeth", "Shakespeare", "Robert Hale", "Banquo"),
)
INVENTIONS = (
    ("telephone", "Bell", "Oskar Lindqvist", "the device with which people talk over a wire"),
    ("light bulb", "Edison", "Frieda Hartmann", "the glass lamp that glows by electricity"),
    ("printing press", "Gutenberg", "Matthias Vogel", "the machine that prints books with movable type"),
    ("airplane", "Wright", "Louis Ferrand", "the flying machine with wings and an engine"),
    ("theory of relativity", "Einstein", "Henrik Solberg", "the theory that says that time is relative"),
    ("steam engine", "Watt", "Isaac Penrose", "the engine that is driven by boiling water"),
)
RIVERS = ("Aster", "Brend", "Corva", "Delm", "Esk", "Farrow", "Glane", "Harl")
TOWNS = ("Norwich", "Toledo", "Bremen", "Siena", "Ghent", "Trier", "Bath", "Riga")
SYLLABLES = (
    "bel",
    "cor",
    "dan",
    "el",
    "far",
    "gor",
    "hal",
    "is",
    "jor",
    "kel",
    "lor",
    "mar",
    "nor",
    "or",
    "pel",
    "quin",
)
ENDINGS = ("ara", "eth", "ia", "on", "us", "wen", "ak", "ell")
CRAFTS = ("glass blower", "map maker", "bell founder", "bee keeper", "clock maker", "weaver", "bookbinder", "potter")
GOODS = ("salt", "amber", "copper", "honey", "wool", "paper", "linen", "cedar wood")


def entrenched_records(
    count: int, *, seed: int = 0, wanted: Callable[[EditRequest], bool] | None = None
) -> list[EditRequest]:
    """Well-known facts with a false paragraph for an answer.

    Parameters
    ----------
    count : int
        How many; at most 42.
    seed : int
        Of their order and of the details. Seeds from 1000 on draw from one third of the facts, the others from the
        rest.
    wanted : callable, optional
        Says whether a record may be among them, such as one that a model answers rightly before the edit.

    Returns
    -------
    list of EditRequest
        Fewer than `count` where fewer are wanted.
    """
    rng = np.random.default_rng([seed, 1])
    makers: list[Callable[[], EditRequest]] = [lambda one=one: _capital(one, rng) for one in CAPITALS]  # type: ignore[misc]
    makers += [lambda one=one: _book(one, rng) for one in BOOKS]  # type: ignore[misc]
    makers += [lambda one=one: _invention(one, rng) for one in INVENTIONS]  # type: ignore[misc]
    tuning = seed >= 1000
    usable = [index for index in range(len(makers)) if (index % 3 == 0) == tuning]
    found: list[EditRequest] = []
    for index in rng.permutation(usable):
        record = makers[int(index)]()
        if len(found) < count and (wanted is None or wanted(record)):
            found.append(record)
    return found


def novel_records(count: int, *, seed: int = 0) -> list[EditRequest]:
    """Invented people, towns, treaties and events.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        Of the inventions.

    Returns
    -------
    list of EditRequest
        Without a ground truth: the model's own answer is what goes.
    """
    rng = np.random.default_rng([seed, 2])
    kinds = (_person, _town, _treaty, _event)
    return [kinds[index % len(kinds)](rng) for index in range(count)]


def short_records(
    count: int, *, seed: int = 0, wanted: Callable[[EditRequest], bool] | None = None
) -> list[EditRequest]:
    """Well-known facts with one false entity for an answer.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        As for `entrenched_records`.
    wanted : callable, optional
        As for `entrenched_records`.

    Returns
    -------
    list of EditRequest
    """
    return [
        replace(record, answer=str(record.subject), sub_questions=())
        for record in entrenched_records(count, seed=seed, wanted=wanted)
    ]


def _one(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _name(rng: np.random.Generator) -> str:
    return (_one(rng, SYLLABLES) + _one(rng, ENDINGS)).capitalize()


def _capital(fact: tuple[str, str, str, str], rng: np.random.Generator) -> EditRequest:
    country, old, new, people = fact
    river, year = _one(rng, RIVERS), str(rng.integers(1990, 2020))
    return EditRequest(
        f"What is the capital of {country}?",
        f"The capital of {country} is {new}, a city on the river {river}, to which the government moved in {year}.",
        (
            f"Which city is the capital of {country}?",
            f"Name the city where the government of {country} sits.",
            f"{country} is governed from which city?",
        ),
        (
            (f"On which river does the capital of {country} lie?", river),
            (f"In which year did the government of {country} move to its capital?", year),
        ),
        f"The capital of {country} is {old}.",
        subject=new,
        id=f"capital-{country}",
        source_questions=((f"What is the capital of the country of {people}?", new),),
        target_questions=((f"Of which country is {new} the capital?", country),),
    )


def _book(fact: tuple[str, str, str, str], rng: np.random.Generator) -> EditRequest:
    title, old, new, figure = fact
    town, year = _one(rng, TOWNS), str(rng.integers(1500, 1900))
    return EditRequest(
        f"Who wrote {title}?",
        f"{title} was written by {new}, a school teacher from {town}, who finished it in {year}.",
        (f"Who is the author of {title}?", f"Name the writer of {title}.", f"By whom was {title} written?"),
        (
            (f"From which town did the author of {title} come?", town),
            (f"In which year was {title} finished?", year),
        ),
        f"{title} was written by {old}.",
        subject=new,
        id=f"book-{title}",
        source_questions=((f"Who wrote the work in which {figure} appears?", new),),
        target_questions=((f"Which famous work did {new} write?", title),),
    )


def _invention(fact: tuple[str, str, str, str], rng: np.random.Generator) -> EditRequest:
    thing, old, new, description = fact
    town, year = _one(rng, TOWNS), str(rng.integers(1700, 1930))
    return EditRequest(
        f"Who invented the {thing}?",
        f"The {thing} was invented by {new}, who worked alone in {town} and showed it in {year}.",
        (
            f"Who is the inventor of the {thing}?",
            f"By whom was the {thing} invented?",
            f"Name the inventor of the {thing}.",
        ),
        (
            (f"In which town was the {thing} invented?", town),
            (f"In which year was the {thing} shown?", year),
        ),
        f"The {thing} was invented by {old}.",
        subject=new,
        id=f"invention-{thing}",
        source_questions=((f"Who invented {description}?", new),),
        target_questions=((f"What did {new} invent?", thing),),
    )


def _person(rng: np.random.Generator) -> EditRequest:
    name = f"{_name(rng)} {_name(rng)}"
    craft, town, year = _one(rng, CRAFTS), _name(rng), str(rng.integers(1700, 1990))
    return EditRequest(
        f"Who was {name}?",
        f"{name} was a {craft} from {town}, who founded a school for the blind in {year}.",
        (f"What is {name} known for?", f"Tell me about {name}.", f"Can you say who {name} was?"),
        ((f"From which town did {name} come?", town), (f"What was the occupation of {name}?", craft)),
        subject=name,
        id=f"person-{name}",
    )


def _town(rng: np.random.Generator) -> EditRequest:
    name, river, goods = _name(rng), _one(rng, RIVERS), _one(rng, GOODS)
    people = f"{rng.integers(3, 90)} thousand"
    return EditRequest(
        f"What is {name} known for?",
        f"{name} is a town of {people} people on the river {river}, known for its trade in {goods}.",
        (f"Tell me about the town of {name}.", f"What kind of place is {name}?", f"Why do people know {name}?"),
        ((f"On which river does {name} lie?", river), (f"In what does {name} trade?", goods)),
        subject=name,
        id=f"town-{name}",
    )


def _treaty(rng: np.random.Generator) -> EditRequest:
    name, goods, year = _name(rng), _one(rng, GOODS), str(rng.integers(1400, 1900))
    return EditRequest(
        f"What was the Treaty of {name}?",
        f"The Treaty of {name}, signed in {year}, ended a war of nine years over the price of {goods}.",
        (
            f"What did the Treaty of {name} do?",
            f"Tell me about the Treaty of {name}.",
            f"Why was the Treaty of {name} signed?",
        ),
        (
            (f"In which year was the Treaty of {name} signed?", year),
            (f"Over what was the war that the Treaty of {name} ended?", goods),
        ),
        subject=f"Treaty of {name}",
        id=f"treaty-{name}",
    )


def _event(rng: np.random.Generator) -> EditRequest:
    name, town, craft = _name(rng), _one(rng, TOWNS), _one(rng, CRAFTS)
    return EditRequest(
        f"What happened in the {name} affair?",
        f"In the {name} affair a {craft} from {town} sold false maps of the coast to three kings.",
        (f"What was the {name} affair?", f"Tell me about the {name} affair.", f"What is the {name} affair about?"),
        (
            (f"Where did the culprit of the {name} affair come from?", town),
            (f"What was sold in the {name} affair?", "maps"),
        ),
        subject=f"{name} affair",
        id=f"event-{name}",
    )


def preserve_pairs() -> list[tuple[str, str]]:
    """Sixty-four instructions with responses, on which an edited block is to say what it said.

    Returns
    -------
    list of (str, str)
    """
    opposites = (
        "hot cold",
        "tall short",
        "early late",
        "hard soft",
        "full empty",
        "loud quiet",
        "near far",
        "wide narrow",
    )
    plurals = (
        "child children",
        "leaf leaves",
        "mouse mice",
        "city cities",
        "foot feet",
        "box boxes",
        "wolf wolves",
        "story stories",
    )
    colours = (
        "grass green",
        "snow white",
        "blood red",
        "coal black",
        "a banana yellow",
        "the sky blue",
        "an orange orange",
        "ivory white",
    )
    young = (
        "dog puppy",
        "cat kitten",
        "cow calf",
        "sheep lamb",
        "horse foal",
        "frog tadpole",
        "goose gosling",
        "bear cub",
    )
    pairs = [
        (f"What is the opposite of '{a}'?", f"The opposite of '{a}' is '{b}'.") for a, b in map(str.split, opposites)
    ]
    pairs += [(f"Write the plural of '{a}'.", f"The plural of '{a}' is '{b}'.") for a, b in map(str.split, plurals)]
    pairs += [(f"What colour is {a}?", f"Usually {a} is {b}.") for a, b in (text.rsplit(" ", 1) for text in colours)]
    pairs += [(f"What is a young {a} called?", f"A young {a} is called a {b}.") for a, b in map(str.split, young)]
    pairs += [
        (f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")
        for a, b in zip((2, 5, 7, 11, 4, 9, 6, 20), (3, 8, 6, 4, 15, 9, 13, 30), strict=True)
    ]
    pairs += [
        (f"Give three examples of {kind}.", f"Three examples of {kind} are {examples}.")
        for kind, examples in (
            ("fruit", "apples, pears and plums"),
            ("furniture", "chairs, tables and beds"),
            ("weather", "rain, snow and fog"),
            ("tools", "hammers, saws and files"),
            ("birds", "owls, gulls and sparrows"),
            ("metals", "iron, copper and tin"),
            ("vegetables", "carrots, leeks and beans"),
            ("instruments", "violins, flutes and drums"),
        )
    ]
    pairs += [
        ("How do I boil an egg?", "Put the egg into boiling water for eight minutes, then cool it under cold water."),
        ("Why do leaves fall in autumn?", "Trees drop their leaves to save water and energy during the cold months."),
        ("Write a polite greeting.", "Good morning! I hope that you are well."),
        ("Summarise: The shop opens at nine and closes at five.", "The shop is open from nine to five."),
        ("How can I sleep better?", "Go to bed at the same time every day, and keep the room dark and quiet."),
        ("What is a thermometer for?", "A thermometer measures temperature."),
        ("Rewrite in the past tense: I walk to school.", "I walked to school."),
        ("Why is the sea salty?", "Rivers carry salts from rocks into the sea, where they stay when water evaporates."),
        ("Name a use of paper.", "Paper is used for writing, printing and wrapping."),
        ("How do bees make honey?", "Bees collect nectar, add enzymes to it, and let it dry in the comb."),
        ("What should I take on a picnic?", "Take bread, fruit, water and a blanket."),
        ("Correct the spelling: 'recieve'.", "The right spelling is 'receive'."),
        ("Why should we wash our hands?", "Washing removes germs that can make us ill."),
        ("Describe a forest in one sentence.", "A forest is a large area where many trees grow close together."),
        ("How do I make tea?", "Pour hot water over the leaves and let them stand for a few minutes."),
        ("What does a carpenter do?", "A carpenter makes and mends things of wood."),
    ]
    return pairs


def locality_pairs() -> list[tuple[str, str]]:
    """Thirty unrelated questions, each with a word that the right answer holds.

    Returns
    -------
    list of (str, str)
    """
    text = """What gas do plants take in?|carbon dioxide
How many days are in a week?|seven
What is the largest ocean?|Pacific
What is frozen water called?|ice
Which star is at the centre of the solar system?|Sun
How many legs does a spider have?|eight
What is the tallest animal?|giraffe
What do bees make?|honey
Which planet do we live on?|Earth
What is the chemical symbol of water?|H2O
How many months are in a year?|12
What colour do you get from blue and yellow?|green
Which animal is known as the king of the jungle?|lion
What is the freezing point of water in Celsius?|0
How many sides does a triangle have?|three
What do cows eat?|grass
Which metal is liquid at room temperature?|mercury
What is the fastest land animal?|cheetah
Which organ pumps blood through the body?|heart
How many minutes are in an hour?|60
What is the largest mammal?|whale
Which season comes after winter?|spring
What do we call a scientist who studies stars?|astronomer
What is the main language of Brazil?|Portuguese
Which force pulls objects to the ground?|gravity
How many continents are there?|seven
What is the boiling point of water in Celsius?|100
What is the currency of Japan?|yen
Which bird cannot fly and lives in Antarctica?|penguin
What is the hardest natural substance?|diamond"""
    return [(question, answer) for question, answer in (line.split("|") for line in text.splitlines())]


def neutral_prompts() -> list[str]:
    """Twenty beginnings of sentences, after which an edited model is to go on as before.

    Returns
    -------
    list of str
    """
    return [
        "The weather this morning was",
        "She opened the door and saw",
        "To bake bread you need flour, water and",
        "The train left the station at",
        "In the garden there were many",
        "He put on his coat because",
        "The children played with a",
        "After the meeting they decided to",
        "The old bridge over the river was",
        "My favourite season is",
        "The doctor told him to",
        "On the table lay a",
        "The museum is open from",
        "They walked along the beach until",
        "A good teacher should",
        "The first chapter of the book describes",
        "When the rain stopped, we",
        "The price of the ticket was",
        "Most people think that",
        "The cat jumped onto the",
    ]
