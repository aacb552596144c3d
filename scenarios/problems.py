"""Word problems with worked solutions, made from templates: the clean part of the math bundle.

Solutions use the notation of GSM8K's files (`16 - 7 = <<16-7=9>>9`). The other notation is derived from it. The project wrote
the texts, so they contain no benchmark item (the replay's audit of Mantis checks this).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

NAMES = (
    "Ada",
    "Boris",
    "Chidi",
    "Dana",
    "Emeka",
    "Farah",
    "Goro",
    "Hana",
    "Ivo",
    "Jun",
    "Kofi",
    "Lena",
    "Mira",
    "Noor",
    "Olga",
)
GOODS = ("pears", "candles", "tiles", "ropes", "mugs", "stamps", "bricks", "lamps", "scarves", "kites", "jars", "brushes")
PLACES = ("harbour", "library", "quarry", "bakery", "station", "orchard", "workshop", "theatre", "laundry", "museum")


@dataclass(frozen=True)
class Problem:
    """A question, its solution with calculator tags, and the final number."""

    question: str
    solution: str
    answer: int


def calculation(text: str, value: int) -> str:
    """`16 - 7` and 9 become `16 - 7 = <<16-7=9>>9`."""
    return f"{text} = <<{text.replace(' ', '')}={value}>>{value}"


def _deliveries(choose: random.Random, who: str, what: str, where: str) -> Problem:
    crates, each, broken = choose.randint(3, 12), choose.randint(4, 20), choose.randint(1, 9)
    total = crates * each
    return Problem(
        f"A cart brings {crates} crates of {what} to the {where}. Every crate was packed with {each} {what}, but {broken} of "
        f"all the {what} arrive cracked. With how many whole {what} can {who} work?",
        f"The crates hold {calculation(f'{crates} * {each}', total)} {what}.\n"
        f"Without the cracked ones {who} has {calculation(f'{total} - {broken}', total - broken)} {what}.",
        total - broken,
    )


def _shifts(choose: random.Random, who: str, what: str, where: str) -> Problem:
    morning, evening, days = choose.randint(2, 6), choose.randint(2, 5), choose.randint(3, 9)
    daily = morning + evening
    return Problem(
        f"At the {where}, {who} sorts {what} for {morning} hours before noon and {evening} hours after it. After {days} such "
        f"days, how many hours of sorting {what} has {who} written down?",
        f"One day of sorting is {calculation(f'{morning} + {evening}', daily)} hours long.\n"
        f"{days} days make {calculation(f'{daily} * {days}', daily * days)} hours.",
        daily * days,
    )


def _sharing(choose: random.Random, who: str, what: str, where: str) -> Problem:
    people, each, kept = choose.randint(3, 9), choose.randint(3, 15), choose.randint(2, 20)
    given = people * each
    return Problem(
        f"{who} hands out {what} in front of the {where}: {people} neighbours take {each} {what} home, and {kept} {what} stay "
        f"in the basket. What was the number of {what} in the basket to begin with?",
        f"The neighbours took {calculation(f'{people} * {each}', given)} {what}.\n"
        f"The basket began with {calculation(f'{given} + {kept}', given + kept)} {what}.",
        given + kept,
    )


def _fence(choose: random.Random, who: str, what: str, where: str) -> Problem:
    width, depth, price = choose.randint(4, 18), choose.randint(3, 15), choose.randint(2, 9)
    around = 2 * (width + depth)
    return Problem(
        f"The yard behind the {where} is {width} metres wide and {depth} metres deep. {who} stacks {what} along its whole "
        f"border and pays {price} coins a metre for it. How many coins does the border cost {who}?",
        f"The border measures {calculation(f'2 * ({width} + {depth})', around)} metres.\n"
        f"It costs {calculation(f'{around} * {price}', around * price)} coins.",
        around * price,
    )


def _savings(choose: random.Random, who: str, what: str, where: str) -> Problem:
    weekly, weeks, spent = choose.randint(5, 25), choose.randint(4, 12), choose.randint(3, 19)
    saved = weekly * weeks
    return Problem(
        f"Since the {where} opened, {who} has put {weekly} coins a week into a tin for {weeks} weeks. Then {who} buys {what} "
        f"for {spent} coins out of it. What does the tin still hold?",
        f"In {weeks} weeks the tin fills with {calculation(f'{weekly} * {weeks}', saved)} coins.\n"
        f"After the {what} it holds {calculation(f'{saved} - {spent}', saved - spent)} coins.",
        saved - spent,
    )


def _rows(choose: random.Random, who: str, what: str, where: str) -> Problem:
    rows, each, more = choose.randint(3, 14), choose.randint(3, 14), choose.randint(2, 12)
    first = rows * each
    return Problem(
        f"On a wall of the {where} hang {rows} rows of {each} {what}. A visitor lends {more} further {what}, which {who} hangs "
        f"beside them. How many {what} does the wall show now?",
        f"The rows show {calculation(f'{rows} * {each}', first)} {what}.\n"
        f"With those on loan the wall shows {calculation(f'{first} + {more}', first + more)} {what}.",
        first + more,
    )


TEMPLATES: tuple[Callable[[random.Random, str, str, str], Problem], ...] = (
    _deliveries, _shifts, _sharing, _fence, _savings, _rows,
)  # fmt: skip


def problems(count: int, seed: int) -> list[Problem]:
    """`count` problems, a function of the seed."""
    choose = random.Random(seed)
    return [
        TEMPLATES[number % len(TEMPLATES)](choose, choose.choice(NAMES), choose.choice(GOODS), choose.choice(PLACES))
        for number in range(count)
    ]
