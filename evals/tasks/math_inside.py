"""Parse two answers of MATH from LaTeX and compare them by SymPy. Runs inside the sandbox (`math_equal.py`).

Answers come from a model, so their cost is unknown: `10^{10^9}` is three characters more than `10^9`. Nothing here evaluates
text; a small grammar reads it. What the grammar does not read is equal to nothing.

Beside expressions there are tuples and intervals (brackets count), lists and sets (order does not), unions, relations,
matrices, and numbers with a base. Standard library and SymPy only: this file is a program's text.
"""

import re
import signal
from typing import Any

import sympy

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\.\d+|[A-Za-z]|\S")
PLAIN_NAMES = re.compile(r"(?<![A-Za-z\\])(sqrt|pi|sin|cos|tan|log|ln|infty)(?![A-Za-z])")
WORD = re.compile(r"(?<!\\)(?<![A-Za-z])(?:[A-Za-z]{3,}|no(?![A-Za-z]))")
"""A run of letters that is no command: a word, not a product of variables."""
FUNCTIONS: dict[str, Any] = {
    "\\sin": sympy.sin, "\\cos": sympy.cos, "\\tan": sympy.tan, "\\cot": sympy.cot, "\\sec": sympy.sec, "\\csc": sympy.csc,
    "\\arcsin": sympy.asin, "\\arccos": sympy.acos, "\\arctan": sympy.atan, "\\ln": sympy.log, "\\exp": sympy.exp,
}  # fmt: skip
CONSTANTS = {"\\pi": sympy.pi, "\\infty": sympy.oo, "e": sympy.E, "i": sympy.I}
RELATIONS = {
    "=": "=", "<": "<", ">": ">", "\\le": "<=", "\\leq": "<=", "\\ge": ">=", "\\geq": ">=", "\\ne": "!=", "\\neq": "!=",
    "\\in": "in",
}  # fmt: skip
SWAPPED = {">": "<", ">=": "<="}
CLOSING = {"(": ")", "[": "]", "\\{": "\\}"}
MATRICES = ("pmatrix", "bmatrix", "matrix", "vmatrix")

MOST_EXPONENT, MOST_DIGITS = 1_000, 200
"""Largest exponent: `9^{9^9}` would block the interpreter in one operation, which no signal ends."""
PAIR_SECONDS = 3.0
"""CPU seconds for one pair; most take some milliseconds."""

type Value = Any
"""A SymPy expression, or a tuple of a kind and its parts."""


class UnreadError(ValueError):
    """The grammar does not cover the answer."""


