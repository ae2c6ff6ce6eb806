"""What JSON Schema says of single values, exactly: which are equal, which are multiples, which are whole.

Numbers are compared as numbers and with every digit: a payload may hold an integer of thousands of them, which no
double can stand for. Called by the compiled schema and by the library that explains refusals.
"""

from __future__ import annotations

import json
from fractions import Fraction

_LEAST_WHOLE_DOUBLE = -(2.0**63)
_MOST_WHOLE_DOUBLE = 2.0**63  # exclusive


def is_integer(value: object) -> bool:
    """Say whether a value is an integer to JSON Schema and to a worker's model: `5.0` is one, `1e300` is not.

    A model reads a number written with a fraction or an exponent as 64 bits at most.
    """
    if isinstance(value, float):
        return value.is_integer() and _LEAST_WHOLE_DOUBLE <= value < _MOST_WHOLE_DOUBLE
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Say whether a value is a number; a boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_multiple(value: float, of: float) -> bool:
    """Say whether a number is a multiple of another as both are written: 0.3 is one of 0.1, to the digit."""
    if isinstance(value, int) and isinstance(of, int):
        return value % of == 0
    return (_exact(value) / _exact(of)).denominator == 1


def are_unique(values: list[object]) -> bool:
    """Say whether no two values are equal, in time that grows with their size and not with its square."""
    seen = set[str]()
    for value in values:
        name = identity(value)
        if name in seen:
            return False
        seen.add(name)
    return True


def identity(value: object) -> str:
    """Give a text that is the same for values that JSON Schema calls equal: `1` and `1.0` are, `1` and `true` are not.

    A text, because numbers themselves can be chosen to share one hash.
    """
    if isinstance(value, list):
        return f"[{','.join(map(identity, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{identity(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, float):
        return hex(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return hex(value)  # decimal digits would take time that grows with the square of their number
    return json.dumps(value)


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(repr(number))
