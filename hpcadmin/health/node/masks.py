"""Masks for names and text: glob, node range, /regular expression/, each after ! for the opposite."""

MAX_REGEX = 512

_compiled = {}  # type: dict[str, object]


def matches(mask: str, text: str) -> bool:
    """Whether the text is what the mask describes; a mask of "" matches only ""."""
    if mask[:1] == "!":
        return not matches(mask[1:], text)
    if len(mask) >= 2 and mask[0] == "/" and mask[-1] == "/":
        return regex(mask[1:-1]).search(text) is not None  # type: ignore[attr-defined]
    if mask[:1] == "{" and mask[-1:] == "}":
        return in_range(mask[1:-1], text)
    if "[" in mask or "?" in mask:
        return glob(mask).match(text) is not None  # type: ignore[attr-defined]
    return stars(mask, text)


def matches_node(mask: str, node: str) -> bool:
    """As matches(), and gpu[001-100,105] is a range of nodes, where a glob would see a set of characters."""
    negative = mask[:1] == "!"
    bare = mask[1:] if negative else mask
    if bare[:1] not in ("/", "{") and "[" in bare and _is_range(bare):
        return in_range(bare, node) != negative
    return matches(mask, node)


def any_matches(masks: "list[str]", text: str, node: bool = False) -> bool:
    """One of the masks matches, and none that begins with "!" says no. Only such masks: whatever they do not name."""
    one = matches_node if node else matches
    wanted = [mask for mask in masks if mask[:1] != "!"]
    return all(one(mask, text) for mask in masks if mask[:1] == "!") and (
        not wanted or any(one(mask, text) for mask in wanted))


def regex(pattern: str) -> object:
    """The compiled pattern; one that cannot be compiled raises ValueError with what is wrong."""
    import re
    if len(pattern) > MAX_REGEX:
        raise ValueError("regular expression of more than %d characters" % MAX_REGEX)
    if pattern not in _compiled:
        try:
            _compiled[pattern] = re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as exc:
            raise ValueError("regular expression /%s/: %s" % (pattern, exc)) from exc
    return _compiled[pattern]


def stars(pattern: str, text: str) -> bool:
    """A glob of nothing but stars, without re: importing that takes longer than most checks."""
    first, *middle = pattern.split("*")
    if not middle:
        return pattern == text
    last = middle.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def glob(pattern: str) -> object:
    key = "\0" + pattern
    if key not in _compiled:
        import fnmatch
        import re
        _compiled[key] = re.compile(fnmatch.translate(pattern))
    return _compiled[key]


def in_range(ranges: str, node: str) -> bool:
    """Whether the node is one of n[01-04,7],m3: digits count as they are written, n1 is not n01."""
    return any(_one_range(part, node) for part in split(ranges))


def split(ranges: str) -> "list[str]":
    """The parts at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(ranges):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            parts.append(ranges[start:position])
            start = position + 1
    parts.append(ranges[start:])
    return [part.strip() for part in parts if part.strip()]


def _is_range(text: str) -> bool:
    inside = [piece.split("]", 1)[0] for piece in text.split("[")[1:]]
    return all(piece and all(c.isdecimal() or c in ",-" for c in piece) for piece in inside)


def _one_range(part: str, node: str) -> bool:
    """One name with any number of brackets, without expanding it."""
    before, bracket, rest = part.partition("[")
    if not bracket:
        return part == node
    if not node.startswith(before):
        return False
    inside, _, after = rest.partition("]")
    node = node[len(before):]
    digits = len(node) - len(node.lstrip("0123456789"))
    return any(_in_list(inside, node[:length]) and _one_range(after, node[length:])
               for length in range(1, min(digits, 18) + 1))


def _in_list(inside: str, digits: str) -> bool:
    for piece in inside.split(","):
        low, dash, high = piece.strip().partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal()):
            continue
        padded = len(low) if low[:1] == "0" or len(low) == len(high) else 0
        width = len(digits) == padded if padded else digits[:1] != "0" or digits == "0"
        if width and int(low) <= int(digits) <= int(high):
            return True
    return False
