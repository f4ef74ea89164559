"""Which tasks there are and how often each occurs in the training data."""
from sample import Sample
from source import Source
from tasks import car, chat, copying, email, extraction, game, reasoning, sentiment, sql, tool_call

TASKS = {module.__name__.split(".")[-1]: module
         for module in (sentiment, extraction, car, sql, email, tool_call, reasoning, game, chat, copying)}

WEIGHTS = {"sentiment": 22, "extraction": 26, "car": 4, "sql": 14, "email": 7, "tool_call": 16, "reasoning": 14, "game": 13,
           "chat": 4, "copying": 4}

# Shares of training examples that vary from their task's habit, so that the model is used to it:
THINKING_SHARE = 0.06  # think first, outside the reasoning task
DIRECT_SHARE = 0.18  # answer at once, inside it
SYSTEM_SHARE = 0.10  # begin with a system message
HISTORY_SHARE = 0.04  # come after other questions and answers
PHRASE_SHARE = 0.12  # have a phrase before or after that changes nothing

SYSTEM_MESSAGES = [
    "You are a helpful assistant.", "You are a helpful assistant that answers briefly.", "Be brief.", "You are an assistant.",
    "Answer the user's question.", "You extract data.", "Follow the user's instructions.", "You are a friendly helper.",
    "You answer with JSON where asked to.", "You are an expert.", "Do what the user asks.", "You are the assistant of a small shop.",
]

PHRASES_BEFORE = ["Hi! ", "Hello. ", "Please help me. ", "Task: ", "Next one: ", "Now do this. ", "Listen: ", "One more: ", "Please. ", "I need help.\n",
                  "Can you do this? ", "Here is a task for you.\n", "OK. ", "User: ", "Try this: ", "Dear assistant, "]
PHRASES_AFTER = [" Thanks!", " Thank you.", " Please.", "\nThank you!", " Be quick.", " Do it now.", " That is all.", "\nAnswer:", " Can you do that?"]


def make(source: Source, task: str) -> Sample:
    """One example of a task; training examples with the variations above."""
    sample = TASKS[task].make(source)
    if source.held_out:
        return sample
    if task == "reasoning" and source.chance(DIRECT_SHARE):
        sample.thought = None
    elif "thought" in sample.facts and source.chance(THINKING_SHARE):
        sample.thought = sample.facts["thought"]
    if task != "copying" and source.chance(PHRASE_SHARE):
        add_phrase(source, sample.messages[-1])
    if source.chance(HISTORY_SHARE):
        sample.messages = history(source) + sample.messages
    if source.chance(SYSTEM_SHARE):
        sample.messages = [{"role": "system", "content": source.choice(SYSTEM_MESSAGES)}] + sample.messages
    return sample


def add_phrase(source: Source, message: dict):
    """Puts a polite or idle phrase around what the user says."""
    if message["role"] == "user":
        before = source.chance(0.5)
        message["content"] = source.choice(PHRASES_BEFORE) + message["content"] if before else message["content"] + source.choice(PHRASES_AFTER)


def history(source: Source) -> list:
    """Some turns that came before, of any task without tools. Answers stand in a history without their thoughts."""
    messages = []
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        earlier = TASKS[source.choice([task for task in TASKS if task != "tool_call"])].make(source)
        messages += earlier.messages + [{"role": "assistant", "content": earlier.answer}]
    return messages


def draw(source: Source, copying_boost: float = 0.0) -> Sample:
    """One training example. `copying_boost` is a further share of plain copying, for the first steps of a run."""
    if source.chance(copying_boost):
        return make(source, "copying")
    return make(source, source.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0])
