"""One training example: a conversation and the answer to learn."""
from dataclasses import dataclass, field


@dataclass
class Sample:
    """`messages` end with the user (or a tool's result); `answer` is the assistant's text after the generation prompt.

    With `thought` the conversation is rendered with `enable_thinking`, and the thought precedes the answer.
    `lowered` lists names of the prompt that the answer repeats in lower case (see `encode.py`).
    `facts` holds what a judge needs and the conversation doesn't say.
    """

    task: str
    messages: list
    answer: str
    tools: list | None = None
    thought: str | None = None
    lowered: list = field(default_factory=list)
    facts: dict = field(default_factory=dict)

    def completion(self) -> str:
        """The text that the assistant writes, thought included."""
        if self.thought is None:
            return self.answer
        return f"<think>\n{self.thought}\n</think>\n\n{self.answer}"


def ask(text: str) -> list:
    """A conversation of one user message."""
    return [{"role": "user", "content": text}]
