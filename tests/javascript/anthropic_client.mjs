// Uses /v1/messages as users of @anthropic-ai/sdk do. Argument: the base URL of /v1.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const baseURL = process.argv[2].replace(/\/v1$/, "");
const client = new Anthropic({ baseURL, apiKey: "secret", maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: "user", content: "What is Formwork?" }];

// A whole answer, and the same as a stream.
const ask = { model, messages, max_tokens: 80, temperature: 0 };
const whole = await client.messages.create(ask);
assert.equal(whole.stop_reason, "end_turn");
assert.ok(whole.content[0].text.startsWith("Formwork is"), JSON.stringify(whole));
const stream = client.messages.stream(ask);
let text = "";
stream.on("text", (delta) => (text += delta));
const final = await stream.finalMessage();
assert.equal(text, whole.content[0].text);
assert.deepEqual(final.usage, whole.usage);
const counted = await client.messages.countTokens({ model, messages });
assert.equal(counted.input_tokens, whole.usage.input_tokens);

// A tool whose schema zod made, with what agents' schemas have: a look-ahead in the pattern of a mail address,
// long strings, a URL.
const schema = z.object({
  city: z.string().max(65536),
  mail: z.email().optional(),
  page: z.url().optional(),
  days: z.int().min(1).max(7).default(1),
});
const tools = [
  { name: "get_weather", description: "Get the weather of a city", input_schema: z.toJSONSchema(schema, { io: "input" }) },
];
const asked = [{ role: "user", content: "What is the weather in Lisbon?" }];
for (const tool_choice of [{ type: "auto" }, { type: "any" }, { type: "tool", name: "get_weather" }]) {
  const request = { model, messages: asked, tools, tool_choice, max_tokens: 300, temperature: 0 };
  const answer = await client.messages.create(request);
  assert.equal(answer.stop_reason, "tool_use", JSON.stringify(answer));
  schema.parse(answer.content[0].input);
  const streamed = await client.messages.stream(request).finalMessage();
  assert.deepEqual(streamed.content[0].input, answer.content[0].input);
}

// Structured outputs.
const Car = z.object({ brand: z.string(), doors: z.literal([2, 4]) });
const car = await client.messages.parse({
  model,
  messages: [{ role: "user", content: "A car, please." }],
  max_tokens: 200,
  output_config: { format: zodOutputFormat(Car) },
});
Car.parse(car.parsed_output);

// Errors by class.
const nobody = new Anthropic({ baseURL, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(nobody.messages.create(ask), Anthropic.AuthenticationError);
await assert.rejects(client.messages.create({ ...ask, model: "other" }), Anthropic.NotFoundError);
await assert.rejects(client.messages.create({ ...ask, temprature: 1 }), Anthropic.BadRequestError);
