"""Numbers that carry their own check: where a card's, an account's or a telephone's number ends, or None if it is none."""

import re

_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 ES24 FI18 "
    "FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 "
    "LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 PT25 QA29 RO24 RS22 RU33 SA24 "
    "SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
"""Characters of an account number by country (the register of SWIFT)."""
_DOUBLED = str.maketrans("0123456789", "0246813579")
"""Twice a digit, and the sum of its digits."""
_PHONE_DIGITS = range(8, 16)
"""E.164 has up to 15 with the country code."""
_NORTH_AMERICAN_DIGITS = 11


def iban_end(match: re.Match[str]) -> int | None:
    """Cut what looks like an IBAN to its country's length, and divide it by 97."""
    found = match[0]
    country = _IBAN_LENGTHS.find(found[:2])
    if country < 0:
        return None
    length = int(_IBAN_LENGTHS[country + 2 : country + 4])
    account = found.replace(" ", "")[:length]
    digits = "".join(str(int(character, 36)) for character in account[4:] + account[:4])
    if len(account) < length or int(digits) % 97 != 1:
        return None
    places = [i for i, character in enumerate(found) if character != " "]
    end = match.start() + places[length - 1] + 1
    follows = match.string[end : end + 1]
    return None if (follows.isascii() and follows.isalnum()) or follows in ("_", "+") else end


def card_end(match: re.Match[str]) -> int | None:
    """Check a card's issuer, length and last digit (Luhn)."""
    digits = match[0].replace(" ", "").replace("-", "")
    return match.end() if len(digits) in _card_lengths(digits) and _luhn(digits) else None


def _card_lengths(digits: str) -> tuple[int, ...]:
    """Return how many digits the cards have whose numbers begin so; none if no issuer has them."""
    two, three, four = (int(digits[:n]) for n in (2, 3, 4))
    if digits[0] == "4":
        return (13, 16, 19)
    if two in (34, 37):
        return (15,)
    if two in (36, 38, 39) or 300 <= three <= 305:
        return (14,)
    if two == 62:
        return (16, 17, 18, 19)
    is_of_sixteen = 51 <= two <= 55 or 2221 <= four <= 2720 or 3528 <= four <= 3589
    return (16,) if is_of_sixteen or four == 6011 or two == 65 or 644 <= three <= 649 else ()


def _luhn(digits: str) -> bool:
    return sum(map(int, digits[-1::-2] + digits[-2::-2].translate(_DOUBLED))) % 10 == 0


def phone_end(match: re.Match[str]) -> int | None:
    """Leave out groups beyond the digits that a number can have. Points and other marks together are decimal numbers."""
    found = match[0]
    if "." in found and re.search("[ /-]", found):
        return None
    most = _NORTH_AMERICAN_DIGITS if found.startswith("+1") else _PHONE_DIGITS[-1]
    while _digits(found) > most and (groups := re.fullmatch(r"(.*[0-9])[ ./-][0-9]+", found)):
        found = groups[1]
    return match.start() + len(found) if _digits(found) in _PHONE_DIGITS and _digits(found) <= most else None


def _digits(text: str) -> int:
    return sum(character.isdigit() for character in text)