class Reader:
    """A recursive-descent parser of one answer."""

    def __init__(self, text: str) -> None:
        if WORD.search(re.sub(r"\\(?:begin|end)\{[a-z]*\}", "", text)):
            raise UnreadError("a word")
        self.tokens = TOKEN.findall(text)
        self.place = 0

    @property
    def next(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.next
        if not token or (wanted is not None and token != wanted):
            raise UnreadError(f"{token!r} where {wanted!r} should be")
        self.place += 1
        return token

    def parse(self) -> Value:
        value = self.listed(("",))
        if self.next:
            raise UnreadError(self.next)
        return value

    def listed(self, ends: tuple[str, ...]) -> Value:
        """Parse relations between commas; a single one is returned as it is."""
        values = [self.relation()]
        while self.next in (",", ";"):
            self.take()
            values.append(self.relation())
        if self.next not in ends:
            raise UnreadError(self.next)
        return values[0] if len(values) == 1 else ("list", *values)

    def relation(self) -> Value:
        first = self.union()
        parts = [first]
        signs = []
        while self.next in RELATIONS:
            signs.append(RELATIONS[self.take()])
            parts.append(self.union())
        if not signs:
            return first
        if signs == ["in"]:
            return parts[1]  # `x in (1, 2)` means the interval
        if len(signs) == 1 and signs[0] in SWAPPED:
            return ("relation", SWAPPED[signs[0]], parts[1], parts[0])
        return ("relation", ",".join(signs), *parts)

    def union(self) -> Value:
        parts = [self.sum()]
        while self.next == "\\cup":
            self.take()
            parts.append(self.sum())
        return parts[0] if len(parts) == 1 else ("union", *parts)

    def sum(self) -> Value:
        sign = self.sign()
        result = self.product()
        if sign < 0:
            result = -plain(result)
        while self.next in ("+", "-"):
            minus = self.take() == "-"
            term = plain(self.product())
            result = plain(result) - term if minus else plain(result) + term
        return result

    def sign(self) -> int:
        result = 1
        while self.next in ("+", "-"):
            result = -result if self.take() == "-" else result
        return result

    def product(self) -> Value:
        result = self.power()
        while True:
            if self.next in ("\\cdot", "\\times", "*"):
                self.take()
                result = plain(result) * self.signed()
            elif self.next in ("/", "\\div"):
                self.take()
                result = plain(result) / self.signed()
            elif self.begins_factor():
                result = self.beside(result)
            else:
                return result

    def signed(self) -> Value:
        """Parse a factor, which may have a sign after a multiplication sign."""
        return self.sign() * plain(self.power())

    def beside(self, left: Value) -> Value:
        """Parse an adjacent factor; `1\\frac{1}{2}` is a mixed number, as in MATH."""
        is_fraction = self.next == "\\frac"
        start = self.place
        right = plain(self.power())
        is_mixed = self.tokens[start - 1].isdigit() and getattr(left, "is_Integer", False)
        if is_fraction and is_mixed and right.is_Rational and 0 < right < 1:
            return left + right
        if self.tokens[start - 1][-1].isdigit() and self.tokens[start][0].isdigit():
            raise UnreadError("two numbers side by side")
        return plain(left) * right

    def begins_factor(self) -> bool:
        token = self.next
        if not token or token in RELATIONS or token in ("\\cup", "\\pm", "\\end"):
            return False
        return token[0].isalnum() or token in ("(", "[", "{", "\\{") or (token[0] == "\\" and token[1:].isalpha())

    def power(self) -> Value:
        result = self.primary()
        while self.next in ("^", "!"):
            if self.take() == "!":
                result = sympy.factorial(small(plain(result)))
            else:
                result = plain(result) ** small(plain(self.argument()))
        return result

    def argument(self) -> Value:
        """Parse the argument of a command or of `^`: a group in braces, or one token."""
        if self.next == "{":
            return self.group("{", "}")
        if self.next == "-":
            self.take()
            return -plain(self.primary())
        return self.primary()

    def group(self, opening: str, closing: str) -> Value:
        self.take(opening)
        result = self.listed((closing,))
        self.take(closing)
        return result

    def primary(self) -> Value:
        token = self.next
        if token in ("(", "[", "\\{"):
            return self.bracketed()
        if token == "{":
            return self.group("{", "}")
        if token == "|":
            self.take()
            result = sympy.Abs(plain(self.sum()))
            self.take("|")
            return result
        self.take()
        if token[0].isdigit() or token[0] == ".":
            return self.number(token)
        if token in CONSTANTS and self.next != "_":
            return CONSTANTS[token]
        if token.isalpha():
            return self.symbol(token)
        return self.command(token)

    def bracketed(self) -> Value:
        opening = self.take()
        result = self.listed((")", "]", "\\}"))
        closing = self.take()
        if opening == "\\{":
            if closing != "\\}":
                raise UnreadError(closing)
            return result if isinstance(result, tuple) and result[0] == "list" else ("list", result)
        if isinstance(result, tuple):
            return ("bracketed", opening + closing, *result[1:]) if result[0] == "list" else result
        if CLOSING[opening] != closing:
            raise UnreadError(closing)
        return result

    def number(self, token: str) -> Value:
        if self.next == "_":
            self.take()
            return ("base", token, str(self.argument()))
        if len(token) > MOST_DIGITS:
            raise UnreadError(f"a number of {len(token)} digits")
        return sympy.Rational(token)

    def symbol(self, token: str) -> Value:
        if self.next != "_":
            return sympy.Symbol(token)
        self.take()
        return sympy.Symbol(f"{token}_{self.argument()}")

    def command(self, token: str) -> Value:
        if token == "\\frac":
            return plain(self.argument()) / plain(self.argument())
        if token == "\\binom":
            return sympy.binomial(small(plain(self.argument())), small(plain(self.argument())))
        if token == "\\sqrt":
            degree: Any = small(plain(self.group("[", "]"))) if self.next == "[" else sympy.Integer(2)
            return plain(self.argument()) ** (1 / degree)
        if token == "\\log":
            base = None
            if self.next == "_":
                self.take()
                base = plain(self.argument())
            result = plain(self.function_argument())
            return FUNCTIONS["\\ln"](result) / FUNCTIONS["\\ln"](10 if base is None else base)
        if token in FUNCTIONS:
            return self.function(FUNCTIONS[token])
        if token == "\\begin":
            return self.matrix()
        if re.fullmatch(r"\\[A-Za-z]+", token) and token not in ("\\end", "\\text"):
            return self.symbol(token)  # a Greek letter or another symbol
        raise UnreadError(token)

    def function(self, function: Any) -> Value:
        exponent = None
        if self.next == "^":
            self.take()
            exponent = plain(self.argument())
        result = function(plain(self.function_argument()))
        return result if exponent is None else result ** small(exponent)

    def function_argument(self) -> Value:
        """Parse the argument of a function: `\\sin 2x` takes the factors that follow; brackets end it."""
        if self.next in ("(", "{"):
            return self.power()
        result = plain(self.power())
        while self.begins_factor() and self.next[0] != "\\":
            result *= plain(self.power())
        return result

    def matrix(self) -> Value:
        def name() -> str:
            self.take("{")
            letters = ""
            while self.next != "}":
                letters += self.take()
            self.take("}")
            return letters

        kind = name()
        if kind not in MATRICES:
            raise UnreadError(kind)
        rows = [[self.sum()]]
        while self.next != "\\end":
            if self.take() == "&":
                rows[-1].append(self.sum())
            elif self.tokens[self.place - 1] == "\\\\":
                rows.append([self.sum()])
            else:
                raise UnreadError(self.tokens[self.place - 1])
        self.take()
        if name() != kind or len({len(row) for row in rows}) != 1:
            raise UnreadError(kind)
        return ("matrix", *(("row", *row) for row in rows))


def plain(value: Value) -> Any:
    """Require an expression. Raises: UnreadError for any other value."""
    if isinstance(value, tuple):
        raise UnreadError(value[0])
    return value


def small(value: Any) -> Any:
    """Require an integer that is small enough for an exponent. Raises: UnreadError."""
    if value.is_number and not abs(value) <= MOST_EXPONENT:
        raise UnreadError(f"an exponent of {str(value)[:40]}")
    return value


def read(text: str) -> Value:
    """Raises: UnreadError."""
    text = PLAIN_NAMES.sub(r"\\\1", text)
    if text.count("\\pm") == 1:
        return ("list", *(Reader(text.replace("\\pm", sign)).parse() for sign in "+-"))
    return Reader(text).parse()


def same(one: Value, other: Value) -> bool:
    if isinstance(one, tuple) != isinstance(other, tuple):
        return False
    if not isinstance(one, tuple):
        return same_expressions(one, other)
    if one[0] != other[0] or len(one) != len(other):
        return False
    if one[0] in ("list", "union"):
        return matched(list(one[1:]), list(other[1:]))
    if (
        one[0] == "relation"
        and one[1] == other[1] == "="
        and not any(isinstance(part, tuple) for part in (*one[2:], *other[2:]))
    ):
        return same_equations(one, other)
    return all(
        a == b if isinstance(a, str) or isinstance(b, str) else same(a, b) for a, b in zip(one[1:], other[1:], strict=True)
    )


def matched(ones: list[Value], others: list[Value]) -> bool:
    """Match two lists without order. Equality is transitive, so the first equal partner will do."""
    for one in ones:
        partner = next((place for place, other in enumerate(others) if same(one, other)), None)
        if partner is None:
            return False
        del others[partner]
    return True


def same_expressions(one: Any, other: Any) -> bool:
    if one.has(sympy.zoo, sympy.nan) or other.has(sympy.zoo, sympy.nan):
        return False  # a division by zero equals nothing
    if one == other:
        return True
    difference = sympy.simplify(one - other)
    return difference == 0 or (not difference.free_symbols and difference.equals(0) is True)


def same_equations(one: Value, other: Value) -> bool:
    """Whether two equations are equal up to a constant factor."""
    first, second = one[2] - one[3], other[2] - other[3]
    if same_expressions(first, second) or same_expressions(first, -second):
        return True
    ratio = sympy.simplify(first / second)
    return bool(ratio.is_number and ratio.is_finite and ratio != 0)


def equal(one: str, other: str) -> bool:
    """Whether two normalized answers have the same meaning; False if one of them cannot be parsed."""
    try:
        return bool(same(read(one), read(other)))
    except (ArithmeticError, AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError):
        return False


class LateError(Exception):
    """A comparison takes too long."""


def end_pair(*_: object) -> None:
    raise LateError


def equal_all(pairs: list) -> list:
    """`equal` of each pair; False for one that takes too long."""
    signal.signal(signal.SIGPROF, end_pair)
    result = []
    for one, other in pairs:
        try:
            signal.setitimer(signal.ITIMER_PROF, PAIR_SECONDS)
            result.append(equal(one, other))
            signal.setitimer(signal.ITIMER_PROF, 0)
        except LateError:
            result.append(False)
    return result
