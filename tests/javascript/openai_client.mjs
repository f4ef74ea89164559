// Uses chat completions and Responses as users of the package openai do. Argument: the base URL of /v1.

import assert from "node:assert/strict";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const baseURL = process.argv[2];
const client = new OpenAI({ baseURL, apiKey: "secret", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What is Formwork?" }];

// A whole answer, and the same as a stream.
const ask = { model, messages, max_tokens: 80, temperature: 0 };
const whole = await client.chat.completions.create(ask);
assert.equal(whole.choices[0].finish_reason, "stop");
const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
let text = "";
stream.on("content", (delta) => (text += delta));
const final = await stream.finalChatCompletion();
assert.equal(text, whole.choices[0].message.content);
assert.deepEqual(final.usage, whole.usage);

// Structured outputs of a schema that zod made: parsed, and as a stream.
const Car = z.object({ brand: z.string().max(20), doors: z.literal([2, 4]), mail: z.email().nullable() });
const wanted = {
  model,
  messages: [{ role: "user", content: "A car, please." }],
  max_tokens: 200,
  response_format: zodResponseFormat(Car, "car"),
};
const car = await client.chat.completions.parse(wanted);
Car.parse(car.choices[0].message.parsed);
const streamed = await client.chat.completions.stream(wanted).finalChatCompletion();
Car.parse(streamed.choices[0].message.parsed);

// Tools: bound, called, answered.
const arguments_ = z.object({ city: z.string().max(65536) });
const asked = [{ role: "user", content: "What is the weather in Lisbon?" }];
const tool = zodFunction({ name: "get_weather", description: "Get the weather of a city", parameters: arguments_ });
const named = { type: "function", function: { name: "get_weather" } };
for (const tool_choice of ["auto", "required", named]) {
  const request = { model, messages: asked, tools: [tool], tool_choice, max_tokens: 300, temperature: 0 };
  const answer = await client.chat.completions.parse(request);
  const call = answer.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "get_weather");
  arguments_.parse(call.function.parsed_arguments);
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  const again = streamed.choices[0].message.tool_calls[0].function;
  assert.equal(again.arguments, call.function.arguments);
}
const seen = [];
const running = client.chat.completions.runTools({
  model,
  messages: asked,
  max_tokens: 300,
  temperature: 0,
  tools: [
    zodFunction({
      name: "get_weather",
      description: "Get the weather of a city",
      parameters: arguments_,
      function: ({ city }) => (seen.push(city), "sunny"),
    }),
  ],
}, { maxChatCompletions: 2 });
await running.done();
assert.deepEqual([...new Set(seen)], ["Lisbon"]);

// The Responses API.
const response = await client.responses.parse({
  model,
  input: "A car, please.",
  max_output_tokens: 200,
  text: { format: zodTextFormat(Car, "car") },
});
Car.parse(response.output_parsed);
const events = [];
for await (const event of await client.responses.create({ model, input: "What is Formwork?", stream: true })) {
  events.push(event.type);
}
assert.equal(events[0], "response.created");
assert.equal(events.at(-1), "response.completed");

// Errors by class.
const nobody = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(nobody.chat.completions.create(ask), OpenAI.AuthenticationError);
await assert.rejects(client.chat.completions.create({ ...ask, max_tokens: -1 }), OpenAI.BadRequestError);
await assert.rejects(client.chat.completions.create({ ...ask, model: "other" }), OpenAI.NotFoundError);

// A stream that is left.
const left = await client.chat.completions.create({ ...ask, stream: true, ignore_eos: true, max_tokens: 1000 });
for await (const _ of left) {
  left.controller.abort();
  break;
}
