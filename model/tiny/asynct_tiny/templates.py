"""The wording of the problems: stories told event by event, and scenes of a fixed form.

Placeholders: {name}, {friend}, {item}; {he} and {He} stand for the person `name`.
"""

from typing import NamedTuple

PEOPLE = (
    ("Tom", "he"), ("Anna", "she"), ("Ben", "he"), ("Clara", "she"), ("David", "he"),
    ("Emma", "she"), ("Felix", "he"), ("Grace", "she"), ("Hugo", "he"), ("Ida", "she"),
    ("Jack", "he"), ("Kate", "she"), ("Leo", "he"), ("Mia", "she"), ("Noah", "he"),
    ("Olga", "she"), ("Paul", "he"), ("Rosa", "she"), ("Sam", "he"), ("Tina", "she"),
    ("Victor", "he"), ("Wendy", "she"), ("Yusuf", "he"), ("Zoe", "she"),
)  # fmt: skip

ITEMS = (
    "apples", "pens", "books", "coins", "shells", "stamps", "cards", "marbles", "eggs", "stickers",
    "buttons", "candles", "cups", "flowers", "stones", "tickets", "toys", "beads", "plums", "nuts",
)  # fmt: skip


class Theme(NamedTuple):
    """A running count: {n} is what an event adds or takes away."""

    start: str
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    question: str


THEMES = (
    Theme(
        "{name} has {n} {item}.",
        ("{He} buys {n} more.", "{He} finds {n} more.", "{friend} brings {n} more."),
        ("{He} gives {n} to {friend}.", "{He} loses {n}.", "{He} sells {n}."),
        "How many {item} does {name} have now?",
    ),
    Theme(
        "A bus leaves with {n} people.",
        ("{n} people get on.", "Then {n} more get on."),
        ("{n} people get off.", "Then {n} get off."),
        "How many people are on the bus?",
    ),
    Theme(
        "There are {n} birds in a tree.",
        ("{n} more birds come.", "{n} birds join them."),
        ("{n} birds fly away.", "{n} of them leave."),
        "How many birds are in the tree?",
    ),
    Theme(
        "A shop has {n} {item}.",
        ("It gets {n} more.", "A truck brings {n}."),
        ("It sells {n}.", "It throws away {n}."),
        "How many {item} does the shop have?",
    ),
    Theme(
        "{name} has saved {n} dollars.",
        ("{He} earns {n} dollars.", "{friend} gives {n} dollars."),
        ("{He} spends {n} dollars.", "{He} lends {friend} {n} dollars."),
        "How many dollars does {name} have?",
    ),
    Theme(
        "A farm has {n} sheep.",
        ("{n} lambs are born.", "The farmer buys {n}."),
        ("The farmer sells {n}.", "{n} run away."),
        "How many sheep are on the farm?",
    ),
    Theme(
        "A lift is at floor {n}.",
        ("It goes up {n} floors.", "It climbs {n} floors."),
        ("It goes down {n} floors.", "It drops {n} floors."),
        "At which floor is it?",
    ),
    Theme(
        "A tank holds {n} liters.",
        ("{n} liters flow in.", "{name} pours in {n} liters."),
        ("{n} liters leak out.", "{name} takes {n} liters."),
        "How many liters are in the tank?",
    ),
)

MULTIPLIES = (("Then the number doubles.", 2), ("Then the number triples.", 3))


class Scene(NamedTuple):
    """A whole problem. {a} to {d} are numbers, {j} to {m} small factors; a step is "left op right"
    over these names and r1, r2, ... for the results so far."""

    text: str
    steps: tuple[str, ...]


SCENES = (
    Scene(
        "{name} buys {j} boxes of {k} {item} and gives {a} to {friend}. "
        "How many {item} does {name} have left?",
        ("j * k", "r1 - a"),
    ),
    Scene(
        "{name} has {a} {item}. {friend} has {b} more than {name}. "
        "How many {item} do they have together?",
        ("a + b", "a + r1"),
    ),
    Scene(
        "{name} has {a} {item}. {friend} has {b} fewer than {name}. "
        "How many {item} do they have together?",
        ("a - b", "a + r1"),
    ),
    Scene(
        "{name} has {j} {item}. {friend} has {k} times as many. "
        "How many {item} do they have together?",
        ("j * k", "j + r1"),
    ),
    Scene(
        "{name} reads {j} pages a day for {k} days. The book has {a} pages. "
        "How many pages are left?",
        ("j * k", "a - r1"),
    ),
    Scene(
        "A pen costs {j} dollars and a bag costs {a} dollars. {name} buys {k} pens and a bag. "
        "How many dollars does {he} pay?",
        ("j * k", "r1 + a"),
    ),
    Scene(
        "{name} buys {j} {item} at {k} dollars each and pays with {a} dollars. "
        "How many dollars does {he} get back?",
        ("j * k", "a - r1"),
    ),
    Scene(
        "{name} buys {j} {item} at {k} dollars each and {l} hats at {m} dollars each. "
        "How many dollars does {he} pay?",
        ("j * k", "l * m", "r1 + r2"),
    ),
    Scene(
        "A garden has {j} rows of {k} trees. {a} trees are cut down and {b} are planted. "
        "How many trees are there now?",
        ("j * k", "r1 - a", "r2 + b"),
    ),
    Scene(
        "A class has {a} girls and {b} boys. {c} of them are at home today. "
        "How many children are in class?",
        ("a + b", "r1 - c"),
    ),
    Scene(
        "{name} runs {j} miles a day for {k} days and then {l} miles a day for {m} days. "
        "How many miles does {he} run?",
        ("j * k", "l * m", "r1 + r2"),
    ),
    Scene(
        "A baker makes {a} rolls in the morning and {b} at noon. "
        "{c} are sold and {d} are eaten. How many rolls are left?",
        ("a + b", "r1 - c", "r2 - d"),
    ),
    Scene(
        "{name} is {a} years old. {friend} is {b} years older. "
        "How old will {friend} be in {c} years?",
        ("a + b", "r1 + c"),
    ),
    Scene(
        "A barrel holds {a} liters. {name} fills {j} jugs of {k} liters from it "
        "and pours {b} liters back. How many liters are in the barrel?",
        ("j * k", "a - r1", "r2 + b"),
    ),
    Scene(
        "{name} has {j} bags of {k} red {item} and {l} bags of {m} blue ones. "
        "How many more red than blue {item} does {he} have?",
        ("j * k", "l * m", "r1 - r2"),
    ),
    Scene(
        "Each box holds {j} red and {k} blue {item}. {name} has {l} boxes "
        "and gives {a} {item} away. How many {item} are left?",
        ("j + k", "r1 * l", "r2 - a"),
    ),
)
