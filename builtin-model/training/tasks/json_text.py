"""JSON as the data spells it: what `json.dumps` writes, with other scripts as they are."""
import json


def dumps(value) -> str:
    return json.dumps(value, ensure_ascii=False)


def same_object(text: str, expected) -> bool:
    """Whether a text is JSON and equals the expected value, the order of keys aside. 3 and 3.0 are equal, 1 and true are not."""
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return value == expected and dumps(value).lower().count("true") == dumps(expected).lower().count("true")
