"""Short chat: greetings, and what Formwork is and how to use it.

A `Topic` is one answer with the questions that ask for it. The last question of each topic is kept for
the evaluation. What the answers say is what the documentation says; change both together.
"""
import invented
from sample import Sample, ask
from source import Source, Templates
from words.people import FIRST_NAMES

GREETINGS = Templates(
    train=["Hi, I am {name}.", "Hello, my name is {name}.", "Hey! {name} here.", "Good morning, I'm {name}.", "My name is {name}."],
    held_out=["Hello, I am {name}.", "Hi! My name is {name}."],
)

# answer: questions
TOPICS = {
    "Hello! How can I help you?": ["Hi", "Hello!", "Hey", "Hey there", "Hi there!", "Hello there", "Greetings", "Hello"],
    "Good morning! What can I do for you?": ["Good morning!", "Morning", "Good morning to you", "Good morning"],
    "Good evening! What can I do for you?": ["Good evening!", "Evening", "Good evening to you", "Good evening"],
    "I am fine, thank you. How can I help?": ["How are you?", "How are you doing?", "How do you feel?", "Are you well?", "How is it going?"],
    "You are welcome!": ["Thanks", "Thank you!", "Thanks a lot", "Thank you very much", "Many thanks", "Thank you"],
    "Goodbye! Come back soon.": ["Bye", "Goodbye!", "See you", "Bye bye", "I have to go", "See you later", "Goodbye"],
    "I am the small model that comes with Formwork. I can fill in JSON, write SQL, call tools and do small sums.": [
        "Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Introduce yourself.", "What can you do?",
        "Which model are you?", "Are you a language model?", "What model is this?", "Say who you are."],
    "I am a very small model. I know little about the world, but I can copy and reshape what you give me.": [
        "What do you know?", "Are you smart?", "How big are you?", "What can't you do?", "Are you a large model?", "Do you know everything?",
        "How much do you know?"],
    "Formwork is an inference engine for language models, written in Rust. It makes their output fit a JSON schema or a grammar.": [
        "What is Formwork?", "Tell me about Formwork.", "What does Formwork do?", "Explain Formwork.", "Describe Formwork.", "Formwork?",
        "What is this engine?", "What kind of program is Formwork?", "Do you know Formwork?", "Can you explain what Formwork is?"],
    "Structured output means that the engine allows only tokens that fit your schema or grammar, so the answer always parses.": [
        "What is structured output?", "Explain structured output.", "What does structured output mean?", "What is constrained decoding?",
        "How does constrained decoding work?", "How does structured output work?", "Tell me what structured output is."],
    "Send a request with response_format of type json_schema and put your schema in it.": [
        "How do I get JSON?", "How do I use a JSON schema?", "How can I make the answer fit a schema?", "How do I use response_format?",
        "How do I ask for JSON output?", "How do I constrain the answer to a JSON schema?", "How can I get JSON output?"],
    "Put a regular expression into structured_outputs under the key regex.": [
        "How do I use a regex?", "Can I use a regular expression?", "How do I constrain the answer with a regular expression?",
        "How can I force a pattern?", "How do I use a regular expression?"],
    "Put the list of allowed answers into structured_outputs under the key choice.": [
        "How do I use a choice?", "How can I limit the answer to a few options?", "How do I let the model choose from a list?",
        "How do I allow only some answers?", "How can I make the model choose from options?"],
    "Put an EBNF or Lark grammar into structured_outputs under the key grammar.": [
        "How do I use a grammar?", "Can I use a grammar?", "Which grammars are supported?", "How do I write a grammar?",
        "Does Formwork support Lark?", "Does Formwork support EBNF?", "How can I use my own grammar?"],
    "Give your functions in the field tools. The model then answers with a tool call that names one and its arguments.": [
        "How do I use tools?", "How does tool calling work?", "Can you call functions?", "How do I call a function?", "What is a tool call?",
        "How do tool calls work?"],
    "Set enable_thinking to true in chat_template_kwargs. I then think between <think> and </think> before I answer.": [
        "How do I turn on thinking?", "How do I use reasoning?", "Can you think?", "How can I see your thoughts?", "What is enable_thinking?",
        "How do I enable thinking?"],
    "Start the server with formwork serve. It speaks the OpenAI API over HTTP.": [
        "How do I start the server?", "How do I run Formwork?", "How can I serve a model?", "What does formwork serve do?",
        "How do I start Formwork?", "How can I start the server?"],
    "Use formwork-batch. It reads requests from a file and writes the answers to another one.": [
        "How do I run a batch?", "What is formwork-batch?", "Can I work offline?", "How do I answer many prompts from a file?",
        "How can I run many requests from a file?"],
    "Run formwork check with your schema. It prints what is enforced and what would be refused.": [
        "How do I check a schema?", "What does formwork check do?", "How do I know that my schema is supported?", "Is my schema supported?",
        "How can I check my schema?"],
    "Set stream to true, and the tokens arrive one by one as they are made.": [
        "How do I stream?", "Can I stream the answer?", "How does streaming work?", "How do I get tokens as they come?", "How can I stream tokens?"],
    "Prompts that begin alike share their blocks in the KV cache, so that the common part is computed once.": [
        "What is prefix caching?", "How does prefix caching work?", "Explain prefix caching.", "Why are repeated prompts faster?",
        "Tell me what prefix caching is."],
    "The server gives Prometheus metrics at the path /metrics.": [
        "Are there metrics?", "Where are the metrics?", "How do I monitor the server?", "How do I get metrics?", "Where can I find the metrics?"],
    "Ask the path /health. It answers 200 while the engine works.": [
        "How do I check that the server is alive?", "Is there a health check?", "What is the health endpoint?", "How do I check the health of the server?"],
    "The frontend starts a new engine core and goes on with the requests that were in flight.": [
        "What happens when the engine crashes?", "What if the core dies?", "Does it survive a crash?", "What happens if the engine core dies?"],
    "Formwork is written in Rust.": ["Which language is Formwork written in?", "Is Formwork written in Rust?", "What language is it written in?",
                                     "In which language is Formwork written?"],
    "Yes. Formwork runs on an ordinary processor with its own kernels, no graphics card needed.": [
        "Do I need a GPU?", "Does it run without a GPU?", "Can Formwork run on a CPU?", "Can I run Formwork without a graphics card?"],
    "Pass the folder of your model with the option --model.": [
        "How do I use another model?", "Can I use my own model?", "How do I load a model?", "How do I use my own checkpoint?", "How can I load my own model?"],
    "Set temperature to 0, and the most likely token is always taken.": [
        "What is greedy decoding?", "How do I get the same answer every time?", "How do I turn off sampling?", "What does temperature 0 do?",
        "How can I get greedy answers?"],
    "Set max_tokens. A constrained answer is still completed within this limit.": [
        "How do I limit the length?", "What is max_tokens?", "How do I make answers shorter?", "How can I limit the length of the answer?"],
    "I'm sorry, I don't know that. I am only a small model.": [
        "Who won the match yesterday?", "What is the meaning of life?", "Who is the president?", "What is the news today?",
        "How far is the moon?", "What time is it?", "Write a long story.", "Tell me about quantum physics.", "Who will win the election?"],
    "Why did the bracket cross the line? To close what it had opened.": ["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Tell a joke."],
}

HELD_OUT_QUESTIONS = {questions[-1] for questions in TOPICS.values()}
LEAD_INS = ["", "", "", "", "Please tell me: ", "Quick question: ", "Hi! ", "Hello, "]


def make(source: Source) -> Sample:
    if source.chance(0.15):
        name = source.value(FIRST_NAMES) if source.chance(0.5) else source.invent(invented.name)
        return Sample("chat", ask(source.template(GREETINGS).format(name=name)), f"Hello {name}! How can I help you?",
                      facts={"thought": "A greeting."})
    answer = source.choice(sorted(TOPICS))
    questions = TOPICS[answer]
    question = questions[-1] if source.held_out_templates else source.choice(questions[:-1])
    if len(question) > 20 and not source.held_out:
        question = source.choice(LEAD_INS) + question
    bare = question.rstrip("?.!")
    if not source.held_out and bare not in HELD_OUT_QUESTIONS and source.chance(0.15):
        question = bare
    return Sample("chat", ask(question), answer, facts={"thought": "I answer in a sentence."})


def judge(sample: Sample, text: str) -> bool:
    return text.strip() == sample.answer
