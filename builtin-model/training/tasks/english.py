"""A little English grammar for filled-in templates."""


def with_articles(text: str) -> str:
    """Writes "an" for "a" where the next word begins with a vowel."""
    words = text.split(" ")
    for i in range(len(words) - 1):
        if words[i] in ("a", "A") and words[i + 1][:1] in tuple("aeiouAEIOU"):
            words[i] += "n"
    return " ".join(words)


def listing(items: list) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def capitalized(text: str) -> str:
    """The text with its first letter in upper case and the rest as it is."""
    return text[:1].upper() + text[1:]
